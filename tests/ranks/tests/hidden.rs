//! How much of the communication is hidden by each way to say so, by what ranks record.

mod support;

use std::collections::BTreeMap;

use maco::profile::Profile;
use maco::{Arguments, Error, Node, Reduced, TaskGraph};
use ranks::built::built;
use support::{World, on_cpus, on_gpus};

/// Adds sums of x · wᵀ over all ranks, and h · vᵀ, of x, w, h and v.
type Way = fn(&mut TaskGraph, &World, [Node; 4]) -> [Node; 2];

fn layer(graph: &mut TaskGraph, x: Node, w: Node) -> Node {
    let part = graph.linear(x, w);
    graph.partial(part, Reduced::Sum);
    graph.all_reduce(part)
}

fn automatic(graph: &mut TaskGraph, _: &World, [x, w, h, v]: [Node; 4]) -> [Node; 2] {
    [layer(graph, x, w), graph.linear(h, v)]
}

fn by_overlap(graph: &mut TaskGraph, world: &World, of: [Node; 4]) -> [Node; 2] {
    let [sum, other] = automatic(graph, world, of);
    graph.overlap(&[other], &[sum]).auto_waves();
    [sum, other]
}

fn by_region(graph: &mut TaskGraph, _: &World, [x, w, h, v]: [Node; 4]) -> [Node; 2] {
    let part = graph.linear(x, w);
    graph.partial(part, Reduced::Sum);
    graph.region(|region| {
        let sum = region.submit_comm(|graph| graph.all_reduce(part));
        let other = region.submit_compute(|graph| graph.linear(h, v));
        [sum.wait(), other.wait()]
    })
}

fn by_pipeline(graph: &mut TaskGraph, _: &World, [x, w, h, v]: [Node; 4]) -> [Node; 2] {
    let other = graph.linear(h, v);
    [graph.pipeline(4, x, |stage, rows| layer(stage, rows, w)), other]
}

fn by_overlapped(graph: &mut TaskGraph, world: &World, [x, w, h, v]: [Node; 4]) -> [Node; 2] {
    let other = graph.linear(h, v);
    [maco::overlapped(&world.device, layer)(graph, x, w), other]
}

/// A phase behind a product, beside the next one.
fn by_phase(graph: &mut TaskGraph, _: &World, [x, w, h, v]: [Node; 4]) -> [Node; 2] {
    let part = graph.linear(x, w);
    graph.partial(part, Reduced::Sum);
    let first = graph.linear(h, v);
    let sum = graph.phase(|phase| phase.all_reduce(part)).depends_on([first]).result;
    let other = graph.linear(h, v);
    graph.overlap(&[other], &[sum]).auto_waves();
    graph.output(first, "first");
    [sum, other]
}

/// The part of the time in which tasks of an all-reduce ran in which other tasks ran too, on the same rank.
fn hidden(profile: &Profile) -> f64 {
    // By time: how many tasks of each begin, less how many end.
    let mut changes: BTreeMap<u64, [i64; 2]> = BTreeMap::new();
    for span in profile.runs() {
        let communicates = profile.operations[profile.tasks[span.task as usize].operation as usize].name == "all_reduce";
        changes.entry(span.start).or_default()[usize::from(communicates)] += 1;
        changes.entry(span.end).or_default()[usize::from(communicates)] -= 1;
    }
    let (mut running, mut last, mut any, mut beside) = ([0, 0], 0, 0, 0);
    for (now, change) in changes {
        any += if running[1] > 0 { now - last } else { 0 };
        beside += if running[1] > 0 && running[0] > 0 { now - last } else { 0 };
        (0..2).for_each(|n| running[n] += change[n]);
        last = now;
    }
    assert!(any > 0, "no task of an all-reduce was recorded");
    beside as f64 / any as f64
}

/// Runs and records each way; at least `least` of the communication of each rank is hidden. `sizes` are rows, columns and terms of the products.
fn ways(world: &World, [m, n, k]: [u64; 3], least: f64) -> Result<(), Error> {
    let ways: [(&str, Way); 6] = [
        ("automatic", automatic),
        ("overlap", by_overlap),
        ("region", by_region),
        ("pipeline", by_pipeline),
        ("overlapped", by_overlapped),
        ("phase", by_phase),
    ];
    let (communicator, device) = (&world.communicator, &world.device);
    let (rank, ranks) = (u64::from(communicator.rank()), u64::from(communicator.ranks()));
    communicator.set_message_memory((16 * m * n + (8 << 20)) as usize)?;
    // Eight terms of small whole numbers, so that sums are exact in tf32.
    let row = |rank: u64, row: u64| ((row + rank) % 5) as f32 - 2.0;
    let matrix = |rows: u64, rank: u64| -> Vec<f32> { (0..rows * k).map(|at| if at % k < 8 { row(rank, at / k) } else { 0.0 }).collect() };
    let [x, w] = [device.upload(&matrix(m, rank), [m, k])?, device.upload(&matrix(n, rank + 1), [n, k])?];
    let [h, v] = [device.upload(&matrix(m, 2), [m, k])?, device.upload(&matrix(n, 3), [n, k])?];
    for (name, way) in ways {
        let mut graph = TaskGraph::new(name, built());
        let inputs = [("x", m), ("w", n), ("h", m), ("v", n)].map(|(name, rows)| graph.input::<f32>(name, [rows, k]));
        inputs[..2].iter().for_each(|&node| graph.shard(node, 1));
        let [sum, other] = way(&mut graph, world, inputs);
        graph.output(sum, "sum");
        graph.output(other, "other");
        // What a rank makes and drops waits for kernels of the others.
        communicator.barrier()?;
        let compiled = graph.compile_with(device, &world.options)?;
        match compiled.plan().profile(true) {
            Err(error) if error.code() == 62 => {
                eprintln!("left out: device code that records needs a build with MACO_PROFILE=1");
                return Ok(());
            }
            profiled => profiled?,
        }
        let arguments = || Arguments::new().tensor(&x).tensor(&w).tensor(&h).tensor(&v);
        communicator.barrier()?;
        let first = compiled.execute(arguments())?;
        communicator.barrier()?;
        let outputs = compiled.execute(arguments())?;
        let all = compiled.plan().profile_of_ranks(communicator)?;
        communicator.barrier()?;
        drop(first);
        for (at, found) in (0..).zip(outputs.get::<f32>("sum").unwrap().download()?) {
            let expected: f32 = (0..ranks).map(|rank| 8.0 * row(rank, at / n) * row(rank + 1, at % n)).sum();
            assert!(found == expected, "{name}, rank {rank}, at {at}: {found}, not {expected}");
        }
        for (rank, profile) in all.ranks().iter().enumerate() {
            let found = hidden(profile);
            assert!(found >= least, "{name}: {:.0} % of rank {rank}'s communication is hidden\n{}", 100.0 * found, all.summary());
        }
        communicator.barrier()?;
    }
    Ok(())
}

/// The same graphs, as far as CPU ranks go: they share cores, so times say nothing.
#[test]
fn each_way_is_recorded() {
    on_cpus(2, 2, |world| ways(world, [300, 512, 16], 0.0).unwrap());
}

#[test]
#[ignore = "gpu"]
fn gpu_half_of_the_communication_is_hidden() {
    on_gpus(2, maco::Schedule::Static, |world| {
        // An emulated GPU has no times.
        if support::short() {
            return;
        }
        ways(world, [4096, 4096, 8192], 0.5).unwrap();
    });
}
