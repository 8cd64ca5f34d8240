//! Collectives outside of megakernels: many calls of any operation and size, in random interleavings, under clocks.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use maco_abi::LeanOperation::{self, AllGather, AllReduce, AllToAll, Broadcast, ReduceScatter};
use maco_device::channel::CLEANED;
use protocol::lean::calls::Call;
use protocol::lean::walk::walk;
use protocol::lean::{Lack, Setting};
use protocol::walk::Dice;

const OPERATIONS: [LeanOperation; 5] = [AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast];

/// Of packets and of data, in one step and in several.
const COUNTS: [u32; 12] = [0, 1, 3, 4, 5, 64, 255, 256, 257, 300, 512, 1000];

fn random(seed: u64) -> (Setting, Vec<Call>) {
    let dice = Dice::new(seed);
    let pick = |from: &[u32]| from[dice.below(from.len() as u32) as usize];
    let ranks = 2 + dice.below(3);
    let setting = Setting {
        lanes: [0; 4].map(|_| 1 + dice.below(2)),
        executors: 1 + dice.below(3),
        message: pick(&[128, 256, 1024]),
        ..Setting::new(ranks, pick(&[0, u32::MAX - 4, 2 * CLEANED - 3, 12_345]))
    };
    let calls = (0..8).map(|_| Call {
        root: dice.below(ranks),
        skew: pick(&[0, 0, 1]) as usize,
        ..Call::new(OPERATIONS[dice.below(5) as usize], pick(&COUNTS))
    });
    let calls = calls.collect();
    (setting, calls)
}

#[test]
fn random_calls() {
    for seed in 0..128 {
        let (setting, calls) = random(seed);
        walk(setting, &calls, None, seed);
    }
}

/// Sums that are two steps by their size, with small calls between: parts of ranks go in several pairs of steps.
fn sums(lack: Option<Lack>, seed: u64) {
    const LARGE: u32 = 32 << 10;
    let setting = Setting { message: 4096, ..Setting::new(3, u32::MAX - 2) };
    let calls = [(AllReduce, LARGE), (AllGather, 7), (AllReduce, LARGE + 13), (AllReduce, 256)]
        .map(|(operation, count)| Call::new(operation, count));
    let stores = walk(setting, &calls, lack, seed);
    // Less than all would be if each rank sent all to both others.
    assert!((2 * 3 * 2 * 2 * LARGE as usize / 4 / 3..2 * 3 * 2 * LARGE as usize / 4).contains(&stores), "{stores} stores");
}

#[test]
fn sums_in_two_steps() {
    (0..4).for_each(|seed| sums(None, seed));
}

/// Two short calls or long ones, in which both places are cleaned, and two that take all their packets, some of which others have left 2³² steps ago.
fn cleaned(epoch: u32, before: [u32; 2], lack: Option<Lack>, seed: u64) {
    let setting = Setting { message: 2048, stale: true, ..Setting::new(2, (epoch * CLEANED).wrapping_sub(1)) };
    let calls = [before[0], before[1], 256, 255].map(|count| Call::new(AllReduce, count));
    walk(setting, &calls, lack, seed);
}

const BEFORE: [[u32; 2]; 4] = [[0, 0], [3, 255], [300, 300], [257, 512]];

#[test]
fn cleaned_places() {
    for epoch in 0..4 {
        BEFORE.into_iter().for_each(|before| cleaned(epoch, before, None, epoch.into()));
    }
}

/// Packets and data of four ranks, of which two have two lanes, in turn.
fn mixed(lack: Option<Lack>, seed: u64) {
    let setting = Setting { lanes: [2, 1, 2, 1], ..Setting::new(4, u32::MAX - 2) };
    let calls =
        [(AllReduce, 300), (AllGather, 16), (AllToAll, 300), (ReduceScatter, 5), (Broadcast, 257), (Broadcast, 40), (AllReduce, 260)];
    walk(setting, &calls.map(|(operation, count)| Call::new(operation, count).from(2)), lack, seed);
}

#[test]
fn packets_and_data_in_turn() {
    (0..64).for_each(|seed| mixed(None, seed));
}

/// Threads of this name fail on purpose.
const MUTANT: &str = "mutant";

/// Whether some interleaving goes wrong.
fn fails(case: impl Fn(u64) + Send + 'static) -> bool {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if std::thread::current().name() != Some(MUTANT) {
                hook(panic);
            }
        }));
    });
    let run = move || catch_unwind(AssertUnwindSafe(|| (0..32).for_each(case))).is_err();
    std::thread::Builder::new().name(MUTANT.into()).spawn(run).expect("a thread").join().expect("the panic was caught")
}

#[test]
fn lacks_of_packets_and_data() {
    for rank in 0..4 {
        for lack in [Lack::Acquire, Lack::Release, Lack::CallAcquire, Lack::CallRelease, Lack::Deaf] {
            assert!(fails(move |seed| mixed(Some(lack(rank)), seed)), "{:?} goes unnoticed", lack(rank));
        }
        for step in [1, 2, 5, 9] {
            let lack = Lack::Greeting(rank, step);
            assert!(fails(move |seed| mixed(Some(lack), seed)), "{lack:?} goes unnoticed");
        }
    }
    for lack in [Lack::SameFlag, Lack::Half, Lack::OnePlace, Lack::Uncounted, Lack::Meet, Lack::Vote] {
        assert!(fails(move |seed| mixed(Some(lack), seed)), "{lack:?} goes unnoticed");
    }
}

#[test]
fn lacks_of_sums_in_two_steps() {
    for rank in 0..3 {
        for lack in [Lack::Acquire(rank), Lack::Release(rank), Lack::Deaf(rank), Lack::Greeting(rank, 2)] {
            assert!(fails(move |seed| sums(Some(lack), seed)), "{lack:?} goes unnoticed");
        }
    }
    assert!(fails(|seed| sums(Some(Lack::OnePlace), seed)), "two steps have one place");
}

#[test]
fn places_that_are_not_cleaned() {
    for before in BEFORE {
        let unnoticed = (0..4).find(|&epoch| !fails(move |seed| cleaned(epoch, before, Some(Lack::Uncleaned), seed)));
        assert_eq!(unnoticed, None, "calls of {before:?} elements before");
    }
}
