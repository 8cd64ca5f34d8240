//! Instructions that only the peers and the bodies here use (PTX ISA sections in brackets).

use core::arch::asm;

/// Lets the next kernel of the stream start (§9.7.13.13 `griddepcontrol`); without a programmatic edge it does nothing.
#[inline(always)]
pub fn launch_dependents() {
    // SAFETY: no operands.
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack)) }
}

/// Waits until the kernels before have ended and their writes are visible.
#[inline(always)]
pub fn wait_for_predecessors() {
    // SAFETY: no operands.
    unsafe { asm!("griddepcontrol.wait;", options(nostack)) }
}

/// Barrier among all threads of a CTA (§9.7.13.1).
#[inline(always)]
pub fn sync() {
    // SAFETY: called in convergent code by every thread of a plain kernel.
    unsafe { asm!("bar.sync 0;", options(nostack)) }
}

/// The sum over a warp (§9.7.13.10 `redux.sync`).
#[inline(always)]
pub fn warp_sum(value: u32) -> u32 {
    let sum: u32;
    // SAFETY: called by whole warps in convergent code.
    unsafe { asm!("redux.sync.add.u32 {0}, {1}, 0xffffffff;", out(reg32) sum, in(reg32) value, options(nostack)) };
    sum
}

/// Brings a line into the second-level cache (§9.7.9.15 `prefetch`).
///
/// # Safety
/// `at` is an address of global memory.
#[inline(always)]
pub unsafe fn prefetch(at: *const u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("prefetch.global.L2 [{0}];", in(reg64) at, options(nostack)) }
}
