//! Matrix fragments: from and to shared memory (PTX ISA §9.7.15.5.15 `ldmatrix`, §9.7.15.5.16 `stmatrix`), and products of one warp
//! (§9.7.15.5.14 `mma`).

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

/// `X` 8 × 8 matrices of 16-bit elements, 1, 2 or 4; lane `8m + r` gives the address of row `r` of matrix `m`, other lanes any. Of each, lane
/// `4g + t` gets elements 2t, 2t + 1 of row g, or of column g if it is `TRANSPOSED`.
///
/// # Safety
/// Called by a whole converged warp; `row` is a 16-byte aligned shared address.
#[inline(always)]
pub unsafe fn load<const X: usize, const TRANSPOSED: bool>(row: u32) -> [u32; X] {
    const { assert!(X == 1 || X == 2 || X == 4) };
    let [mut a, mut b, mut c, mut d] = [0; 4];
    macro_rules! step {
        ($text:literal, $($out:ident)+) => {
            // SAFETY: the caller promises a converged warp and the address.
            unsafe { asm!($text, $(out(reg32) $out,)+ in(reg32) row, options(nostack)) }
        };
    }
    match (X, TRANSPOSED) {
        (1, false) => step!("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{{0}}}, [{1}];", a),
        (1, true) => step!("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {{{0}}}, [{1}];", a),
        (2, false) => step!("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{{0}, {1}}}, [{2}];", a b),
        (2, true) => step!("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{{0}, {1}}}, [{2}];", a b),
        (_, false) => step!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{0}, {1}, {2}, {3}}}, [{4}];", a b c d),
        (_, true) => step!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{0}, {1}, {2}, {3}}}, [{4}];", a b c d),
    }
    let mut fragments = [0; X];
    fragments[0] = a;
    if X > 1 {
        fragments[1] = b;
    }
    if X > 2 {
        (fragments[2], fragments[3]) = (c, d);
    }
    fragments
}

/// Writes what [`load`] reads, by the same lanes.
///
/// # Safety
/// Called by a whole converged warp; `row` is a 16-byte aligned shared address, of rows that nobody else uses in lanes below `8 * X`.
#[inline(always)]
pub unsafe fn store<const X: usize, const TRANSPOSED: bool>(row: u32, fragments: [u32; X]) {
    const { assert!(X == 1 || X == 2 || X == 4) };
    let f = |n: usize| fragments[if n < X { n } else { 0 }];
    macro_rules! step {
        ($text:literal, $($n:literal)+) => {
            // SAFETY: the caller promises a converged warp and the address.
            unsafe { asm!($text, in(reg32) row, $(in(reg32) f($n),)+ options(nostack)) }
        };
    }
    match (X, TRANSPOSED) {
        (1, false) => step!("stmatrix.sync.aligned.m8n8.x1.shared.b16 [{0}], {{{1}}};", 0),
        (1, true) => step!("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [{0}], {{{1}}};", 0),
        (2, false) => step!("stmatrix.sync.aligned.m8n8.x2.shared.b16 [{0}], {{{1}, {2}}};", 0 1),
        (2, true) => step!("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [{0}], {{{1}, {2}}};", 0 1),
        (_, false) => step!("stmatrix.sync.aligned.m8n8.x4.shared.b16 [{0}], {{{1}, {2}, {3}, {4}}};", 0 1 2 3),
        (_, true) => step!("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [{0}], {{{1}, {2}, {3}, {4}}};", 0 1 2 3),
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
