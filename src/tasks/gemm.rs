//! GEMMs on the tensor cores.
//!
//! `.then(..)` fuses an epilogue, which is applied to the `f32` accumulator before it is rounded: `linear(x, w, y).then(add(b)).then(gelu).then(mul(g))`.
//! Its operands are tensors of the result's shape, tensors of rank 1, which are the same in every row, and numbers.
//!
//! `.first(..)` fuses a prologue, which is applied to the elements of operand A, and rounded to their type: `linear(x, w, y).first(silu)` is
//! `silu(x, h)` and `linear(h, w, y)`, to the same bits, without `h`. Each task applies it to what it loads, so once per tile of columns.
//! With few rows that saves a step; with 128 rows and more a separate task is faster
//! (docs/decisions/0038-elementwise-prologue-on-operand-a.md). A call with a prologue has no GEMV form.
//!
//! Operands A and B have the same element type of `bf16`, `f16` and `f32`. The result, and each epilogue operand, may have another of the three:
//! `linear(x, w, y)` of `bf16` with a `y` of `f32` stores the accumulator unrounded, and one of `f32` with a `y` of `bf16` rounds once. In a
//! [`task_set!`](crate::task_set) results have the element of the operands only.
//!
//! **`f32` is multiplied as tf32**, the only such type of the tensor cores. Both operands are rounded to
//! 10 bits of fraction (to the nearest, ties to even; what rounds beyond the largest `f32` is infinite), as PyTorch does with `allow_tf32`.
//! The accumulator is `f32`, and results of `f32` are not rounded any further. With u = 2⁻¹¹ for operands of `f32`, 0 for `bf16` and `f16`, an element is before
//! its own rounding within (2 u + u² + (K + 16) · 2⁻²⁴) · Σ |xᵢ wᵢ| of the exact sum: for `f32` relative errors of about 10⁻³ of the terms. NaN and
//! infinities propagate as in IEEE 754. For more precision use SIMT bodies, or split an operand into its rounded value and the rest.

use crate::prelude::*;

/// y\[M, N\] = x\[M, K\] · w\[N, K\]ᵀ, summed in `f32` and rounded once. One task makes one tile of y.
///
/// Calls with up to 16 rows of `bf16` or `f16` may get the GEMV form, [`skinny_linear`](super::skinny_linear); `.tile(16, 8)` and
/// `.tile(64, 128)` force one or the other. In a [`task_set!`](crate::task_set) it has the GEMM form only. `f32` is multiplied as tf32: rounded
/// to 10 bits of fraction, as PyTorch does with `allow_tf32`.
///
/// On the CPU products are added in the order of K, so results do not depend on the tile, but on the number of parts of `.split_k(n)`.
///
/// Error: (K + 16) · 2⁻²⁴ · Σ |x · w|, with operands of `f32` (2⁻¹⁰ + 2⁻²² + (K + 16) · 2⁻²⁴) · Σ |x · w|, and one rounding to the element of y. NaN and
/// infinities propagate as in IEEE 754; operands of `f32` that round beyond the largest one are infinite.
#[maco_macros::task(crate = crate, tile(i = 64 | 128, j = 128 | 256), few = skinny_linear, E in [bf16, f16, f32])]
pub fn linear(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// y\[M, N\] = a\[M, K\] · b\[K, N\], summed in `f32` and rounded once. `f32` is multiplied as tf32, as by [`linear`]; operands of `f32`
/// that are not contiguous along K are transposed in shared memory first. Error, NaN and infinities as there, of Σ |a · b|.
#[maco_macros::task(crate = crate, tile(i = 64 | 128, j = 128 | 256), E in [bf16, f16, f32])]
pub fn matmul(cta: &mut Cta, #[read(i, ..)] a: Tensor<E, M, K>, #[read(.., j)] b: Tensor<E, K, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(a, b) {
        cta.mma(&mut acc, a.tile(k), b.tile(k));
    }
    cta.store(acc, y);
}

/// y\[M, N\] = a\[K, M\]ᵀ · b\[K, N\], summed in `f32` and rounded once: gradients of weights. Otherwise, also in its
/// error, as [`matmul`].
#[maco_macros::task(crate = crate, tile(i = 64 | 128, j = 128 | 256), E in [bf16, f16, f32])]
pub fn matmul_tn(cta: &mut Cta, #[read(.., i)] a: Tensor<E, K, M>, #[read(.., j)] b: Tensor<E, K, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(a, b) {
        cta.mma(&mut acc, a.tile(k), b.tile(k));
    }
    cta.store(acc, y);
}

/// y\[M, N\] = a\[K, M\]ᵀ · b\[N, K\]ᵀ, summed in `f32` and rounded once. Otherwise, also in its error, as [`matmul`].
#[maco_macros::task(crate = crate, tile(i = 64 | 128, j = 128 | 256), E in [bf16, f16, f32])]
pub fn matmul_tt(cta: &mut Cta, #[read(.., i)] a: Tensor<E, K, M>, #[read(j, ..)] b: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(a, b) {
        cta.mma(&mut acc, a.tile(k), b.tile(k));
    }
    cta.store(acc, y);
}

