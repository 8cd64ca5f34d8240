//! Reductions along one axis, in `f32`.
//!
//! `_rows` reduces each row to one number, `_cols` each column; the middle axis of three is `sum_groups`. The order of a sum follows from the
//! length of the axis alone, so results repeat bit for bit. Long sums are made of parts: with u = 2⁻²⁴, sums have an error below k u Σ |x| where k is,
//! on a GPU, min(N / 256, 256) + N / 65536 + 16 along a row of N and min(M / 16, 4096) + M / 65536 + 5 along a column of M; on a CPU
//! min(N / 8, 8192) + N / 65536 + 8 and min(M, 4096) + M / 4096. Maxima and minima are exact. NaN in,
//! NaN out, as in PyTorch; of nothing the sum is 0, the mean NaN, the maximum −∞ and the minimum ∞.
//!
//! In flight: of rows as norms; of columns eight blocks of eight elements of each of 256 threads, of two bytes 32 KiB a multiprocessor.

use crate::prelude::*;

/// y\[M, 1\] = the sum of each row of x\[M, N\].
///
/// Error: (min(N / 256, 256) + N / 65536 + 16) · 2⁻²⁴ · Σ |x| on a GPU, (min(N / 8, 8192) + N / 65536 + 8) · 2⁻²⁴ · Σ |x| on the CPU. NaN and infinities as in the sum; of nothing 0.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn sum_rows(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<f32, M, 1>) {
    cta.rows(x, y, |x, y| y.put(0, x.sum(|v| v)))
}

/// y\[M, 1\] = the mean of each row of x\[M, N\].
///
/// Error: that of [`sum_rows`] over N, and one rounding. NaN and infinities as there; of nothing NaN.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn mean_rows(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<f32, M, 1>) {
    cta.rows(x, y, |x, y| y.put(0, x.sum(|v| v) / x.len() as f32))
}

/// y\[M, 1\] = the largest element of each row of x\[M, N\]. Exact; NaN if one is, of nothing −∞.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn max_rows(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<f32, M, 1>) {
    cta.rows(x, y, |x, y| y.put(0, x.max(|v| v)))
}

/// y\[M, 1\] = the smallest element of each row of x\[M, N\]. Exact; NaN if one is, of nothing ∞.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn min_rows(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<f32, M, 1>) {
    cta.rows(x, y, |x, y| y.put(0, x.min(|v| v)))
}

/// y\[N\] = the sum of each column of x\[M, N\].
///
/// A task has 128 columns. Where that is too few tasks for the GPU, sum parts first: `sum_groups(x.split(0, 16), parts)`, then
/// `sum_cols(parts, y)`.
///
/// Error: (min(M / 16, 4096) + M / 65536 + 5) · 2⁻²⁴ · Σ |x| on a GPU, (min(M, 4096) + M / 4096) · 2⁻²⁴ · Σ |x| on the CPU. NaN and infinities as in the sum; of nothing 0.
#[maco_macros::task(crate = crate, tile(j = 128), E in [bf16, f16, f32])]
pub fn sum_cols(cta: &mut Cta, #[read(.., j)] x: Tensor<E, M, N>, #[write(j)] y: Tensor<f32, N>) {
    cta.columns(x, y, 0.0, |v| v, |a, b| a + b, |sum| sum)
}

/// y\[N\] = the mean of each column of x\[M, N\].
///
/// Error: that of [`sum_cols`] over M, and one rounding. NaN and infinities as there; of nothing NaN.
#[maco_macros::task(crate = crate, tile(j = 128), E in [bf16, f16, f32])]
pub fn mean_cols(cta: &mut Cta, #[read(.., j)] x: Tensor<E, M, N>, #[write(j)] y: Tensor<f32, N>) {
    let count = x.rows() as f32;
    cta.columns(x, y, 0.0, |v| v, |a, b| a + b, |sum| sum / count)
}

/// y\[N\] = the largest element of each column of x\[M, N\]. Exact; NaN if one is, of nothing −∞.
#[maco_macros::task(crate = crate, tile(j = 128), E in [bf16, f16, f32])]
pub fn max_cols(cta: &mut Cta, #[read(.., j)] x: Tensor<E, M, N>, #[write(j)] y: Tensor<f32, N>) {
    cta.columns(x, y, f32::NEG_INFINITY, |v| v, math::max, |max| max)
}

/// y\[N\] = the smallest element of each column of x\[M, N\]. Exact; NaN if one is, of nothing ∞.
#[maco_macros::task(crate = crate, tile(j = 128), E in [bf16, f16, f32])]
pub fn min_cols(cta: &mut Cta, #[read(.., j)] x: Tensor<E, M, N>, #[write(j)] y: Tensor<f32, N>) {
    cta.columns(x, y, f32::INFINITY, |v| v, math::min, |min| min)
}

/// y\[P, N\] = the sum of x\[P, M, N\] over its middle axis. Error, NaN and infinities as of [`sum_cols`].
#[maco_macros::task(crate = crate, tile(p = 1, j = 128), E in [bf16, f16, f32])]
pub fn sum_groups(cta: &mut Cta, #[read(p, .., j)] x: Tensor<E, P, M, N>, #[write(p, j)] y: Tensor<f32, P, N>) {
    cta.columns(x, y, 0.0, |v| v, |a, b| a + b, |sum| sum)
}
