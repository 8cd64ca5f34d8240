//! Launch after launch in every way: waited for, on streams, as CUDA graphs, from several threads; tasks on their own, raw pointers.
mod support;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use kernels::launches::{maps, step};
use kernels::{dense, inputs, regions, split};
use maco::__private::{DeviceModule, Embedded, TaskSet};
use maco::{Arguments, CudaGraph, Device, Error, Fault, PlanOptions, Stream, TaskGraph, Tensor, bf16};
use support::foreign::Foreign;
use support::hangs::{SCHEDULES, SHORT, scaled};
use support::rounds::{left_out, rounds, short};
use support::{Matrix, poisoned};

const DIMS: dense::mlp::Dims = dense::mlp::Dims { M: 130, K: 136, H: 264 };

struct Case {
    x: Tensor<bf16>,
    up: Tensor<bf16>,
    down: Tensor<bf16>,
    expected: Matrix,
}

fn case(device: &Device, seed: u64) -> Case {
    let (m, k, h) = (DIMS.M as usize, DIMS.K as usize, DIMS.H as usize);
    let (x, up, down) = (Matrix::integers(m, k, seed, 1), Matrix::sparse(h, k, seed + 1), Matrix::sparse(k, h, seed + 2));
    let expected = x.times(&up.t()).map(support::gelu).bf16().times(&down.t());
    Case { x: x.upload(device), up: up.upload(device), down: down.upload(device), expected }
}

/// Two captured graphs of one plan over different arguments, replayed in turn with plain runs between them.
#[test]
#[ignore = "gpu"]
fn gpu_graphs_of_one_plan() {
    let device = Device::gpu(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let plan = dense::mlp::plan(&device, DIMS).unwrap();
    let (a, b) = (case(&device, 1), case(&device, 9));
    let mut outputs = [(); 2].map(|()| poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize));
    let graphs: Vec<CudaGraph> = [&a, &b]
        .into_iter()
        .zip(&mut outputs)
        .map(|(case, y)| {
            let bound = plan.bind(Arguments::new().tensor(&case.x).tensor(&case.up).tensor(&case.down).tensor_mut(y)).unwrap();
            CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap()
        })
        .collect();
    let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
    for round in 0..rounds(200) {
        graphs[round % 2].launch(&stream).unwrap();
        if round % 5 == 0 {
            plan.run(&a.x, &a.up, &a.down, &mut y).unwrap();
        }
    }
    stream.synchronize().unwrap();
    plan.check().unwrap();
    a.expected.within(&outputs[0], 0.02, "first graph");
    b.expected.within(&outputs[1], 0.02, "second graph");
    a.expected.within(&y, 0.02, "plain run");
}

