//! The named barrier of the consumers: two threads, each for a warpgroup.

use super::thread::with;
use crate::shared_memory::{FALL_THROUGH, SharedMemory};

/// Both wait until both are here, or the CTA is let through.
pub fn sync_consumers() {
    let smem = SharedMemory(super::special::BASE);
    with(|thread| {
        super::delay();
        let met = &thread.shared.met;
        let number = met.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        thread.shared.wake();
        let complete = || met.load(std::sync::atomic::Ordering::Acquire) > number | 1;
        while !complete() && smem.halted() < FALL_THROUGH {
            thread.tested(false);
        }
        thread.tested(true);
    });
}

/// The same between two operations of a body.
pub fn sync_operations() {
    sync_consumers();
}
