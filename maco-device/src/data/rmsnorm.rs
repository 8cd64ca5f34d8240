//! RMSNorm of a row: the arithmetic that the task of that name shares with the RMSNorm prologue of a GEMV.
//!
//! Which thread has which elements does not belong here. Squares are added in the order of [`crate::data::exchange`]: eight elements in pairs, then the blocks of a
//! lane, then the lanes. So both make the same bits.

use crate::data::element::Element;
use crate::data::row::RowView;
use crate::math::rsqrt;

/// `y = x / √(mean(x²) + epsilon) · weight`, of one row.
#[inline(always)]
pub fn row<E: Element<Value = f32>>(x: RowView<E>, weight: RowView<E>, y: RowView<E>, epsilon: f32) {
    let scale = scale(x.sum(square), x.len(), epsilon);
    y.zip((x, weight), |(v, w)| scaled(v, w, scale));
}

/// What is added up.
#[inline(always)]
pub fn square(v: f32) -> f32 {
    v * v
}

/// By what a row of `len` elements is multiplied whose squares come to `sum`.
#[inline(always)]
pub fn scale(sum: f32, len: u32, epsilon: f32) -> f32 {
    rsqrt(sum / len as f32 + epsilon)
}

/// An element of the result.
#[inline(always)]
pub fn scaled(v: f32, weight: f32, scale: f32) -> f32 {
    v * scale * weight
}
