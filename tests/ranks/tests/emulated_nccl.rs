//! NCCL beside a megakernel on emulated GPUs, with a library that does what NCCL does for the ranks of one process (`tests/emulator/nccl`): sums, and all that can
//! fail. What the library is told, and which one it is, is a process's: each failure has one of its own.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use maco::{Arguments, CudaGraph, Device, Error, PlanOptions, Schedule, Stream, Tensor, bf16};
use ranks::beside::{chosen, summed};
use support::{Value, World, alone, are_there, beside_others, number};

/// Two chunks of the numbers, and one of the sums.
const SIZES: [u64; 3] = [1100, 1024, 64];
const RANKS: u32 = 2;
/// Of a launch, in tests that come to it.
const DEADLINE: Duration = Duration::from_secs(2);
/// How much later an error may come: gates are opened by who waits, and work that does not end then has two seconds.
const LATER: Duration = Duration::from_secs(10);
/// Says that a process is a test's own.
const ALONE: &str = "NCCL_ALONE";

/// Whether driver and NCCL are the emulated ones.
fn is_emulated() -> bool {
    let emulated = are_there(RANKS) && Device::gpu(0).is_ok_and(|gpu| gpu.model().contains("emulated"));
    if !emulated {
        eprintln!("left out: needs two emulated GPUs");
    }
    emulated
}

/// Runs the named test in a process of its own with these variables; what it wrote. In that process: none.
fn by_itself(test: &str, variables: &[(&str, &str)]) -> Option<String> {
    if env::var_os(ALONE).is_some() {
        return None;
    }
    let _alone = alone();
    let begun = Instant::now();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).env(ALONE, "1");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{test} by itself with {variables:?}: {text}");
    eprintln!("{test} with {variables:?}: {:.1?}", begun.elapsed());
    Some(text)
}

/// What a launch that comes to its deadline is told: the device's time is not the host's, and what an aborted launch leaves behind races.
const TIMED: [(&str, &str); 3] = [("MACO_DEADLINE_SCALE", "1"), ("EMU_TICK", "1000"), ("EMU_RACES", "0")];

fn timed<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&TIMED, more].concat()
}

/// Row r of x, row c of w: small, with sums over K that are known.
fn of(rank: u32, launch: u64) -> [impl Fn(u64) -> i64; 2] {
    [u64::from(rank) + launch, 1 + launch].map(|salt| move |row: u64| ((row + salt) % 3) as i64 - 1)
}

fn planned(world: &World, options: &PlanOptions) -> Result<summed::Plan, Error> {
    let [m, n, k] = SIZES;
    summed::plan_with(&world.device, summed::Dims { M: m, N: n, K: k }, options)
}

struct Case<'a> {
    world: &'a World,
    plan: std::rc::Rc<summed::Plan>,
    tensors: [Tensor<bf16>; 2],
    numbers: Tensor<f32>,
    results: [Tensor<bf16>; 2],
    least: Tensor<f32>,
}

impl<'a> Case<'a> {
    fn new(world: &'a World, options: &PlanOptions) -> Case<'a> {
        let (device, [m, n, k]) = (&world.device, SIZES);
        let plan = planned(world, options).unwrap();
        let text = plan.graph().to_string();
        assert_eq!(text.matches("by NCCL beside the kernel").count(), 2, "{text}");
        assert_eq!([1, 3].map(|call: usize| plan.graph().calls[call].grid[0]), [1, 2], "{text}");
        let (halves, floats) = (|rows, columns| device.zeros::<bf16>([rows, columns]).unwrap(), || device.zeros::<f32>([m, n]).unwrap());
        let (tensors, results) = ([halves(m, k), halves(n, k)], [halves(m, n), halves(m, n)]);
        Case { world, plan: plan.into(), tensors, numbers: floats(), results, least: floats() }
    }

    fn fill(&mut self, launch: u64) {
        let ([m, n, k], rank) = (SIZES, self.world.communicator.rank());
        let [a, b] = of(rank, launch);
        let rows = |count: u64, of: &dyn Fn(u64) -> i64| -> Vec<bf16> {
            (0..count * k).map(|at| bf16::of(if at % k < 8 { of(at / k) } else { 0 })).collect()
        };
        self.tensors[0].upload_from(&rows(m, &a)).unwrap();
        self.tensors[1].upload_from(&rows(n, &b)).unwrap();
        self.numbers.upload_from(&(0..m * n).map(|at| number(rank, at, launch) as f32).collect::<Vec<_>>()).unwrap();
        let poison = vec![bf16::NAN; (m * n) as usize];
        self.results.iter_mut().for_each(|result| result.upload_from(&poison).unwrap());
        self.least.upload_from(&vec![f32::NAN; (m * n) as usize]).unwrap();
    }

    fn arguments(&mut self) -> Arguments<'_> {
        let ([x, w], [y, z]) = (&self.tensors, &mut self.results);
        Arguments::new().tensor(x).tensor(w).tensor_mut(y).tensor_mut(z).tensor(&self.numbers).tensor_mut(&mut self.least)
    }

