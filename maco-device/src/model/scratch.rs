//! Scratch of a SIMT body's reference: memory of the host, used by one thread, whose copies are made at once.

use std::sync::atomic::AtomicU64;

use super::phase;

/// Where something in scratch lies: the host's address.
pub type Address = *mut u8;

/// Nowhere: the scratch of a body without any.
pub const NOWHERE: Address = std::ptr::null_mut();

/// Scratch of a reference.
pub fn of_host(memory: &mut [u8]) -> Address {
    memory.as_mut_ptr()
}

/// `bytes` further on.
///
/// # Safety
/// Inside the scratch.
pub unsafe fn after(at: Address, bytes: u32) -> Address {
    // SAFETY: passed on from the caller.
    unsafe { at.add(bytes as usize) }
}

/// An index is out of range.
pub fn out_of_range(first: u32, count: u32, of: usize) -> ! {
    panic!("elements {first}..{} of a `Smem` of {of}", u64::from(first) + u64::from(count))
}

/// # Safety
/// `at` is an aligned element of scratch.
pub unsafe fn load<E: Copy>(at: Address) -> E {
    // SAFETY: passed on from the caller; an element is valid for any bit pattern.
    unsafe { at.cast::<E>().read() }
}

/// # Safety
/// As [`load`].
pub unsafe fn store<E: Copy>(at: Address, element: E) {
    // SAFETY: passed on from the caller.
    unsafe { at.cast::<E>().write(element) }
}

/// # Safety
/// `at` is 16 bytes of scratch at a 16-byte boundary.
pub unsafe fn load4(at: Address) -> [u32; 4] {
    // SAFETY: passed on from the caller.
    unsafe { at.cast::<[u32; 4]>().read() }
}

/// # Safety
/// As [`load4`].
pub unsafe fn store4(at: Address, words: [u32; 4]) {
    // SAFETY: passed on from the caller.
    unsafe { at.cast::<[u32; 4]>().write(words) }
}

/// # Safety
/// `at` is 8 aligned bytes of scratch, which are accessed as a barrier only while the result lives.
unsafe fn word<'a>(at: Address) -> &'a AtomicU64 {
    // SAFETY: passed on from the caller.
    unsafe { AtomicU64::from_ptr(at.cast()) }
}

/// Expects `count` arrivals per phase.
///
/// # Safety
/// `at` is 8 aligned bytes of scratch, not in use.
pub unsafe fn init(at: Address, count: u32) {
    // SAFETY: passed on from the caller.
    phase::begin(unsafe { word(at) }, count);
}

/// # Safety
/// `at` is an initialised mbarrier.
pub unsafe fn invalidate(at: Address) {
    // SAFETY: passed on from the caller. An arrival would be one too many here.
    unsafe { at.cast::<u64>().write(0) };
}

/// Messages name a barrier by the low end of its address.
fn name(at: Address) -> u32 {
    at as usize as u32
}

/// # Safety
/// `at` is an initialised mbarrier.
pub unsafe fn arrive(at: Address) {
    // SAFETY: passed on from the caller.
    phase::arrive_at(unsafe { word(at) }, name(at));
}

/// # Safety
/// `at` is an initialised mbarrier.
pub unsafe fn arrive_expect(at: Address, bytes: u32) {
    // SAFETY: passed on from the caller.
    phase::arrive_expect_at(unsafe { word(at) }, name(at), bytes);
}

/// Whether the phase of parity `parity` is complete.
///
/// # Safety
/// `at` is an initialised mbarrier.
pub unsafe fn try_wait(at: Address, parity: u32) -> bool {
    // SAFETY: passed on from the caller.
    phase::is_complete_at(unsafe { word(at) }, parity)
}

fn check(to: u64, from: u64, bytes: u32) {
    assert!((to | from | u64::from(bytes)).is_multiple_of(16) && bytes > 0, "{bytes} bytes from {from:#x} to {to:#x}");
}

/// Copies to scratch, and tells the mbarrier.
///
/// # Safety
/// `from` is readable, `to` scratch, for `bytes` bytes; `mbarrier` is initialised.
pub unsafe fn bulk_load(to: Address, from: u64, bytes: u32, mbarrier: Address) {
    check(to as u64, from, bytes);
    // SAFETY: passed on from the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(from as *const u8, to, bytes as usize);
        phase::complete_at(word(mbarrier), name(mbarrier), bytes);
    }
}

/// Copies from scratch.
///
/// # Safety
/// `to` is writable, `from` scratch, for `bytes` bytes.
pub unsafe fn bulk_store(to: u64, from: Address, bytes: u32) {
    check(to, from as u64, bytes);
    // SAFETY: passed on from the caller.
    unsafe { std::ptr::copy_nonoverlapping(from, to as *mut u8, bytes as usize) };
}

/// Tells an mbarrier that `bytes` bytes of a copy have come.
///
/// # Safety
/// `mbarrier` is initialised.
pub unsafe fn arrived(mbarrier: Address, bytes: u32) {
    // SAFETY: passed on from the caller.
    phase::complete_at(unsafe { word(mbarrier) }, name(mbarrier), bytes);
}

/// Nothing is on its way.
pub fn complete() {}
