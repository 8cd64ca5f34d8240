//! Reductions of rows.
use maco::prelude::*;

#[maco::megakernel]
pub fn rows_bf16(
    x: In<bf16, M, N>,
    sum: Out<f32, M, 1>,
    mean: Out<f32, M, 1>,
    max: Out<f32, M, 1>,
    min: Out<f32, M, 1>,
    arg: Out<u32, M, 1>,
    values: Out<bf16, M, K>,
    indices: Out<u32, M, K>,
) {
    sum_rows(x, sum);
    mean_rows(x, mean);
    max_rows(x, max);
    min_rows(x, min);
    argmax(x, arg);
    top_k(x, values, indices);
}

#[maco::megakernel]
pub fn rows_f32(
    x: In<f32, M, N>,
    sum: Out<f32, M, 1>,
    mean: Out<f32, M, 1>,
    max: Out<f32, M, 1>,
    min: Out<f32, M, 1>,
    arg: Out<u32, M, 1>,
    values: Out<f32, M, K>,
    indices: Out<u32, M, K>,
) {
    sum_rows(x, sum);
    mean_rows(x, mean);
    max_rows(x, max);
    min_rows(x, min);
    argmax(x, arg);
    top_k(x, values, indices);
}
