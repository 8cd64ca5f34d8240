//! Plans for any number of workers run or are refused with a code, and what holds multiprocessors makes a launch late, not wrong.
mod support;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kernels::dense;
use maco::{Arguments, CudaGraph, Device, Error, PlanOptions, Schedule, Stream, Tensor, bf16};
use support::gpu::Neighbour;
use support::hangs::SCHEDULES;
use support::rounds::left_out;
use support::{Matrix, poisoned};

on_every_device!(any_number_of_workers, numbers_that_cannot_be);

const DIMS: dense::mlp::Dims = dense::mlp::Dims { M: 130, K: 40, H: 136 };

/// One row of tiles in two columns at least, of what is hidden and of the result: of two workers each waits for the other.
const CROSSED: dense::mlp::Dims = dense::mlp::Dims { M: 60, K: 400, H: 400 };

struct Mlp {
    plan: dense::mlp::Plan,
    tensors: [Tensor<bf16>; 3],
    expected: Matrix,
}

impl Mlp {
    fn new(device: &Device, options: &PlanOptions) -> Result<Mlp, Error> {
        Mlp::of(DIMS, device, options)
    }

    fn of(dims: dense::mlp::Dims, device: &Device, options: &PlanOptions) -> Result<Mlp, Error> {
        let (m, h, k) = (dims.M as usize, dims.H as usize, dims.K as usize);
        // One input at a time: no sum is rounded.
        let x = Matrix::new(m, k, |r, c| if r % k == c { 3.0 } else { 0.0 });
        let (up, down) = (Matrix::sparse(h, k, 2), Matrix::sparse(k, h, 3));
        let plan = dense::mlp::plan_with(device, dims, options)?;
        let tensors = [x.upload(device), up.upload(device), down.upload(device)];
        Ok(Mlp { plan, tensors, expected: x.times(&up.t()).map(support::gelu).bf16().times(&down.t()) })
    }

    fn run(&self) -> Result<Tensor<bf16>, Error> {
        let mut y = poisoned::<bf16>(self.plan.device(), self.expected.rows, self.expected.cols);
        let [x, up, down] = &self.tensors;
        self.plan.run(x, up, down, &mut y).map(|_| y)
    }

    #[track_caller]
    fn right(&self, what: &str) {
        self.expected.within(&self.run().unwrap(), 0.02, what);
    }
}

fn any_number_of_workers(device: &Device) {
    // Many threads, where they are not the multiprocessors of a GPU.
    let many = if device.is_gpu() { device.clone() } else { Device::cpu_with(16) };
    for device in [device, &many] {
        let most = device.workers();
        for workers in [1, 2, 64, most.saturating_sub(1), most] {
            if !(1..=most).contains(&workers) {
                continue;
            }
            let pushed = [1, workers].into_iter().flat_map(|n| [Schedule::SpareWarps(n), Schedule::Schedulers(n)]);
            for schedule in [Schedule::Static, Schedule::Tickets].into_iter().chain(pushed) {
                let result = Mlp::new(device, &PlanOptions::new().workers(workers).schedule(schedule));
                match (schedule, result) {
                    (Schedule::Schedulers(n), Err(error)) if device.is_gpu() && workers + n > most => {
                        assert_eq!(error.code(), 39, "{error}")
                    }
                    (_, result) => (0..2).for_each(|_| result.as_ref().unwrap().right(&format!("{workers} workers, {schedule}"))),
                }
            }
        }
    }
}

/// The code, and text that says what was found.
#[track_caller]
fn refused(result: Result<Mlp, Error>, codes: &[u16], found: u32) {
    let Err(error) = result else { panic!("planned with {found}") };
    assert!(codes.contains(&error.code()) && error.to_string().contains("help: "), "{error}");
    assert!(error.to_string().contains(&found.to_string()), "`{found}` is missing: {error}");
}

