//! A CPU thread as a [`System`] of one lane: atomics of memory that processes map.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use super::System;
use crate::model::delay;

/// A thread of a rank, or a proxy.
pub struct CpuThread<L> {
    start: Instant,
    lost: L,
}

impl<L: Fn() -> u32> CpuThread<L> {
    /// A thread whose clock starts now. `lost` is asked now and then whether a peer is known to be lost, and says which, plus 1.
    pub fn new(lost: L) -> CpuThread<L> {
        CpuThread { start: Instant::now(), lost }
    }
}

/// The atomic at `at`, for one access, which is delayed if the thread is.
macro_rules! atomic {
    ($ty:ident, $at:expr) => {{
        delay();
        $ty::from_ptr($at.cast_mut())
    }};
}

// SAFETY: the fences and orders below are those that C++20 (atomics.fences, atomics.order) and Rust ask for, and they hold among processes that map the same
// memory: the processor does not know of processes. Atomics of 32 and 64 bits are whole on every 64-bit target.
unsafe impl<L: Fn() -> u32> System for CpuThread<L> {
    unsafe fn own_load(&self, at: *const u32) -> u32 {
        // SAFETY: this thread's.
        unsafe { at.read() }
    }
    unsafe fn own_store(&self, at: *mut u32, value: u32) {
        // SAFETY: this thread's.
        unsafe { at.write(value) }
    }
    unsafe fn poll(&self, at: *const u32) -> u32 {
        // SAFETY: (of all below) passed on from the caller; whoever uses the place meanwhile does so by atomics.
        unsafe { atomic!(AtomicU32, at) }.load(Ordering::Relaxed)
    }
    unsafe fn publish(&self, at: *mut u32, value: u32) {
        // SAFETY: as above.
        unsafe { atomic!(AtomicU32, at.cast_const()) }.store(value, Ordering::Release);
    }
    fn acquire(&self) {
        delay();
        fence(Ordering::Acquire);
    }
    fn release(&self) {
        delay();
        fence(Ordering::Release);
    }
    unsafe fn load1(&self, at: *const u8) -> u8 {
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
    }
    unsafe fn store1(&self, at: *mut u8, value: u8) {
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(at) }.store(value, Ordering::Relaxed);
    }
    unsafe fn load4(&self, at: *const u32) -> u32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed)
    }
    unsafe fn store4(&self, at: *mut u32, value: u32) {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(at) }.store(value, Ordering::Relaxed);
    }
    unsafe fn load_packet(&self, at: *const u64) -> u64 {
        // SAFETY: as above.
        unsafe { atomic!(AtomicU64, at) }.load(Ordering::Relaxed)
    }
    unsafe fn store_packet(&self, at: *mut u64, value: u64) {
        // SAFETY: as above.
        unsafe { atomic!(AtomicU64, at.cast_const()) }.store(value, Ordering::Relaxed);
    }
    unsafe fn load_packets(&self, at: *const u64) -> [u64; 2] {
        // The second one first: order is not promised.
        // SAFETY: as above.
        unsafe {
            let second = self.load_packet(at.add(1));
            [self.load_packet(at), second]
        }
    }
    unsafe fn claim(&self, at: *mut u32) -> u32 {
        // SAFETY: as above.
        unsafe { atomic!(AtomicU32, at.cast_const()) }.fetch_add(1, Ordering::Relaxed)
    }
    unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
        // SAFETY: as above.
        match unsafe { atomic!(AtomicU32, at.cast_const()) }.compare_exchange(expected, new, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(old) | Err(old) => old,
        }
    }
    unsafe fn tell(&self, at: *mut u32, value: u32) {
        // SAFETY: as above.
        unsafe { atomic!(AtomicU32, at.cast_const()) }.store(value, Ordering::Relaxed);
    }
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64 + 1
    }
    /// Spins first, then lets others run: ranks may outnumber cores.
    fn pause(&self, polls: u32) {
        match polls {
            0..64 => core::hint::spin_loop(),
            64..2048 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    fn lost(&self) -> u32 {
        (self.lost)()
    }
}
