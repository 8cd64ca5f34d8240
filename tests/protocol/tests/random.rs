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
        workers in prop_oneof![1u32..5, 5u32..40, 40u32..133],
        schedulers in 1u32..9,
        density in 0u32..3,
        spread in prop_oneof![1u32..4, 4u32..60],
        position in prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()],
        ahead in prop_oneof![1 => Just(false), 3 => Just(true)],
        seed in any::<u64>(),
    ) {
        let plan = plan(tasks, tasks * density / 2, workers, spread, seed);
        let pushed = walk(&plan, Schedule::Pushed(schedulers.min(workers)), position, ahead, None, seed);
        prop_assert!(ahead || pushed == 0);
    }

    #[test]
    fn lists_and_tickets(
        tasks in prop_oneof![1u32..40, 40u32..800],
        workers in prop_oneof![1u32..20, 20u32..133],
        spread in 1u32..20,
        seed in any::<u64>(),
    ) {
        let plan = plan(tasks, tasks, workers, spread, seed);
        walk(&plan, Schedule::Static, 0, true, None, seed);
        walk(&plan, Schedule::Tickets, 0, true, None, seed);
    }
}

/// Tasks one behind the other: all but the first are pushed before they are ready, wherever there are two workers, or nearly all.
#[test]
fn chains_are_pushed_ahead() {
    const LINKS: u32 = 200;
    for workers in 1..8 {
        let counters = (0..LINKS - 1).map(|link| Counter { producers: vec![link], waiters: vec![link + 1] }).collect();
        let plan = Plan { tasks: LINKS, counters, workers, lists: vec![Vec::new(); workers as usize], drains: Vec::new(), named: None };
        for seed in 0..20 {
            let ahead = walk(&plan, Schedule::Pushed(1), 0, true, None, seed);
            assert!(if workers == 1 { ahead == 0 } else { ahead > LINKS / 2 }, "{ahead} of {LINKS} tasks ahead on {workers} workers");
        }
    }
}

/// A chain on the way to the end is pushed ahead also while tasks are ready that matter less: those come behind it in the order of tasks, as
/// a plan puts them.
#[test]
fn chains_are_pushed_ahead_of_a_fan() {
    const LINKS: u32 = 100;
    const FAN: u32 = 1000;
    let chain = (0..LINKS - 1).map(|link| Counter { producers: vec![link], waiters: vec![link + 1] });
    let fan = Counter { producers: vec![0], waiters: (LINKS..LINKS + FAN).collect() };
    for workers in [4, 40] {
        let (counters, lists) = (chain.clone().chain([fan.clone()]).collect(), vec![Vec::new(); workers as usize]);
        let plan = Plan { tasks: LINKS + FAN, counters, workers, lists, drains: Vec::new(), named: None };
        for seed in 0..20 {
            let ahead = walk(&plan, Schedule::Pushed(1), 0, true, None, seed);
            assert!(ahead > LINKS / 8, "{ahead} of {LINKS} links ahead on {workers} workers");
        }
    }
}

/// The end of a task is two messages to one scheduler, and a task that waits for the second counter only may end before that is heard.
#[test]
fn no_message_is_left_behind() {
    let plan = Plan::new(&[(&[0], &[2]), (&[0], &[1])], &[&[0, 2], &[1], &[]]);
    for seed in 0..500 {
        assert_eq!(walk(&plan, Schedule::Pushed(1), 0, true, None, seed), 1, "tasks pushed ahead");
    }
}

fn chain() -> Plan {
    Plan::new(&[(&[0], &[1]), (&[1], &[2])], &[&[0, 2], &[1]])
}

#[test]
#[should_panic(expected = "task 2 is pushed before its inputs are there")]
fn an_edge_that_a_scheduler_lacks() {
    walk(&chain(), Schedule::Pushed(1), 0, true, Some(Fault::LostEdge { counter: 1, waiter: 2 }), 1);
}

#[test]
#[should_panic(expected = "task 1 runs before its inputs are there")]
fn an_edge_that_a_list_lacks() {
    // Some interleaving shows it.
    for seed in 0..100 {
        walk(&chain(), Schedule::Static, 0, true, Some(Fault::LostEdge { counter: 0, waiter: 1 }), seed);
    }
}

#[test]
#[should_panic(expected = "nobody gets on")]
fn a_push_that_is_lost() {
    walk(&chain(), Schedule::Pushed(1), 0, true, Some(Fault::LostPush(1)), 1);
}
