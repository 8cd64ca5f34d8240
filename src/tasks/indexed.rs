//! Scatter: elements and rows written in place at positions given by indices; others keep their value. Of equal indices the last one is kept, where PyTorch
//! leaves it open; one outside the tensor writes nothing, where PyTorch stops with an error.
//!
//! In flight, of each of 256 threads: four indices and elements of `scatter`, eight indices and then blocks of `index_copy`, four where they name few rows of many; blocks of four rows of
//! `index_add` (two of four bytes), both those that are there and those that are added, or of four that are added to one row.

use crate::prelude::*;

/// Element `ids[i, k]` of row i of y\[M, N\] becomes x\[i, k\], of x\[M, K\]: `Tensor.scatter_` of PyTorch, along rows. Exact. Of
/// equal indices the last one stays; one outside y writes nothing.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32, i32, u32])]
pub fn scatter(
    cta: &mut Cta,
    #[read(i, ..)] ids: Tensor<u32, M, K>,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[update(i, ..)] y: Tensor<E, M, N>,
) {
    cta.scatter(ids, x, y)
}

/// Row `ids[i]` of y\[V, N\] becomes row i of x\[M, N\]: `Tensor.index_copy_` of PyTorch, what brings keys and values into a cache. Exact.
/// Of equal indices the last one stays; one outside y writes nothing.
///
/// A task has some columns of all rows: it reads every index, and of y touches the rows that they name.
#[maco_macros::task(crate = crate, tile(j = 32 | 256 | 1024), E in [bf16, f16, f32, i32, u32])]
pub fn index_copy(cta: &mut Cta, #[read(..)] ids: Tensor<u32, M>, #[read(.., j)] x: Tensor<E, M, N>, #[update(.., j)] y: Tensor<E, V, N>) {
    cta.index_copy(ids, x, y)
}

/// Row i of x\[M, N\] is added to row `ids[i]` of y\[V, N\], in the order of i: `Tensor.index_add_` of PyTorch, the gradient of
/// [`embedding`](super::embedding). The same at every run.
///
/// Sums are made in `f32`, 64 terms one after the other and then these sums, and rounded to E once. Error of a sum of k terms: that rounding, and
/// (min(k, 64) + k / 64 + 1) · 2⁻²⁴ · Σ |x|. NaN and infinities as in the sum. An index outside y adds nothing.
#[maco_macros::task(crate = crate, tile(j = 256 | 1024), E in [bf16, f16, f32])]
pub fn index_add(cta: &mut Cta, #[read(..)] ids: Tensor<u32, M>, #[read(.., j)] x: Tensor<E, M, N>, #[update(.., j)] y: Tensor<E, V, N>) {
    cta.index_add(ids, x, y)
}
