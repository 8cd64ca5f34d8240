//! Words that only the threads of one CTA use, in shared or global memory: generic addresses, `.cta` scope (PTX ISA §9.7.9.8 `ld`,
//! §9.7.9.11 `st`, §9.7.13.5 `atom`, §9.7.13.7 `red`).

use core::arch::asm;

/// `ld.relaxed.cta`.
///
/// # Safety
/// `at` is an aligned word that only this CTA uses.
#[inline(always)]
pub unsafe fn load(at: *const u32) -> u32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.relaxed.cta.u32 {0}, [{1}];", out(reg32) value, in(reg64) at, options(nostack)) };
    value
}

/// `st.relaxed.cta`.
///
/// # Safety
/// `at` is an aligned word that only this CTA uses.
#[inline(always)]
pub unsafe fn store(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("st.relaxed.cta.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `atom.relaxed.cta.add`; the old value.
///
/// # Safety
/// `at` is an aligned word that only this CTA uses.
#[inline(always)]
pub unsafe fn fetch_add(at: *mut u32, value: u32) -> u32 {
    let old: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("atom.relaxed.cta.add.u32 {0}, [{1}], {2};", out(reg32) old, in(reg64) at, in(reg32) value, options(nostack)) };
    old
}

/// `red.relaxed.cta.or`.
///
/// # Safety
/// `at` is an aligned word that only this CTA uses.
#[inline(always)]
pub unsafe fn or(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("red.relaxed.cta.or.b32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}
