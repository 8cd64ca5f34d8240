//! Named barriers (PTX ISA §9.7.13.1 `barrier`). 0: all threads at start and end; 4: SIMT bodies (256 consumers).

use core::arch::asm;

/// All 384 threads.
#[inline(always)]
pub fn sync_cta() {
    // SAFETY: called by every thread of the CTA, in convergent code, at kernel start and end only.
    unsafe { asm!("bar.sync 0;", options(nostack)) }
}

/// The 256 consumer threads.
#[inline(always)]
pub fn sync_user() {
    // SAFETY: a SIMT body is run by all consumer threads; its author promises (it is `unsafe`) that they all come here.
    unsafe { asm!("bar.sync 4, 256;", options(nostack)) }
}