    fn run(&mut self) -> Result<(), Error> {
        let ([x, w], [y, z]) = (&self.tensors, &mut self.results);
        self.plan.run(x, w, y, z, &self.numbers, &mut self.least).map(drop)
    }

    fn check(&self, launch: u64, what: &str) {
        let ([_, n, _], rank) = (SIZES, self.world.communicator.rank());
        let sums: Vec<_> = (0..RANKS).map(|rank| of(rank, launch)).collect();
        for (result, name) in self.results.iter().zip(["y", "z"]) {
            for (at, value) in (0..).zip(result.download().unwrap()) {
                let expected = bf16::of(sums.iter().map(|[a, b]| 8 * a(at / n) * b(at % n)).sum());
                assert!(value == expected, "{what}, launch {launch}, rank {rank}, {name} at {at}: {value:?}, not {expected:?}");
            }
        }
        for (at, value) in (0..).zip(self.least.download().unwrap()) {
            let expected = (0..RANKS).map(|rank| number(rank, at, launch)).min().unwrap() as f32;
            assert!(value == expected, "{what}, launch {launch}, rank {rank}, least at {at}: {value}, not {expected}");
        }
    }

    fn step(&mut self, launch: u64, what: &str) {
        self.fill(launch);
        self.run().unwrap();
        self.check(launch, what);
    }
}

/// Twice, bound, and in a graph; without a race.
#[test]
#[ignore = "gpu"]
fn gpu_sums() {
    if !is_emulated() || env::var_os(ALONE).is_some() {
        return;
    }
    support::on_gpus(RANKS, Schedule::Static, |world| {
        let mut case = Case::new(world, &world.options);
        (0..2).for_each(|launch| case.step(launch, "run"));
        let stream = Stream::new(&world.device).unwrap();
        let plan = case.plan.clone();
        case.fill(2);
        {
            let bound = plan.bind(case.arguments()).unwrap();
            (0..2).for_each(|_| bound.launch_on(&stream).unwrap());
            stream.synchronize().unwrap();
            plan.check().unwrap();
        }
        case.check(2, "bound");
        let bound = plan.bind(case.arguments()).unwrap();
        let graph = CudaGraph::capture::<Error>(&stream, |stream| bound.launch_on(stream)).unwrap();
        for launch in 3..5 {
            case.fill(launch);
            graph.launch(&stream).unwrap();
            stream.synchronize().unwrap();
            plan.check().unwrap();
            case.check(launch, "graph");
        }
    });
}

/// What NCCL may do by itself: nothing where GPUs have access to each other's memory, and all multiprocessors are the workers'; without it what it can, and eight are its own.
/// Where it may not, the kernel would, and cannot.
#[test]
#[ignore = "gpu"]
fn gpu_nccl_is_chosen_without_peers() {
    const TEST: &str = "gpu_nccl_is_chosen_without_peers";
    if !is_emulated() {
        return;
    }
    if env::var_os(ALONE).is_none() {
        return ["0", "1"].into_iter().for_each(|none| drop(by_itself(TEST, &[("EMU_NO_PEERS", none)])));
    }
    let peers = env::var("EMU_NO_PEERS").unwrap() == "0";
    beside_others(RANKS, Schedule::Static, |world| {
        let (device, [m, n, _]) = (&world.device, SIZES);
        let plan = |options: &PlanOptions| chosen::plan_with(device, chosen::Dims { M: m, N: n }, options);
        let options = world.options.clone().comm_sms(8);
        let planned = plan(&options).unwrap();
        let (way, workers) = (planned.graph().exchange(1).unwrap(), planned.workers());
        if peers {
            assert!(!way.contains("NCCL"), "{way}");
            return assert_eq!(workers, device.workers());
        }
        assert_eq!((&*way, workers), ("by NCCL beside the kernel (only way)", device.workers() - 8));
        let own = |rank: u32| (0..m * n).map(|at| number(rank, at, 0)).collect::<Vec<i64>>();
        let numbers = |numbers: Vec<i64>| numbers.into_iter().map(bf16::of).collect::<Vec<bf16>>();
        let x = device.upload(&numbers(own(world.communicator.rank())), [m, n]).unwrap();
        let mut y = device.zeros::<bf16>([m, n]).unwrap();
        planned.run(&x, &mut y).unwrap();
        let sums = own(0).into_iter().zip(own(1)).map(|(a, b)| a + b).collect();
        assert!(y.download().unwrap() == numbers(sums));
        let error = plan(&options.choose_nccl(false)).err().unwrap().to_string();
        assert!(error.contains("there is no peer access between the two"), "{error}");
    });
}

