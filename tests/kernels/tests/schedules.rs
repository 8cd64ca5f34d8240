//! Neither the number of workers nor the schedule changes a bit of any result, roundings included.
//!
//! Takes ten seconds: every graph runs in every schedule, with few workers and with many.
mod support;

use std::collections::HashSet;

use kernels::random::{accumulate, lift, merge, narrow, negate, nudge, ops, transpose, widen, wrap};
use kernels::{dense, regions, uneven};
use maco::{
    Arguments, Device, Error, Node, Operand, PlanOptions, Report, Schedule, TaskGraph, TaskSpec, Tensor, TensorElement, bf16, tasks,
};
use support::{Matrix, poisoned};

on_every_device!(
    gemms,
    rows,
    halos,
    drains,
    drained_gemms,
    balanced,
    a_long_chain,
    a_chain_of_warps,
    a_wide_fan,
    more_workers_than_tasks,
    another_kind_at_every_task
);

/// One worker, some, all.
fn options(device: &Device) -> Vec<PlanOptions> {
    let all = device.workers();
    let mut counts = vec![1, 2, 3, 5, all / 2, all];
    counts.retain(|&count| (1..=all).contains(&count));
    counts.dedup();
    let with = |workers: u32| {
        // On a GPU a scheduler CTA needs a multiprocessor, too.
        let ctas = |schedulers: u32| if device.is_gpu() && workers + schedulers > all { workers - schedulers } else { workers };
        let several = workers.min(8);
        [
            (Schedule::Static, workers),
            (Schedule::Tickets, workers),
            (Schedule::Schedulers(1), ctas(1).max(1)),
            (Schedule::Schedulers(several), ctas(several).max(several)),
            (Schedule::SpareWarps(1), workers),
            (Schedule::SpareWarps(workers), workers),
        ]
        .map(|(schedule, workers)| PlanOptions::new().workers(workers).schedule(schedule))
        .into_iter()
        .chain([PlanOptions::new().workers(ctas(1).max(1)).schedule(Schedule::Schedulers(1)).look_ahead(true)])
        .collect::<Vec<_>>()
    };
    if support::rounds::rounds(counts.len()) < counts.len() {
        counts = vec![1, all];
    }
    counts.into_iter().flat_map(with).collect()
}

/// How often each option runs.
fn times() -> usize {
    if support::rounds::short() { 1 } else { 3 }
}

/// `run` gives the same bits under every option, three times each where not everything is slow.
#[track_caller]
fn agree(device: &Device, run: impl Fn(&PlanOptions, usize) -> Result<Vec<u64>, Error>) {
    let mut first = None;
    for options in options(device) {
        for bits in run(&options, times()).unwrap() {
            assert_eq!(bits, *first.get_or_insert(bits), "{options:?}");
        }
    }
}

