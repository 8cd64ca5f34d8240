//! Words in shared memory that only the threads of one CTA use, named by their 32-bit shared address, `.cta` scope (PTX ISA §9.7.9.8 `ld`,
//! §9.7.9.11 `st`, §9.7.13.5 `atom`, §9.7.13.7 `red`).

use core::arch::asm;

/// `ld.relaxed.cta`.
///
/// # Safety
/// `at` is the shared address of an aligned word that only this CTA uses.
#[inline(always)]
pub unsafe fn load(at: *const u32) -> u32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.relaxed.cta.shared.u32 {0}, [{1}];", out(reg32) value, in(reg32) at as usize as u32, options(nostack)) };
    value
}

/// `st.relaxed.cta`.
///
/// # Safety
/// `at` is the shared address of an aligned word that only this CTA uses.
#[inline(always)]
pub unsafe fn store(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("st.relaxed.cta.shared.u32 [{0}], {1};", in(reg32) at as usize as u32, in(reg32) value, options(nostack)) }
}

/// `atom.relaxed.cta.add`; the old value.
///
/// # Safety
/// `at` is the shared address of an aligned word that only this CTA uses.
#[inline(always)]
pub unsafe fn fetch_add(at: *mut u32, value: u32) -> u32 {
    let old: u32;
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("atom.relaxed.cta.shared.add.u32 {0}, [{1}], {2};", out(reg32) old, in(reg32) at as usize as u32, in(reg32) value, options(nostack))
    };
    old
}

/// `red.relaxed.cta.or`.
///
/// # Safety
/// `at` is the shared address of an aligned word that only this CTA uses.
#[inline(always)]
pub unsafe fn or(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("red.relaxed.cta.shared.or.b32 [{0}], {1};", in(reg32) at as usize as u32, in(reg32) value, options(nostack)) }
}
