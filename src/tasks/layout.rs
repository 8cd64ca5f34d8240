//! Transpose and casts.
//!
//! In flight: casts as the tasks of `elementwise.rs`, a transpose the eight rows of a square of each of 256 threads, of two bytes 32 KiB a multiprocessor.

use crate::prelude::*;

/// y\[M, N\] = xᵀ of x\[N, M\]. Exact; NaN stays NaN.
#[maco_macros::task(crate = crate, tile(i = 128, j = 128), E in [bf16, f16, f32, i32, u32])]
pub fn transpose(cta: &mut Cta, #[read(j, i)] x: Tensor<E, N, M>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.transpose(x, y)
}

/// y = x as `f32`. Exact.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16])]
pub fn to_f32(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.zip(x, y, |v| v)
}

/// y = x rounded to the nearest `bf16`, ties to even; what is too large becomes infinite. NaN stays NaN.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [f16, f32])]
pub fn to_bf16(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    cta.zip(x, y, |v| v)
}

/// y = x rounded to the nearest `f16`, ties to even, subnormal numbers included; what is too large becomes infinite. NaN stays NaN.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f32])]
pub fn to_f16(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<f16, M, N>) {
    cta.zip(x, y, |v| v)
}