fn numbers_that_cannot_be(device: &Device) {
    let most = device.workers();
    let plan = |schedule: Schedule, workers: u32| Mlp::new(device, &PlanOptions::new().schedule(schedule).workers(workers));
    for schedule in SCHEDULES {
        for workers in [most + 1, 2 * most + 7, u32::MAX] {
            refused(plan(schedule, workers), &[39], workers);
        }
        refused(plan(schedule, 0), &[21], 0);
    }
    for none in [Schedule::Schedulers(0), Schedule::SpareWarps(0)] {
        refused(plan(none, 1), &[21], 0);
        refused(Mlp::new(device, &PlanOptions::new().schedule(none)), &[21], 0);
    }
    for workers in [1, most / 4, most].into_iter().filter(|&workers| workers > 0) {
        for schedulers in [workers + 1, workers.saturating_add(300), u32::MAX] {
            refused(plan(Schedule::SpareWarps(schedulers), workers), &[21], schedulers);
            // Together they do not fit, or there are more than workers.
            refused(plan(Schedule::Schedulers(schedulers), workers), &[21, 39], schedulers);
        }
    }
    if device.is_gpu() {
        refused(plan(Schedule::Schedulers(1), most), &[39], most);
        // Nothing is left for workers.
        for schedulers in [most - 1, most, most + 1] {
            refused(Mlp::new(device, &PlanOptions::new().schedule(Schedule::Schedulers(schedulers))), &[21, 39], schedulers);
        }
        Mlp::new(device, &PlanOptions::new().schedule(Schedule::Schedulers(most / 2))).unwrap().right("half of all schedule");
    }
}

const HELD: Duration = Duration::from_millis(100);

/// Four multiprocessors are taken when the launch comes: it waits, whoever launches, and is right.
#[test]
#[ignore = "gpu"]
fn gpu_a_neighbour_on_four_multiprocessors() {
    let device = Device::gpu(0).expect("a GPU");
    let neighbour = Neighbour::new();
    let stream = Stream::new(&device).unwrap();
    let few = PlanOptions::new().workers(device.workers() - 4);
    for (options, all) in SCHEDULES.map(|schedule| (PlanOptions::new().schedule(schedule), true)).into_iter().chain([(few, false)]) {
        let mlp = Mlp::new(&device, &options).unwrap();
        let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
        let [x, up, down] = &mlp.tensors;
        let bound = mlp.plan.bind(Arguments::new().tensor(x).tensor(up).tensor(down).tensor_mut(&mut y)).unwrap();
        let graph = CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap();
        mlp.right("alone");
        // Made before: memory of a GPU may be had only between launches.
        let mut z = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);

        neighbour.hold(4, HELD);
        let begin = Instant::now();
        mlp.plan.run(x, up, down, &mut z).unwrap();
        let took = begin.elapsed();
        assert!(took < HELD * 5, "took {took:?}");
        assert!(!all || !neighbour.holds(), "{options:?} ran before there was room for all of it");
        mlp.expected.within(&z, 0.02, "beside a neighbour");

        neighbour.hold(4, HELD);
        graph.launch(&stream).unwrap();
        stream.synchronize().unwrap();
        mlp.plan.check().unwrap();
        mlp.expected.within(&y, 0.02, "replayed beside a neighbour");
        println!("{options:?}: {took:?} beside a neighbour of {HELD:?}");
    }
}

/// A deadline shorter than the neighbour's stay counts from the start of the launch, not from its place in the queue; if some CTAs
/// start without the others, they say so, and nothing is lost.
#[test]
#[ignore = "gpu"]
fn gpu_a_neighbour_that_outstays_the_deadline() {
    let device = Device::gpu(0).expect("a GPU");
    let neighbour = Neighbour::new();
    for schedule in SCHEDULES {
        let mlp = Mlp::new(&device, &PlanOptions::new().schedule(schedule).deadline(HELD / 4)).unwrap();
        mlp.right("alone");
        neighbour.hold(4, HELD);
        match mlp.run() {
            Ok(y) => mlp.expected.within(&y, 0.02, "beside a neighbour"),
            Err(error) => {
                println!("{schedule}: {error}");
                assert_eq!(error.code(), 47, "{error}");
                mlp.plan.recover().unwrap();
            }
        }
        mlp.right("afterwards");
    }
}

/// The host's watchdog does not take a launch that cannot begin for one that is lost.
#[test]
#[ignore = "gpu"]
fn gpu_a_neighbour_that_outstays_the_watchdog() {
    // The watchdog looks every deadline and a half second, and gives up at the second look that sees nothing new.
    const LONG: Duration = Duration::from_millis(1800);
    let device = Device::gpu(0).expect("a GPU");
    let neighbour = Neighbour::new();
    let mlp = Mlp::new(&device, &PlanOptions::new().deadline(HELD)).unwrap();
    mlp.right("alone");
    neighbour.hold(4, LONG);
    let begin = Instant::now();
    mlp.right("behind a neighbour");
    assert!(begin.elapsed() > LONG / 2, "the neighbour did not hold it up");
}

