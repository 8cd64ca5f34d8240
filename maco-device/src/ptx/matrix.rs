//! Matrix fragments to shared memory (PTX ISA §9.7.15.5.16 `stmatrix`).

use core::arch::asm;

/// Four 8 × 8 matrices of 16-bit elements; lane `8m + r` gives the address of row `r` of matrix `m`.
///
/// # Safety
/// Called by a whole converged warp; `row` is a 16-byte aligned shared address the warp owns.
#[inline(always)]
pub unsafe fn store_x4(row: u32, fragments: [u32; 4]) {
    // SAFETY: the caller promises a converged warp and the address.
    unsafe {
        asm!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [{0}], {{{1}, {2}, {3}, {4}}};",
            in(reg32) row, in(reg32) fragments[0], in(reg32) fragments[1], in(reg32) fragments[2], in(reg32) fragments[3], options(nostack))
    }
}
