//! Reductions of columns, and of the middle one of three axes.
use maco::prelude::*;

#[maco::megakernel]
pub fn columns_bf16(x: In<bf16, M, N>, sum: Out<f32, N>, mean: Out<f32, N>, max: Out<f32, N>, min: Out<f32, N>) {
    sum_cols(x, sum);
    mean_cols(x, mean);
    max_cols(x, max);
    min_cols(x, min);
}

/// The sum of each column by way of the sums of P groups of rows.
#[maco::megakernel]
pub fn groups_bf16(x: In<bf16, P, M, N>, parts: Out<f32, P, N>, sum: Out<f32, N>) {
    sum_groups(x, parts);
    sum_cols(parts, sum);
}

#[maco::megakernel]
pub fn columns_f32(x: In<f32, M, N>, sum: Out<f32, N>, mean: Out<f32, N>, max: Out<f32, N>, min: Out<f32, N>) {
    sum_cols(x, sum);
    mean_cols(x, mean);
    max_cols(x, max);
    min_cols(x, min);
}

/// The sum of each column by way of the sums of P groups of rows.
#[maco::megakernel]
pub fn groups_f32(x: In<f32, P, M, N>, parts: Out<f32, P, N>, sum: Out<f32, N>) {
    sum_groups(x, parts);
    sum_cols(parts, sum);
}

#[maco::megakernel]
pub fn sums_bf16(x: In<bf16, M, N>, sum: Out<f32, N>) {
    sum_cols(x, sum);
}
