//! Collectives of graphs that are built at run time.

use maco::{Arguments, Communicator, Device, PlanOptions, Reduced, TaskGraph, Via, tasks};
use ranks::built::built;

/// What `ranks` ranks get of a sum, all parts of it, and the number of tasks per tile.
fn of(ranks: u32, partial: bool, via: Via) -> Vec<Result<(Vec<f32>, Vec<f32>, String), u16>> {
    Communicator::threads(ranks, |communicator| {
        let device = Device::cpu_with(2);
        let mut graph = TaskGraph::new("built", built());
        let x = graph.input::<f32>("x", [128, 256]);
        graph.shard(x, 0);
        let part = graph.elementwise(&tasks::copy::SPEC, x);
        if partial {
            graph.partial(part, Reduced::Sum);
        }
        let sum = graph.all_reduce(part);
        graph.via(via);
        let all = graph.all_gather(x, ranks);
        graph.output(sum, "sum");
        graph.output(all, "all");
        let options = PlanOptions::new().communicator(communicator.clone());
        let compiled = graph.compile_with(&device, &options).map_err(|error| error.code())?;
        let own = vec![1.0 + communicator.rank() as f32; 128 * 256];
        let x = device.upload(&own, [128, 256]).unwrap();
        let outputs = compiled.execute(Arguments::new().tensor(&x)).unwrap();
        let found = |name| outputs.get::<f32>(name).unwrap().download().unwrap();
        Ok((found("sum"), found("all"), compiled.graph().exchange(1).unwrap()))
    })
    .unwrap()
}

#[test]
fn sums_and_parts_are_those_of_all_ranks() {
    for (via, way) in [(Via::OneShot, "one-shot"), (Via::Packets, "packets")] {
        for found in of(2, true, via) {
            let (sum, all, exchange) = found.unwrap();
            assert!(sum.iter().all(|&value| value == 3.0));
            assert!(all.iter().enumerate().all(|(at, &value)| value == 1.0 + (at / (128 * 256)) as f32));
            assert!(exchange.starts_with(way), "{exchange}");
        }
    }
}

#[test]
fn a_sum_of_what_is_not_partial_is_refused() {
    assert!(of(2, false, Via::Automatic).into_iter().all(|found| found == Err(19)));
}
