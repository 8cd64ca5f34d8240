//! What docs/guide/overlap.md shows.
use maco::{Arguments, Communicator, Device, Error, Node, PlanOptions, Reduced, TaskGraph, Via, tasks};

maco::task_set! { pub layer_tasks: tasks::linear<f32>, tasks::all_reduce<f32> }

/// How a graph has the sum of x · upᵀ over all ranks, and h · gateᵀ, from x, up, h and gate.
pub type Way = fn(&mut TaskGraph, &Device, [Node; 4]) -> [Node; 2];

/// Nothing is said.
pub fn automatic(graph: &mut TaskGraph, _: &Device, [x, up, h, gate]: [Node; 4]) -> [Node; 2] {
    let part = graph.linear(x, up);
    graph.partial(part, Reduced::Sum);
    let sum = graph.all_reduce(part);
    let gates = graph.linear(h, gate);
    [sum, gates]
}

/// By nodes.
pub fn by_overlap(graph: &mut TaskGraph, device: &Device, of: [Node; 4]) -> [Node; 2] {
    let [sum, gates] = automatic(graph, device, of);
    graph.overlap(&[gates], &[sum]).auto_waves(); // or .waves(2)
    [sum, gates]
}

/// By what is submitted.
pub fn by_region(graph: &mut TaskGraph, _: &Device, [x, up, h, gate]: [Node; 4]) -> [Node; 2] {
    let part = graph.linear(x, up);
    graph.partial(part, Reduced::Sum);
    graph.region(|region| {
        let sum = region.submit_comm(|graph| graph.all_reduce(part));
        let gates = region.submit_compute(|graph| graph.linear(h, gate));
        [sum.wait(), gates.wait()]
    })
}

/// Rows in stages.
pub fn by_pipeline(graph: &mut TaskGraph, _: &Device, [x, up, h, gate]: [Node; 4]) -> [Node; 2] {
    let sum = graph.pipeline(4, x, |stage, rows| {
        let part = stage.linear(rows, up); // of these rows
        stage.partial(part, Reduced::Sum);
        stage.all_reduce(part)
    });
    [sum, graph.linear(h, gate)] // of all rows
}

/// The communication begins later.
pub fn by_phase(graph: &mut TaskGraph, _: &Device, [x, up, h, gate]: [Node; 4]) -> [Node; 2] {
    let part = graph.linear(x, up);
    graph.partial(part, Reduced::Sum);
    let gates = graph.linear(h, gate);
    let first = graph.phase(|phase| phase.all_reduce(part)).depends_on([gates]);

    let again = graph.linear(x, up);
    graph.partial(again, Reduced::Sum);
    let second = graph.phase(|phase| phase.all_reduce(again)).depends_on(&first);
    graph.output(first.result, "first");
    [second.result, gates]
}

/// As many stages as are good.
pub fn by_overlapped(graph: &mut TaskGraph, device: &Device, [x, up, h, gate]: [Node; 4]) -> [Node; 2] {
    let layer = maco::overlapped(device, |graph, rows, weights: Node| {
        let part = graph.linear(rows, weights);
        graph.partial(part, Reduced::Sum);
        graph.all_reduce(part)
    });
    let sum = layer(graph, x, up);
    [sum, graph.linear(h, gate)]
}

/// NCCL copies beside the kernel.
pub fn by_nccl(graph: &mut TaskGraph, _: &Device, [x, up, h, gate]: [Node; 4]) -> [Node; 2] {
    let part = graph.linear(x, up);
    graph.partial(part, Reduced::Sum);
    let sum = graph.all_reduce(part);
    graph.via(Via::Nccl); // the latest call
    [sum, graph.linear(h, gate)]
}

/// The sum and the gates of each way on one rank of `ranks`, and the printed plan.
pub fn on(ranks: &Communicator, way: Way) -> Result<(Vec<f32>, Vec<f32>, String), Error> {
    let device = Device::cpu_with(2);
    let mut graph = TaskGraph::new("layer", layer_tasks());
    let inputs = [("x", 512), ("up", 256), ("h", 512), ("gate", 256)].map(|(name, rows)| graph.input::<f32>(name, [rows, 32]));
    inputs[..2].iter().for_each(|&node| graph.shard(node, 1));
    let [sum, gates] = way(&mut graph, &device, inputs);
    graph.output(sum, "sum");
    graph.output(gates, "gates");
    let options = PlanOptions::new().communicator(ranks.clone()).comm_sms(8);
    let compiled = graph.compile_with(&device, &options)?;

    let numbers = |rows: u64, salt: u64| (0..rows * 32).map(|at| ((at * 5 + salt) % 11) as f32 - 5.0).collect::<Vec<f32>>();
    let own = u64::from(ranks.rank());
    let [x, up] = [device.upload(&numbers(512, own), [512, 32])?, device.upload(&numbers(256, own + 1), [256, 32])?];
    let [h, gate] = [device.upload(&numbers(512, 7), [512, 32])?, device.upload(&numbers(256, 8), [256, 32])?];
    let outputs = compiled.execute(Arguments::new().tensor(&x).tensor(&up).tensor(&h).tensor(&gate))?;
    let found = |name| outputs.get::<f32>(name).expect("an output").download();
    Ok((found("sum")?, found("gates")?, compiled.graph().to_string()))
}
