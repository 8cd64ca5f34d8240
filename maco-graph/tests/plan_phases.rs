//! A phase begins behind all tasks of the calls that it depends on.
mod plan_graphs;

use maco_graph::ir::{Graph, Phase, TensorKind};
use maco_graph::plan::{Defect, Hazard, Options, Plan, PlanError, Schedule, oracle, plan, plan_without};
use maco_graph::spec::Via;
use plan_graphs::collectives::SUM;
use plan_graphs::{ADD, Build, STAGED_GEMM};

/// #0 and #1 GEMMs, #2 the sum of the first one over all ranks, #3 of the second one, #4 adds these.
fn graph(via: Via, phases: &[Phase]) -> Graph {
    let mut build = Build::default();
    let (x, w) = (build.input("x", &[512, 64]), build.input("w", &[1024, 64]));
    let temps = ["part", "other", "sum", "more"].map(|name| build.temp(name, &[512, 1024]));
    let y = build.tensor("y", TensorKind::Out, &[512, 1024]);
    build.call(&STAGED_GEMM, &[x, w, temps[0]]);
    build.call(&STAGED_GEMM, &[x, w, temps[1]]);
    build.call(&SUM, &[temps[0], temps[2]]);
    build.call(&SUM, &[temps[1], temps[3]]);
    build.call(&ADD, &[temps[2], temps[3], y]);
    build.0.calls[2].via = via;
    build.0.phases = phases.to_vec();
    build.0
}

fn options(via: Via) -> Options {
    Options { ranks: 2, nccl: via == Via::Nccl, push_tiles: true, ..Options::new(5) }
}

fn phase(comm: u32, behind: &[u32]) -> Phase {
    Phase { comm: vec![comm], behind: behind.to_vec() }
}

/// Places of the tasks of a call in the order that lists follow.
fn places(plan: &Plan, call: usize) -> impl Iterator<Item = u32> {
    plan.calls[call].tasks.clone().map(|task| plan.lists.positions[task as usize])
}

#[test]
fn no_task_begins_before_all_that_its_phase_depends_on() {
    for via in [Via::Automatic, Via::OneShot, Via::TwoShot, Via::Nccl] {
        let held = plan(graph(via, &[phase(2, &[1])]), &options(via)).unwrap();
        assert_eq!(oracle::too_early(&held), None, "{via:?}");
        assert!(places(&held, 2).min() > places(&held, 1).max(), "{via:?}");
        // A GEMM that sends its tiles would begin before.
        assert_eq!(held.calls[2].pushed_by, None, "{via:?}");
        assert_eq!(held.calls[3].pushed_by, Some(1), "{via:?}: this one is in no phase");
        let text = held.to_string();
        assert!(text.contains("  #2 behind #1\n") && text.contains("  #1 → #2  phase  `other`"), "{text}");
    }
}

/// Without the edge both the reference check and the verifier say so.
#[test]
fn a_phase_without_its_edge_is_seen() {
    let phases = [phase(2, &[1])];
    let mut free = plan(graph(Via::OneShot, &[]), &options(Via::OneShot)).unwrap();
    assert!(places(&free, 2).min() < places(&free, 1).max());
    free.graph.phases = phases.to_vec();
    let (earlier, later) = oracle::too_early(&free).unwrap();
    assert!(free.calls[1].tasks.contains(&earlier) && free.calls[2].tasks.contains(&later));
    assert_eq!(free.verify(), Err(Defect::Phase { call: 2, before: 1 }));
    let error = plan_without(graph(Via::OneShot, &phases), &options(Via::OneShot), Hazard::Phase).unwrap_err();
    assert_eq!(error, PlanError::Unverified(Defect::Phase { call: 2, before: 1 }));
    // One task that does not wait is enough.
    let mut held = plan(graph(Via::OneShot, &phases), &options(Via::OneShot)).unwrap();
    let relation = held.relations.iter().find(|relation| relation.hazard == Hazard::Phase).unwrap();
    let (counter, tasks) = (relation.counters.start, held.calls[2].tasks.clone());
    let last = &held.tasks[tasks.end as usize - 1];
    let own = last.first_wait as usize..last.first_wait as usize + usize::from(last.waits);
    let wait = held.waits[own.clone()].iter().position(|wait| wait.counter == counter).unwrap();
    held.waits[own.start + wait] = held.waits[own.start + usize::from(wait == 0)];
    assert_eq!(held.verify(), Err(Defect::Phase { call: 2, before: 1 }));
    assert_eq!(oracle::too_early(&held).map(|(_, later)| later), Some(tasks.end - 1));
}

/// A phase behind another one, and behind several calls; by lists, and by tickets, which have no order of their own.
#[test]
fn phases_follow_one_another() {
    let phases = [phase(2, &[0, 1]), phase(3, &[2])];
    for schedule in [Schedule::Static, Schedule::Tickets] {
        let held = plan(graph(Via::OneShot, &phases), &Options { schedule, ..options(Via::OneShot) }).unwrap();
        assert_eq!(oracle::too_early(&held), None);
        let found: Vec<_> = held.relations.iter().filter(|relation| relation.hazard == Hazard::Phase).collect();
        assert_eq!(found.iter().map(|relation| (relation.producer, relation.consumer)).collect::<Vec<_>>(), [(0, 2), (1, 2), (2, 3)]);
        // One counter each, however many tasks.
        assert!(found.iter().all(|relation| relation.counters.len() == 1));
    }
}

#[test]
fn what_can_be_no_phase_is_refused() {
    let refused = |phase: Phase| {
        let error = plan(graph(Via::OneShot, &[phase]), &options(Via::OneShot)).unwrap_err();
        assert_eq!(error.code(), 18);
        error.to_string()
    };
    let error = refused(phase(1, &[0]));
    assert!(error.contains("`linear` (call #1) cannot be in a phase") && error.contains("it is no collective"), "{error}");
    let error = refused(phase(2, &[1, 3]));
    assert!(error.contains("call #3 does not come before it"), "{error}");
}
