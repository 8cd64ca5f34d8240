//! What service warps do when their role has ended.

use super::watchdog;
use crate::abi::{Launch, SchedulerPartition};
use crate::machine::Warp;
use crate::profile::served::Serving;
use crate::protocol::{self, Run};
use crate::ptx::special;
use crate::shared_memory::SharedMemory;

/// What is left to do for a warp whose role has ended. Each is one code, whatever role it was; a function would take registers from all.
pub struct Rest {
    what: u32,
    /// Of a scheduler its number; otherwise how many tasks are published.
    number: u32,
}

// Not an enum with values: ptxas keeps what is undefined in one without (docs/internals/gemm.md).
const NOTHING: u32 = 0;
const SCHEDULE: u32 = 1;
const SUPERVISE: u32 = 2;
const STOP: u32 = 3;

impl Rest {
    /// Nothing.
    pub const NONE: Rest = Rest { what: NOTHING, number: 0 };

    /// Runs scheduler `number`, whose image does not lie in shared memory: of a CTA of schedulers, or of a dependency poller that has nothing to poll for.
    #[inline(always)]
    pub fn schedule(number: u32) -> Rest {
        Rest { what: SCHEDULE, number }
    }

    /// Waits until the tasks that are published have ended: [`watchdog::supervise`].
    #[inline(always)]
    pub fn supervise(published: u32) -> Rest {
        Rest { what: SUPERVISE, number: published }
    }

    /// Publishes none behind these, and waits as well: [`watchdog::stop`].
    #[inline(always)]
    pub fn stop(published: u32) -> Rest {
        Rest { what: STOP, number: published }
    }

    /// Does it.
    ///
    /// # Safety
    /// A whole service warp of a live launch calls, or the first warp of a CTA of schedulers.
    #[inline(always)]
    pub unsafe fn run(self, launch: *const Launch) {
        if self.what == NOTHING {
            return;
        }
        // SAFETY: passed on from the caller.
        unsafe {
            let run = Run::new(&Warp, &*launch, special::block());
            if self.what == SCHEDULE {
                let partition = ((*launch).partitions as *const SchedulerPartition).add(self.number as usize);
                protocol::schedule(&Warp, &*launch, &run, self.number, (*partition).memory as *mut u32, Serving::here());
                return;
            }
            // Read anew: a register through all of a role is worth more.
            let smem = SharedMemory(special::shared_base());
            let published = if self.what == STOP { watchdog::stop(&Warp, smem, self.number) } else { self.number };
            watchdog::supervise(&Warp, smem, &run, published);
        }
    }
}
