//! Counters: relaxed accesses to memory that all CTAs share.

use std::sync::atomic::{AtomicU32, Ordering};

/// # Safety
/// `at` is a live, aligned word that is accessed atomically.
pub unsafe fn load_relaxed(at: *const u32) -> u32 {
    // SAFETY: passed on from the caller.
    unsafe { AtomicU32::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
}

/// # Safety
/// As [`load_relaxed`].
pub unsafe fn store_relaxed(at: *mut u32, value: u32) {
    // SAFETY: passed on from the caller.
    unsafe { AtomicU32::from_ptr(at) }.store(value, Ordering::Relaxed);
}