/// A hash of the elements' values.
fn bits<E: TensorElement + support::From64>(tensor: &Tensor<E>) -> u64 {
    let fold = |hash: u64, value: E| (hash ^ value.to64().to_bits()).wrapping_mul(0x0100_0000_01b3);
    tensor.download().unwrap().into_iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// As many tasks and workers as the plan says.
#[track_caller]
fn reported(report: Report, plan: &maco::Plan) {
    assert_eq!((report.tasks, report.workers), (plan.tasks(), plan.workers()));
}

fn gemms(device: &Device) {
    let (m, h, k) = (200, 264, 136);
    let fraction = |rows, cols, seed| Matrix::integers(rows, cols, seed, 100).map(|v| v / 64.0).upload::<bf16>(device);
    let (x, up, down) = (fraction(m, k, 1), fraction(h, k, 2), fraction(k, h, 3));
    let dims = dense::blocks::Dims { M: m as u64, K: k as u64, H: h as u64 };
    agree(device, |options, times| {
        let plan = dense::blocks::plan_with(device, dims, options)?;
        let once = || {
            let mut y = poisoned::<bf16>(device, m, k);
            plan.run(&x, &up, &down, &mut y).map(|report| {
                reported(report, &plan);
                bits(&y)
            })
        };
        (0..times).map(|_| once()).collect()
    });
}

fn rows(device: &Device) {
    let (m, n) = (150, 300);
    let x = Matrix::integers(m, n, 3, 999).map(|v| v / 100.0).upload::<f32>(device);
    let weight: Vec<f32> = (0..n).map(|n| n as f32 / 77.0).collect();
    let weight = device.upload(&weight, [n]).unwrap();
    let dims = regions::normed::Dims { M: m as u64, N: n as u64 };
    agree(device, |options, times| {
        let plan = regions::normed::plan_with(device, dims, options)?;
        let once = || {
            let [mut soft, mut rms] = [(); 2].map(|()| poisoned::<f32>(device, m, n));
            let mut sums = poisoned::<f32>(device, m, 1);
            plan.run(&x, &weight, &mut soft, &mut rms, &mut sums)
                .map(|_| bits(&soft) ^ bits(&rms).rotate_left(1) ^ bits(&sums).rotate_left(2))
        };
        (0..times).map(|_| once()).collect()
    });
}

fn halos(device: &Device) {
    let (m, n) = (300, 200);
    let x = Matrix::integers(m, n, 5, 999).map(|v| v / 7.0);
    let dims = regions::blurred::Dims { M: m as u64, N: n as u64 };
    agree(device, |options, times| {
        let plan = regions::blurred::plan_with(device, dims, options)?;
        let once = || {
            let (mut inout, mut y) = (x.upload::<f32>(device), poisoned::<f32>(device, m, n));
            plan.run(&mut inout, 0.3, &mut y).map(|_| bits(&y) ^ bits(&inout).rotate_left(1))
        };
        (0..times).map(|_| once()).collect()
    });
}

/// What [`uneven::steps`] counts.
fn steps(v: f64) -> f64 {
    let (mut v, mut steps) = (v as u64, 0);
    while v > 1 {
        v = if v.is_multiple_of(2) { v / 2 } else { 3 * v + 1 };
        steps += 1;
    }
    f64::from(steps)
}

/// Drained calls compute what the calls compute one after another.
fn drains(device: &Device) {
    // Racecheck does not get through the large one in ten minutes.
    let (m, n) = if support::rounds::short() { (9, 40) } else { (50, 90) };
    // Few elements are most of the work.
    let x = Matrix::integers(m, n, 7, 500).map(|v| if v % 50.0 == 0.0 { v.abs() } else { 1.0 });
    let once = x.map(|v| steps(2.0 * v));
    let y = x.map(|v| 4.0 * v).plus(&once.map(steps)).plus(&once);
    let z = y.map(steps);
    let x = x.upload::<f32>(device);
    let dims = uneven::counted::Dims { M: m as u64, N: n as u64 };
    for options in options(device) {
        let plan = uneven::counted::plan_with(device, dims, &options).unwrap();
        let drains = &plan.graph().lists.drains;
        assert_eq!(drains.len(), if plan.graph().schedule == Schedule::Static { 3 } else { 0 });
        for _ in 0..times() {
            let [mut found, mut last] = [(); 2].map(|()| poisoned::<f32>(device, m, n));
            reported(plan.run(&x, 2.0, &mut found, &mut last).unwrap(), &plan);
            y.exactly(&found, &format!("{options:?}"));
            z.exactly(&last, &format!("{options:?}"));
        }
    }
}

/// The same of tasks whose tiles travel through the ring, in bits.
fn drained_gemms(device: &Device) {
    let (m, k) = (200, 136);
    let fraction = |rows, cols, seed| Matrix::integers(rows, cols, seed, 100).map(|v| v / 64.0).upload::<bf16>(device);
    let (x, w) = (fraction(m, k, 1), [2, 3].map(|seed| fraction(k, k, seed)));
    let dims = uneven::gemms::Dims { M: m as u64, K: k as u64 };
    agree(device, |options, times| {
        let plan = uneven::gemms::plan_with(device, dims, options)?;
        let once = || {
            let mut y = poisoned::<bf16>(device, m, k);
            plan.run(&x, &w, 0.3, &mut y).map(|_| bits(&y))
        };
        (0..times).map(|_| once()).collect()
    });
}

/// Three calls that memory bounds, each on the results of the one before, of so many tasks that the planner has them claimed, early.
fn balanced(device: &Device) {
    let (m, n, workers) = (784, 1024, 16);
    let many = Device::cpu_with(workers);
    let device = if device.is_gpu() { device } else { &many };
    let x = Matrix::integers(m, n, 5, 1000);
    let y = x.map(|v| 4.0 * v);
    let x = x.upload::<f32>(device);
    let options = PlanOptions::new().schedule(Schedule::Static).workers(workers);
    for options in [options.clone(), options.pipelined(!device.is_gpu())] {
        let plan = uneven::served::plan_with(device, uneven::served::Dims { M: m as u64, N: n as u64 }, &options).unwrap();
        let graph = plan.graph();
        let [drain] = &graph.lists.drains[..] else { panic!("{graph}") };
        assert!(graph.calls.iter().all(|call| call.dynamic) && *drain == (0..graph.tasks.len() as u32), "{graph}");
        assert!(graph.tasks.len() >= 3 * 12 * workers as usize);
        for _ in 0..times() {
            let mut found = poisoned::<f32>(device, m, n);
            reported(plan.run(&x, 3.0, &mut found).unwrap(), &plan);
            y.exactly(&found, &format!("{options:?}"));
        }
    }
}

/// Runs a graph of the inputs `x` and `z`, all ones on 5 × 9, under every option; every element of its output is `expected`.
#[track_caller]
fn sums_to(device: &Device, expected: f64, build: impl Fn(&mut TaskGraph, Node, Node) -> Node) {
    let ones = Matrix::new(5, 9, |_, _| 1.0).upload::<f32>(device);
    for options in options(device) {
        let mut graph = TaskGraph::new("sums", ops());
        let (x, z) = (graph.input::<f32>("x", [5, 9]), graph.input::<f32>("z", [5, 9]));
        let y = build(&mut graph, x, z);
        graph.output(y, "y");
        let compiled = graph.compile_with(device, &options).unwrap();
        for _ in 0..times() {
            let outputs = compiled.execute(Arguments::new().tensor(&ones).tensor(&ones)).unwrap();
            reported(outputs.report(), compiled.plan());
            Matrix::new(5, 9, |_, _| expected).exactly(outputs.get::<f32>("y").unwrap(), &format!("{options:?}"));
        }
    }
}

/// 1,000 calls, each waiting for the one before.
fn a_long_chain(device: &Device) {
    sums_to(device, 1.0 + 500.0 * 3.0 + 500.0, |graph, x, z| {
        let y = graph.elementwise(&tasks::copy::SPEC, x);
        for _ in 0..500 {
            graph.custom(&nudge::SPEC, [y.into(), 3i32.into()]);
            graph.custom(&accumulate::SPEC, [y.into(), z.into()]);
            graph.tile(&[32, 64]);
        }
        y
    });
}

/// 400 calls of tasks of one warp, a row each, and among them some of all threads: what a scheduler pushes ahead waits in a warp, or in the fetcher.
fn a_chain_of_warps(device: &Device) {
    // Racecheck does not get through the long one in ten minutes.
    let calls = if support::rounds::short() { 60u32 } else { 400 };
    let sum = f64::from(calls * 3 + calls / 10);
    sums_to(device, 1.0 + sum, |graph, x, z| {
        let y = graph.elementwise(&tasks::copy::SPEC, x);
        for call in 0..calls {
            graph.custom(&lift::SPEC, [y.into(), 3i32.into()]);
            graph.tile(&[1]);
            if call % 10 == 9 {
                graph.custom(&accumulate::SPEC, [y.into(), z.into()]);
            }
        }
        y
    });
}

/// One tensor with 125 readers, which meet again five by five; then it changes.
fn a_wide_fan(device: &Device) {
    // a + 2 b - c - d + 3 e of ones is 4, and so are the leaves.
    let expected = 4.0 * 4.0 * 4.0 * 4.0;
    sums_to(device, expected + 320.0, |graph, x, z| {
        let root = graph.elementwise(&tasks::copy::SPEC, x);
        let temp = |graph: &mut TaskGraph| graph.temp::<f32>("t", [5, 9]);
        let mut level: Vec<Node> = (0..125)
            .map(|_| {
                let leaf = temp(graph);
                graph.custom(&merge::SPEC, [root, z, z, z, z, leaf].map(Operand::from));
                leaf
            })
            .collect();
        while level.len() > 1 {
            let next = level.chunks(5).map(|five| {
                let sum = temp(graph);
                graph.custom(&merge::SPEC, five.iter().chain([&sum]).map(|&node| node.into()));
                graph.tile(&[4, 8]);
                sum
            });
            level = next.collect();
        }
        // All readers of the root come before its update.
        graph.custom(&nudge::SPEC, [root.into(), 319i32.into()]);
        graph.custom(&accumulate::SPEC, [level[0].into(), root.into()]);
        level[0]
    });
}

/// Calls of one task each, of which no two neighbours are of a kind: GEMMs, tiles, plain loads, functions of an element, warps. All tensors are
/// 16 × 16, but for the 200 rows of `up` and the 200 columns of `down`.
fn kinds_in_turn(graph: &mut TaskGraph, [x, order, up, down]: [Node; 4], rounds: usize) -> Node {
    let mut y = x;
    let call = |graph: &mut TaskGraph, task: &'static TaskSpec, arguments: &[Operand], tile: &[u32]| {
        graph.custom(task, arguments.iter().copied());
        graph.tile(tile);
    };
    for _ in 0..rounds {
        let [product, narrowed, short, last] = [(); 4].map(|()| graph.temp::<bf16>("b", [16, 16]));
        let [wide, negated, first, turned, second] = [(); 5].map(|()| graph.temp::<f32>("f", [16, 16]));
        let [long, twice] = [(); 2].map(|()| graph.temp::<bf16>("l", [16, 200]));
        call(graph, &tasks::linear::SPEC, &[y.into(), order.into(), product.into()], &[64, 128]);
        call(graph, &widen::SPEC, &[product.into(), wide.into()], &[16, 64]);
        call(graph, &negate::SPEC, &[wide.into(), negated.into()], &[32, 16]);
        call(graph, &wrap::SPEC, &[negated.into(), first.into()], &[16, 1024]);
        call(graph, &transpose::SPEC, &[first.into(), turned.into()], &[64, 64]);
        call(graph, &lift::SPEC, &[turned.into(), 3i32.into()], &[16]);
        call(graph, &wrap::SPEC, &[turned.into(), second.into()], &[16, 1024]);
        call(graph, &narrow::SPEC, &[second.into(), narrowed.into()], &[16, 64]);
        call(graph, &tasks::linear::SPEC, &[narrowed.into(), up.into(), long.into()], &[64, 256]);
        graph.split_k(1);
        call(graph, &tasks::add::SPEC, &[long.into(), long.into(), twice.into()], &[16, 1024]);
        call(graph, &tasks::linear::SPEC, &[twice.into(), down.into(), short.into()], &[64, 128]);
        graph.split_k(1);
        call(graph, &tasks::add::SPEC, &[short.into(), x.into(), last.into()], &[16, 1024]);
        y = last;
    }
    y
}

