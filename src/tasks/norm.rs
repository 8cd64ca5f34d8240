//! Reductions along a row.

use crate::math::{exp, rsqrt};
use crate::prelude::*;

/// y = softmax(x) along each row, with the row's maximum subtracted first; a row of NaN gives NaN.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn softmax(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<E, M, N>) {
    cta.rows(x, y, |x, y| {
        let max = x.max(|v| v);
        let sum = x.sum(|v| exp(v - max));
        y.set(|j| exp(x.at(j) - max) / sum)
    })
}

/// y = x / √(mean(x²) + epsilon) · weight along each row (Zhang and Sennrich, 2019).
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn rmsnorm(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[read(..)] weight: Tensor<E, N>,
    #[write(i, ..)] y: Tensor<E, M, N>,
    epsilon: f32,
) {
    cta.rows((x, weight), y, |(x, weight), y| {
        let mean = x.sum(|v| v * v) / x.len() as f32;
        let factor = rsqrt(mean + epsilon);
        y.set(|j| x.at(j) * factor * weight.at(j))
    })
}

/// y\[M, 1\] = the sum of each row of x\[M, N\].
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn sum_rows(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<f32, M, 1>) {
    cta.rows(x, y, |x, y| {
        let sum = x.sum(|v| v);
        y.set(|_| sum)
    })
}
