//! Options of calls, contexts and ranges of workers on several ranks: they say when and where tasks run, and change no bit.

mod support;

use maco::{Arguments, Backend, Communicator, Context, OverlapMode, PlanOptions, Reduced, Settings, SmConfig, TaskGraph};
use ranks::built::built;
use ranks::overlapped::overlapped;
use support::{World, everywhere, numbers};

everywhere!(groups_and_the_next_call, roles_have_workers);

const DIMS: overlapped::Dims = overlapped::Dims { M: 128, N: 256, K: 24 };

/// The bits of all that the kernel makes.
fn run(world: &World, plan: &overlapped::Plan) -> Vec<Vec<u16>> {
    let (device, rank) = (&world.device, world.communicator.rank());
    let upload = |rows: u64, salt: u64| device.upload(&numbers::<maco::bf16>(rank, rows * DIMS.K, salt), [rows, DIMS.K]).unwrap();
    let (x, w, v) = (upload(DIMS.M, 1), upload(DIMS.N, 2), upload(DIMS.N, 3));
    let mut made = [(); 6].map(|()| device.zeros::<maco::bf16>([DIMS.M, DIMS.N]).unwrap());
    let [first, gate, second, other, third, last] = &mut made;
    plan.run(&x, &w, &v, first, gate, second, other, third, last).unwrap();
    made.iter().map(|tensor| tensor.download().unwrap().into_iter().map(|value| value.to_bits()).collect()).collect()
}

fn groups_and_the_next_call(world: &World) {
    let said = overlapped::plan_with(&world.device, DIMS, &world.options).unwrap();
    let beside: Vec<_> = said.graph().graph.overlaps.iter().map(|overlap| (overlap.compute.clone(), overlap.comm.clone())).collect();
    assert_eq!(beside, [(vec![2], vec![1]), (vec![5], vec![4]), (vec![8], vec![7])]);
    let never = overlapped::plan_with(&world.device, DIMS, &world.options.clone().overlap(OverlapMode::Never)).unwrap();
    assert!(never.graph().graph.overlaps.is_empty());
    let found = run(world, &said);
    assert!(found.iter().all(|made| made.iter().any(|&bits| bits != 0)));
    assert_eq!(found, run(world, &never));
    assert_eq!(found[0], found[4], "both are the sum of x · wᵀ");
}

fn roles_have_workers(world: &World) {
    let workers = world.device.workers();
    // Tickets have no lists, and with one worker there is nothing to divide.
    let options = world.options.clone().schedule(maco::Schedule::Static);
    let plain = overlapped::plan_with(&world.device, DIMS, &options).unwrap();
    if workers == 1 {
        return;
    }
    let divided = overlapped::plan_with(&world.device, DIMS, &options.sms(SmConfig::split(workers - 1, 1))).unwrap();
    let plan = divided.graph();
    for (index, call) in plan.calls.iter().enumerate() {
        let own = [1, 4, 7].contains(&index);
        for worker in 0..workers {
            let any = plan.lists.of(worker as usize).iter().any(|task| call.tasks.contains(task));
            assert!(!any || own == (worker == workers - 1), "call #{index} on worker {worker} of {workers}\n{plan}");
        }
    }
    // One plan after the other, with the same weights.
    let found = run(world, &plain);
    assert_eq!(found, run(world, &divided));
    assert_eq!(found, run(world, &plain));
}

