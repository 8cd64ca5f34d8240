//! Calls with workers of their own run on no other ones, by every way in which lists are made.

mod plan_graphs;

use std::ops::Range;

use maco_graph::ir::{Graph, TensorKind};
use maco_graph::plan::{Cost, Costs, Defect, Options, Plan, Role, Schedule, TasksOf, WorkerRange, oracle, plan};
use maco_graph::spec::TaskSpec;
use plan_graphs::collectives::sum_beside_gemm;
use plan_graphs::random::{Draw, Script, scripts};
use plan_graphs::simulate;
use plan_graphs::*;
use proptest::prelude::*;
use proptest::test_runner::Config;

fn of_task(task: &TaskSpec, workers: Range<u32>) -> WorkerRange {
    WorkerRange { of: TasksOf::Task(task.name.into()), workers }
}

fn of_role(role: Role, workers: Range<u32>) -> WorkerRange {
    WorkerRange { of: TasksOf::Role(role), workers }
}

/// The workers that call `call` has tasks on.
fn used(plan: &Plan, call: usize) -> Vec<u32> {
    let runs = |worker: &u32| plan.lists.of(*worker as usize).iter().any(|task| plan.calls[call].tasks.contains(task));
    (0..plan.workers).filter(runs).collect()
}

fn options(ranges: &[WorkerRange]) -> Options {
    Options { ranges: ranges.to_vec(), ranks: 2, split_k: false, ..Options::new(8) }
}

#[test]
fn roles_and_tasks_have_their_workers() {
    let by_role = plan(sum_beside_gemm(), &options(&[of_role(Role::Compute, 0..6), of_role(Role::Comm, 6..8)])).unwrap();
    let compute: Vec<u32> = (0..6).collect();
    assert_eq!([0, 1, 2, 3].map(|call| used(&by_role, call)), [compute.clone(), vec![6, 7], compute.clone(), compute]);
    assert_eq!(by_role.ranges[1], Some(6..8));
    // A task has precedence over its role; calls without a rule may run everywhere.
    let mixed = plan(sum_beside_gemm(), &options(&[of_role(Role::Compute, 0..6), of_task(&ADD, 5..8)])).unwrap();
    assert_eq!((used(&mixed, 0), used(&mixed, 3)), ((0..6).collect(), vec![5, 6, 7]));
    let text = mixed.to_string();
    assert!(text.contains("  workers 0-5") && text.contains("  workers 5-7"), "{text}");
    // A rule for all workers is none.
    assert!(plan(sum_beside_gemm(), &options(&[of_role(Role::Compute, 0..8)])).unwrap().ranges.is_empty());
}

#[test]
fn without_rules_lists_are_as_before() {
    let (plain, ruled) =
        (plan(sum_beside_gemm(), &options(&[])).unwrap(), plan(sum_beside_gemm(), &options(&[of_role(Role::Comm, 0..8)])).unwrap());
    assert_eq!(plain.lists, ruled.lists);
    assert!(plain.ranges.is_empty());
}

/// GEMMs choose tiles for as many workers as they have.
#[test]
fn tiles_are_chosen_for_the_workers_of_the_call() {
    let graph = |rows: u64| {
        let mut build = Build::default();
        let (x, w) = (build.input("x", &[rows, 64]), build.input("w", &[2048, 64]));
        let y = build.tensor("y", TensorKind::Out, &[rows, 2048]);
        build.call(&STAGED_GEMM, &[x, w, y]);
        build.0
    };
    let shape = |workers: u32, ranges: &[WorkerRange], rows: u64| {
        let options = Options { ranges: ranges.to_vec(), split_k: false, ..Options::new(workers) };
        let plan = plan(graph(rows), &options).unwrap();
        (plan.calls[0].tile.clone(), plan.calls[0].grid.clone())
    };
    let mut differs = false;
    for rows in [64, 128, 256, 512, 1024, 2048] {
        let narrow = shape(128, &[of_task(&STAGED_GEMM, 0..8)], rows);
        assert_eq!(narrow, shape(8, &[], rows));
        differs |= narrow != shape(128, &[], rows);
    }
    assert!(differs);
}

