//! A protocol that lacks anything fails: what the models accept is not accepted by chance.

use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::Once;

use protocol::cases;
use protocol::memory::Word;
use protocol::model::{Model, Mutation, Role};
use protocol::plan::{Fault, Schedule};

/// Threads of this name fail on purpose.
const MUTANT: &str = "mutant";

/// Whether some interleaving of the model goes wrong.
fn fails(model: Model) -> bool {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some(MUTANT) {
                hook(panic);
            }
        }));
    });
    let run = move || catch_unwind(|| model.check()).is_err();
    std::thread::Builder::new().name(MUTANT.into()).spawn(run).expect("a thread").join().expect("the panic was caught")
}

fn notices(models: &[fn() -> Model], mutation: Mutation) {
    for model in models {
        assert!(fails(Model { mutation: Some(mutation), ..model() }), "{mutation:?} goes unnoticed");
    }
}

macro_rules! mutations {
    ($($name:ident: $mutation:expr => $($model:ident)*;)*) => {
        $(#[test]
        fn $name() {
            notices(&[$(cases::$model),*], $mutation);
        })*
    };
}

mutations! {
    without_acquire_in_wait: Mutation::NoAcquire(Role::Worker) => producer_and_consumer two_producers diamond_in_lists three_waits drain tickets;
    without_acquire_in_pop: Mutation::NoAcquire(Role::Worker) => pushed_join pushed_diamond two_schedulers;
    without_acquire_of_what_to_wait_for: Mutation::NoAcquireOfUntil => ahead_of_one;
    without_acquire_behind_that_wait: Mutation::NoAcquireOfEnded => ahead_of_one ahead_in_a_chain several_ahead ahead_of_the_last;
    without_release_of_what_to_wait_for: Mutation::NoReleaseOfUntil => ahead_of_one several_ahead;
    without_release_of_a_count: Mutation::NoRelease(Role::Worker) => ahead_of_one ahead_in_a_chain;
    without_clearing_the_counts: Mutation::KeepCounters => two_launches_ahead;
    without_acquire_in_hear: Mutation::NoAcquire(Role::Scheduler) => pushed_join pushed_diamond two_schedulers;
    without_acquire_before_names: Mutation::NoFirstAcquire => named_by_data;
    without_release_in_signal: Mutation::NoRelease(Role::Worker) => producer_and_consumer two_producers diamond_in_lists three_signals drain tickets;
    without_release_in_notify: Mutation::NoRelease(Role::Worker) => pushed_join pushed_diamond two_schedulers;
    without_release_in_push: Mutation::NoRelease(Role::Scheduler) => pushed_join pushed_diamond two_schedulers;
    without_clearing_the_idle_bank: Mutation::KeepCounters => two_launches_of_lists two_launches_of_a_drain two_launches_by_ticket;
    without_clearing_the_ticket: Mutation::KeepTicket => two_launches_of_a_drain two_launches_by_ticket;
    without_emptying_the_inbox: Mutation::KeepInbox => pushed_chain two_launches_of_a_scheduler;
    without_emptying_the_mailbox: Mutation::KeepMailbox => pushed_chain full_mailbox two_launches_of_a_scheduler;
    without_counting_those_that_enter: Mutation::Uncounted(Word::Begun) => two_launches_of_lists pushed_join;
    without_counting_those_that_leave: Mutation::Uncounted(Word::Left) => two_launches_of_lists pushed_join;
    without_the_first_ones_share: Mutation::EqualShares => two_launches_of_lists;
    with_torn_addition: Mutation::TornAdd => two_producers;
    with_torn_tickets: Mutation::TornClaim => drain long_drain tickets;
    with_torn_leave: Mutation::TornClaim => producer_and_consumer;
    with_torn_abort: Mutation::TornExchange => lost_signal;
    blind_to_an_abort: Mutation::BlindToAbort => lost_signal lost_push;
    with_a_look_at_one_place: Mutation::OnePlace => full_mailbox;
}

/// The model without one of its edges, each in turn.
fn needs_every_edge(model: fn() -> Model) {
    let whole = model();
    let waits = whole.plan.waits(whole.schedule);
    assert!(!waits.is_empty());
    for (counter, waiter) in waits {
        let fault = Some(Fault::LostEdge { counter, waiter });
        assert!(fails(Model { fault, ..model() }), "task {waiter} need not wait for counter {counter}");
    }
}

#[test]
fn every_edge_of_lists() {
    [
        cases::producer_and_consumer as fn() -> Model,
        cases::two_producers,
        cases::diamond_in_lists,
        cases::three_signals,
        cases::three_waits,
        cases::named_by_data,
        cases::drain,
        cases::long_drain,
    ]
    .into_iter()
    .for_each(needs_every_edge);
}

#[test]
fn every_edge_of_tickets() {
    [cases::tickets as fn() -> Model, cases::two_launches_by_ticket].into_iter().for_each(needs_every_edge);
}

#[test]
fn every_edge_of_schedulers() {
    [cases::pushed_join as fn() -> Model, cases::pushed_diamond, cases::two_schedulers, cases::ahead_of_one, cases::ahead_of_the_last]
        .into_iter()
        .for_each(needs_every_edge);
}

#[test]
fn a_store_for_two_producers() {
    assert_eq!(cases::two_producers().schedule, Schedule::Static);
    assert!(fails(Model { fault: Some(Fault::FalselySole(0)), ..cases::two_producers() }));
}
