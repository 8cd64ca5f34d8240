//! A CPU thread as a [`Machine`] of one lane.

use core::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use super::Machine;
use crate::model::delay;
use maco_abi::BlackBox;

/// A worker thread.
pub struct Thread {
    start: Instant,
}

impl Thread {
    /// A worker whose clock starts now.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Thread {
        Thread { start: Instant::now() }
    }
}

/// The word at `at`, for one access, which is delayed if the thread is.
///
/// # Safety
/// `at` is an aligned word that lives during the call and is only accessed atomically by others.
unsafe fn atomic<'a>(at: *const u32) -> &'a AtomicU32 {
    delay();
    // SAFETY: passed on from the caller; `AtomicU32` has the layout of `u32`.
    unsafe { AtomicU32::from_ptr(at.cast_mut()) }
}

// SAFETY: Rust's fences order relaxed atomics exactly so (C++20 atomics.fences).
unsafe impl Machine for Thread {
    unsafe fn load(&self, at: *const u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { atomic(at) }.load(Ordering::Relaxed)
    }
    unsafe fn store(&self, at: *mut u32, value: u32) {
        // SAFETY: passed on from the caller.
        unsafe { atomic(at) }.store(value, Ordering::Relaxed)
    }
    unsafe fn add(&self, at: *mut u32, value: u32) {
        // SAFETY: passed on from the caller.
        unsafe { atomic(at) }.fetch_add(value, Ordering::Relaxed);
    }
    unsafe fn claim(&self, at: *mut u32, value: u32) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { atomic(at) }.fetch_add(value, Ordering::Relaxed)
    }
    unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
        // SAFETY: passed on from the caller.
        match unsafe { atomic(at) }.compare_exchange(expected, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(old) | Err(old) => old,
        }
    }
    fn acquire(&self) {
        delay();
        fence(Ordering::Acquire);
    }
    fn release(&self) {
        delay();
        fence(Ordering::Release);
    }
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64 + 1
    }
    /// Spins first, then lets others run: workers may outnumber cores.
    fn pause(&self, polls: u32) {
        match polls {
            0..64 => core::hint::spin_loop(),
            64..4096 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    fn multiprocessor(&self) -> u32 {
        0
    }
    unsafe fn report(&self, at: *mut BlackBox, report: BlackBox) {
        // SAFETY: passed on from the caller: nobody else writes it, and the host reads it after all workers have left.
        unsafe { at.write(report) }
    }
}
