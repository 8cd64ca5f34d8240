//! A CTA's controller and gates in every interleaving: all warps run what is published and nothing else, what they read is there, every hang is told
//! once, and nobody waits for ever. Without any one of the orders that they rely on, some model fails.
//!
//! Takes ten seconds: loom goes through every interleaving of the roles of a CTA.

use std::panic::{catch_unwind, set_hook, take_hook};
use std::time::Instant;

use protocol::cta::{Consumers, Course, Kind, Lack, Model};

/// A CTA stops whose consumers stand at the gates of tasks, some of them published before.
const fn stopped(published: u32, tasks: &'static [&'static [u32]], signals: u32, preemptions: usize) -> Model {
    Model { run: Course::Stopped(published), consumers: Consumers::Gated, preemptions, ..Model::new(tasks, signals) }
}

/// A task whose input may come while the CTA stops; one whose input does not.
const GATE: Model = stopped(0, &[&[0]], 1, 1);
const SHUT_GATE: Model = stopped(0, &[&[0]], 0, 2);
/// One warp may be at the second gate when the other is at the first.
const TWO_GATES: Model = stopped(0, &[&[0], &[1]], 2, 1);
/// The first gate is open for all.
const OPEN_GATE: Model = stopped(1, &[&[], &[0]], 1, 1);

/// A task that waits for one counter, or two, and one behind it that waits for none.
const ONE: Model = Model::new(&[&[0]], 1);
const JOIN: Model = Model { preemptions: 1, ..Model::new(&[&[0, 1], &[]], 2) };
/// Consumers hear of tasks by a word.
const NOTICED: Model = Model { consumers: Consumers::Noticing, ..ONE };
/// Tasks are posted meanwhile.
const LATE: Model = Model { late: true, preemptions: 1, ..Model::new(&[&[], &[0]], 1) };
/// Consumers look themselves, too.
const GATED: Model = Model { consumers: Consumers::Gated, preemptions: 0, ..ONE };

/// A signal that does not come: the deadline is told, and the task behind, which waits for nothing, does not run.
const LOST: Model = Model { deadline: true, ..Model::new(&[&[0], &[]], 0) };
/// A CTA stops right behind the publication of a task. There is no gate, and so no need of the fence of who stops, which would release too.
const PUBLISHED: Model = Model { consumers: Consumers::Waiting, lack: Some(Lack::SequentialOfController), ..stopped(1, &[&[]], 0, 1) };
/// A deadline that passes though the signal comes, now or then; and one that does so to consumers at a gate.
const EARLY: Model = Model { deadline: true, preemptions: 1, ..Model::new(&[&[0], &[]], 1) };
const EARLY_AT_A_GATE: Model = Model { consumers: Consumers::Gated, preemptions: 0, ..EARLY };
/// A task that does not end.
const STUCK: Model = Model { consumers: Consumers::Stuck, deadline: true, ..Model::new(&[&[]], 0) };
/// Another CTA aborts the launch.
const ABORTED: Model = Model { abort: true, preemptions: 1, ..ONE };
const ABORTED_IN_VAIN: Model = Model { abort: true, ..Model::new(&[&[0]], 0) };
/// Two find at the same time that it should be.
const ABORTED_TWICE: Model = Model { abort: true, deadline: true, ..Model::new(&[&[0]], 0) };

macro_rules! models {
    ($($name:ident: $model:expr;)*) => {
        $(#[test]
        fn $name() {
            let start = Instant::now();
            let interleavings = $model.check();
            println!("{interleavings} interleavings in {:?}", start.elapsed());
            assert!(interleavings > 1, "nothing was interleaved");
        })*
    };
}

models! {
    gate: GATE;
    shut_gate: SHUT_GATE;
    two_gates: TWO_GATES;
    open_gate: OPEN_GATE;
    published: PUBLISHED;
    one: ONE;
    join: JOIN;
    noticed: NOTICED;
    late: LATE;
    gated: GATED;
    lost: LOST;
    early: EARLY;
    early_at_a_gate: EARLY_AT_A_GATE;
    stuck: STUCK;
    aborted: ABORTED;
    aborted_in_vain: ABORTED_IN_VAIN;
    aborted_twice: ABORTED_TWICE;
}

/// Threads of this name fail on purpose.
const MUTANT: &str = "mutant";

fn notices(models: &[Model], lack: Lack) {
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some(MUTANT) {
                hook(panic);
            }
        }));
    });
    for model in models {
        let mutant = Model { lack: Some(lack), ..model.clone() };
        let run = move || {
            catch_unwind(|| mutant.check()).err().map(|why| {
                let text = why.downcast_ref::<String>().cloned();
                text.or_else(|| why.downcast_ref::<&str>().map(|text| (*text).into())).unwrap_or_default()
            })
        };
        let why = std::thread::Builder::new().name(MUTANT.into()).spawn(run).expect("a thread").join().expect("the panic was caught");
        println!("{lack:?}: {}", why.as_deref().unwrap_or("unnoticed"));
        assert!(why.is_some(), "{lack:?} goes unnoticed: {model:?}");
    }
}

macro_rules! mutations {
    ($($name:ident: $lack:expr => $($model:ident)*;)*) => {
        $(#[test]
        fn $name() {
            notices(&[$($model),*], $lack);
        })*
    };
}

mutations! {
    without_the_sequential_fence_of_who_looks: Lack::SequentialOfConsumers => GATE;
    without_the_sequential_fence_of_who_stops: Lack::SequentialOfController => GATE;
    without_acquire_at_a_gate: Lack::AcquireOfConsumers => GATE TWO_GATES OPEN_GATE;
    without_acquire_of_the_controller: Lack::AcquireOfController => ONE JOIN NOTICED;
    without_release_of_a_signal: Lack::Release => GATE ONE JOIN;
    without_acquire_of_what_has_begun: Lack::AcquireOfController => GATE;
    // Who does not see what was published before goes away, and whoever stops the CTA waits for it: `loom` finds no end.
    without_release_of_the_halt_word: Lack::Store(Kind::Halt) => PUBLISHED;
    without_acquire_of_the_halt_word: Lack::Load(Kind::Halt) => PUBLISHED;
    without_release_of_a_notice: Lack::Store(Kind::ReadyMailbox) => NOTICED;
    without_acquire_of_a_notice: Lack::Load(Kind::ReadyMailbox) => NOTICED;
    without_release_of_ready: Lack::Arrive(Kind::Ready) => ONE JOIN;
    without_acquire_of_ready: Lack::Test(Kind::Ready) => ONE JOIN;
    without_release_of_vacant: Lack::Arrive(Kind::Vacant) => ONE;
    without_acquire_of_vacant: Lack::Test(Kind::Vacant) => ONE;
    without_saying_that_it_looks: Lack::Unsaid(1) => GATE;
    without_saying_that_it_has_begun: Lack::Unsaid(2) => GATE;
    without_saying_that_it_is_gone: Lack::Unsaid(0) => SHUT_GATE;
    without_waiting_for_who_looks: Lack::Impatient => GATE;
    blind_to_the_halt_word: Lack::Blind => SHUT_GATE;
    without_publishing_what_has_begun: Lack::Unheard(Kind::Ready) => GATE;
    without_publishing: Lack::Unheard(Kind::Ready) => ONE;
    without_the_edge: Lack::Edge => GATE ONE JOIN;
    blind_to_an_abort: Lack::BlindToAbort => LOST ABORTED_IN_VAIN;
    with_a_torn_abort: Lack::TornExchange => ABORTED_TWICE;
}
