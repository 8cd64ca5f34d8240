//! List scheduling by cost: lists pass the verifier, compute the program, and end earlier than round-robin lists.

mod plan_graphs;

use maco_graph::plan::{Cost, Costs, Defect, DeviceModel, Options, Plan, oracle, plan};
use plan_graphs::random::{Draw, scripts};
use plan_graphs::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::Config;

fn costs(hop: u64, entries: &[(&str, u64)]) -> Costs {
    let entry = |&(task, nanoseconds): &(&str, u64)| Cost { task: task.into(), tile: vec![], nanoseconds };
    // No tile is listed: a task costs what its other tiles do.
    Costs { hop: Some(hop), entries: entries.iter().map(entry).collect() }
}

fn both(graph: maco_graph::ir::Graph, workers: u32, costs: &Costs) -> (Plan, Plan) {
    let dealt = plan(graph.clone(), &Options::new(workers)).unwrap();
    let listed = plan(graph, &Options { costs: Some(costs.clone()), ..Options::new(workers) }).unwrap();
    assert!(dealt.lists.positions.is_empty());
    assert_eq!(listed.lists.positions.len(), listed.tasks.len());
    (dealt, listed)
}

/// 24 independent tasks, then a chain of 8.
fn wide_and_long() -> maco_graph::ir::Graph {
    let mut build = Build::default();
    let wide = build.tensor("wide", maco_graph::ir::TensorKind::Out, &[48, 4]);
    build.call(&FILL, &[wide]).tile = Some(vec![2, 4]);
    let mut link = build.input("link", &[3, 8]);
    for n in 0..8 {
        let next = build.tensor(&format!("link{n}"), maco_graph::ir::TensorKind::Out, &[3, 8]);
        build.call(&NORM, &[link, next]).tile = Some(vec![3]);
        link = next;
    }
    build.0
}

#[test]
fn the_longest_path_is_scheduled_first() {
    let costs = costs(100, &[("fill", 1000), ("norm", 1000)]);
    let (dealt, listed) = both(wide_and_long(), 4, &costs);
    // 32 tasks of a microsecond for four workers, one of which has the chain.
    assert_eq!(listed.makespan(&costs), 8000);
    // Round robin: the chain begins when the wide call has ended, and walks from worker to worker.
    assert_eq!(dealt.makespan(&costs), 6000 + 8000 + 7 * 100);
    let home = (0..4).find(|&list| listed.lists.of(list).contains(&24)).unwrap();
    assert_eq!(listed.lists.of(home), (24..32).collect::<Vec<_>>(), "the chain stays where it is");
}

#[test]
fn a_hop_that_nobody_measured_is_the_models() {
    let costs = Costs { hop: None, ..costs(0, &[("fill", 1000), ("norm", 1000)]) };
    let model = DeviceModel { hop: 250.4, ..DeviceModel::DEFAULT };
    let dealt = plan(wide_and_long(), &Options { model, ..Options::new(4) }).unwrap();
    assert_eq!(dealt.makespan(&costs), 6000 + 8000 + 7 * 250);
    assert_eq!(dealt.makespan(&Costs { hop: Some(100), ..costs }), 6000 + 8000 + 7 * 100);
}

#[test]
fn expensive_tasks_are_spread_over_the_workers() {
    let mut build = Build::default();
    let (a, b) = (build.temp("a", &[2, 4]), build.temp("b", &[12, 8]));
    build.0.tensors.iter_mut().for_each(|tensor| tensor.kind = maco_graph::ir::TensorKind::Out);
    build.call(&FILL, &[a]).tile = Some(vec![2, 4]);
    build.call(&FILL, &[b]).tile = Some(vec![3, 4]);
    let cost = |tile: [u32; 2], nanoseconds| Cost { task: "fill".into(), tile: tile.into(), nanoseconds };
    let costs = Costs { hop: Some(0), entries: vec![cost([2, 4], 8000), cost([3, 4], 1000)] };
    let (dealt, listed) = both(build.0, 2, &costs);
    assert_eq!((dealt.makespan(&costs), listed.makespan(&costs)), (12_000, 8000));
}

#[test]
fn a_dependent_task_goes_to_another_worker_only_if_it_begins_earlier_there() {
    let graph = || {
        let mut build = Build::default();
        let (h, y) = (build.temp("h", &[12, 4]), build.tensor("y", maco_graph::ir::TensorKind::Out, &[12, 4]));
        build.call(&FILL, &[h]).tile = Some(vec![3, 4]);
        build.call(&NORM, &[h, y]).tile = Some(vec![3]);
        build.0
    };
    let costs = costs(500, &[("fill", 1000), ("norm", 1000)]);
    let (_, listed) = both(graph(), 4, &costs);
    assert_eq!(listed.makespan(&costs), 2000);
    for worker in 0..4 {
        let tasks = listed.lists.of(worker);
        assert_eq!(tasks.len(), 2);
        assert!(oracle::footprints(&listed, tasks[0]).iter().any(|footprint| footprint.access.writes()));
        assert_eq!(listed.tasks[tasks[0] as usize].coord[0], listed.tasks[tasks[1] as usize].coord[0], "rows stay together");
    }
}

