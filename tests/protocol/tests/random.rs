//! Large random plans in random interleavings: every task is pushed once, when it is ready, never more than an inbox holds; every
//! worker is told the end; every word is left as it must be.

use std::ops::Range;

use proptest::prelude::*;
use protocol::plan::{Counter, Fault, Plan, Schedule};
use protocol::walk::{Dice, walk};

/// Counters whose producers come before their waiters in the order of tasks: between neighbours, so that there is a long way, or far.
fn plan(tasks: u32, counters: u32, workers: u32, spread: u32, seed: u64) -> Plan {
    let dice = Dice::new(seed);
    let some = |from: u32, below: u32, dice: &Dice| {
        let most = 1 + dice.below(spread);
        let mut found: Vec<u32> = (0..1 + dice.below(most)).map(|_| from + dice.below(below - from)).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let counter = |_| {
        let between = 1 + dice.below(tasks - 1);
        let producers = some(between.saturating_sub(spread), between, &dice);
        Counter { producers, waiters: some(between, tasks.min(between + 2 * spread), &dice) }
    };
    let counters = if tasks > 1 { (0..counters).map(counter).collect() } else { Vec::new() };
    let mut lists = vec![Vec::new(); workers as usize];
    // Every third run of tasks is claimed.
    let mut drains: Vec<Range<u32>> = Vec::new();
    let mut task = 0;
    while task < tasks {
        let run = task..tasks.min(task + 1 + dice.below(spread));
        task = run.end;
        if dice.below(3) == 0 {
            drains.push(run);
        } else {
            run.for_each(|task| lists[dice.below(workers) as usize].push(task));
        }
    }
    Plan { tasks, counters, workers, lists, drains, named: None }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn schedulers(
        tasks in prop_oneof![1u32..40, 40u32..2500],
        workers in prop_oneof![1u32..5, 5u32..40],
        schedulers in 1u32..5,
        density in 0u32..3,
        spread in prop_oneof![1u32..4, 4u32..60],
        position in prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()],
        seed in any::<u64>(),
    ) {
        let plan = plan(tasks, tasks * density / 2, workers, spread, seed);
        walk(&plan, Schedule::Pushed(schedulers.min(workers)), position, None, seed);
    }

    #[test]
    fn lists_and_tickets(
        tasks in prop_oneof![1u32..40, 40u32..800],
        workers in 1u32..20,
        spread in 1u32..20,
        seed in any::<u64>(),
    ) {
        let plan = plan(tasks, tasks, workers, spread, seed);
        walk(&plan, Schedule::Static, 0, None, seed);
        walk(&plan, Schedule::Tickets, 0, None, seed);
    }
}

fn chain() -> Plan {
    Plan::new(&[(&[0], &[1]), (&[1], &[2])], &[&[0, 2], &[1]])
}

#[test]
#[should_panic(expected = "task 2 is pushed before its inputs are there")]
fn an_edge_that_a_scheduler_lacks() {
    walk(&chain(), Schedule::Pushed(1), 0, Some(Fault::LostEdge { counter: 1, waiter: 2 }), 1);
}

#[test]
#[should_panic(expected = "task 1 runs before its inputs are there")]
fn an_edge_that_a_list_lacks() {
    // Some interleaving shows it.
    (0..100).for_each(|seed| walk(&chain(), Schedule::Static, 0, Some(Fault::LostEdge { counter: 0, waiter: 1 }), seed));
}

#[test]
#[should_panic(expected = "nobody gets on")]
fn a_push_that_is_lost() {
    walk(&chain(), Schedule::Pushed(1), 0, Some(Fault::LostPush(1)), 1);
}
