//! The shared memory of one CTA, and those who wait for it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::load::Load;
use maco_abi::SHARED_BYTES;

/// First address of shared memory: not 0, so that an address without it is noticed.
pub const BASE: u32 = 1024;

/// Longest sleep of a thread that waits: whoever stops a CTA wakes nobody.
const NAP: Duration = Duration::from_micros(200);

const LAYOUT: Layout = match Layout::from_size_align(SHARED_BYTES as usize, 1024) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

/// Shared memory, and copies on their way into it.
pub struct Shared {
    memory: NonNull<u8>,
    pub(super) loads: Mutex<Vec<Load>>,
    /// How often a consumer has come to the consumers' barrier.
    pub(super) met: AtomicU32,
    /// The word that lets waits through, and from which value on; `None`: nothing does.
    halt: Option<(u32, u32)>,
    sleepers: AtomicU32,
    sleep: Mutex<()>,
    wake: Condvar,
}

// SAFETY: the memory is the value's own. What threads do to it at the same time is ordered by the mbarriers in it, which are atomics,
// as the roles promise where they call.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Memory that was never used.
    pub fn new() -> Shared {
        // SAFETY: not of size 0.
        let memory = NonNull::new(unsafe { alloc(LAYOUT) }).unwrap_or_else(|| handle_alloc_error(LAYOUT));
        let mut shared = Shared {
            memory,
            loads: Mutex::default(),
            met: AtomicU32::new(0),
            halt: None,
            sleepers: AtomicU32::new(0),
            sleep: Mutex::default(),
            wake: Condvar::new(),
        };
        shared.clear();
        shared
    }

    /// Waits end without what they wait for as soon as the word at address `at` is `level` or more.
    pub fn with_halt(mut self, at: u32, level: u32) -> Shared {
        self.halt = Some((at, level));
        self
    }

    /// Whether waits end: see [`Shared::with_halt`].
    pub(super) fn lets_through(&self) -> bool {
        self.halt.is_some_and(|(at, level)| self.word(at).load(Ordering::Acquire) >= level)
    }

    /// Forgets everything. What is read without having been written looks like NaN.
    pub fn clear(&mut self) {
        // SAFETY: the whole allocation, which nobody else uses.
        unsafe { self.memory.write_bytes(0xff, SHARED_BYTES as usize) };
        self.loads.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        *self.met.get_mut() = 0;
    }

    /// The host's address of `bytes` bytes.
    pub(super) fn pointer(&self, at: u32, bytes: u32) -> *mut u8 {
        let offset = at.wrapping_sub(BASE);
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= SHARED_BYTES), "address {at:#x} is not in shared memory");
        // SAFETY: inside the allocation.
        unsafe { self.memory.as_ptr().add(offset as usize) }
    }

    pub(super) fn word(&self, at: u32) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "address {at:#x} is not aligned");
        // SAFETY: an aligned word of the allocation; all accesses to words of control are atomic.
        unsafe { AtomicU32::from_ptr(self.pointer(at, 4).cast()) }
    }

    pub(super) fn double_word(&self, at: u32) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "address {at:#x} is not aligned");
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.pointer(at, 8).cast()) }
    }

    pub(super) fn loads(&self) -> MutexGuard<'_, Vec<Load>> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until somebody wakes the CTA, or a while; not at all if `done`.
    pub(super) fn nap(&self, done: impl Fn() -> bool) {
        let guard = self.sleep.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !done() {
            let _ = self.wake.wait_timeout(guard, NAP);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes those who sleep.
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(self.sleep.lock());
            self.wake.notify_all();
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.memory.as_ptr(), LAYOUT) };
    }
}