/// y\[b\] = x\[b\] · w\[b\]ᵀ for each of B pairs of matrices, otherwise, also in its error, as [`linear`].
#[maco_macros::task(crate = crate, tile(b = 1, i = 64 | 128, j = 128 | 256), E in [bf16, f16, f32])]
pub fn batched_linear(
    cta: &mut Cta,
    #[read(b, i, ..)] x: Tensor<E, B, M, K>,
    #[read(b, j, ..)] w: Tensor<E, B, N, K>,
    #[write(b, i, j)] y: Tensor<E, B, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// y\[b\] = x\[b\] · w\[b\] for each of B pairs of matrices, otherwise, also in its error, as [`matmul`].
#[maco_macros::task(crate = crate, tile(b = 1, i = 64 | 128, j = 128 | 256), E in [bf16, f16, f32])]
pub fn batched_matmul(
    cta: &mut Cta,
    #[read(b, i, ..)] x: Tensor<E, B, M, K>,
    #[read(b, .., j)] w: Tensor<E, B, K, N>,
    #[write(b, i, j)] y: Tensor<E, B, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// y\[b\] = x\[b\]ᵀ · w\[b\] for each of B pairs of matrices, x stored as \[B, K, M\], otherwise, also in its error, as [`matmul_tn`].
#[maco_macros::task(crate = crate, tile(b = 1, i = 64 | 128, j = 128 | 256), E in [bf16, f16, f32])]
pub fn batched_matmul_tn(
    cta: &mut Cta,
    #[read(b, .., i)] x: Tensor<E, B, K, M>,
    #[read(b, .., j)] w: Tensor<E, B, K, N>,
    #[write(b, i, j)] y: Tensor<E, B, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// y\[b\] = x\[b\]ᵀ · w\[b\]ᵀ for each of B pairs of matrices, x stored as \[B, K, M\] and w as \[B, N, K\], otherwise, also in its error, as
/// [`matmul_tt`].
#[maco_macros::task(crate = crate, tile(b = 1, i = 64 | 128, j = 128 | 256), E in [bf16, f16, f32])]
pub fn batched_matmul_tt(
    cta: &mut Cta,
    #[read(b, .., i)] x: Tensor<E, B, K, M>,
    #[read(b, j, ..)] w: Tensor<E, B, N, K>,
    #[write(b, i, j)] y: Tensor<E, B, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// y\[g\] = x\[g\] · w\[expert\[g\]\]ᵀ for each of G groups of T rows: experts of different sizes, known on the GPU only. Rows that one expert
/// gets fill whole groups (the last one with rows of zeros), so that a group has one expert. A number beyond the experts marks an unused
/// group: its rows are zeros, if `x` is finite in its first 64 columns, 32 of `f32`; no more of them is read. Otherwise, also in its error, as [`linear`].
#[maco_macros::task(crate = crate, tile(g = 1, i = 64 | 128, j = 128 | 256), E in [bf16, f16, f32])]
pub fn grouped_linear(
    cta: &mut Cta,
    #[read(g)] expert: Tensor<u32, G>,
    #[read(g, i, ..)] x: Tensor<E, G, T, K>,
    #[read(expert[g], j, ..)] w: Tensor<E, X, N, K>,
    #[write(g, i, j)] y: Tensor<E, G, T, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// y\[M, N\] = silu(x\[M, K\] · gate\[N, K\]ᵀ) · (x · up\[N, K\]ᵀ), summed in `f32` and rounded once: SwiGLU (Shazeer, 2020). One task computes both
/// GEMMs: `x` is loaded once, and neither result goes through memory. `f32` is multiplied as tf32, as by [`linear`].
///
/// Error, with g and u the two sums and e, f what [`linear`] states for them: 1.1 e (|u| + f) + |silu(g)| f, then [`silu_mul`](super::silu_mul)'s, and
/// one rounding to what y holds. NaN and infinities as in the sums and in `silu_mul`: a gate of −∞ gives NaN.
#[maco_macros::task(crate = crate, tile(i = 64 | 128, j = 128), E in [bf16, f16, f32])]
pub fn gated_linear(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] gate: Tensor<E, N, K>,
    #[read(j, ..)] up: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, gate) {
        cta.mma_pair(&mut acc, x.tile(k), (gate.tile(k), up.tile(k)));
    }
    cta.store_pair(acc, y, |gate, up| silu::apply(gate) * up);
}

/// y\[g\] = silu(x\[g\] · gate\[expert\[g\]\]ᵀ) · (x\[g\] · up\[expert\[g\]\]ᵀ): [`gated_linear`] for groups of rows, as [`grouped_linear`],
/// with the error of `gated_linear`.
#[maco_macros::task(crate = crate, tile(g = 1, i = 64 | 128, j = 128), E in [bf16, f16, f32])]
pub fn grouped_gated_linear(
    cta: &mut Cta,
    #[read(g)] expert: Tensor<u32, G>,
    #[read(g, i, ..)] x: Tensor<E, G, T, K>,
    #[read(expert[g], j, ..)] gate: Tensor<E, X, N, K>,
    #[read(expert[g], j, ..)] up: Tensor<E, X, N, K>,
    #[write(g, i, j)] y: Tensor<E, G, T, N>,
) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, gate) {
        cta.mma_pair(&mut acc, x.tile(k), (gate.tile(k), up.tile(k)));
    }
    cta.store_pair(acc, y, |gate, up| silu::apply(gate) * up);
}