/// A plain launch runs as a cooperative one does, by itself, in a graph, and beside a neighbour that outstays several deadlines.
#[test]
#[ignore = "gpu"]
fn gpu_plain_launches() {
    let device = Device::gpu(0).expect("a GPU");
    let neighbour = Neighbour::new();
    let stream = Stream::new(&device).unwrap();
    // Whoever has nothing left to do leaves room for others.
    let few = (PlanOptions::new().workers(2), device.workers() - 1);
    for ((options, held), schedule) in
        [(PlanOptions::new(), 4), few].into_iter().flat_map(|case| SCHEDULES.map(|schedule| (case.clone(), schedule)))
    {
        let two = held > 4;
        let mlp = Mlp::of(CROSSED, &device, &options.schedule(schedule).deadline(HELD / 4).cooperative(false)).unwrap();
        let [mut y, mut z] = [(); 2].map(|()| poisoned::<bf16>(&device, mlp.expected.rows, mlp.expected.cols));
        let [x, up, down] = &mlp.tensors;
        let bound = mlp.plan.bind(Arguments::new().tensor(x).tensor(up).tensor(down).tensor_mut(&mut y)).unwrap();
        let graph = CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap();
        (0..20).for_each(|_| mlp.right("alone"));

        neighbour.hold(held, HELD);
        mlp.plan.run(x, up, down, &mut z).unwrap();
        // With tickets, who is there takes what the absent one would.
        assert!(!two || schedule == Schedule::Tickets || !neighbour.holds(), "{schedule} ended before there was room");
        mlp.expected.within(&z, 0.02, "beside a neighbour");

        neighbour.hold(held, HELD);
        for _ in 0..3 {
            graph.launch(&stream).unwrap();
        }
        stream.synchronize().unwrap();
        mlp.plan.check().unwrap();
        mlp.expected.within(&y, 0.02, "replayed beside a neighbour");
    }
}

/// A plain launch that does not get room for CTAs that others wait for says so, and nothing of it is left.
#[test]
#[ignore = "gpu"]
fn gpu_a_plain_launch_without_room() {
    let device = Device::gpu(0).expect("a GPU");
    let neighbour = Neighbour::new();
    for schedule in SCHEDULES {
        let options = PlanOptions::new().workers(2).schedule(schedule).deadline(HELD / 50).cooperative(false);
        let mlp = Mlp::of(CROSSED, &device, &options).unwrap();
        mlp.right("alone");
        neighbour.hold(device.workers() - 1, HELD);
        match mlp.run() {
            Ok(y) if schedule == Schedule::Tickets => mlp.expected.within(&y, 0.02, "beside a neighbour"),
            Ok(_) => panic!("{schedule} ran without room"),
            Err(error) => {
                println!("{schedule}: {error}");
                assert_eq!(error.code(), 66, "{error}");
                let ctas = if schedule == Schedule::Schedulers(1) { 3 } else { 2 };
                assert!(error.to_string().contains(&format!("1 of the {ctas} CTAs of megakernel `mlp`")), "{error}");
                assert_eq!(mlp.run().map(drop).unwrap_err().code(), 48);
                mlp.plan.recover().unwrap();
            }
        }
        mlp.right("afterwards");
    }
}

/// Says to the program below that it is the other process.
const OTHER: &str = "MACO_TESTS_OTHER_PROCESS";
/// Longer than a time slice, and much shorter than all that the other process has.
const SHORT: Duration = Duration::from_millis(5);

const SLICES: &str = "gpu_time_slices_of_another_process";

