//! Random graphs: every conflict is ordered, every legal run computes what the program says, and the tests detect
//! a missing kind of dependency.

mod plan_graphs;

use maco_graph::plan::{Hazard, Plan, oracle, plan, plan_without};
use plan_graphs::random::{Draw, Script, scripts};
use plan_graphs::simulate;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

fn ordered(plan: &Plan) -> Result<(), TestCaseError> {
    match oracle::conflict(plan) {
        Some(conflict) => Err(TestCaseError::fail(format!("{conflict:?}\n{plan}"))),
        None => Ok(()),
    }
}

fn computes(plan: &Plan, script: &Script) -> Result<(), TestCaseError> {
    simulate::agree(plan, &mut Draw::endless(&script.dice), 4).map_err(|what| TestCaseError::fail(format!("{what}\n{plan}")))
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn every_conflict_is_ordered(script in scripts(16)) {
        let plan = plan(script.graph(), &script.options()).unwrap();
        ordered(&plan)?;
        prop_assert_eq!(plan.edges, plan.waits.iter().map(|wait| u64::from(wait.need)).sum::<u64>());
        prop_assert_eq!(plan.edges, plan.relations.iter().map(|relation| relation.edges).sum::<u64>());
        prop_assert_eq!(plan.waits.len() as u64, plan.relations.iter().map(|relation| u64::from(relation.waits)).sum::<u64>());
    }

    #[test]
    fn every_legal_run_computes_the_program(script in scripts(16)) {
        let plan = plan(script.graph(), &script.options()).unwrap();
        computes(&plan, &script)?;
    }

    #[test]
    fn waves_are_the_longest_chains(script in scripts(6)) {
        let plan = plan(script.graph(), &script.options()).unwrap();
        let mut level = vec![0; plan.counters as usize];
        for task in 0..plan.tasks.len() as u32 {
            let wave = plan.waits_of(task).iter().map(|wait| level[wait.counter as usize]).max().unwrap_or(0);
            prop_assert_eq!(plan.tasks[task as usize].wave, wave);
            for &counter in plan.signals_of(task) {
                level[counter as usize] = level[counter as usize].max(wave + 1);
            }
        }
        prop_assert_eq!(plan.waves, plan.tasks.iter().map(|task| task.wave + 1).max().unwrap_or(0));
    }

    #[test]
    fn every_counter_has_a_wait_and_no_wait_is_repeated(script in scripts(16)) {
        let plan = plan(script.graph(), &script.options()).unwrap();
        let mut waited = vec![false; plan.counters as usize];
        for task in 0..plan.tasks.len() as u32 {
            let mut counters: Vec<u32> = plan.waits_of(task).iter().map(|wait| wait.counter).collect();
            counters.iter().for_each(|&counter| waited[counter as usize] = true);
            let count = counters.len();
            counters.sort_unstable();
            counters.dedup();
            prop_assert_eq!(counters.len(), count);
        }
        prop_assert!(waited.iter().all(|&waited| waited));
    }
}

/// Whether `property` holds for plans that lack relations of kind `dropped`, on graphs that are the same at every run.
fn survives(dropped: Option<Hazard>, property: impl Fn(&Plan, &Script) -> Result<(), TestCaseError>) -> bool {
    let config = Config { max_shrink_iters: 0, ..config(1000) };
    let mut runner =
        TestRunner::new_with_rng(config, proptest::test_runner::TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha));
    let drawn = |script: Script| {
        let (graph, options) = (script.graph(), script.options());
        let plan = match dropped {
            Some(hazard) => plan_without(graph, &options, hazard).unwrap(),
            None => plan(graph, &options).unwrap(),
        };
        property(&plan, &script)
    };
    runner.run(&scripts(16), drawn).is_ok()
}

/// The properties above say little about graphs in which nothing depends on anything.
#[test]
fn random_graphs_have_dependencies() {
    let mut seen = [0usize; 10];
    let mut runner =
        TestRunner::new_with_rng(config(300), proptest::test_runner::TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha));
    let counts = std::cell::RefCell::new(&mut seen);
    let drawn = |script: Script| {
        let plan = plan(script.graph(), &script.options()).unwrap();
        let mut seen = counts.borrow_mut();
        let of = |hazard| plan.relations.iter().filter(|relation| relation.hazard == hazard).count();
        let tasks = || 0..plan.tasks.len() as u32;
        let out_of_order = plan.calls.windows(2).any(|pair| pair[0].tasks.start > pair[1].tasks.start);
        // Edges that stay on a worker, over a drain from which it may claim.
        let local_across = tasks().filter(|&task| plan.worker_edges.after(task) > 0).filter(|&task| {
            let waits = plan.waits_of(task).iter().filter(|wait| plan.worker_edges.contains(task, wait.counter));
            let first = waits.filter_map(|wait| tasks().find(|&from| plan.signals_of(from).contains(&wait.counter))).min();
            plan.lists.drains.iter().any(|drain| first.is_some_and(|first| first < drain.start) && drain.end <= task)
        });
        let local_across = local_across.count();
        let new = [
            of(Hazard::Raw),
            of(Hazard::War),
            of(Hazard::Waw),
            plan.calls.iter().filter(|call| call.grid.contains(&0)).count(),
            tasks().filter(|&task| plan.waits_of(task).len() > 2).count(),
            tasks().filter(|&task| plan.signals_of(task).len() > 2).count(),
            usize::from(out_of_order),
            usize::from(plan.waves > 4),
            plan.lists.drains.len(),
            local_across,
        ];
        seen.iter_mut().zip(new).for_each(|(seen, new)| *seen += new);
        Ok(())
    };
    runner.run(&scripts(16), drawn).unwrap();
    assert!(seen.iter().all(|&count| count > 50), "{seen:?}");
}

#[test]
fn the_pair_check_detects_a_missing_hazard() {
    assert!(survives(None, |plan, _| ordered(plan)));
    for hazard in [Hazard::Raw, Hazard::War, Hazard::Waw] {
        assert!(!survives(Some(hazard), |plan, _| ordered(plan)), "{hazard}");
    }
}

#[test]
fn the_runs_detect_a_missing_hazard() {
    assert!(survives(None, computes));
    for hazard in [Hazard::Raw, Hazard::War, Hazard::Waw] {
        assert!(!survives(Some(hazard), computes), "{hazard}");
    }
}