/// The one worker's code for a task, and what it has in flight for the next ones, change with every task.
fn another_kind_at_every_task(device: &Device) {
    const ROUNDS: usize = 30;
    // Operands move elements and change signs: all stays small, and what one round gets wrong is not lost in the next one.
    let sign = |n: usize| if n.is_multiple_of(3) { -1.0 } else { 1.0 };
    let x = Matrix::integers(16, 16, 1, 7);
    let order = Matrix::new(16, 16, |r, c| if c == (5 * r + 2) % 16 { sign(r) } else { 0.0 });
    let up = Matrix::new(200, 16, |r, c| if c == (7 * r + 3) % 16 { sign(r / 16) } else { 0.0 });
    let down = Matrix::new(200, 16, |r, c| if r == 16 * (c % 12) + (5 * c + 1) % 16 { sign(c + 1) } else { 0.0 });
    let wrapped = |v: f64| v - 8.0 * (v / 8.0).round_ties_even();
    let expected = (0..ROUNDS).fold(x.clone(), |y, _| {
        let y = y.times(&order.t()).map(|v| wrapped(-v)).t().map(|v| wrapped(v + 3.0));
        y.times(&up.t()).map(|v| 2.0 * v).times(&down).plus(&x)
    });
    let down = down.t();
    let inputs = [("x", &x), ("order", &order), ("up", &up), ("down", &down)];
    let tensors = inputs.map(|(_, matrix)| matrix.upload::<bf16>(device));
    for pipelined in [false, true] {
        if pipelined && device.is_gpu() {
            continue;
        }
        let mut graph = TaskGraph::new("kinds", ops());
        let nodes = inputs.map(|(name, matrix)| graph.input::<bf16>(name, [matrix.rows as u64, matrix.cols as u64]));
        let y = kinds_in_turn(&mut graph, nodes, ROUNDS);
        graph.output(y, "y");
        let compiled = graph.compile_with(device, &PlanOptions::new().workers(1).pipelined(pipelined)).unwrap();

        let plan = compiled.graph();
        let calls: Vec<usize> = plan.lists.of(0).iter().map(|&task| plan.tasks[task as usize].call as usize).collect();
        let kind = |call: usize| std::mem::discriminant(&plan.graph.calls[call].task.kind);
        assert_eq!((calls.len(), plan.graph.calls.len()), (12 * ROUNDS, 12 * ROUNDS), "{plan}");
        let name = |call: usize| plan.graph.calls[call].task.name;
        assert!(calls.windows(2).all(|pair| name(pair[0]) != name(pair[1])), "{plan}");
        // Of several forms, and of all that one worker has code for.
        let kinds: HashSet<_> = calls.iter().map(|&call| kind(call)).collect();
        assert_eq!(kinds.len(), 4, "{plan}");

        for _ in 0..times() {
            let arguments = tensors.iter().fold(Arguments::new(), |arguments, tensor| arguments.tensor(tensor));
            let outputs = compiled.execute(arguments).unwrap();
            reported(outputs.report(), compiled.plan());
            expected.exactly(outputs.get::<bf16>("y").unwrap(), if pipelined { "pipelined" } else { "plain" });
        }
    }
}

fn more_workers_than_tasks(device: &Device) {
    sums_to(device, 3.0, |graph, x, z| {
        let y = graph.elementwise(&tasks::copy::SPEC, x);
        graph.custom(&accumulate::SPEC, [y.into(), z.into()]);
        graph.custom(&nudge::SPEC, [y.into(), 1i32.into()]);
        y
    });
}
