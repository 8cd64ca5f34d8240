//! GEMVs that hand small results to each other with in-band flags: the same bits as by counters, launch after launch, also
//! behind aborted ones; and what never comes is told.
#[path = "../../kernels/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use maco::{Arguments, CudaGraph, Device, Error, Fault, PlanOptions, Schedule, Stream, Symptom, Tensor, bf16};
use skinny::kernels::{PAIRS, parts, passed};
use support::hangs::{aborted, awaited, hang, told};
use support::{Matrix, poisoned, rounds::rounds};

on_every_device!(
    the_same_bits_as_by_counters,
    a_part_of_a_row_is_read,
    what_has_no_in_band_flags,
    numbers_of_launches_wrap,
    a_task_that_never_runs_is_told,
    a_launch_behind_an_aborted_one,
    replays,
);

const DEADLINE: Duration = Duration::from_millis(300);
/// Of launches that end by themselves.
const PATIENT: Duration = Duration::from_secs(20);

fn options(device: &Device) -> PlanOptions {
    PlanOptions::new().pipelined(!device.is_gpu()).deadline(PATIENT)
}

/// Which calls get operand A with in-band flags.
fn in_band(plan: &maco::Plan) -> Vec<u32> {
    plan.graph().relations.iter().filter(|relation| relation.in_band).map(|relation| relation.consumer).collect()
}

/// A chain of pairs, x + relu(x upᵀ) downᵀ, with weights, and two inputs with what comes out: what is of the launch before is wrong.
struct Chain {
    plan: passed::Plan,
    up: [Tensor<bf16>; PAIRS],
    down: [Tensor<bf16>; PAIRS],
    inputs: [Tensor<bf16>; 2],
    expected: [Matrix; 2],
}

impl Chain {
    /// `m` rows of `k` and `n` columns. Weights have one number in a row: every result is exact.
    fn new(device: &Device, [m, n, k]: [usize; 3], options: &PlanOptions) -> Chain {
        let one =
            |rows: usize, cols: usize, seed: usize| Matrix::new(rows, cols, |r, c| if (r * 5 + seed) % cols == c { 1.0 } else { 0.0 });
        let (up, down): ([Matrix; PAIRS], [Matrix; PAIRS]) =
            (std::array::from_fn(|at| one(n, k, at)), std::array::from_fn(|at| one(k, n, at + 7)));
        let inputs = [3, 99].map(|seed| Matrix::integers(m, k, seed, 2));
        let expected = inputs.each_ref().map(|x| {
            let next = |x: Matrix, (up, down): (&Matrix, &Matrix)| x.times(&up.t()).map(|v| v.max(0.0)).times(&down.t()).plus(&x);
            up.iter().zip(&down).fold(x.clone(), next)
        });
        let plan = passed::plan_with(device, passed::Dims { M: m as u64, N: n as u64, K: k as u64 }, options).unwrap();
        let [up, down] = [up, down].map(|all| all.each_ref().map(|one| one.upload(device)));
        Chain { plan, up, down, inputs: inputs.map(|x| x.upload(device)), expected }
    }

    /// With the input that has the `launch`-th turn.
    fn run(&self, launch: usize) -> Result<Tensor<bf16>, Error> {
        let mut y = poisoned::<bf16>(self.plan.device(), self.expected[0].rows, self.expected[0].cols);
        self.plan.run(&self.inputs[launch % 2], &self.up, &self.down, &mut y).map(|_| y)
    }

    /// Launches `launches` times, with other delays and inputs in turn.
    #[track_caller]
    fn right(&self, launches: usize, what: &str) {
        for launch in 0..launches {
            self.plan.set_delays(launch as u32);
            self.expected[launch % 2].within(&self.run(launch).unwrap(), 0.0, &format!("{what}, launch {launch}"));
        }
    }
}

/// All GEMVs but the first, and each residual by a counter.
fn all_but_the_first() -> Vec<u32> {
    (1..2 * PAIRS as u32).collect()
}

fn the_same_bits_as_by_counters(device: &Device) {
    for schedule in [Schedule::Static, Schedule::Tickets] {
        for shape in [[1, 264, 520], [1, 2048, 1024], [3, 40, 2056], [8, 72, 512], [16, 96, 128]] {
            if !device.is_gpu() && shape[1] * shape[2] > 1 << 19 {
                continue;
            }
            let options = options(device).schedule(schedule);
            let chain = Chain::new(device, shape, &options);
            assert_eq!(in_band(&chain.plan), all_but_the_first(), "{shape:?}");
            let counted = Chain::new(device, shape, &options.in_band_flags(false));
            assert!(in_band(&counted.plan).is_empty());
            chain.right(if device.is_gpu() { rounds(200) } else { 3 }, &format!("{shape:?}, {schedule}"));
            counted.right(1, "by counters");
        }
    }
}

/// Sums that are rounded, of a part of each row.
fn a_part_of_a_row_is_read(device: &Device) {
    for (m, n, k) in [(1, 40, 264), (5, 24, 136)] {
        let plans = [true, false].map(|on| {
            let options = options(device).in_band_flags(on);
            parts::plan_with(device, parts::Dims { M: m as u64, N: n as u64, K: k as u64, P: 2 * n as u64 }, &options).unwrap()
        });
        assert_eq!(plans.each_ref().map(|plan| in_band(plan).len()), [2, 0]);
        let values =
            |rows: usize, cols: usize, seed: u64| Matrix::integers(rows, cols, seed, 1000).map(|v| v / 777.0).upload::<bf16>(device);
        let (x, all, part) = (values(m, k, 1), values(2 * n, k, 2), values(k, n, 3));
        let results = plans.map(|plan| {
            let (mut first, mut second) = (poisoned::<bf16>(device, m, k), poisoned::<bf16>(device, m, k));
            for _ in 0..2 {
                plan.run(&x, &all, &part, &mut first, &mut second).unwrap();
            }
            [first, second].map(|y| y.download().unwrap())
        });
        assert_eq!(results[0], results[1], "{m} × {n} × {k}");
    }
}

