//! Element-wise tasks of one or two tensors. `add`, `mul` and `scale` are also epilogues: `linear(x, w, y).then(add(r))`.
//!
//! In flight: up to 192 KiB a multiprocessor. Of tasks that read less than 16 KiB, four blocks of eight elements of each of 256 threads; of tensors whose
//! rows do not begin at multiples of 16 bytes, one element.
//!
//! Of floating-point elements a result is that of IEEE 754 in `f32`, rounded to E: ties to even, subnormal numbers included; what is too large becomes
//! infinite. Of `bf16` and `f16` that is two roundings, of `f32` one. Bits are the same on every device, but for those of a NaN.

use crate::prelude::*;

/// x *= by, in place. Rounded to `f32`, then to E; NaN stays NaN, and infinities give what IEEE 754 has.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16, f32])]
pub fn scale(cta: &mut Cta, #[update(i, j)] x: Tensor<E, M, N>, by: f32) {
    cta.map(x, |v| v * by)
}

/// `.then(scale(by))`: v · by.
impl Combine for scale {
    #[inline(always)]
    fn combine(value: f32, by: f32) -> f32 {
        value * by
    }
}

/// y = a + b. Rounded to `f32`, then to E; NaN stays NaN, and infinities give what IEEE 754 has.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16, f32])]
pub fn add(cta: &mut Cta, #[read(i, j)] a: Tensor<E, M, N>, #[read(i, j)] b: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.zip((a, b), y, |(a, b)| a + b)
}

/// `.then(add(r))`: v + r, a residual; with a tensor of rank 1, a bias.
impl Combine for add {
    #[inline(always)]
    fn combine(value: f32, operand: f32) -> f32 {
        value + operand
    }
}

/// y = a · b, element by element. Rounded to `f32`, then to E; NaN stays NaN, and infinities give what IEEE 754 has.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16, f32])]
pub fn mul(cta: &mut Cta, #[read(i, j)] a: Tensor<E, M, N>, #[read(i, j)] b: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.zip((a, b), y, |(a, b)| a * b)
}

/// `.then(mul(r))`: v · r, a gate; with a tensor of rank 1, a scale for each column.
impl Combine for mul {
    #[inline(always)]
    fn combine(value: f32, operand: f32) -> f32 {
        value * operand
    }
}

/// x += b in every row, in place. Rounded to `f32`, then to E; NaN stays NaN, and infinities give what IEEE 754 has.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16, f32])]
pub fn bias(cta: &mut Cta, #[update(i, j)] x: Tensor<E, M, N>, #[read(j)] b: Tensor<E, N>) {
    cta.zip((x, b), x, |(x, b)| x + b)
}

/// y = x. Exact; NaN stays NaN.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16, f32, i32, u32])]
pub fn copy(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.zip(x, y, |v| v)
}
