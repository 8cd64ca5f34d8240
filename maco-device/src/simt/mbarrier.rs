//! mbarriers of SIMT bodies, in their scratch: they live as long as the closure that gets them.

use core::marker::PhantomData;

use crate::hardware::{fence, scratch};
use crate::simt::Simt;

/// Bytes of an mbarrier.
pub(crate) const BYTES: usize = 8;

impl<const SHARED: usize> Simt<'_, SHARED> {
    /// Runs `f` with `N` mbarriers in the scratch, 8 bytes each from byte `AT` on, a multiple of 8; each counts `count` arrivals a phase,
    /// 1 to 1048575 (PTX ISA §9.7.13.15). They are initialised before, and all threads meet; behind `f` all threads meet again, and they are
    /// invalidated, since another task's copies come to the same place.
    ///
    /// Barriers beyond `SHARED` bytes do not compile (MACO0020).
    ///
    /// # Safety
    /// Every thread of the body comes here, and to the end of `f`. While it runs, nobody uses these bytes for anything else. What a
    /// [`crate::Smem::load`] announces to a barrier is waited for in `f`.
    #[inline(always)]
    pub unsafe fn mbarriers<const AT: usize, const N: usize>(&mut self, count: u32, f: impl FnOnce(&mut Self, Mbarriers<'_, N>)) {
        const {
            assert!(AT.is_multiple_of(BYTES), "MACO0020: an mbarrier lies at a multiple of 8 bytes");
            assert!(
                AT + N * BYTES <= SHARED,
                "MACO0020: these mbarriers end beyond what the task asks for\nhelp: write more bytes into `#[task(simt, shared = ..)]`, at most 196608"
            );
        }
        // SAFETY: inside the scratch.
        let barriers = Mbarriers { at: unsafe { scratch::after(self.place(), AT as u32) }, body: PhantomData };
        // SAFETY: as many barriers as there is room for; the rest is promised by the caller.
        unsafe { self.between(barriers.at, N as u32, |_| count, |threads| f(threads, barriers)) };
    }

    /// Runs `f` while there are `n` mbarriers at `at`, of which each counts as many arrivals as `count` says.
    ///
    /// # Safety
    /// As [`Simt::mbarriers`], with room for `n`.
    #[inline(always)]
    pub(crate) unsafe fn between(&mut self, at: scratch::Address, n: u32, count: impl Fn(u32) -> u32, f: impl FnOnce(&mut Self)) {
        if self.thread == 0 {
            let mut i = 0;
            while i < n {
                // SAFETY: aligned bytes of the scratch, which the caller promises are not in use.
                unsafe { scratch::init(scratch::after(at, i * BYTES as u32), count(i)) };
                i += 1;
            }
            fence::mbarrier_init();
        }
        self.sync();
        f(self);
        self.sync();
        if self.thread == 0 {
            #[cfg(target_arch = "nvptx64")]
            outlive();
            let mut i = 0;
            while i < n {
                // SAFETY: initialised above; all threads have left `f`.
                unsafe { scratch::invalidate(scratch::after(at, i * BYTES as u32)) };
                i += 1;
            }
        }
        self.sync();
    }
}

/// Where a wait was let through, a copy that it was for may be on its way: a millisecond has to do, as for those of the ring.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn outlive() {
    use crate::ptx::special;
    const LONG: u64 = 1_000_000;
    if let_through() {
        let begin = special::global_timer();
        while special::global_timer() - begin < LONG {}
    }
}

/// Whether no wait of this CTA waits any more.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn let_through() -> bool {
    use crate::shared_memory::{FALL_THROUGH, SharedMemory};
    SharedMemory(crate::ptx::special::shared_base()).halted() >= FALL_THROUGH
}

/// mbarriers side by side: see [`Simt::mbarriers`].
#[derive(Clone, Copy)]
pub struct Mbarriers<'a, const N: usize> {
    at: scratch::Address,
    body: PhantomData<&'a mut ()>,
}

impl<'a, const N: usize> Mbarriers<'a, N> {
    /// Those at `at`.
    ///
    /// # Safety
    /// `N` initialised mbarriers, as long as the value lives.
    #[inline(always)]
    pub(crate) unsafe fn of(at: scratch::Address) -> Self {
        Mbarriers { at, body: PhantomData }
    }

