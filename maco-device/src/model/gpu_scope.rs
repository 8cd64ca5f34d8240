//! Counters and words with in-band flags: relaxed accesses to memory that all CTAs share. Threads outside of a modelled CTA call these too.

use std::sync::atomic::{AtomicU32, Ordering};

/// # Safety
/// `at` is a live, aligned word that is accessed atomically.
pub unsafe fn load_relaxed(at: *const u32) -> u32 {
    super::delay();
    // SAFETY: passed on from the caller.
    unsafe { AtomicU32::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
}

/// # Safety
/// As [`load_relaxed`].
pub unsafe fn store_relaxed(at: *mut u32, value: u32) {
    super::delay();
    // SAFETY: passed on from the caller.
    unsafe { AtomicU32::from_ptr(at) }.store(value, Ordering::Relaxed);
}

/// # Safety
/// As [`load_relaxed`].
pub unsafe fn fetch_add_relaxed(at: *mut u32, value: u32) -> u32 {
    super::delay();
    // SAFETY: passed on from the caller.
    unsafe { AtomicU32::from_ptr(at) }.fetch_add(value, Ordering::Relaxed)
}

/// # Safety
/// As [`load_relaxed`].
pub unsafe fn arrive(at: *mut u32, value: u32) -> u32 {
    // SAFETY: passed on from the caller.
    unsafe { fetch_add_relaxed(at, value) }
}

/// # Safety
/// As [`load_relaxed`].
pub unsafe fn leave(at: *mut u32, bits: u32) -> u32 {
    super::delay();
    // SAFETY: passed on from the caller.
    unsafe { AtomicU32::from_ptr(at) }.fetch_or(bits, Ordering::Relaxed)
}

/// # Safety
/// As [`load_relaxed`].
pub unsafe fn clear(at: *mut u32, bits: u32) {
    super::delay();
    // SAFETY: passed on from the caller.
    unsafe { AtomicU32::from_ptr(at) }.fetch_and(!bits, Ordering::Relaxed);
}

/// # Safety
/// If `condition` holds, `at` is four words as [`load_relaxed`] wants them; nothing orders the four accesses.
pub unsafe fn poll4_if(condition: bool, at: *const u32, words: &mut [u32; 4]) {
    if condition {
        // In any order.
        for n in [2, 0, 3, 1] {
            // SAFETY: passed on from the caller.
            words[n] = unsafe { load_relaxed(at.add(n)) };
        }
    }
}

/// # Safety
/// As [`load_relaxed`].
pub unsafe fn carry(at: *mut u32, word: u32) {
    // SAFETY: passed on from the caller.
    unsafe { store_relaxed(at, word) };
}