#[test]
#[ignore = "gpu"]
fn gpu_runs_on_a_stream() {
    let device = Device::gpu(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let plan = dense::mlp::plan(&device, DIMS).unwrap();
    let case = case(&device, 3);
    let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
    plan.run_on(&stream, &case.x, &case.up, &case.down, &mut y).unwrap().wait().unwrap();
    case.expected.within(&y, 0.02, "run_on");
}

/// Elements of `inputs::stalled`, and milliseconds that a launch takes.
const STALLED: (usize, u32) = (256 * 64, 20);
/// How long a stream is kept from going on, so that whatever does not wait for it comes first.
const LATE: Duration = Duration::from_millis(40);

/// Three tensors of somebody else's work around a launch.
struct Around {
    given: Tensor<f32>,
    x: Tensor<f32>,
    y: Tensor<f32>,
    z: Tensor<f32>,
}

impl Around {
    fn new(device: &Device) -> Around {
        let data: Vec<f32> = (0..STALLED.0).map(|n| n as f32).collect();
        let [given, x, y, z] = [(); 4].map(|()| device.upload(&data, [STALLED.0]).unwrap());
        Around { given, x, y, z }
    }

    /// Nothing is where it will be.
    fn poison(&mut self) {
        for tensor in [&mut self.x, &mut self.y, &mut self.z] {
            tensor.upload_from(&[-1.0; STALLED.0]).unwrap();
        }
    }

    /// Queues late work that `launch`, y = x, needs, and behind it what takes its result and then spoils it.
    fn queue<R>(&mut self, foreign: &Foreign, launch: impl FnOnce(&Tensor<f32>, &mut Tensor<f32>) -> R) -> R {
        foreign.late(LATE);
        foreign.copy(&self.given, &mut self.x);
        let launched = launch(&self.x, &mut self.y);
        foreign.copy(&self.y, &mut self.z);
        foreign.fill(&mut self.y, -2.0);
        launched
    }

    /// The launch saw what was queued before it, and what was queued behind it saw the launch.
    #[track_caller]
    fn right(&self, what: &str) {
        assert_eq!(self.z.download().unwrap(), self.given.download().unwrap(), "{what}");
        assert!(self.y.download().unwrap().iter().all(|&v| v == -2.0), "{what} came behind what is queued behind it");
    }
}

/// A launch on a stream that is not MACO's, the default ones among them, comes behind what is queued there before and in front of what is queued
/// later: queued, bound, and in graphs of either library.
#[test]
#[ignore = "gpu"]
fn gpu_streams_of_somebody_else() {
    let device = Device::gpu(0).unwrap();
    let all = Foreign::all();
    let own = Stream::new(&device).unwrap();
    let plan = inputs::stalled::plan(&device, inputs::stalled::Dims { N: STALLED.0 as u64 }).unwrap();
    let mut around = Around::new(&device);
    let bound = plan.bind(Arguments::new().tensor(&around.x).scalar(STALLED.1).tensor_mut(&mut around.y)).unwrap();
    let launch = CudaGraph::capture(&own, |own| bound.launch_on(own)).unwrap();
    for foreign in &all {
        let stream = foreign.borrowed(&device);
        let check = |around: &mut Around, how: &str, queue: &dyn Fn(&mut Around)| {
            around.poison();
            queue(around);
            foreign.synchronize();
            plan.check().unwrap();
            around.right(&format!("{how} on {}", foreign.name));
        };
        check(&mut around, "queued", &|around| {
            around.queue(foreign, |x, y| plan.run_on(&stream, x, STALLED.1, y)).map(drop).unwrap();
        });
        check(&mut around, "bound", &|around| around.queue(foreign, |_, _| bound.launch_on(&stream)).unwrap());
        check(&mut around, "replayed", &|around| around.queue(foreign, |_, _| launch.launch(&stream)).unwrap());
        if foreign.is_its_own() {
            let captured = CudaGraph::capture(&stream, |stream| around.queue(foreign, |_, _| bound.launch_on(stream))).unwrap();
            let theirs = foreign.capture(|| around.queue(foreign, |_, _| bound.launch_on(&stream)).unwrap());
            for _ in 0..2 {
                check(&mut around, "captured", &|_| captured.launch(&stream).unwrap());
                check(&mut around, "captured by the library", &|_| theirs.launch().unwrap());
            }
        }
    }
}

/// Launches keep their order on streams of every kind, each another one than the launch before: each reads what that one wrote, and the first
/// is late.
#[test]
#[ignore = "gpu"]
fn gpu_launches_keep_their_order_on_streams_of_somebody_else() {
    let device = Device::gpu(0).unwrap();
    let all = Foreign::all();
    let borrowed = all.iter().map(|foreign| foreign.borrowed(&device));
    let streams: Vec<Stream> = borrowed.chain([Stream::new(&device).unwrap()]).collect();
    let plan = inputs::stalled::plan(&device, inputs::stalled::Dims { N: STALLED.0 as u64 }).unwrap();
    let data: Vec<f32> = (0..STALLED.0).map(|n| n as f32).collect();
    let mut tensors = vec![device.upload(&data, [STALLED.0]).unwrap()];
    tensors.extend((0..2 * streams.len()).map(|_| device.upload(&[-1f32; STALLED.0], [STALLED.0]).unwrap()));
    all[0].late(LATE);
    for n in 0..tensors.len() - 1 {
        let (from, to) = tensors.split_at_mut(n + 1);
        drop(plan.run_on(&streams[n % streams.len()], &from[n], 1, &mut to[0]).unwrap());
    }
    for (n, tensor) in tensors.iter().enumerate().rev() {
        assert_eq!(tensor.download().unwrap(), data, "launch {n}");
    }
    plan.check().unwrap();
}

/// No graph can be captured from the default stream: the driver says so, and launches go on.
#[test]
#[ignore = "gpu"]
fn gpu_the_default_stream_is_not_captured() {
    let device = Device::gpu(0).unwrap();
    let stream = Stream::default_of(&device);
    let plan = dense::mlp::plan(&device, DIMS).unwrap();
    let case = case(&device, 3);
    let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
    let bound = plan.bind(arguments(&case, &mut y)).unwrap();
    let error = CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap_err();
    assert!(error.code() == 50 && error.to_string().contains("cuStreamBeginCapture"), "{error}");
    bound.launch_on(&stream).unwrap();
    stream.synchronize().unwrap();
    plan.check().unwrap();
    case.expected.within(&y, 0.02, "on the default stream");
}

/// Launches that each read what the last one wrote, on fewer multiprocessors than there are, so that the next one may begin beside it: none reads
/// what is not there yet.
#[test]
#[ignore = "gpu"]
fn gpu_launches_wait_for_the_one_before() {
    let dims = step::Dims { M: if short() { 256 } else { 4096 }, N: 1024 };
    let device = Device::gpu(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let first: Vec<u32> = (0..dims.M as u32 * dims.N as u32).collect();
    let pairs = rounds(10);
    for (cooperative, dependent) in [(true, true), (false, true), (true, false), (false, false)] {
        let options = PlanOptions::new().workers(device.workers() / 3).cooperative(cooperative).dependent_launch(dependent);
        // Two, since the launches of one would wait for each other's state.
        let plans = [(); 2].map(|()| step::plan_with(&device, dims, &options).unwrap());
        let mut x = device.upload(&first, [dims.M, dims.N]).unwrap();
        let mut y = device.zeros::<u32>([dims.M, dims.N]).unwrap();
        let there = plans[0].bind(Arguments::new().tensor(&x).tensor_mut(&mut y)).unwrap();
        let back = plans[1].bind(Arguments::new().tensor(&y).tensor_mut(&mut x)).unwrap();
        let both = |stream: &Stream| (0..pairs).try_for_each(|_| there.launch_on(stream).and_then(|()| back.launch_on(stream)));
        let graph = CudaGraph::capture(&stream, both).unwrap();
        let rounds = rounds(100);
        for _ in 0..rounds {
            both(&stream).unwrap();
            graph.launch(&stream).unwrap();
        }
        stream.synchronize().unwrap();
        plans.iter().for_each(|plan| plan.check().unwrap());
        let (factor, sum) = after(rounds * 4 * pairs);
        let expected = first.iter().map(|v| v.wrapping_mul(factor).wrapping_add(sum));
        let found = x.download().unwrap();
        let wrong = found.iter().zip(expected).filter(|(found, expected)| **found != *expected).count();
        assert_eq!(wrong, 0, "of {} elements, cooperative {cooperative}, dependent {dependent}", found.len());
    }
}

/// What `step` does, so many times: x becomes 5ⁿ x + (1 + 5 + .. + 5ⁿ⁻¹).
fn after(steps: usize) -> (u32, u32) {
    (0..steps).fold((1u32, 0u32), |(factor, sum), _| (factor.wrapping_mul(5), sum.wrapping_mul(5).wrapping_add(1)))
}

/// The same plan again and again: every launch uses the other counter bank and leaves the first one clean.
#[test]
#[ignore = "gpu"]
fn gpu_a_thousand_launches() {
    let device = Device::gpu(0).unwrap();
    let plan = dense::mlp::plan(&device, DIMS).unwrap();
    let case = case(&device, 5);
    let mut first = None;
    for _ in 0..rounds(1000) {
        let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
        plan.run(&case.x, &case.up, &case.down, &mut y).unwrap();
        let bits: Vec<u16> = y.download().unwrap().iter().map(|v| v.to_bits()).collect();
        assert_eq!(*first.get_or_insert(bits.clone()), bits, "bit-identical from launch to launch");
    }
}

/// An output that is NaN before every launch, so that an element nobody writes shows, and the bits of the first right one.
struct Output {
    tensor: Tensor<bf16>,
    bits: Vec<u16>,
}

impl Output {
    /// What `run` makes of the case, which is right.
    fn new(device: &Device, expected: &Matrix, run: impl FnOnce(&mut Tensor<bf16>)) -> Output {
        let mut tensor = poisoned::<bf16>(device, expected.rows, expected.cols);
        run(&mut tensor);
        expected.within(&tensor, 0.02, "the first run");
        let bits = tensor.download().unwrap().iter().map(|v| v.to_bits()).collect();
        Output { tensor, bits }
    }

    fn poison(&mut self) {
        self.tensor.upload_from(&vec![bf16::NAN; self.bits.len()]).unwrap();
    }

    #[track_caller]
    fn same(&self, what: &str) {
        let found = self.tensor.download().unwrap();
        if let Some(at) = found.iter().zip(&self.bits).position(|(found, bits)| found.to_bits() != *bits) {
            panic!("{what}: element {at} is {}, expected {}", found[at], bf16::from_bits(self.bits[at]));
        }
    }
}

/// Numbers that look random, the same at every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}

/// 10⁴ launches in any order of ways: waited for, queued on two streams, bound, replayed as two graphs that are bound anew now and
/// then. Every element of every output is the same as in the first one, bit for bit.
#[test]
#[ignore = "gpu"]
fn gpu_ten_thousand_launches_of_every_kind() {
    let device = Device::gpu(0).unwrap();
    let streams = [Stream::new(&device).unwrap(), Stream::new(&device).unwrap()];
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for schedule in SCHEDULES {
        let plan = dense::mlp::plan_with(&device, DIMS, &PlanOptions::new().schedule(schedule)).unwrap();
        let cases = [case(&device, 1), case(&device, 9), case(&device, 17)];
        let output = |case: &Case| {
            Output::new(&device, &case.expected, |y| {
                plan.run(&case.x, &case.up, &case.down, y).unwrap();
            })
        };
        // Two of `run` and `run_on`, then two of graphs and one of bound arguments.
        let of = [0, 1, 0, 1, 2];
        let mut outputs = of.map(|n| output(&cases[n]));
        let spare: Vec<Vec<u16>> = cases.iter().map(|case| output(case).bits).collect();
        let bound: Vec<_> = (2..5).map(|n| plan.bind(arguments(&cases[of[n]], &mut outputs[n].tensor)).unwrap()).collect();
        let graphs: Vec<CudaGraph> =
            bound[..2].iter().map(|bound| CudaGraph::capture(&streams[0], |stream| bound.launch_on(stream)).unwrap()).collect();
        let mut launches = 0;
        for round in 0.. {
            if launches >= rounds(10_000) / SCHEDULES.len() {
                break;
            }
            outputs.iter_mut().for_each(Output::poison);
            if round % 7 == 6 {
                // Another case for a graph that was captured before.
                let (n, other) = (2 + dice.below(3), dice.below(3));
                let stream = &streams[dice.below(2)];
                bound[n - 2].rebind_on(stream, arguments(&cases[other], &mut outputs[n].tensor)).unwrap();
                outputs[n].bits.clone_from(&spare[other]);
            }
            // Each way once in any order, some of them again.
            let mut ways: Vec<usize> = (0..5).chain((0..dice.below(4)).map(|_| dice.below(5))).collect();
            for n in (1..ways.len()).rev() {
                ways.swap(n, dice.below(n + 1));
            }
            let mut pending = vec![];
            for &way in &ways {
                let stream = &streams[dice.below(2)];
                let y = &mut outputs[way].tensor;
                match way {
                    0 => plan.run(&cases[0].x, &cases[0].up, &cases[0].down, y).map(drop).unwrap(),
                    1 => pending.push(plan.run_on(stream, &cases[1].x, &cases[1].up, &cases[1].down, y).unwrap()),
                    2 | 3 => graphs[way - 2].launch(stream).unwrap(),
                    _ => bound[2].launch_on(stream).unwrap(),
                }
            }
            launches += ways.len();
            for (way, output) in outputs.iter().enumerate() {
                output.same(&format!("{schedule}, round {round} {ways:?}, way {way}"));
            }
            for pending in pending {
                pending.wait().unwrap();
            }
            plan.check().unwrap();
        }
    }
}

fn arguments<'a>(case: &'a Case, y: &'a mut Tensor<bf16>) -> Arguments<'a> {
    Arguments::new().tensor(&case.x).tensor(&case.up).tensor(&case.down).tensor_mut(y)
}

/// A launch that is aborted inside a replay: the error is found once the stream is synchronised, replays repeat it at once, and after
/// `recover` the same graph is exact.
#[test]
#[ignore = "gpu"]
fn gpu_an_abort_inside_a_replay() {
    let device = Device::gpu(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let case = case(&device, 1);
    for schedule in SCHEDULES {
        // One worker: the two tasks that one begins with are in the arguments, which are bound before the fault is there.
        let options = PlanOptions::new().deadline(SHORT).schedule(schedule).workers(1);
        let plan = dense::mlp::plan_with(&device, DIMS, &options).unwrap();
        let mut y = poisoned::<bf16>(&device, DIMS.M as usize, DIMS.K as usize);
        let bound = plan.bind(arguments(&case, &mut y)).unwrap();
        let graph = CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap();
        let tasks = plan.graph().calls[0].tasks.clone();
        let task = tasks.end - 1;
        assert!(tasks.len() > 2, "{tasks:?}");
        for fault in [Fault::LostSignal(task), Fault::LostArrive(task), Fault::ExtraBytes(task)] {
            graph.launch(&stream).unwrap();
            stream.synchronize().unwrap();
            plan.check().unwrap();
            plan.inject(Some(fault)).unwrap();
            let begin = Instant::now();
            // Those behind it end at once: the second is not another deadline.
            for _ in 0..3 {
                graph.launch(&stream).unwrap();
            }
            stream.synchronize().unwrap();
            let took = begin.elapsed();
            assert!(took >= scaled(SHORT) && took < scaled(SHORT) * 2 + Duration::from_millis(500), "took {took:?}");
            let error = plan.check().unwrap_err();
            assert_eq!(error.code(), 47, "{error}");
            for _ in 0..2 {
                let begin = Instant::now();
                graph.launch(&stream).unwrap();
                stream.synchronize().unwrap();
                let again = plan.check().unwrap_err();
                assert!(again.code() == 48 && again.to_string().contains(&error.to_string()), "{again}");
                assert_eq!(bound.launch_on(&stream).unwrap_err().code(), 48);
                assert_eq!(plan.run(&case.x, &case.up, &case.down, &mut y).unwrap_err().code(), 48);
                assert!(begin.elapsed() < scaled(SHORT), "took {:?}", begin.elapsed());
            }
            plan.inject(None).unwrap();
            plan.recover().unwrap();
            plan.check().unwrap();
            for _ in 0..3 {
                y.upload_from(&vec![bf16::NAN; case.expected.data.len()]).unwrap();
                graph.launch(&stream).unwrap();
                stream.synchronize().unwrap();
                plan.check().unwrap();
                case.expected.within(&y, 0.02, &format!("{schedule}, replayed after {fault:?}"));
            }
        }
    }
}

/// Plans, bound arguments and graphs may go while they run: what they use stays until the launch has ended.
#[test]
#[ignore = "gpu"]
fn gpu_a_plan_dropped_while_it_runs() {
    let device = Device::gpu(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    let (n, dims) = (256 * 64, inputs::stalled::Dims { N: 256 * 64 });
    let data: Vec<f32> = (0..n).map(|n| n as f32).collect();
    for way in 0..4 {
        let plan = inputs::stalled::plan(&device, dims).unwrap();
        let x = device.upload(&data, [n]).unwrap();
        let [mut y, mut z] = [(); 2].map(|()| device.upload(&vec![-1f32; n], [n]).unwrap());
        let begin = Instant::now();
        match way {
            0 => drop(plan.run_on(&stream, &x, 60, &mut y).unwrap()),
            1 => {
                let pending = plan.run_on(&stream, &x, 60, &mut y).unwrap();
                drop(plan);
                pending.wait().unwrap();
            }
            _ => {
                let bound = plan.bind(Arguments::new().tensor(&x).scalar(60u32).tensor_mut(&mut y)).unwrap();
                let graph = CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap();
                // Binding has taken its time.
                if way == 2 {
                    graph.launch(&stream).unwrap()
                } else {
                    bound.launch_on(&stream).unwrap()
                }
                drop(plan);
                drop(graph);
                drop(bound);
            }
        }
        drop(x);
        // Whoever comes next may get the memory of what was dropped.
        let other = inputs::stalled::plan(&device, dims).unwrap();
        let noise = device.upload(&vec![7f32; n], [n]).unwrap();
        other.run(&noise, 0, &mut z).unwrap();
        assert_eq!(y.download().unwrap(), data, "way {way}");
        assert_eq!(z.download().unwrap(), vec![7f32; n], "way {way}");
        let took = begin.elapsed();
        assert!(took >= Duration::from_millis(60) && took < Duration::from_secs(5), "took {took:?}");
    }
}

on_every_device!(
    two_plans_from_two_threads,
    shared_tensors_from_two_threads,
    one_plan_from_two_threads,
    the_number_of_launches_wraps,
    memory_that_was_full_of_ones
);

/// Plans of one device never overlap, whoever launches them.
fn two_plans_from_two_threads(device: &Device) {
    let first = case(device, 1);
    let x = Matrix::integers(100, 130, 7, 9);
    let times = rounds(if device.is_gpu() { 400 } else { 3 });
    for schedule in SCHEDULES {
        let options = PlanOptions::new().schedule(schedule);
        let gemms = dense::mlp::plan_with(device, DIMS, &options).unwrap();
        let halos = regions::blurred::plan_with(device, regions::blurred::Dims { M: 100, N: 130 }, &options).unwrap();
        std::thread::scope(|scope| {
            let threads = [
                scope.spawn(|| {
                    for _ in 0..times {
                        let mut y = poisoned::<bf16>(device, DIMS.M as usize, DIMS.K as usize);
                        gemms.run(&first.x, &first.up, &first.down, &mut y).unwrap();
                        first.expected.within(&y, 0.02, "GEMMs");
                    }
                }),
                scope.spawn(|| {
                    let stream = Stream::new(device).unwrap();
                    for _ in 0..times {
                        let (mut inout, mut y) = (x.upload::<f32>(device), poisoned::<f32>(device, 100, 130));
                        halos.run_on(&stream, &mut inout, 3.0, &mut y).unwrap().wait().unwrap();
                        x.map(|v| v * 3.0).exactly(&inout, "halos");
                    }
                }),
            ];
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
    }
}

/// Two threads hand tensors to each other, which both read and write: each launch reads what the other thread's last one wrote and writes what that
/// one read. Nobody waits for a launch before the tensors go on, and several are on their way.
fn shared_tensors_from_two_threads(device: &Device) {
    let dims = step::Dims { M: if device.is_gpu() { 256 } else { 40 }, N: 1024 };
    let first: Vec<u32> = (0..dims.M as u32 * dims.N as u32).collect();
    let times = rounds(if device.is_gpu() { 300 } else { 3 });
    const WAYS: usize = 3;
    for schedule in SCHEDULES {
        // Fewer workers than there are multiprocessors: two launches would have room at once.
        let options = PlanOptions::new().schedule(schedule).workers((device.workers() / 3).max(1));
        let (to_first, mine) = mpsc::channel();
        let (to_second, yours) = mpsc::channel();
        for way in 0..WAYS {
            let data: Vec<u32> = first.iter().map(|v| v + way as u32).collect();
            let tensors = [device.upload(&data, [dims.M, dims.N]).unwrap(), device.zeros::<u32>([dims.M, dims.N]).unwrap()];
            to_first.send(tensors).unwrap();
        }
        let work = |inbox: mpsc::Receiver<[Tensor<u32>; 2]>, outbox: mpsc::Sender<[Tensor<u32>; 2]>| {
            let plan = step::plan_with(device, dims, &options).unwrap();
            let stream = Stream::new(device).unwrap();
            for _ in 0..times * WAYS {
                let [from, mut to] = inbox.recv().unwrap();
                drop(plan.run_on(&stream, &from, &mut to).unwrap());
                outbox.send([to, from]).unwrap();
            }
            stream.synchronize().unwrap();
            plan.check().unwrap();
            inbox
        };
        let [ended, none] = std::thread::scope(|scope| {
            let work = &work;
            let threads = [(mine, to_second), (yours, to_first)].map(|(inbox, outbox)| scope.spawn(move || work(inbox, outbox)));
            threads.map(|thread| thread.join().unwrap())
        });
        let ended: Vec<[Tensor<u32>; 2]> = ended.try_iter().collect();
        assert_eq!((ended.len(), none.try_iter().count()), (WAYS, 0));
        let (factor, sum) = after(2 * times);
        for (way, [last, _]) in ended.iter().enumerate() {
            let expected = first.iter().map(|v| v.wrapping_add(way as u32).wrapping_mul(factor).wrapping_add(sum));
            let found = last.download().unwrap();
            let wrong = found.iter().zip(expected).filter(|(found, expected)| **found != *expected).count();
            assert_eq!(wrong, 0, "of {} elements of way {way}, {schedule}", found.len());
        }
    }
}

/// A plan that runs is refused to another thread, with a code, or waited for; it is never run twice at once.
fn one_plan_from_two_threads(device: &Device) {
    let case = case(device, 1);
    let times = rounds(if device.is_gpu() { 300 } else { 3 });
    for schedule in SCHEDULES {
        let plan = dense::mlp::plan_with(device, DIMS, &PlanOptions::new().schedule(schedule)).unwrap();
        let work = || {
            let stream = Stream::new(device).unwrap();
            let mut ran = 0;
            for n in 0..times {
                let mut y = poisoned::<bf16>(device, DIMS.M as usize, DIMS.K as usize);
                let result = if n % 2 == 0 {
                    plan.run(&case.x, &case.up, &case.down, &mut y)
                } else {
                    plan.run_on(&stream, &case.x, &case.up, &case.down, &mut y).and_then(|pending| pending.wait())
                };
                match result {
                    Ok(_) => {
                        case.expected.within(&y, 0.02, "of two threads");
                        ran += 1;
                    }
                    Err(error) => assert_eq!(error.code(), 46, "{error}"),
                }
            }
            ran
        };
        let ran: usize =
            std::thread::scope(|scope| [scope.spawn(work), scope.spawn(work)].map(|thread| thread.join().unwrap()).iter().sum());
        assert!(ran > 0);
        plan.check().unwrap();
    }
}

/// The number of launches goes past 2³² and past 2³¹ like past any other.
fn the_number_of_launches_wraps(device: &Device) {
    let case = case(device, 1);
    for schedule in SCHEDULES {
        let plan = dense::mlp::plan_with(device, DIMS, &PlanOptions::new().schedule(schedule)).unwrap();
        // Debug builds of bodies are slow; maco-host tests the CPU with tasks of its own.
        let starts = if device.is_gpu() { &[u32::MAX - 3, (1 << 31) - 2][..] } else { &[u32::MAX - 1] };
        for &start in starts {
            plan.launched(start).unwrap();
            for launch in 0..if device.is_gpu() { 8 } else { 4 } {
                let mut y = poisoned::<bf16>(device, DIMS.M as usize, DIMS.K as usize);
                plan.run(&case.x, &case.up, &case.down, &mut y).unwrap();
                case.expected.within(&y, 0.02, &format!("{schedule}, launch {launch} from {start}"));
            }
        }
        if !device.is_gpu() {
            continue;
        }
        let stream = Stream::new(device).unwrap();
        let mut y = poisoned::<bf16>(device, DIMS.M as usize, DIMS.K as usize);
        let bound = plan.bind(arguments(&case, &mut y)).unwrap();
        let graph = CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap();
        plan.launched(u32::MAX - 3).unwrap();
        for launch in 0..8 {
            y.upload_from(&vec![bf16::NAN; case.expected.data.len()]).unwrap();
            graph.launch(&stream).unwrap();
            stream.synchronize().unwrap();
            plan.check().unwrap();
            case.expected.within(&y, 0.02, &format!("{schedule}, replay {launch} past the wrap"));
        }
    }
}

/// What temps, partial sums and schedulers' memory hold when a launch begins does not matter: here, all bits.
fn memory_that_was_full_of_ones(device: &Device) {
    let case = case(device, 1);
    let image = Matrix::integers(100, 130, 7, 9);
    let (m, h, k) = (3, 264, 200);
    let (x, up, down) = (Matrix::integers(m, k, 1, 1), Matrix::sparse(h, k, 2), Matrix::sparse(k, h, 3));
    let sums = x.times(&up.t()).map(|v| v.max(0.0)).bf16().times(&down.t()).bf16().map(|v| 2.0 * v).bf16();
    let [x, up, down] = [x, up, down].map(|matrix| matrix.upload::<bf16>(device));
    for schedule in SCHEDULES {
        for pipelined in [false, true] {
            if pipelined && device.is_gpu() {
                continue;
            }
            let options = PlanOptions::new().schedule(schedule).pipelined(pipelined);
            let gemms = dense::mlp::plan_with(device, DIMS, &options).unwrap();
            let halos = regions::blurred::plan_with(device, regions::blurred::Dims { M: 100, N: 130 }, &options).unwrap();
            let dims = split::chain::Dims { M: m as u64, K: k as u64, H: h as u64 };
            let parts = split::chain::plan_with(device, dims, &options).unwrap();
            for _ in 0..3 {
                gemms.fill_temporaries(0xff).unwrap();
                let mut y = poisoned::<bf16>(device, DIMS.M as usize, DIMS.K as usize);
                gemms.run(&case.x, &case.up, &case.down, &mut y).unwrap();
                case.expected.within(&y, 0.02, "GEMMs");

                halos.fill_temporaries(0xff).unwrap();
                let (mut inout, mut y) = (image.upload::<f32>(device), poisoned::<f32>(device, 100, 130));
                halos.run(&mut inout, 3.0, &mut y).unwrap();
                image.map(|v| v * 3.0).exactly(&inout, "halos");
                blurred(&blurred(&image)).plus(&image.map(|v| v * 3.0)).exactly(&y, "halos");

                parts.fill_temporaries(0xff).unwrap();
                let mut y = poisoned::<bf16>(device, m, k);
                parts.run(&x, &up, &down, &mut y).unwrap();
                sums.exactly(&y, "sums in parts");
            }
        }
    }
}

/// What `blur` makes of `x`.
fn blurred(x: &Matrix) -> Matrix {
    let at = |r: usize, c: usize| if r < x.rows { x.at(r, c) } else { 0.0 };
    Matrix::new(x.rows, x.cols, |r, c| at(r.wrapping_sub(1), c) + at(r, c) + at(r + 1, c))
}

#[test]
fn a_task_runs_on_its_own() {
    let device = Device::cpu();
    let (x, w) = (Matrix::integers(70, 40, 1, 2), Matrix::sparse(9, 40, 2));
    let mut y = poisoned::<bf16>(&device, 70, 9);
    maco::tasks::linear::on_cpu(&x.upload::<bf16>(&device), &w.upload::<bf16>(&device), &mut y).unwrap();
    x.times(&w.t()).bf16().exactly(&y, "linear::on_cpu");

    let mut z = Matrix::integers(3, 5, 4, 9).upload::<f32>(&device);
    maco::tasks::scale::on_cpu(&mut z, 2.0).unwrap();
    Matrix::integers(3, 5, 4, 9).map(|v| v * 2.0).exactly(&z, "scale::on_cpu");

    let mut wrong = device.zeros::<bf16>([70, 8]).unwrap();
    let error = maco::tasks::linear::on_cpu(&x.upload::<bf16>(&device), &w.upload::<bf16>(&device), &mut wrong).unwrap_err();
    assert_eq!(error.code(), 5, "{error}");
    assert!(error.to_string().contains("`N`"), "{error}");
}

/// Programs carry machine code where their build had an assembler; the driver compiles PTX where it does not know the format.
#[test]
#[ignore = "gpu"]
fn gpu_machine_code_or_ptx() {
    let device = Device::gpu(0).unwrap();
    let runs = |module: DeviceModule| {
        let set = maps();
        let embedded = Embedded { modules: vec![module].leak(), ..set.embedded };
        let mut graph = TaskGraph::new("positive", TaskSet { embedded, ..set });
        let x = graph.input::<f32>("x", [2, 2]);
        let y = graph.elementwise(&maco::tasks::relu::SPEC, x);
        graph.output(y, "y");
        let x = device.upload(&[-1f32, 2.0, -3.0, 4.0], [2, 2]).unwrap();
        let outputs = graph.compile(&device).and_then(|graph| graph.execute(Arguments::new().tensor(&x)))?;
        assert_eq!(outputs.get::<f32>("y").unwrap().download().unwrap(), [0.0, 2.0, 0.0, 4.0]);
        Ok::<(), Error>(())
    };
    let [module] = *maps().embedded.modules else { panic!("one target") };
    let no_ptx = ".version 8.0\n.target sm_90a\n.address_size 64\nno instruction;\n";
    if module.cubin.is_some() {
        runs(DeviceModule { ptx: no_ptx, ..module }).expect("machine code is enough");
    } else {
        left_out("machine code", "this program was built without `ptxas`");
    }
    runs(DeviceModule { cubin: Some(b"of another kind"), ..module }).expect("PTX is enough");
    assert_eq!(runs(DeviceModule { cubin: None, ptx: no_ptx, ..module }).unwrap_err().code(), 44);
}

/// Memory of somebody else, with a row stride of its own.
#[test]
fn a_plan_runs_on_borrowed_memory() {
    let device = Device::cpu_with(2);
    let (m, n, stride) = (5usize, 3usize, 8usize);
    let mut memory: Vec<f32> = (0..m * stride).map(|v| v as f32).collect();
    // SAFETY: the memory lives longer than the tensor, and nothing else uses it meanwhile.
    let mut borrowed = unsafe { Tensor::from_raw(&device, memory.as_mut_ptr(), [m as u64, n as u64], stride as u64) }.unwrap();
    let plan = regions::blurred::plan(&device, regions::blurred::Dims { M: m as u64, N: n as u64 }).unwrap();
    let mut y = poisoned::<f32>(&device, m, n);
    plan.run(&mut borrowed, 2.0, &mut y).unwrap();
    drop(borrowed);
    for (at, value) in memory.iter().enumerate() {
        let scaled = if at % stride < n { 2.0 } else { 1.0 };
        assert_eq!(*value, at as f32 * scaled, "element {at}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error() {
    if let Err(error) = Device::gpu(0) {
        assert!(matches!(error, Error::NoDriver | Error::NoGpu { .. }), "{error}");
        assert!(error.to_string().contains("help:"), "{error}");
    }
    assert!(Device::gpu(4096).is_err());
}
