//! mbarriers in shared memory (PTX ISA §9.7.13.15). Addresses are 32-bit shared addresses.

use core::arch::asm;

/// Expects `count` arrivals per phase.
///
/// # Safety
/// `at` is 8 aligned bytes of this CTA's shared memory, not in use.
#[inline(always)]
pub unsafe fn init(at: u32, count: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("mbarrier.init.shared::cta.b64 [{0}], {1};", in(reg32) at, in(reg32) count, options(nostack)) }
}

/// Arrives (release, CTA scope).
///
/// # Safety
/// `at` is an initialised mbarrier.
#[inline(always)]
pub unsafe fn arrive(at: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the mbarrier.
    unsafe { asm!("mbarrier.arrive.shared::cta.b64 _, [{0}];", in(reg32) at, options(nostack)) }
}

/// Arrives and expects `bytes` of bulk copies in this phase.
///
/// # Safety
/// `at` is an initialised mbarrier.
#[inline(always)]
pub unsafe fn arrive_expect(at: u32, bytes: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the mbarrier.
    unsafe { asm!("mbarrier.arrive.expect_tx.shared::cta.b64 _, [{0}], {1};", in(reg32) at, in(reg32) bytes, options(nostack)) }
}

/// Whether the phase of parity `parity` is complete (acquire, CTA scope); suspends the thread for a while if not.
///
/// # Safety
/// `at` is an initialised mbarrier.
#[inline(always)]
pub unsafe fn try_wait(at: u32, parity: u32) -> bool {
    super::delay::delay();
    let done: u32;
    // SAFETY: the caller promises the mbarrier.
    unsafe {
        asm!("{{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p;}}",
            out(reg32) done, in(reg32) at, in(reg32) parity, options(nostack))
    };
    done != 0
}

/// Whether the phase of parity `parity` is complete (acquire, CTA scope); returns at once.
///
/// # Safety
/// `at` is an initialised mbarrier.
#[inline(always)]
pub unsafe fn test(at: u32, parity: u32) -> bool {
    super::delay::delay();
    let done: u32;
    // SAFETY: the caller promises the mbarrier.
    unsafe {
        asm!("{{.reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p;}}",
            out(reg32) done, in(reg32) at, in(reg32) parity, options(nostack))
    };
    done != 0
}