/// Launches until one fails on every rank; each says so in time, in these words of its own. Then all recover and go on.
fn until_it_fails(words: &[&str; 2]) {
    beside_others(RANKS, Schedule::Static, |world| {
        let mut case = Case::new(world, &world.options.clone().deadline(DEADLINE));
        let mut launch = 0;
        let (error, took) = loop {
            assert!(launch < 5, "nothing failed");
            case.fill(launch);
            let begun = Instant::now();
            match case.run() {
                Ok(()) => case.check(launch, "before"),
                Err(error) => break (error.to_string(), begun.elapsed()),
            }
            launch += 1;
        };
        let rank = world.communicator.rank();
        assert!(launch > 0 && took < DEADLINE + LATER, "rank {rank}, launch {launch}, {took:?}: {error}");
        assert!(error.contains(words[rank as usize]), "rank {rank}: {error}");
        case.plan.recover().unwrap();
        (10..12).for_each(|launch| case.step(launch, "behind it"));
    });
}

const HANGS: &str = "MACO0047: hang in megakernel `summed`: task `";

#[test]
#[ignore = "gpu"]
fn gpu_a_rank_that_does_not_come() {
    if !is_emulated() || by_itself("gpu_a_rank_that_does_not_come", &timed(&[])).is_some() {
        return;
    }
    beside_others(RANKS, Schedule::Static, |world| {
        let mut case = Case::new(world, &world.options.clone().deadline(DEADLINE));
        case.step(0, "before");
        if world.communicator.rank() == 0 {
            let begun = Instant::now();
            let error = case.run().unwrap_err().to_string();
            assert!(error.starts_with(HANGS) && error.contains("all_reduce"), "{error}");
            assert!(begun.elapsed() < DEADLINE + LATER, "{:?}: {error}", begun.elapsed());
        }
        case.plan.recover().unwrap();
        (1..3).for_each(|launch| case.step(launch, "behind it"));
    });
}

/// The communicator fails on both while a chunk is under way.
#[test]
#[ignore = "gpu"]
fn gpu_a_remote_error_ends_launches() {
    if is_emulated() && by_itself("gpu_a_remote_error_ends_launches", &timed(&[("FAKE_NCCL_FAULT", "1:9:remote")])).is_none() {
        until_it_fails(&["MACO00"; 2]);
    }
}

/// As where a rank is lost while a chunk is under way.
#[test]
#[ignore = "gpu"]
fn gpu_a_chunk_that_does_not_end_is_given_up() {
    if is_emulated() && by_itself("gpu_a_chunk_that_does_not_end_is_given_up", &timed(&[("FAKE_NCCL_FAULT", "1:9:endless")])).is_none() {
        until_it_fails(&[HANGS; 2]);
    }
}

/// A call of one rank fails, and the others have queued theirs: its communicator ends, and all make a new one.
#[test]
#[ignore = "gpu"]
fn gpu_a_call_that_fails() {
    if is_emulated() && by_itself("gpu_a_call_that_fails", &timed(&[("FAKE_NCCL_FAULT", "1:10:3")])).is_none() {
        until_it_fails(&[HANGS, "NCCL cannot exchange chunks beside it"]);
    }
}

/// The library under another name, without a function.
fn without(function: &str) -> PathBuf {
    let folders = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let library = env::split_paths(&folders).map(|folder| folder.join("libnccl.so.2")).find(|file| file.is_file());
    let mut bytes = fs::read(library.expect("the emulated NCCL is in LD_LIBRARY_PATH")).unwrap();
    let name = [b"\0", function.as_bytes(), b"\0"].concat();
    let places: Vec<usize> = (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(&name)).collect();
    assert!(!places.is_empty(), "no `{function}` in the library");
    places.into_iter().for_each(|at| bytes[at + 1] = b'x');
    let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libnccl_without_{function}.{}.so", std::process::id()));
    fs::write(&new, bytes).unwrap();
    new
}

/// A library that is missing, old or incomplete: planning fails on all ranks, with one error.
#[test]
#[ignore = "gpu"]
fn gpu_libraries_that_will_not_do_are_named() {
    const TEST: &str = "gpu_libraries_that_will_not_do_are_named";
    if !is_emulated() {
        return;
    }
    if env::var_os(ALONE).is_none() {
        let incomplete = without("ncclCommAbort");
        let cases = [
            ("MACO_NCCL", "/no/such/libnccl.so", "NCCL was not found"),
            ("FAKE_NCCL_VERSION", "21805", "NCCL 2.18.5 is too old: `nccl-sys` needs 2.19.3"),
            ("MACO_NCCL", incomplete.to_str().unwrap(), "NCCL 2.28.9 has no function `ncclCommAbort`"),
        ];
        for (variable, value, told) in cases {
            let text = by_itself(TEST, &[(variable, value)]).unwrap();
            let said: Vec<&str> = text.split("<said>").skip(1).map(|rest| rest.split_once("</said>").unwrap().0).collect();
            assert!(said.len() == RANKS as usize && said[0] == said[1], "{said:#?}");
            assert!(said[0].starts_with("MACO0096: ") && said[0].contains(told), "{variable}={value}: {}", said[0]);
        }
        return fs::remove_file(incomplete).unwrap();
    }
    beside_others(RANKS, Schedule::Static, |world| {
        let error = planned(world, &world.options).err().unwrap();
        // In one piece.
        eprintln!("{}", format_args!("<said>{error}</said>"));
    });
}
