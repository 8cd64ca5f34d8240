//! Element-wise tasks of one or two tensors. `add`, `mul` and `scale` are also fused into what stores a sum: `linear(x, w, y).then(add(r))`.
//!
//! In flight: up to 192 KiB a multiprocessor. Of tasks that read less than 16 KiB, four blocks of eight elements of each of 256 threads; of tensors whose
//! rows do not begin at multiples of 16 bytes, one element.

use crate::prelude::*;

/// x *= by, in place.
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

/// y = a + b.
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

/// y = a · b, element by element.
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

/// x += b in every row, in place.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16, f32])]
pub fn bias(cta: &mut Cta, #[update(i, j)] x: Tensor<E, M, N>, #[read(j)] b: Tensor<E, N>) {
    cta.zip((x, b), x, |(x, b)| x + b)
}

/// y = x.
#[maco_macros::task(crate = crate, tile(i = 4 | 16 | 64, j = 1024), E in [bf16, f16, f32, i32, u32])]
pub fn copy(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.zip(x, y, |v| v)
}
