//! What service warps of a GPU have in common: how they enter a launch, copy a scheduler's image, and end a CTA that is stuck.

use super::watchdog;
use crate::machine::{Lane, Warp};
use crate::protocol::{self, Machine, Patience, Run};
use crate::ptx::{memory, special};
use crate::shared_memory::SharedMemory;
use maco_abi::SchedulerPartition;

/// This thread's part of a scheduler's image.
#[inline(always)]
pub(super) unsafe fn copy(partition: &SchedulerPartition, memory: u64, words: u32, thread: u32, threads: u32) {
    let (from, to) = (partition.image as *const u32, memory as *mut u32);
    let mut at = thread * 4;
    while at < words {
        // SAFETY: both sides have `words` words, a multiple of 4, at a 16-byte boundary.
        unsafe {
            let four = memory::load4(from.add(at as usize));
            let mut n = 0;
            while n < 4 {
                crate::ptx::cta_scope::store(to.add(at as usize + n), four[n]);
                n += 1;
            }
        }
        at += threads * 4;
    }
}

/// Enters the launch. Whether it may run: it was not aborted before, and nobody else runs it. A warp of each CTA calls.
#[inline(always)]
pub(super) unsafe fn admitted(run: &Run) -> bool {
    // SAFETY: a live launch.
    unsafe {
        let first = special::thread() % 32 == 0;
        // Both are on their way at the same time.
        let before = if first { protocol::count_in(&Lane, run) } else { 0 };
        let mut aborted = run.aborted(&Warp);
        if first && !protocol::admit(&Lane, run, before) {
            aborted = true;
        }
        Warp.all(!aborted)
    }
}

/// See [`watchdog::stuck`].
#[inline(always)]
pub(super) unsafe fn stuck(smem: SharedMemory, run: &Run, patience: &Patience, at: u32) {
    // SAFETY: passed on from the caller.
    unsafe { watchdog::stuck(&Warp, smem, run, patience, at) }
}
