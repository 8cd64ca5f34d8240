//! Norms and softmax along rows. Rows of up to 64 KiB (of two tensors beside a row of weights, 64 KiB too) are read once and stay in shared memory;
//! longer ones, and those not made of 16-byte pieces, are read again for each pass.
//!
//! In flight: up to 192 KiB of rows a multiprocessor; of what does not come through the ring four blocks of eight elements a lane (of four bytes two).
//!
//! Sums are made in `f32`, in an order that the length of the row alone decides: results repeat bit for bit. With u = 2⁻²⁴ and a row of N,
//! a sum of terms of one sign has a relative error below (min(N / 256, 256) + N / 65536 + 16) u on a GPU and (min(N / 8, 8192) + N / 65536 + 8) u on a CPU.

use crate::math::{exp, mul_add, rsqrt};
use crate::prelude::*;

/// y = softmax(x) along each row: e^(x − max) / Σ e^(x − max).
///
/// Relative error: rounding to E, the sum's, which is (min(N / 256, 256) + N / 65536 + 16) · 2⁻²⁴ on a GPU and
/// (min(N / 8, 8192) + N / 65536 + 8) · 2⁻²⁴ on the CPU, and (d + 4) · 2⁻²³ where the element is d below the maximum; what is smaller than 2⁻¹²⁶ may be zero. As PyTorch: a NaN, a positive infinity, or nothing but negative infinity in
/// a row makes the row NaN.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn softmax(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<E, M, N>) {
    cta.rows(x, y, |x, y| {
        let max = x.max(|v| v);
        let factor = 1.0 / x.sum(|v| exp(v - max));
        y.zip(x, |v| exp(v - max) * factor)
    })
}

/// y = x / √(mean(x²) + epsilon) · weight along each row (Zhang and Sennrich, 2019).
///
/// Relative error: rounding to E, half the sum's, which is that of [`softmax`], and 2⁻²¹. Squares are `f32`: of elements above
/// 1.8 · 10¹⁹ / √N they are infinite, and the row becomes 0 as in PyTorch. A NaN makes the row NaN; an infinity makes itself NaN and the others 0.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn rmsnorm(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[read(..)] weight: Tensor<E, N>,
    #[write(i, ..)] y: Tensor<E, M, N>,
    epsilon: f32,
) {
    cta.rmsnorm(x, weight, y, epsilon);
}

/// sum = x + residual, rounded to E, and y = [`rmsnorm`] of the rounded sum: a transformer's residual connection and the norm behind it,
/// with one read of each. Errors, NaN and infinities as there.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn add_rmsnorm(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[read(i, ..)] residual: Tensor<E, M, N>,
    #[read(..)] weight: Tensor<E, N>,
    #[write(i, ..)] sum: Tensor<E, M, N>,
    #[write(i, ..)] y: Tensor<E, M, N>,
    epsilon: f32,
) {
    cta.rows((x, residual, weight), (sum, y), |(x, residual, weight), (sum, y)| {
        let sum = sum.zip_kept((x, residual), |(a, b)| a + b);
        let factor = rsqrt(sum.sum(|v| v * v) / sum.len() as f32 + epsilon);
        y.zip((sum, weight), |(v, w)| v * factor * w)
    })
}

/// y = (x − mean(x)) / √(variance(x) + epsilon) · weight + bias along each row (Ba, Kiros and Hinton, 2016). The variance is that of the
/// row itself, Σ (x − mean)² / N, made in a second pass: it does not cancel.
///
/// Error relative to |weight| · max |x − mean| / √(variance + epsilon) + |bias|: rounding to E, half the sum's, which is that of [`softmax`], twice the
/// sum's of mean |x| over max |x − mean|, and 2⁻²⁰. A NaN or an infinity makes the row NaN, as in PyTorch.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn layernorm(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[read(..)] weight: Tensor<E, N>,
    #[read(..)] bias: Tensor<E, N>,
    #[write(i, ..)] y: Tensor<E, M, N>,
    epsilon: f32,
) {
    cta.rows((x, weight, bias), y, |(x, weight, bias), y| {
        let mean = x.sum(|v| v) / x.len() as f32;
        let factor = rsqrt(x.sum(|v| (v - mean) * (v - mean)) / x.len() as f32 + epsilon);
        y.zip((x, weight, bias), |(v, w, b)| mul_add((v - mean) * factor, w, b))
    })
}
