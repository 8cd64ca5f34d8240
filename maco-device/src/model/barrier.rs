//! The named barrier of the consumers: two threads, each for a warpgroup.

use super::thread::with;

/// Both wait until both are here, or the CTA is let through.
pub fn sync_consumers() {
    with(|thread| {
        super::delay();
        let met = &thread.shared.met;
        let number = met.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
        thread.shared.wake();
        let complete = || met.load(std::sync::atomic::Ordering::Acquire) > number | 1;
        while !complete() && !thread.shared.lets_through() {
            thread.tested(false);
        }
        thread.tested(true);
    });
}

/// The same between two operations of a body.
pub fn sync_operations() {
    sync_consumers();
}
