//! Reductions of rows, and routers.
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

/// What a router does, in both heights that it has, and in the one that the planner likes.
#[maco::megakernel]
pub fn router_bf16(x: In<bf16, M, N>, values: [Out<bf16, M, K>; 3], indices: [Out<u32, M, K>; 3]) {
    softmax_top_k(x, values[0], indices[0]).tile(8);
    softmax_top_k(x, values[1], indices[1]).tile(32);
    softmax_top_k(x, values[2], indices[2]);
}

/// What a router does, in both heights that it has, and in the one that the planner likes.
#[maco::megakernel]
pub fn router_f32(x: In<f32, M, N>, values: [Out<f32, M, K>; 3], indices: [Out<u32, M, K>; 3]) {
    softmax_top_k(x, values[0], indices[0]).tile(8);
    softmax_top_k(x, values[1], indices[1]).tile(32);
    softmax_top_k(x, values[2], indices[2]);
}

#[maco::megakernel]
pub fn sums_bf16(x: In<bf16, M, N>, sum: Out<f32, M, 1>) {
    sum_rows(x, sum);
}