    /// Barrier `n`. Beyond the last one: a panic on the CPU, the end of the kernel on a GPU.
    #[inline(always)]
    pub fn at(&self, n: u32) -> Mbarrier<'a> {
        if n >= N as u32 {
            scratch::out_of_range(n, 1, N);
        }
        // SAFETY: inside the scratch.
        Mbarrier { at: unsafe { scratch::after(self.at, n * BYTES as u32) }, body: PhantomData }
    }
}

/// A barrier with a phase (PTX ISA §9.7.13.15): it is complete when as many arrivals have come as it counts, and all bytes that were expected; then
/// the next one begins, with the same count. The first phase has parity 0, the next one 1, and so on in turn.
#[derive(Clone, Copy)]
pub struct Mbarrier<'a> {
    pub(crate) at: scratch::Address,
    body: PhantomData<&'a mut ()>,
}

impl Mbarrier<'_> {
    /// One arrival, which releases what this thread has done before to those who wait (`mbarrier.arrive.release.cta`).
    #[inline(always)]
    pub fn arrive(&self) {
        // SAFETY: initialised as long as the value lives.
        unsafe { scratch::arrive(self.at) }
    }

    /// One arrival, and `bytes` of copies that the phase waits for too (`mbarrier.arrive.expect_tx.release.cta`). Before the copies
    /// are asked for.
    #[inline(always)]
    pub fn arrive_expect(&self, bytes: u32) {
        // SAFETY: as above.
        unsafe { scratch::arrive_expect(self.at, bytes) }
    }

    /// Waits until the phase of parity `parity` is complete, or is the one before the present one; then what has come with it is there for this
    /// thread (`mbarrier.try_wait.parity.acquire.cta`). False when the launch is aborted first: nothing may be made of the data, but
    /// other threads may have been answered otherwise, so this one still comes to the barriers that they come to
    /// ([`Simt::all`] makes them agree). On the CPU, where nobody else could complete it, a phase that is not complete is a panic.
    #[inline(always)]
    #[must_use]
    pub fn wait(&self, parity: u32) -> bool {
        #[cfg(target_arch = "nvptx64")]
        {
            // SAFETY: as above.
            while !unsafe { scratch::try_wait(self.at, parity) } {
                if let_through() {
                    return false;
                }
            }
            true
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            // SAFETY: as above.
            let complete = unsafe { scratch::try_wait(self.at, parity) };
            assert!(complete, "a reference waits for a phase of parity {parity} that nobody completes: it is one thread");
            true
        }
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::simt::smem::Scratch;

    #[test]
    fn a_phase_is_complete_when_bytes_have_come() {
        let mut scratch = Scratch::<96>::new();
        let mut cta = Simt::alone_with(&mut scratch);
        let from: Vec<u128> = vec![0x0123_4567_89ab_cdef; 4];
        let place = cta.shared::<u32, 0, 16>();
        // SAFETY: one thread; the bytes from 64 on are nobody else's.
        unsafe {
            cta.mbarriers::<64, 2>(1, |_, barriers| {
                for parity in [0, 1, 0] {
                    barriers.at(1).arrive_expect(64);
                    place.load(0, from.as_ptr().cast(), 16, &barriers.at(1));
                    assert!(barriers.at(1).wait(parity));
                }
                barriers.at(0).arrive();
                assert!(barriers.at(0).wait(0));
            });
        }
        assert_eq!((place.read(1), place.read(14)), (0x0123_4567, 0));
    }

    #[test]
    #[should_panic = "a phase of parity 0 that nobody completes"]
    fn a_wait_for_ever_is_noticed() {
        let mut scratch = Scratch::<16>::new();
        // SAFETY: one thread, nothing else in the scratch.
        unsafe {
            Simt::alone_with(&mut scratch).mbarriers::<0, 1>(2, |_, barriers| {
                barriers.at(0).arrive();
                let _ = barriers.at(0).wait(0);
            });
        }
    }

    #[test]
    #[should_panic = "more arrivals in a phase than it counts"]
    fn an_arrival_behind_the_end_is_noticed() {
        let mut scratch = Scratch::<16>::new();
        let mut kept = None;
        // SAFETY: one thread, nothing else in the scratch.
        unsafe {
            Simt::alone_with(&mut scratch).mbarriers::<0, 1>(1, |_, barriers| {
                // What the types refuse.
                kept = Some(core::mem::transmute::<Mbarrier<'_>, Mbarrier<'static>>(barriers.at(0)));
            });
        }
        kept.unwrap().arrive();
    }
}
