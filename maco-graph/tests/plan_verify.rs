//! The verifier refuses every plan that has been tampered with.

mod plan_graphs;

use maco_graph::plan::{Defect, Options, Plan, Schedule, Wait, plan};
use plan_graphs::random::scripts;
use plan_graphs::*;
use proptest::prelude::*;

/// Two dependent calls of 4 × 2 and 4 tasks on two workers.
fn sound() -> Plan {
    let mut build = Build::default();
    let (h, y) = (build.temp("h", &[12, 8]), build.temp("y", &[12, 8]));
    build.call(&FILL, &[h]).tile = Some(vec![3, 4]);
    build.call(&NORM, &[h, y]).tile = Some(vec![3]);
    let plan = plan(build.0, &Options::new(2)).unwrap();
    assert_eq!((plan.tasks.len(), plan.counters), (12, 4));
    plan
}

fn defect(tamper: impl FnOnce(&mut Plan)) -> Defect {
    let mut plan = sound();
    tamper(&mut plan);
    plan.verify().expect_err("the verifier should notice")
}

#[test]
fn waits_must_need_exactly_the_signals_of_their_counter() {
    assert_eq!(defect(|plan| plan.waits[0].need += 1), Defect::Need { task: 8, counter: 0, need: 3, signals: 2 });
    assert_eq!(defect(|plan| plan.waits[0].need -= 1), Defect::Need { task: 8, counter: 0, need: 1, signals: 2 });
    assert!(matches!(defect(|plan| plan.signals[0] = 1), Defect::Need { .. }));
}

#[test]
fn a_wait_without_signals_is_refused() {
    let tampered = defect(|plan| {
        plan.counters += 1;
        plan.waits[2] = Wait { counter: 4, need: 0 };
    });
    assert_eq!(tampered, Defect::Need { task: 10, counter: 4, need: 0, signals: 0 });
}

#[test]
fn counters_must_exist() {
    assert_eq!(defect(|plan| plan.waits[0].counter = 4), Defect::Counter { task: 8, counter: 4, counters: 4 });
    assert_eq!(defect(|plan| plan.signals[3] = 9), Defect::Counter { task: 3, counter: 9, counters: 4 });
}

#[test]
fn waits_for_itself_or_later_tasks_are_refused() {
    // The consumer takes over one signal of a producer.
    let tampered = defect(|plan| {
        let signal = plan.signals.remove(0);
        plan.signals.push(signal);
        plan.tasks[0].signals = 0;
        for task in &mut plan.tasks[1..] {
            task.first_signal -= 1;
        }
        plan.tasks[11].signals = 1;
    });
    assert_eq!(tampered, Defect::Order { task: 8, counter: 0, by: 11 });
}

#[test]
fn waits_and_signals_must_be_contiguous() {
    assert_eq!(defect(|plan| plan.tasks[9].first_wait = 0), Defect::Layout { task: 9 });
    assert_eq!(defect(|plan| plan.tasks[1].signals = 0), Defect::Layout { task: 2 });
    assert_eq!(defect(|plan| plan.signals.push(0)), Defect::Layout { task: 12 });
    assert_eq!(defect(|plan| plan.waits.push(Wait { counter: 0, need: 2 })), Defect::Layout { task: 12 });
}

#[test]
fn tasks_are_the_tiles_of_the_grid() {
    assert_eq!(defect(|plan| plan.tasks[1].coord = plan.tasks[0].coord), Defect::Grid { call: 0 });
    assert_eq!(defect(|plan| plan.tasks[8].coord[0] = 4), Defect::Grid { call: 1 });
    assert_eq!(defect(|plan| plan.tasks[8].coord[2] = 1), Defect::Grid { call: 1 });
    assert_eq!(defect(|plan| plan.tasks[8].call = 0), Defect::Grid { call: 1 });
    assert_eq!(defect(|plan| plan.calls[1].tasks = 8..11), Defect::Grid { call: 1 });
    assert_eq!(defect(|plan| plan.calls[1].tasks = 8..40), Defect::Grid { call: 1 });
    assert_eq!(defect(|plan| plan.calls.truncate(1)), Defect::Grid { call: 1 });
}

