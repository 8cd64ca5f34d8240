//! Transposes and conversions.
use maco::prelude::*;

#[maco::megakernel]
pub fn transposed_bf16(x: In<bf16, M, N>, y: Out<bf16, N, M>) {
    transpose(x, y);
}

#[maco::megakernel]
pub fn transposed_f32(x: In<f32, M, N>, y: Out<f32, N, M>) {
    transpose(x, y);
}

/// Columns as far from each other as rows, of what is read and of what is written. `copy` takes them one by one; `transpose` takes blocks of eight, whose
/// steps elements of two bytes and of four reckon each for themselves.
#[maco::megakernel]
pub fn turned(x: In<bf16, M, N>, y: Out<bf16, N, M>, z: In<f32, M, N>, w: Out<f32, N, M>, u: Out<bf16, N, M>, v: Out<f32, N, M>) {
    copy(x.t(), y);
    copy(z, w.t());
    transpose(x.t(), u.t());
    transpose(z.t(), v.t());
}

#[maco::megakernel]
pub fn converted(
    x: In<f32, M, N>,
    brain: Out<bf16, M, N>,
    half: Out<f16, M, N>,
    back: Out<f32, M, N>,
    other: Out<f32, M, N>,
    across: Out<f16, M, N>,
    over: Out<bf16, M, N>,
) {
    to_bf16(x, brain);
    to_f16(x, half);
    to_f32(brain, back);
    to_f32(half, other);
    to_f16(brain, across);
    to_bf16(half, over);
}

#[maco::megakernel]
pub fn quantised_bf16(x: In<bf16, M, N>, q: Out<i8, M, N>, scale: Out<f32, M, 1>, y: Out<bf16, M, N>) {
    quantise(x, q, scale);
    dequantise(q, scale, y);
}

#[maco::megakernel]
pub fn quantised_f32(x: In<f32, M, N>, q: Out<i8, M, N>, scale: Out<f32, M, 1>, y: Out<f32, M, N>) {
    quantise(x, q, scale);
    dequantise(q, scale, y);
}
