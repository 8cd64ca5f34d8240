//! Rows as small integers and a scale each.
//!
//! In flight: as norms.

use crate::prelude::*;

/// q = x / scale rounded to the nearest integer, ties to even, from −127 to 127; scale\[M, 1\] = max |x| / 127 of each row.
///
/// q · scale differs from x by at most scale (½ + 2⁻¹⁵). A row whose largest number is below 2⁻¹¹⁶ becomes 0. A NaN or an infinity in a
/// row makes its scale the same, and with it what [`dequantise`] gives for the whole row NaN.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn quantise(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[write(i, ..)] q: Tensor<i8, M, N>,
    #[write(i, ..)] scale: Tensor<f32, M, 1>,
) {
    cta.rows(x, (q, scale), |x, (q, scale)| {
        let largest = x.fold(0.0, |v| v.abs(), math::max);
        // Below, the factor would be infinite.
        let factor = if largest > 1.2e-35 { 127.0 / largest } else { 0.0 };
        q.zip(x, |v| math::round(v * factor));
        scale.put(0, largest / 127.0);
    })
}

/// y = q · scale, with a scale\[M, 1\] for each row. Relative error: rounding to E, and 2⁻²⁴.
#[maco_macros::task(crate = crate, tile(i = 8), E in [bf16, f16, f32])]
pub fn dequantise(
    cta: &mut Cta,
    #[read(i, ..)] q: Tensor<i8, M, N>,
    #[read(i, ..)] scale: Tensor<f32, M, 1>,
    #[write(i, ..)] y: Tensor<E, M, N>,
) {
    cta.rows((q, scale), y, |(q, scale), y| {
        let scale = scale.at(0);
        y.zip(q, |v| v as f32 * scale)
    })
}
