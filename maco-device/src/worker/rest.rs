//! What service warps do when their role has ended.

use super::watchdog;
use crate::machine::Warp;
use crate::profile::served::Serving;
use crate::protocol::{self, Run};
use crate::ptx::special;
use crate::shared_memory::SharedMemory;
use maco_abi::{Launch, SchedulerPartition};

/// What is left to do for a warp whose role has ended. Each is one code, whatever role it was; a function would take registers from all.
pub struct Rest {
    what: u32,
    /// How many tasks are published.
    published: u32,
}

// Not an enum with values: ptxas keeps what is undefined in one without (docs/internals/gemm.md).
const NOTHING: u32 = 0;
const SCHEDULE: u32 = 1;
const SUPERVISE: u32 = 2;
const STOP: u32 = 3;

impl Rest {
    /// Nothing.
    pub const NONE: Rest = Rest { what: NOTHING, published: 0 };

    /// Runs this CTA's scheduler, whose image does not lie in shared memory: of a CTA of schedulers, or of a dependency poller that has nothing to poll for.
    pub const SCHEDULE: Rest = Rest { what: SCHEDULE, published: 0 };

    /// Waits until the tasks that are published have ended: [`watchdog::supervise`].
    #[inline(always)]
    pub fn supervise(published: u32) -> Rest {
        Rest { what: SUPERVISE, published }
    }

    /// Publishes none behind these, and waits as well: [`watchdog::stop`].
    #[inline(always)]
    pub fn stop(published: u32) -> Rest {
        Rest { what: STOP, published }
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
            // Read anew: a register through all of a role is worth more. `ptxas` would have one for the CTA's number and what is published, and spill it.
            let (block, base) = special::place_again();
            let run = Run::new(&Warp, &*launch, block);
            if self.what == SCHEDULE {
                let workers = (*launch).workers;
                let number = if block < workers { block } else { block - workers };
                let partition = ((*launch).partitions as *const SchedulerPartition).add(number as usize);
                protocol::schedule(&Warp, &*launch, &run, number, (*partition).memory as *mut u32, Serving::here());
                return;
            }
            let smem = SharedMemory(base);
            let published = if self.what == STOP { watchdog::stop(&Warp, smem, self.published) } else { self.published };
            watchdog::supervise(&Warp, smem, &run, published);
        }
    }
}
