//! Accesses of `.sys` scope: memory of the host and of peers (PTX ISA §9.7.9.11 `st`).

use core::arch::asm;

/// `st.release.sys`.
///
/// # Safety
/// `at` is an aligned word, mapped for this GPU.
#[inline(always)]
pub unsafe fn store_release(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: report.end", "st.release.sys.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `st.relaxed.sys`.
///
/// # Safety
/// `at` is an aligned word, mapped for this GPU.
#[inline(always)]
pub unsafe fn store_relaxed(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: report.word", "st.relaxed.sys.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}