#[test]
fn rules_that_cannot_hold_are_refused() {
    let refused = |options: Options, graph: Graph| {
        let error = plan(graph, &options).unwrap_err();
        assert_eq!(error.code(), 21, "{error}");
        error.to_string()
    };
    let error = refused(options(&[of_task(&ADD, 6..9)]), sum_beside_gemm());
    assert!(error.contains("task `add` is given workers 6..9 of 8"), "{error}");
    assert!(refused(options(&[of_role(Role::Comm, 3..3)]), sum_beside_gemm()).contains("the role comm is given workers 3..3 of 8"));
    let error = refused(options(&[of_task(&ADD, 0..4), of_task(&ADD, 4..8)]), sum_beside_gemm());
    assert!(error.contains("task `add` is given workers 0..4 and workers 4..8"), "{error}");
    let error = refused(options(&[of_task(&NORM, 0..4)]), sum_beside_gemm());
    assert!(error.contains("task `norm` is given workers 0..4, but no call is of it"), "{error}");
    for (schedule, name) in
        [(Schedule::Tickets, "tickets"), (Schedule::Schedulers(2), "2 schedulers"), (Schedule::SpareWarps(1), "1 spare")]
    {
        let error = refused(Options { schedule, ..options(&[of_task(&ADD, 0..4)]) }, sum_beside_gemm());
        assert!(error.contains("`add` (call #3) is to run on workers 0..4, but with ") && error.contains(name), "{error}");
    }
    let mut drained = sum_beside_gemm();
    drained.calls[3].drain = true;
    let error = refused(options(&[of_task(&ADD, 0..4)]), drained.clone());
    assert!(error.contains("`add` (call #3) is to run on workers 0..4, but it is drained"), "{error}");
    // Others may be drained beside it.
    let beside = plan(drained, &options(&[of_role(Role::Comm, 6..8)])).unwrap();
    assert_eq!((used(&beside, 1), beside.lists.drains.len()), (vec![6, 7], 1));
    let tasks = plan(sum_beside_gemm(), &options(&[])).unwrap().tasks.len();
    let error = refused(Options { assignment: Some(vec![7; tasks]), ..options(&[of_task(&ADD, 0..4)]) }, sum_beside_gemm());
    assert!(
        error.contains("`add` (call #3) is to run on workers 0..4, but the placement puts its task ") && error.contains("on worker 7"),
        "{error}"
    );
    plan(sum_beside_gemm(), &Options { assignment: Some(vec![7; tasks]), ..options(&[of_task(&ADD, 4..8)]) }).unwrap();
}

#[test]
fn the_verifier_finds_tasks_on_other_workers() {
    let sound = plan(sum_beside_gemm(), &options(&[of_role(Role::Compute, 0..6), of_role(Role::Comm, 6..8)])).unwrap();
    let first = sound.calls[1].tasks.start;
    let mut tampered = sound.clone();
    tampered.ranges[1] = Some(7..8);
    let on_six = sound.lists.of(6).iter().copied().filter(|task| sound.calls[1].tasks.contains(task)).min().unwrap();
    assert_eq!(tampered.verify(), Err(Defect::Worker { task: on_six, worker: 6 }));
    assert!(on_six >= first);
    // What is claimed by ticket has no worker.
    let mut tickets = plan(sum_beside_gemm(), &Options { schedule: Schedule::Tickets, ..options(&[]) }).unwrap();
    tickets.ranges = vec![None, Some(0..8), None, None];
    assert!(matches!(tickets.verify(), Err(Defect::Worker { worker: 8, .. })));
}

/// A rule for each of some tasks of the script's graph, and for a role.
fn rules(script: &Script, graph: &Graph, draw: &mut Draw<'_>) -> Vec<WorkerRange> {
    let mut names: Vec<&str> = graph.calls.iter().map(|call| call.task.name).collect();
    names.sort_unstable();
    names.dedup();
    let range = |draw: &mut Draw<'_>| {
        let start = draw.below(script.workers as usize) as u32;
        start..start + 1 + draw.below((script.workers - start) as usize) as u32
    };
    let mut rules = Vec::new();
    for name in names {
        if draw.below(2) == 0 {
            rules.push(WorkerRange { of: TasksOf::Task(name.into()), workers: range(draw) });
        }
    }
    if draw.below(2) == 0 {
        rules.push(of_role(Role::Compute, range(draw)));
    }
    rules
}

proptest! {
    #![proptest_config(Config { cases: 600, failure_persistence: None, ..Config::default() })]

    /// Round robin, by costs, with drains beside: rules hold, every conflict is ordered, and every legal run computes the program.
    #[test]
    fn rules_hold_in_random_graphs(script in scripts(12), by_cost in any::<bool>(), drains in any::<bool>()) {
        let script = Script { schedule: Schedule::Static, ..script };
        let mut graph = script.graph();
        let mut draw = Draw::endless(&script.dice);
        let ranges = rules(&script, &graph, &mut draw);
        let holds = |call: &maco_graph::ir::Call, of: &TasksOf| match of {
            TasksOf::Task(name) => call.task.name == name,
            TasksOf::Role(_) => true,
        };
        for call in &mut graph.calls {
            call.drain = drains && !ranges.iter().any(|rule| holds(call, &rule.of));
        }
        let costs = Costs { hop: Some(3), entries: vec![Cost { task: "linear".into(), tile: vec![2, 3], nanoseconds: 20 }] };
        let options = Options { ranges: ranges.clone(), costs: by_cost.then_some(costs), ..script.options() };
        let plan = plan(graph, &options).unwrap();
        plan.verify().unwrap();
        for (index, call) in plan.graph.calls.iter().enumerate() {
            // Those of the task before those of the role, which come behind them.
            let Some(rule) = ranges.iter().find(|rule| holds(call, &rule.of)) else { continue };
            let outside: Vec<u32> = used(&plan, index).into_iter().filter(|worker| !rule.workers.contains(worker)).collect();
            prop_assert!(outside.is_empty(), "call #{index} runs on {outside:?}, and not on {:?} alone\n{plan}", rule.workers);
            prop_assert_eq!(used(&plan, index).is_empty(), plan.calls[index].tasks.is_empty());
        }
        prop_assert!(oracle::conflict(&plan).is_none());
        simulate::agree(&plan, &mut draw, 2).map_err(TestCaseError::fail)?;
    }
}
