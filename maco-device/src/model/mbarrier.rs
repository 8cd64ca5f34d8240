//! mbarriers (PTX ISA §9.7.13.15): a phase is complete when nobody is to arrive any more and no byte is to come.

use std::sync::atomic::{AtomicU64, Ordering};

use super::copies;
use super::shared::Shared;
use super::thread::with;

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

/// # Safety
/// `at` is 8 aligned bytes of this CTA's shared memory, not in use.
pub unsafe fn init(at: u32, count: u32) {
    with(|thread| begin(thread.shared.double_word(at), count));
}

/// Arrives for every warp that the thread stands for.
///
/// # Safety
/// `at` is an initialised mbarrier.
pub unsafe fn arrive(at: u32) {
    with(|thread| {
        for _ in 0..thread.warps {
            super::delay();
            if arrive_at(thread.shared.double_word(at), at) {
                thread.shared.wake();
            }
        }
    });
}

/// Expects `bytes` more in this phase, and arrives.
///
/// # Safety
/// `at` is an initialised mbarrier.
pub unsafe fn arrive_expect(at: u32, bytes: u32) {
    with(|thread| {
        super::delay();
        if arrive_expect_at(thread.shared.double_word(at), at, bytes) {
            thread.shared.wake();
        }
    });
}

/// `bytes` have come.
pub(super) fn complete(shared: &Shared, at: u32, bytes: u32) {
    if complete_at(shared.double_word(at), at, bytes) {
        shared.wake();
    }
}

fn is_complete(shared: &Shared, at: u32, parity: u32) -> bool {
    is_complete_at(shared.double_word(at), parity)
}

/// Whether the phase of parity `parity` is complete; if not, makes copies or sleeps for a while before it answers.
///
/// # Safety
/// `at` is an initialised mbarrier.
pub unsafe fn try_wait(at: u32, parity: u32) -> bool {
    with(|thread| {
        super::delay();
        let complete = || is_complete(thread.shared, at, parity);
        if !complete() {
            thread.work(false);
            if !copies::advance(thread) {
                thread.shared.nap(complete);
            }
        }
        let complete = complete();
        if complete {
            thread.work(true);
        }
        complete
    })
}

/// Whether the phase of parity `parity` is complete.
///
/// # Safety
/// `at` is an initialised mbarrier.
pub unsafe fn test(at: u32, parity: u32) -> bool {
    with(|thread| {
        super::delay();
        let complete = is_complete(thread.shared, at, parity);
        thread.tested(complete);
        complete
    })
}

#[cfg(test)]
mod tests {
    use super::super::special::{BASE, shared_base};
    use super::super::thread::{Modelled, Nobody};
    use super::*;

    fn alone(warps: u32, body: impl FnOnce(u32)) {
        let shared = Shared::new();
        Modelled::new(&shared, &Nobody, 0, 0, warps, 0).enter(|| body(shared_base() + 64));
    }

    #[test]
    fn a_phase_waits_for_arrivals_and_bytes() {
        alone(1, |at| {
            // SAFETY: an mbarrier of this thread's own.
            unsafe {
                init(at, 2);
                assert!(test(at, 1), "a fresh barrier is behind the phase of parity 1");
                for parity in [0, 1, 0] {
                    assert!(!test(at, parity) && !try_wait(at, parity));
                    arrive_expect(at, 48);
                    with(|thread| complete(thread.shared, at, 16));
                    arrive(at);
                    assert!(!test(at, parity), "bytes are on their way");
                    with(|thread| complete(thread.shared, at, 32));
                    assert!(test(at, parity) && try_wait(at, parity) && !test(at, parity ^ 1));
                }
            }
        });
    }

    #[test]
    fn a_thread_of_four_warps_arrives_four_times() {
        alone(4, |at| {
            // SAFETY: as above.
            unsafe {
                init(at, 8);
                arrive(at);
                assert!(!test(at, 0));
                arrive(at);
                assert!(test(at, 0));
            }
        });
    }

    #[test]
    #[should_panic = "more arrivals in a phase than it counts"]
    fn an_arrival_too_many_is_noticed() {
        alone(1, |at| {
            // SAFETY: as above.
            unsafe {
                init(at, 1);
                arrive_expect(at, 16);
                arrive(at);
            }
        });
    }

    #[test]
    #[should_panic = "is not in shared memory"]
    fn addresses_are_checked() {
        // SAFETY: the address is refused.
        alone(1, |_| unsafe { init(BASE + crate::abi::SHARED_BYTES, 1) });
    }
}
