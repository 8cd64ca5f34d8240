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

/// Part r of the sum of all ranks' tensors is rank r's; the call that is to come first has its priority.
#[test]
fn each_rank_has_its_part_of_a_sum() {
    let ranks = 3;
    let parts = Communicator::threads(ranks, |communicator| {
        let device = Device::cpu_with(2);
        let mut graph = TaskGraph::new("parts", built());
        let mine = graph.input::<f32>("mine", [u64::from(ranks), 70, 30]);
        graph.partial(mine, Reduced::Sum);
        let part = graph.reduce_scatter(mine);
        graph.priority(2);
        graph.output(part, "part");
        let compiled = graph.compile_with(&device, &PlanOptions::new().communicator(communicator.clone())).unwrap();
        assert_eq!(compiled.graph().graph.calls[0].priority, 2);
        let own: Vec<f32> = (0..ranks * 70 * 30).map(|at| ((1 + communicator.rank()) * (at % 1000)) as f32).collect();
        let mine = device.upload(&own, [u64::from(ranks), 70, 30]).unwrap();
        compiled.execute(Arguments::new().tensor(&mine)).unwrap().get::<f32>("part").unwrap().download().unwrap()
    });
    for (rank, part) in (0..).zip(parts.unwrap()) {
        let expected: Vec<f32> = (0..70 * 30).map(|at| (6 * ((rank * 70 * 30 + at) % 1000)) as f32).collect();
        assert_eq!(part, expected, "rank {rank}");
    }
}

#[test]
fn a_sum_of_what_is_not_partial_is_refused() {
    assert!(of(2, false, Via::Automatic).into_iter().all(|found| found == Err(19)));
}