#[test]
fn drains_keep_their_position() {
    let mut graph = wide_and_long();
    graph.calls[4].drain = true;
    let costs = costs(100, &[("fill", 1000), ("norm", 1000)]);
    let plan = plan(graph, &Options { costs: Some(costs.clone()), ..Options::new(4) }).unwrap();
    assert_eq!((plan.lists.drains.len(), plan.lists.positions.len()), (1, 0));
    assert!((0..4).all(|list| plan.lists.of(list).is_sorted()));
    assert!(plan.makespan(&costs) >= 8000);
}

#[test]
fn costs_apply_to_static_lists_without_an_assignment() {
    let costs = costs(1, &[("fill", 1)]);
    let options = Options { costs: Some(costs), ..Options::new(2) };
    let placed = Options { assignment: Some(vec![1; 32]), ..options.clone() };
    assert!(plan(wide_and_long(), &placed).unwrap().lists.of(0).is_empty());
    let tickets = Options { schedule: maco_graph::plan::Schedule::Tickets, ..options };
    assert_eq!(plan(wide_and_long(), &tickets).unwrap().lists.order, (0..32).collect::<Vec<_>>());
}

#[test]
fn invalid_positions_are_defects() {
    let (_, sound) = both(wide_and_long(), 4, &costs(100, &[("fill", 1000), ("norm", 1000)]));
    let defect = |tamper: &dyn Fn(&mut Plan)| {
        let mut plan = sound.clone();
        tamper(&mut plan);
        plan.verify().expect_err("the verifier should notice")
    };
    // Two links of the chain the wrong way round.
    assert_eq!(defect(&|plan| plan.lists.positions.swap(25, 26)), Defect::Position { task: 26 });
    assert_eq!(defect(&|plan| plan.lists.positions[3] = plan.lists.positions[4]), Defect::Position { task: 4 });
    assert_eq!(defect(&|plan| plan.lists.positions[3] = 32), Defect::Position { task: 3 });
    assert_eq!(defect(&|plan| plan.lists.positions.truncate(31)), Defect::Position { task: 0 });
    let first = (0..4).map(|list| sound.lists.starts[list] as usize).find(|&start| sound.lists.order[start] == 24).unwrap();
    assert!(matches!(defect(&|plan| plan.lists.order.swap(first, first + 1)), Defect::List { .. }));
}

/// Random costs of a script.
fn thrown(dice: &mut Draw<'_>) -> Costs {
    let names = ["linear", "scale", "add", "fill", "norm", "stencil", "causal", "heads", "gather", "scatter", "cube"];
    let entries = names.map(|task| Cost { task: task.into(), tile: vec![], nanoseconds: 10 + dice.below(3000) as u64 });
    Costs { hop: Some(dice.below(1000) as u64), entries: entries.into() }
}

#[test]
fn random_graphs_are_correct_and_end_earlier_than_round_robin() {
    let (mut dealt, mut listed, mut worse, mut cases) = (0, 0, 0, 0);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..300 {
        let script = scripts(16).new_tree(&mut runner).unwrap().current();
        let mut dice = Draw::endless(&script.dice);
        let costs = thrown(&mut dice);
        let options = Options { costs: Some(costs.clone()), ..Options::new(script.workers.max(4)) };
        let by_cost = plan(script.graph(), &options).unwrap();
        by_cost.verify().unwrap();
        assert_eq!(oracle::conflict(&by_cost), None);
        simulate::agree(&by_cost, &mut dice, 2).unwrap();
        let round = plan(script.graph(), &Options::new(script.workers.max(4))).unwrap();
        let (a, b) = (round.makespan(&costs), by_cost.makespan(&costs));
        dealt += a;
        listed += b;
        worse += u32::from(b > a);
        cases += u32::from(a > 0);
    }
    assert!(cases > 100, "{cases}");
    println!("{listed} of {dealt}; {worse} of {cases} end later");
    assert!(listed * 100 < dealt * 97, "{listed} of {dealt}");
    assert!(worse * 20 < cases, "{worse} of {cases} end later");
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    /// No list can be faster than the longest chain, or than all work spread evenly.
    #[test]
    fn a_makespan_has_lower_bounds(script in scripts(12)) {
        let costs = Costs { hop: Some(0), entries: vec![Cost { task: "linear".into(), tile: vec![], nanoseconds: 100 }] };
        let plan = plan(script.graph(), &Options { costs: Some(costs.clone()), ..Options::new(script.workers) }).unwrap();
        let makespan = plan.makespan(&costs);
        prop_assert!(makespan >= 100 * u64::from(plan.waves));
        prop_assert!(makespan * u64::from(plan.workers) >= 100 * plan.tasks.len() as u64);
    }
}
