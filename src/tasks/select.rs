//! The largest elements of a row.
//!
//! In flight: as norms.
//!
//! NaN is larger than any number, as in `torch.argmax` and `torch.topk`; of equal elements (−0 and 0 are) the first comes first. Exact.

use crate::math::exp;
use crate::prelude::*;

/// y\[M, 1\] = the index of the largest element of each row of x\[M, N\], the first if there are several; `u32::MAX` in an empty row.
///
/// Exact. NaN is larger than any number, as in `torch.argmax`; −0 and 0 are equal.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn argmax(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<u32, M, 1>) {
    cta.rows(x, y, |x, y| y.put(0, x.largest().index))
}

/// The K largest elements of each row of x\[M, N\], from the largest down, and their indices; of equal ones the lower index first, which
/// PyTorch leaves open. Where K is more than N the rest is −∞ and `u32::MAX`.
///
/// Exact. NaN is larger than any number, as in `torch.topk`; −0 and 0 are equal.
///
/// The row is searched once, and for each further element a thirty-second part of it. Meant for K up to 64 or so.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn top_k(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[write(i, ..)] values: Tensor<E, M, K>,
    #[write(i, ..)] indices: Tensor<u32, M, K>,
) {
    cta.rows(x, (values, indices), |x, (values, indices)| {
        x.descending(values.len(), |k, entry| {
            values.put(k, entry.value);
            indices.put(k, entry.index);
        });
    })
}

/// The K largest elements of the softmax of each row of x\[M, N\], from the largest down, and their indices; of equal ones of `x` the lower index first.
/// What a router does with its scores (Shazeer et al., 2017), without the row of probabilities between [`softmax`](super::softmax) and [`top_k`]. Where K is more than N the rest is 0 and `u32::MAX`.
///
/// Indices are exact: those of [`top_k`] of `x`. Relative error of the values: that of `softmax`. A NaN, a positive infinity, or nothing but negative infinity in a row makes its values NaN.
#[maco_macros::task(crate = crate, tile(i = 8 | 32), E in [bf16, f16, f32])]
pub fn softmax_top_k(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[write(i, ..)] values: Tensor<E, M, K>,
    #[write(i, ..)] indices: Tensor<u32, M, K>,
) {
    cta.rows(x, (values, indices), |x, (values, indices)| {
        let (mut max, mut factor) = (0.0, 0.0);
        x.descending(values.len(), |k, entry| {
            // Found by the search, and not by a pass of its own, which is more than is inlined.
            if k == 0 {
                max = entry.value;
                factor = 1.0 / x.sum(|v| exp(v - max));
            }
            values.put(k, exp(entry.value - max) * factor);
            indices.put(k, entry.index);
        });
    })
}
