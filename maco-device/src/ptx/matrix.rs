//! Matrix fragments: to shared memory (PTX ISA §9.7.15.5.16 `stmatrix`), and products of one warp (§9.7.15.5.14 `mma`).

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

/// `sum += a · b` of 16 × 16 and 16 × 8 elements, `bf16` or else `f16`, as one warp's fragments (PTX ISA §9.7.15.5.8): lane `4g + t` has
/// of `a` columns 2t, 2t + 1 of rows g and g + 8, then columns 2t + 8, 2t + 9 of both; of `b` rows 2t, 2t + 1, then 2t + 8, 2t + 9, of
/// column g; of `sum` columns 2t, 2t + 1 of rows g, then g + 8.
#[inline(always)]
pub fn multiply<const BF16: bool>(sum: &mut [f32; 4], a: [u32; 4], b: [u32; 2]) {
    macro_rules! step {
        ($text:literal) => {
            // SAFETY: called by a converged warp; no memory.
            unsafe {
                asm!($text,
                    inout(reg32) sum[0], inout(reg32) sum[1], inout(reg32) sum[2], inout(reg32) sum[3],
                    in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3], in(reg32) b[0], in(reg32) b[1], options(nostack))
            }
        };
    }
    if BF16 {
        step!(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};"
        )
    } else {
        step!(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{{0}, {1}, {2}, {3}}}, {{{4}, {5}, {6}, {7}}}, {{{8}, {9}}}, {{{0}, {1}, {2}, {3}}};"
        )
    }
}
