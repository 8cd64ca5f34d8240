//! Fences (PTX ISA §9.7.13.4 `membar`/`fence`).

use core::arch::asm;

/// Acquire after a relaxed poll saw its value. Cheaper than `fence.acq_rel`: no wait for own stores.
#[inline(always)]
pub fn acquire_gpu() {
    super::delay::delay();
    // SAFETY: a fence has no operands.
    unsafe { asm!("fence.acquire.gpu;", options(nostack)) }
}

/// Release before relaxed signals: everything this thread wrote or observed comes before them.
#[inline(always)]
pub fn release_gpu() {
    super::delay::delay();
    // SAFETY: a fence has no operands.
    unsafe { asm!("fence.release.gpu;", options(nostack)) }
}

/// [`acquire_gpu`] of what a peer or the host has published.
#[inline(always)]
pub fn acquire_sys() {
    super::delay::delay();
    // SAFETY: a fence has no operands.
    unsafe { asm!("fence.acquire.sys;", options(nostack)) }
}

/// [`release_gpu`] for a peer or the host.
#[inline(always)]
pub fn release_sys() {
    super::delay::delay();
    // SAFETY: a fence has no operands.
    unsafe { asm!("fence.release.sys;", options(nostack)) }
}

/// Generic accesses to global memory before, TMA accesses after, or the other way round.
#[inline(always)]
pub fn proxy_async_global() {
    // SAFETY: a fence has no operands.
    unsafe { asm!("fence.proxy.async.global;", options(nostack)) }
}

/// Generic writes to shared memory before a TMA store reads them.
#[inline(always)]
pub fn proxy_async_shared() {
    // SAFETY: a fence has no operands.
    unsafe { asm!("fence.proxy.async.shared::cta;", options(nostack)) }
}

/// Initialised mbarriers become visible to the async proxy.
#[inline(always)]
pub fn mbarrier_init() {
    // SAFETY: a fence has no operands.
    unsafe { asm!("fence.mbarrier_init.release.cluster;", options(nostack)) }
}

/// Tensor maps written by the host before this launch (PTX ISA §9.7.13.4, tensormap proxy; kernel start does not acquire it).
///
/// # Safety
/// `map` is the generic address of a 128-byte tensor map in global memory.
#[inline(always)]
pub unsafe fn tensormap_acquire(map: u64) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("fence.proxy.tensormap::generic.acquire.gpu [{0}], 128;", in(reg64) map, options(nostack)) }
}

/// Orders this thread's accesses among those of the CTA that make the same fence (PTX ISA §8.10).
#[inline(always)]
pub fn sequential_cta() {
    // SAFETY: a fence has no operands.
    unsafe { asm!("fence.sc.cta;", options(nostack)) }
}
