//! Counters of a launch as those see them who wait: one poll, one comparison, one fence.
//!
//! How long somebody polls, and what else happens meanwhile, does not belong here. The dependency poller looks at the waits of all its slots at once, consumers at those
//! of one task by two looks that overlap, a warp task at its own without a clock, a thread of the CPU at one after the other.

use super::{Machine, Run};
use maco_abi::{CounterIndex, Wait};

/// Who polls: lanes that look together, each at its own wait.
///
/// # Safety
/// `acquire` after a `load` that saw an arrival comes after all that whoever arrived had written, and had released before, in all lanes that call it.
pub unsafe trait Poller {
    /// Relaxed load of a counter.
    ///
    /// # Safety
    /// `at` is a counter of a live launch.
    unsafe fn load(&self, at: *const u32) -> u32;
    /// Whether `condition` holds in every lane.
    fn all(&self, condition: bool) -> bool;
    /// Acquire fence, behind which the lanes meet.
    fn acquire(&self);
}

// SAFETY: what a machine promises, among all executors of a device.
unsafe impl<M: Machine> Poller for M {
    #[inline(always)]
    unsafe fn load(&self, at: *const u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { Machine::load(self, at) }
    }
    #[inline(always)]
    fn all(&self, condition: bool) -> bool {
        Machine::all(self, condition)
    }
    #[inline(always)]
    fn acquire(&self) {
        Machine::acquire(self);
    }
}

/// The counters of one launch: its bank of the two.
#[derive(Clone, Copy)]
pub struct Counters(*const u32);

impl Counters {
    /// Those of a bank that begins at `first`.
    #[inline(always)]
    pub fn at(first: *const u32) -> Counters {
        Counters(first)
    }

    /// Where a counter is.
    #[inline(always)]
    pub fn address(self, counter: CounterIndex) -> *const u32 {
        self.0.wrapping_add(counter.0 as usize)
    }

    /// The poll: what there is of what `wait` needs, and all of it if that is nothing. A relaxed load, whatever it sees: see [`opens`].
    ///
    /// # Safety
    /// The bank is of a live launch, and the counter inside it.
    #[inline(always)]
    pub unsafe fn look<P: Poller>(self, by: &P, wait: Wait) -> u32 {
        // SAFETY: passed on from the caller.
        if wait.is_none() { wait.need } else { unsafe { by.load(self.address(wait.counter)) } }
    }
}

impl Run {
    /// The poll of what somebody waits for: [`Counters::look`].
    ///
    /// # Safety
    /// The plan's memory is live, and the counter inside its bank.
    #[inline(always)]
    pub unsafe fn look<P: Poller>(&self, by: &P, wait: Wait) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { Counters::at(self.counters).look(by, wait) }
    }
}

/// Whether all lanes have seen what they wait for. If so, this is the fence: what was written before any of these arrivals is acquired.
#[inline(always)]
pub fn opens<P: Poller>(by: &P, arrived: bool) -> bool {
    let all = by.all(arrived);
    if all {
        by.acquire();
    }
    all
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    /// Counts what it is asked for; its lanes are this one and one that says `other`.
    struct Counting {
        loads: Cell<u32>,
        fences: Cell<u32>,
        other: bool,
    }

    // SAFETY: nobody else has the counters.
    unsafe impl Poller for Counting {
        unsafe fn load(&self, at: *const u32) -> u32 {
            self.loads.set(self.loads.get() + 1);
            // SAFETY: passed on from the caller.
            unsafe { at.read() }
        }
        fn all(&self, condition: bool) -> bool {
            condition && self.other
        }
        fn acquire(&self) {
            self.fences.set(self.fences.get() + 1);
        }
    }

    #[test]
    fn what_needs_nothing_is_not_loaded() {
        let bank = [3, 5];
        let by = Counting { loads: Cell::new(0), fences: Cell::new(0), other: true };
        // SAFETY: the counter is inside the bank; the others are none.
        let looks = [Wait::new(CounterIndex(1), 7), Wait::NONE, Wait::new(CounterIndex(9), 1).in_band().counted()]
            .map(|wait| (wait, unsafe { Counters::at(bank.as_ptr()).look(&by, wait) }));
        assert_eq!(looks.map(|(wait, seen)| (seen, wait.has_arrived(seen))), [(5, false), (0, true), (0, true)]);
        assert_eq!(by.loads.get(), 1);
    }

    #[test]
    fn the_fence_is_behind_the_last_arrival_alone() {
        for (own, other) in [(false, false), (false, true), (true, false), (true, true)] {
            let by = Counting { loads: Cell::new(0), fences: Cell::new(0), other };
            assert_eq!(opens(&by, own), own && other);
            assert_eq!(by.fences.get(), u32::from(own && other));
        }
    }
}
