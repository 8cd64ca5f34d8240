//! Sums, products and copies, element by element.
use maco::prelude::*;

#[maco::megakernel]
pub fn plain_bf16(
    a: In<bf16, M, N>,
    b: In<bf16, M, N>,
    row: In<bf16, N>,
    by: f32,
    sum: Out<bf16, M, N>,
    product: Out<bf16, M, N>,
    copied: Out<bf16, M, N>,
    scaled: InOut<bf16, M, N>,
    biased: InOut<bf16, M, N>,
) {
    add(a, b, sum);
    mul(a, b, product);
    copy(a, copied);
    scale(scaled, by);
    bias(biased, row);
}

#[maco::megakernel]
pub fn plain_f16(
    a: In<f16, M, N>,
    b: In<f16, M, N>,
    row: In<f16, N>,
    by: f32,
    sum: Out<f16, M, N>,
    product: Out<f16, M, N>,
    copied: Out<f16, M, N>,
    scaled: InOut<f16, M, N>,
    biased: InOut<f16, M, N>,
) {
    add(a, b, sum);
    mul(a, b, product);
    copy(a, copied);
    scale(scaled, by);
    bias(biased, row);
}

#[maco::megakernel]
pub fn plain_f32(
    a: In<f32, M, N>,
    b: In<f32, M, N>,
    row: In<f32, N>,
    by: f32,
    sum: Out<f32, M, N>,
    product: Out<f32, M, N>,
    copied: Out<f32, M, N>,
    scaled: InOut<f32, M, N>,
    biased: InOut<f32, M, N>,
) {
    add(a, b, sum);
    mul(a, b, product);
    copy(a, copied);
    scale(scaled, by);
    bias(biased, row);
}

#[maco::megakernel]
pub fn copied_words(signed: In<i32, M, N>, unsigned: In<u32, M, N>, same: Out<i32, M, N>, alike: Out<u32, M, N>) {
    copy(signed, same);
    copy(unsigned, alike);
}