#[test]
fn lists_hold_every_task_once_in_order() {
    assert_eq!(defect(|plan| plan.lists.order.swap(0, 1)), Defect::List { list: 0, task: 0 });
    assert_eq!(defect(|plan| plan.lists.order[6] = 0), Defect::Twice { task: 0 });
    assert_eq!(defect(|plan| plan.lists.order[11] = 12), Defect::List { list: 1, task: 12 });
    assert_eq!(defect(|plan| plan.lists.order.truncate(11)), Defect::Borders { lists: 2, tasks: 12 });
    assert_eq!(defect(|plan| plan.lists.starts[1] = 13), Defect::Borders { lists: 2, tasks: 12 });
    assert_eq!(defect(|plan| plan.lists.starts.truncate(2)), Defect::Borders { lists: 2, tasks: 12 });
    assert_eq!(defect(|plan| plan.schedule = Schedule::Tickets), Defect::Borders { lists: 1, tasks: 12 });
}

/// The same two calls, of which the first is drained.
fn drained(tamper: impl FnOnce(&mut Plan)) -> Result<(), Defect> {
    let mut graph = sound().graph;
    graph.calls[0].drain = true;
    let mut plan = plan(graph, &Options::new(2)).unwrap();
    assert_eq!((plan.lists.drains.first(), &plan.lists.order[..]), (Some(&(0..8)), &[8, 10, 9, 11][..]));
    tamper(&mut plan);
    plan.verify()
}

#[test]
fn every_task_is_listed_or_claimed() {
    assert_eq!(drained(|_| {}), Ok(()));
    assert_eq!(drained(|plan| plan.lists.drains[0].end = 0), Err(Defect::Drain { drain: 0 }));
    assert_eq!(drained(|plan| plan.lists.drains[0] = 0..13), Err(Defect::Drain { drain: 0 }));
    assert_eq!(drained(|plan| plan.lists.drains = vec![0..5, 4..8]), Err(Defect::Drain { drain: 1 }));
    assert_eq!(drained(|plan| plan.lists.drains = vec![4..8, 0..4]), Err(Defect::Drain { drain: 1 }));
    assert_eq!(drained(|plan| plan.schedule = Schedule::Tickets), Err(Defect::Drain { drain: 0 }));
    assert_eq!(drained(|plan| plan.lists.drains[0].end = 7), Err(Defect::Drained { task: 7 }));
    assert_eq!(drained(|plan| plan.lists.drains[0].end = 9), Err(Defect::Drained { task: 8 }));
    assert_eq!(drained(|plan| plan.graph.calls[0].drain = false), Err(Defect::Drained { task: 0 }));
    assert_eq!(drained(|plan| plan.lists.drains.clear()), Err(Defect::Drained { task: 0 }));
    assert_eq!(drained(|plan| plan.lists.order[0] = 7), Err(Defect::Twice { task: 7 }));
    assert_eq!(drained(|plan| plan.lists.order.insert(0, 7)), Err(Defect::Borders { lists: 2, tasks: 12 }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any changed number of a wait or signal is refused, for any graph.
    #[test]
    fn any_changed_wait_or_signal_is_detected(script in scripts(8), place in any::<usize>(), delta in 1u32..5) {
        let plan = plan(script.graph(), &script.options()).unwrap();
        prop_assert_eq!(plan.verify(), Ok(()));
        if plan.waits.is_empty() {
            return Ok(());
        }
        let mut need = plan.clone();
        let index = place % need.waits.len();
        need.waits[index].need = need.waits[index].need.wrapping_add(delta);
        prop_assert!(need.verify().is_err());
        let mut signal = plan.clone();
        let index = place % signal.signals.len();
        signal.signals[index] = (signal.signals[index] + delta) % (signal.counters + 1);
        prop_assert!(signal.signals == plan.signals || signal.verify().is_err());
        if plan.lists.order.is_empty() {
            return Ok(());
        }
        let mut order = plan.clone();
        let index = place % order.lists.order.len();
        order.lists.order[index] = (order.lists.order[index] + delta) % order.tasks.len() as u32;
        prop_assert!(order.lists == plan.lists || order.verify().is_err());
    }
}
