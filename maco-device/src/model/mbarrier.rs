//! mbarriers (PTX ISA §9.7.13.15): a phase is complete when nobody is to arrive any more and no byte is to come.

use super::copies;
use super::phase::{arrive_at, arrive_expect_at, begin, is_complete_at};
use super::shared::Shared;
use super::thread::with;

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
    use super::super::phase::complete;
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
        alone(1, |_| unsafe { init(BASE + maco_abi::SHARED_BYTES, 1) });
    }
}
