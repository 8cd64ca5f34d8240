//! The waits of a slot: counters that the prefetcher has written beside it before the task is posted.

use crate::hardware::{memory, warp};
use crate::protocol::{Counters, Poller};
use crate::shared_memory::{SharedMemory, WAITS};
use maco_abi::{CounterIndex, NO_COUNTER, Wait};

/// The counter of the first one: the task waits for more than fits here, or for what is not known yet. Only the dependency poller can wait for it.
pub const LONG: CounterIndex = CounterIndex(NO_COUNTER.0 - 1);

/// Waits that one lane looks at.
const OWN: usize = WAITS.div_ceil(warp::LANES) as usize;

/// A lane's share of a slot's waits.
#[derive(Clone, Copy)]
pub struct Waits([Wait; OWN]);

impl Waits {
    /// Those of slot `at`.
    ///
    /// # Safety
    /// The task in the slot is posted.
    #[inline(always)]
    pub unsafe fn of(smem: SharedMemory, at: u32, lane: u32) -> Waits {
        let mut own = [Wait::NONE; OWN];
        let mut n = 0;
        while n < OWN {
            let number = lane + n as u32 * warp::LANES;
            if number < WAITS {
                // SAFETY: words of shared memory, written before the task was posted.
                own[n] = Wait::decode(unsafe { memory::read_shared2(smem.waits(at) + number * 8) });
            }
            n += 1;
        }
        Waits(own)
    }

    /// Whether they are all known, and for `most` arrivals at most.
    #[inline(always)]
    pub fn are_few(&self, most: u32) -> bool {
        let (mut few, mut n) = (true, 0);
        while n < OWN {
            let Wait { counter, need } = self.0[n];
            few &= counter == NO_COUNTER || counter != LONG && need <= most;
            n += 1;
        }
        few
    }

    /// Arrivals at each, by relaxed polls.
    ///
    /// # Safety
    /// `counters` are those of a live launch.
    #[inline(always)]
    pub unsafe fn look<P: Poller>(&self, by: &P, counters: Counters) -> Arrivals {
        let (mut seen, mut n) = ([0; OWN], 0);
        while n < OWN {
            // SAFETY: the plan keeps every counter inside the bank.
            seen[n] = unsafe { counters.look(by, self.0[n]) };
            n += 1;
        }
        Arrivals(seen)
    }

    /// Whether all had arrived.
    #[inline(always)]
    pub fn arrived(&self, seen: Arrivals) -> bool {
        let (mut arrived, mut n) = (true, 0);
        while n < OWN {
            arrived &= self.0[n].has_arrived(seen.0[n]);
            n += 1;
        }
        arrived
    }
}

/// What a look has seen.
#[derive(Clone, Copy)]
pub struct Arrivals([u32; OWN]);