fn what_has_no_in_band_flags(device: &Device) {
    let of = |shape, options: &PlanOptions| in_band(&Chain::new(device, shape, options).plan).len();
    let all = 2 * PAIRS - 1;
    // A row of `wide` that is not a multiple of eight, and one that has no room; then nor has the tensor.
    assert_eq!(of([1, 36, 64], &options(device)), PAIRS - 1);
    assert_eq!(of([16, 2048, 64], &options(device)), PAIRS - 1);
    assert_eq!(of([16, 960, 64], &options(device)), all);
    assert_eq!(of([1, 64, 64], &options(device).schedule(Schedule::SpareWarps(1)).workers(2.min(device.workers()))), 0);
    // A thread that runs whole tasks.
    assert_eq!(of([1, 64, 64], &options(device).pipelined(false)), if device.is_gpu() { all } else { 0 });
}

/// Words of the launch before have another number, whatever it is.
fn numbers_of_launches_wrap(device: &Device) {
    let chain = Chain::new(device, [2, 64, 64], &options(device));
    for launches in [0, (1 << 16) - 2, u32::MAX - 1] {
        chain.plan.launched(launches).unwrap();
        chain.right(4, &format!("behind {launches} launches"));
    }
}

fn a_task_that_never_runs_is_told(device: &Device) {
    for schedule in [Schedule::Static, Schedule::Tickets] {
        let chain = Chain::new(device, [1, 64, 72], &options(device).schedule(schedule).deadline(DEADLINE));
        // Of the first GEMV, and of one in the midst.
        for call in [0, 3] {
            let lost = chain.plan.graph().calls[call].tasks.start + 1;
            chain.plan.inject(Some(Fault::LostSignal(lost))).unwrap();
            if !awaited(&chain.plan, lost) {
                // One worker takes all tasks of its list in turn.
                assert_eq!((device.workers(), schedule), (1, Schedule::Static));
                continue;
            }
            let first = hang(DEADLINE, || chain.run(0));
            told(&first, &chain.plan);
            let dependency = first.dependency.as_ref().unwrap();
            assert_eq!((first.symptom, dependency.hazard), (Symptom::Waited, "read after write"));
            // Who waits for a counter behind it may be heard first.
            assert!(first.call > call as u32 && dependency.call >= call as u32, "{first:?}");
            if call == 0 && device.workers() == 1 {
                assert_eq!((first.call, dependency.call, first.seen + 1), (1, 0, first.expected));
            }
            aborted(&chain.plan, &first, || chain.run(0));
            chain.plan.inject(None).unwrap();
            chain.plan.recover().unwrap();
            chain.plan.set_deadline(PATIENT).unwrap();
            chain.right(2, "after recovery");
            chain.plan.set_deadline(DEADLINE).unwrap();
        }
    }
}

/// An aborted launch leaves words of its number, which the launch behind `recover()` has too: they must be gone.
fn a_launch_behind_an_aborted_one(device: &Device) {
    // With one list for all, also one worker waits for signals.
    let chain = Chain::new(device, [1, 64, 72], &options(device).schedule(Schedule::Tickets).deadline(DEADLINE));
    for call in [2 * PAIRS as u32 - 2, 1] {
        let lost = chain.plan.graph().calls[call as usize].tasks.end - 1;
        chain.plan.inject(Some(Fault::LostSignal(lost))).unwrap();
        // With the other input.
        hang(DEADLINE, || chain.run(1));
        chain.plan.inject(None).unwrap();
        chain.plan.recover().unwrap();
        chain.plan.set_deadline(PATIENT).unwrap();
        chain.right(3, "behind an aborted launch");
        chain.plan.set_deadline(DEADLINE).unwrap();
    }
}

/// Every replay of a captured launch has another number. On a CPU nothing is captured.
fn replays(device: &Device) {
    if !device.is_gpu() {
        return;
    }
    let chain = Chain::new(device, [1, 2048, 1024], &options(device));
    let stream = Stream::new(device).unwrap();
    let mut results = [(); 2].map(|()| poisoned::<bf16>(device, 1, 1024));
    let mut graphs = Vec::new();
    for (x, y) in chain.inputs.iter().zip(&mut results) {
        let mut arguments = Arguments::new().tensor(x);
        for w in chain.up.iter().chain(&chain.down) {
            arguments = arguments.tensor(w);
        }
        let bound = chain.plan.bind(arguments.tensor_mut(y)).unwrap();
        graphs.push(CudaGraph::capture(&stream, |stream| bound.launch_on(stream)).unwrap());
    }
    for replay in 0..rounds(200) {
        graphs[replay % 2].launch(&stream).unwrap();
        if replay % 50 < 2 {
            stream.synchronize().unwrap();
            chain.plan.check().unwrap();
            chain.expected[replay % 2].within(&results[replay % 2], 0.0, &format!("replay {replay}"));
        }
    }
}
