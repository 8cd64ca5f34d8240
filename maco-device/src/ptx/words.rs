//! Single words of shared memory (PTX ISA §9.7.9.8 `ld`, §9.7.9.11 `st`, §9.7.13.5 `atom`), without the delays of tests.

use core::arch::asm;

/// One word of shared memory.
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn load_shared(at: u32) -> u32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.shared.b32 {0}, [{1}];", out(reg32) value, in(reg32) at, options(nostack)) };
    value
}

/// One word of shared memory.
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn store_shared(at: u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("st.shared.b32 [{0}], {1};", in(reg32) at, in(reg32) value, options(nostack)) }
}

/// `atom.relaxed.cta.add` of a word of shared memory that others add to; what it was (PTX ISA §9.7.13.5).
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn fetch_add_shared(at: u32, value: u32) -> u32 {
    let old: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("atom.relaxed.cta.shared.add.u32 {0}, [{1}], {2};", out(reg32) old, in(reg32) at, in(reg32) value, options(nostack)) };
    old
}
