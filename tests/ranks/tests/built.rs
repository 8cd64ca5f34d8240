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

/// A sum over all ranks beside a GEMM that needs nothing of it, by a region or by its nodes: the same bits as one after the other, and the plan says so.
#[test]
fn a_sum_beside_a_gemm_has_the_same_bits() {
    let run = |how: u32| {
        let found = Communicator::threads(2, |communicator| {
            let device = Device::cpu_with(3);
            let mut graph = TaskGraph::new("beside", built());
            let (x, w) = (graph.input::<f32>("x", [256, 64]), graph.input::<f32>("w", [512, 64]));
            graph.shard(x, 1);
            graph.shard(w, 1);
            let part = graph.linear(x, w);
            graph.partial(part, Reduced::Sum);
            let v = graph.input::<f32>("v", [512, 64]);
            let (sum, gate) = match how {
                2 => graph.region(|region| {
                    let sum = region.submit_comm(|graph| graph.all_reduce(part));
                    let gate = region.submit_compute(|graph| graph.linear(x, v));
                    (sum.wait(), gate.wait())
                }),
                _ => {
                    let sum = graph.all_reduce(part);
                    (sum, graph.linear(x, v))
                }
            };
            graph.shard(gate, 1);
            if how == 1 {
                graph.overlap(&[gate], &[sum]).waves(2);
            }
            graph.output(sum, "sum");
            graph.output(gate, "gate");
            let compiled = graph.compile_with(&device, &PlanOptions::new().communicator(communicator.clone())).unwrap();
            let text = compiled.graph().to_string();
            assert_eq!(text.contains("  #1 beside #2"), how > 0, "{text}");
            assert_eq!(text.contains("#1 beside #2, in 2 waves\n"), how == 1, "{text}");
            let numbers = |count: u32, salt: u32| (0..count).map(|at| ((at * 7 + salt) % 13) as f32 - 6.0).collect::<Vec<f32>>();
            let salt = communicator.rank();
            let x = device.upload(&numbers(256 * 64, salt), [256, 64]).unwrap();
            let [w, v] = [1, 2].map(|more| device.upload(&numbers(512 * 64, salt + more), [512, 64]).unwrap());
            let outputs = compiled.execute(Arguments::new().tensor(&x).tensor(&w).tensor(&v)).unwrap();
            let bits = |name| outputs.get::<f32>(name).unwrap().download().unwrap().into_iter().map(f32::to_bits).collect::<Vec<u32>>();
            (bits("sum"), bits("gate"))
        });
        found.unwrap()
    };
    let plain = run(0);
    assert_eq!(plain[0].0, plain[1].0);
    assert!(plain[0].0.iter().any(|&bits| bits != 0));
    assert!(run(1) == plain && run(2) == plain);
}

/// What reads a sum does not hide it.
#[test]
fn what_needs_the_sum_cannot_be_beside_it() {
    let errors = Communicator::threads(2, |communicator| {
        let mut graph = TaskGraph::new("behind", built());
        let part = graph.input::<f32>("part", [256, 64]);
        graph.partial(part, Reduced::Sum);
        let sum = graph.all_reduce(part);
        let y = graph.elementwise(&tasks::copy::SPEC, sum);
        graph.overlap(&[y], &[sum]).auto_waves();
        graph.output(y, "y");
        graph.compile_with(&Device::cpu_with(2), &PlanOptions::new().communicator(communicator)).map(drop).unwrap_err().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("MACO0018: `all_reduce` (call #0) cannot overlap with what it was given"), "{error}");
    }
}