/// A graph that is built at run time, in a context: `options` are those of its calls.
fn graph_in(context: &Context, options: bool) -> (Vec<u32>, String) {
    let mut graph = TaskGraph::new("beside", built());
    let (x, w, v) = (graph.input::<f32>("x", [128, 24]), graph.input::<f32>("w", [256, 24]), graph.input::<f32>("v", [256, 24]));
    graph.shard(x, 1);
    graph.shard(w, 1);
    let part = graph.linear(x, w);
    graph.partial(part, Reduced::Sum);
    let sum = graph.all_reduce(part);
    if options {
        graph.overlap_group("gates");
        graph.overlap_next();
    }
    let gate = graph.linear(x, v);
    if options {
        graph.overlap_group("gates");
    }
    graph.shard(gate, 1);
    graph.output(sum, "sum");
    graph.output(gate, "gate");
    let compiled = graph.compile_in(context).unwrap();
    let device = context.device();
    let upload = |rows: u64, salt: u64| device.upload(&numbers::<f32>(context.rank(), rows * 24, salt), [rows, 24]).unwrap();
    let outputs = compiled.execute(Arguments::new().tensor(&upload(128, 1)).tensor(&upload(256, 2)).tensor(&upload(256, 3))).unwrap();
    let sum = outputs.get::<f32>("sum").unwrap().download().unwrap().into_iter().map(f32::to_bits).collect();
    (sum, compiled.graph().to_string())
}

#[test]
fn a_context_carries_its_choices_to_every_plan() {
    let of = |settings: Settings, options: bool| {
        let ranks = Communicator::threads(2, |communicator| {
            let context = Context::of_ranks(&communicator, settings.clone().backend(Backend::Cpu)).unwrap();
            assert_eq!((context.world_size(), context.rank()), (2, communicator.rank()));
            graph_in(&context, options)
        });
        ranks.unwrap()
    };
    let split = Settings::new().compute_sms(2).comm_sms(1);
    let plain = of(split.clone(), false);
    assert!(
        !plain[0].1.contains(" beside ") && plain[0].1.contains("  workers 0-1") && plain[0].1.contains("  workers 2-2"),
        "{}",
        plain[0].1
    );
    assert_eq!(plain[0].0, plain[1].0);
    assert!(plain[0].0.iter().any(|&bits| bits != 0));
    for (settings, options, beside) in [
        (split.clone(), true, 2),
        (split.clone().overlap(OverlapMode::Always), false, 1),
        (split.clone().overlap(OverlapMode::Never), true, 0),
        (split.debug(true).profile(true), false, 0),
    ] {
        for (sum, text) in of(settings, options) {
            assert_eq!(sum, plain[0].0);
            assert_eq!(text.matches("  #1 beside #2").count(), beside, "{text}");
        }
    }
}

/// What `options` of a call say wrongly is an error when the graph is compiled.
#[test]
fn wrong_options_of_calls_are_refused() {
    let refused = |build: &dyn Fn(&mut TaskGraph, [maco::Node; 2])| {
        let mut graph = TaskGraph::new("wrong", built());
        let (x, w) = (graph.input::<f32>("x", [128, 24]), graph.input::<f32>("w", [256, 24]));
        build(&mut graph, [x, w]);
        let options = PlanOptions::new().communicator(Communicator::single());
        let error = graph.compile_with(&maco::Device::cpu_with(2), &options).map(drop).unwrap_err();
        assert_eq!(error.code(), 18);
        error.to_string()
    };
    let linear = |graph: &mut TaskGraph, [x, w]: [maco::Node; 2]| {
        let part = graph.linear(x, w);
        graph.partial(part, Reduced::Sum);
        part
    };
    let error = refused(&|graph, nodes| {
        let y = graph.linear(nodes[0], nodes[1]);
        graph.overlap_next();
        graph.output(y, "y");
    });
    assert!(error.contains("task `linear` waits for no other rank"), "{error}");
    let error = refused(&|graph, nodes| {
        let part = linear(graph, nodes);
        let sum = graph.all_reduce(part);
        graph.overlap_next();
        graph.output(sum, "sum");
    });
    assert!(error.contains("there is no call behind task `all_reduce`"), "{error}");
    let error = refused(&|graph, nodes| {
        let part = linear(graph, nodes);
        let sum = graph.all_reduce(part);
        graph.overlap_group("alone");
        graph.output(sum, "sum");
    });
    assert!(error.contains("overlap group `alone` has no call beside its collectives"), "{error}");
}
