//! Collectives outside of megakernels: every interleaving of small calls, and without any one greeting, fence or flag, with one place instead of two, each of them fails.

use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::Once;

use protocol::lean::{Lack, cases};

macro_rules! models {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let start = std::time::Instant::now();
            let interleavings = cases::$name(None);
            println!("{interleavings} interleavings in {:?}", start.elapsed());
            assert!(interleavings > 1, "nothing was interleaved");
        })*
    };
}

models! {
    packets_of_two
    packets_apart
    data_of_two
    packets_between_data
    nothing_between_data
    data_between_packets
    owners_of_two
    broadcasts_of_two
    broadcasts_by_packets
    steps_of_a_call
    lanes_of_two
    data_of_three
    lanes_of_three
}

/// Threads of this name fail on purpose.
const MUTANT: &str = "mutant";

fn fails(case: fn(Option<Lack>) -> usize, lack: Lack) -> bool {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some(MUTANT) {
                hook(panic);
            }
        }));
    });
    let run = move || catch_unwind(|| case(Some(lack))).is_err();
    std::thread::Builder::new().name(MUTANT.into()).spawn(run).expect("a thread").join().expect("the panic was caught")
}

macro_rules! lacks {
    ($($name:ident: $case:ident without $($lack:expr),+;)*) => {
        $(#[test]
        fn $name() {
            for lack in [$($lack),+] {
                assert!(fails(cases::$case, lack), "{lack:?} goes unnoticed");
            }
        })*
    };
}

lacks! {
    // What comes says that it is there: without the greetings nobody would be told apart from who calls something else.
    lacks_of_packets: packets_of_two without
        Lack::Greeting(0, 1), Lack::Greeting(1, 1), Lack::Greeting(0, 2), Lack::Greeting(1, 2), Lack::Greeting(0, 3), Lack::Greeting(1, 3),
        Lack::SameFlag, Lack::OnePlace, Lack::Uncounted;
    lacks_of_packets_apart: packets_apart without
        Lack::Deaf(0), Lack::Deaf(1), Lack::Greeting(0, 2), Lack::Greeting(1, 3), Lack::SameFlag, Lack::Half, Lack::OnePlace, Lack::Uncounted;
    lacks_of_data: data_of_two without
        Lack::Acquire(0), Lack::Acquire(1), Lack::Release(0), Lack::Release(1), Lack::Deaf(0), Lack::Deaf(1),
        Lack::Greeting(0, 1), Lack::Greeting(1, 1), Lack::Greeting(0, 2), Lack::Greeting(1, 2), Lack::Greeting(0, 3), Lack::Greeting(1, 3),
        Lack::OnePlace, Lack::Uncounted;
    lacks_of_packets_between_data: packets_between_data without
        Lack::CallAcquire(0), Lack::CallAcquire(1), Lack::CallRelease(0), Lack::CallRelease(1),
        Lack::Acquire(0), Lack::Acquire(1), Lack::Release(0), Lack::Release(1), Lack::Deaf(0), Lack::Deaf(1),
        Lack::Greeting(0, 2), Lack::Greeting(1, 2), Lack::SameFlag, Lack::OnePlace, Lack::Uncounted;
    lacks_of_nothing_between_data: nothing_between_data without
        Lack::CallAcquire(0), Lack::CallAcquire(1), Lack::CallRelease(0), Lack::CallRelease(1), Lack::Deaf(0), Lack::Deaf(1),
        Lack::Greeting(0, 2), Lack::Greeting(1, 2), Lack::OnePlace, Lack::Uncounted;
    lacks_of_data_between_packets: data_between_packets without
        Lack::Acquire(0), Lack::Acquire(1), Lack::Release(0), Lack::Release(1), Lack::Deaf(0), Lack::Deaf(1),
        Lack::Greeting(0, 2), Lack::Greeting(1, 2), Lack::SameFlag, Lack::OnePlace, Lack::Uncounted;
    lacks_of_owners: owners_of_two without
        Lack::Acquire(0), Lack::Acquire(1), Lack::Release(0), Lack::Release(1), Lack::Deaf(0), Lack::Deaf(1),
        Lack::Greeting(0, 1), Lack::Greeting(1, 2), Lack::Greeting(0, 3), Lack::Greeting(1, 4), Lack::OnePlace, Lack::Uncounted;
    // Who has nothing to say releases what it has read, and the root acquires that.
    lacks_of_broadcasts: broadcasts_of_two without
        Lack::Acquire(0), Lack::Acquire(1), Lack::Release(0), Lack::Release(1), Lack::Deaf(0), Lack::Deaf(1),
        Lack::Greeting(0, 1), Lack::Greeting(1, 1), Lack::Greeting(1, 2), Lack::Greeting(1, 3), Lack::OnePlace, Lack::Uncounted;
    lacks_of_broadcasts_by_packets: broadcasts_by_packets without
        Lack::Deaf(0), Lack::Greeting(1, 1), Lack::Greeting(1, 2), Lack::Greeting(0, 3), Lack::SameFlag, Lack::OnePlace, Lack::Uncounted;
    lacks_of_steps: steps_of_a_call without
        Lack::Acquire(0), Lack::Acquire(1), Lack::Release(0), Lack::Release(1), Lack::Deaf(0), Lack::Deaf(1), Lack::Greeting(0, 2), Lack::OnePlace;
    lacks_of_three_ranks: data_of_three without
        Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2), Lack::Release(0), Lack::Release(1), Lack::Release(2),
        Lack::Deaf(0), Lack::Deaf(1), Lack::Deaf(2), Lack::Greeting(0, 1), Lack::Greeting(1, 2), Lack::Greeting(2, 3),
        Lack::OnePlace, Lack::Uncounted;
    lacks_of_lanes_of_two: lanes_of_two without
        Lack::Meet, Lack::Vote, Lack::Acquire(0), Lack::Acquire(1), Lack::Release(0), Lack::Release(1), Lack::Deaf(0), Lack::Deaf(1), Lack::OnePlace;
    lacks_of_lanes_of_three: lanes_of_three without
        Lack::Meet, Lack::Vote, Lack::Acquire(0), Lack::Acquire(1), Lack::Acquire(2), Lack::Release(0), Lack::Release(1), Lack::Release(2),
        Lack::Deaf(0), Lack::Deaf(1), Lack::Deaf(2), Lack::OnePlace;
}
