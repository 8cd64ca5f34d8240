//! The phase of an mbarrier in one double word: complete when nobody is to arrive any more and no byte is to come.

use std::sync::atomic::{AtomicU64, Ordering};

use super::shared::Shared;

/// Most arrivals, and most bytes on their way (PTX ISA §9.7.13.15.2).
const MOST: i64 = (1 << 20) - 1;

/// What the double word holds: the parity of the phase that is not complete, bytes to come, arrivals per phase, arrivals to come.
#[derive(Clone, Copy)]
struct State {
    parity: u32,
    bytes: i64,
    count: u64,
    pending: u64,
}

impl State {
    fn of(word: u64) -> State {
        State { parity: (word >> 63) as u32, bytes: (word << 1) as i64 >> 41, count: word >> 20 & MOST as u64, pending: word & MOST as u64 }
    }

    fn word(self) -> u64 {
        u64::from(self.parity) << 63 | (self.bytes as u64 & 0x7f_ffff) << 40 | self.count << 20 | self.pending
    }
}

/// Changes a barrier; true when that completed its phase.
fn change(word: &AtomicU64, change: impl Fn(&mut State)) -> bool {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let mut state = State::of(old);
        change(&mut state);
        let complete = state.pending == 0 && state.bytes == 0;
        if complete {
            state = State { parity: state.parity ^ 1, pending: state.count, ..state };
        }
        match word.compare_exchange_weak(old, state.word(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return complete,
            Err(now) => old = now,
        }
    }
}

fn arrives(state: &mut State, at: u32) {
    assert!(state.pending > 0, "the mbarrier at {at:#x} has more arrivals in a phase than it counts");
    state.pending -= 1;
}

/// Expects `count` arrivals per phase at the barrier in `word`.
pub(super) fn begin(word: &AtomicU64, count: u32) {
    assert!(count > 0);
    let count = count.into();
    let state = State { parity: 0, bytes: 0, count, pending: count };
    word.store(state.word(), Ordering::Release);
}

/// Arrives once at the barrier in `word`, which messages call `at`; whether that completed its phase.
pub(super) fn arrive_at(word: &AtomicU64, at: u32) -> bool {
    change(word, |state| arrives(state, at))
}

/// The same, and expects `bytes` more.
pub(super) fn arrive_expect_at(word: &AtomicU64, at: u32, bytes: u32) -> bool {
    change(word, |state| {
        state.bytes += i64::from(bytes);
        assert!(state.bytes <= MOST, "the mbarrier at {at:#x} expects {} bytes", state.bytes);
        arrives(state, at);
    })
}

/// `bytes` have come; whether that completed the phase.
pub(super) fn complete_at(word: &AtomicU64, at: u32, bytes: u32) -> bool {
    change(word, |state| {
        state.bytes -= i64::from(bytes);
        assert!(state.bytes >= -MOST, "the mbarrier at {at:#x} got more than it can count");
    })
}

/// Whether the phase of parity `parity` of the barrier in `word` is complete.
pub(super) fn is_complete_at(word: &AtomicU64, parity: u32) -> bool {
    State::of(word.load(Ordering::Acquire)).parity != parity
}

/// `bytes` have come.
pub(super) fn complete(shared: &Shared, at: u32, bytes: u32) {
    if complete_at(shared.double_word(at), at, bytes) {
        shared.wake();
    }
}