/// Another process keeps all multiprocessors busy, so that launches get the GPU in slices, or part of it (MPS): time in which a launch does not
/// run counts as little as any wait that is not looked at. Nothing is reported, and all is right.
#[test]
#[ignore = "gpu"]
fn gpu_time_slices_of_another_process() {
    if std::env::var_os(OTHER).is_some() {
        let neighbour = Neighbour::new();
        let multiprocessors = Device::gpu(0).expect("a GPU").workers();
        loop {
            // Until it is killed.
            neighbour.hold(multiprocessors, HELD);
            println!("holds");
            while neighbour.holds() {
                std::thread::yield_now();
            }
        }
    }
    let device = Device::gpu(0).expect("a GPU");
    let plans = SCHEDULES.map(|schedule| Mlp::new(&device, &PlanOptions::new().schedule(schedule).deadline(SHORT)).unwrap());
    let longest = |rounds: u32| {
        let mut longest = Duration::ZERO;
        for _ in 0..rounds {
            for mlp in &plans {
                let begin = Instant::now();
                mlp.right("beside another process");
                longest = longest.max(begin.elapsed());
            }
        }
        longest
    };
    let alone = longest(5);

    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", SLICES, "--nocapture"]).env(OTHER, "1").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut other = Killed(command.spawn().unwrap());
    let mut lines = BufReader::new(other.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("holds")), "the other process does not start");
    let beside = longest(10);
    println!("longest run alone {alone:?}, beside another process {beside:?}, deadline {SHORT:?}");
    assert!(other.0.try_wait().unwrap().is_none(), "the other process has ended");
}

/// Runs one test of this program in a process of its own, where it passes.
#[track_caller]
fn passes(test: &str, environment: impl IntoIterator<Item = (&'static str, OsString)> + Clone) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", test, "--nocapture"]).envs(environment.clone());
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let environment: Vec<_> = environment.into_iter().collect();
    assert!(output.status.success() && text.contains("1 passed"), "{test} in {environment:?}: {text}");
}

/// How many multiprocessors MACO has; see `Device::workers`.
const MULTIPROCESSORS: &str = "MACO_MULTIPROCESSORS";

const FEWER: &str = "gpu_fewer_multiprocessors";

/// Of a part of a GPU, as MIG makes them and `MACO_MULTIPROCESSORS` says, plans get no more than there is: any number of workers runs or is refused.
#[test]
#[ignore = "gpu"]
fn gpu_fewer_multiprocessors() {
    let device = Device::gpu(0).expect("a GPU");
    let workers = device.workers();
    if std::env::var_os(OTHER).is_some() {
        assert_eq!(std::env::var(MULTIPROCESSORS).unwrap(), workers.to_string());
        any_number_of_workers(&device);
        // Numbers between those of schedulers and of workers take a few of both.
        if workers > 3 {
            numbers_that_cannot_be(&device);
        }
        return;
    }
    for left in [1, 2, 7, 16, workers / 2].into_iter().filter(|left| (1..workers).contains(left)) {
        passes(FEWER, [(OTHER, "1".into()), (MULTIPROCESSORS, left.to_string().into())]);
    }
}

/// The same where both processes share the GPU by NVIDIA's Multi-Process Service, and any number of workers where the service gives them
/// half of the multiprocessors. Left out where the service is not installed.
#[test]
#[ignore = "gpu"]
fn gpu_part_of_a_gpu_by_mps() {
    let Some(service) = Service::start() else {
        return left_out("part of a GPU by MPS", &format!("there is no {CONTROL} here"));
    };
    for (test, percentage) in [(SLICES, None), ("gpu::any_number_of_workers", None), ("gpu::any_number_of_workers", Some("50"))] {
        let percentage = percentage.map(|percentage| ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", percentage.into()));
        passes(test, [("CUDA_MPS_PIPE_DIRECTORY", service.pipe().into())].into_iter().chain(percentage));
    }
}

/// NVIDIA's control program of the Multi-Process Service.
const CONTROL: &str = "nvidia-cuda-mps-control";

/// A service of our own, in a directory of its own; ended when nobody needs it any more.
struct Service(std::path::PathBuf);

impl Service {
    /// `None` if it is not installed.
    fn start() -> Option<Service> {
        let service = Service(std::env::temp_dir().join(format!("maco-mps-{}", std::process::id())));
        std::fs::create_dir_all(service.pipe()).unwrap();
        let status = service.command().arg("-d").stdin(Stdio::null()).status();
        match status {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            status => {
                assert!(status.unwrap().success(), "{CONTROL} does not start");
                Some(service)
            }
        }
    }

    fn pipe(&self) -> std::path::PathBuf {
        self.0.join("pipe")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(CONTROL);
        command.env("CUDA_MPS_PIPE_DIRECTORY", self.pipe()).env("CUDA_MPS_LOG_DIRECTORY", &self.0);
        command
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Ok(mut child) = self.command().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            if let Some(stdin) = &mut child.stdin {
                let _ = stdin.write_all(b"quit\n");
            }
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when nobody waits for it any more.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
