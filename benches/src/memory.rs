//! The library's memory-bound tasks, each in a megakernel of its own.
//!
//! How large they are and what they are given is in `operations.rs`.
use maco::prelude::*;

/// Heads of [`rotated`], which share a row.
pub const HEADS: usize = 32;
/// Elements that [`chosen`] takes of each row.
pub const CHOSEN: usize = 8;
/// Rows that [`combined`] adds up.
pub const COMBINED: usize = 2;
/// Groups of rows that [`column_sums`] sums first, so that there are tasks for all multiprocessors.
pub const GROUPS: usize = 16;
const EPSILON: f32 = 1e-5;

#[maco::megakernel]
pub fn copied(x: In<bf16, M, N>, y: Out<bf16, M, N>) {
    copy(x, y);
}

#[maco::megakernel]
pub fn added(a: In<bf16, M, N>, b: In<bf16, M, N>, y: Out<bf16, M, N>) {
    add(a, b, y);
}

#[maco::megakernel]
pub fn activated(x: In<bf16, M, N>, y: Out<bf16, M, N>) {
    gelu(x, y);
}

#[maco::megakernel]
pub fn gated(gate: In<bf16, M, N>, up: In<bf16, M, N>, y: Out<bf16, M, N>) {
    silu_mul(gate, up, y);
}

#[maco::megakernel]
pub fn probabilities(x: In<bf16, M, N>, y: Out<bf16, M, N>) {
    softmax(x, y);
}

#[maco::megakernel]
pub fn root_mean_square(x: In<bf16, M, N>, weight: In<bf16, N>, y: Out<bf16, M, N>) {
    rmsnorm(x, weight, y, EPSILON);
}

#[maco::megakernel]
pub fn residual_norm(x: In<bf16, M, N>, residual: In<bf16, M, N>, weight: In<bf16, N>, sum: Out<bf16, M, N>, y: Out<bf16, M, N>) {
    add_rmsnorm(x, residual, weight, sum, y, EPSILON);
}

#[maco::megakernel]
pub fn normalised(x: In<bf16, M, N>, weight: In<bf16, N>, bias: In<bf16, N>, y: Out<bf16, M, N>) {
    layernorm(x, weight, bias, y, EPSILON);
}

#[maco::megakernel]
pub fn row_sums(x: In<bf16, M, N>, y: Out<f32, M, 1>) {
    sum_rows(x, y);
}

#[maco::megakernel]
pub fn column_sums(x: In<bf16, M, N>, y: Out<f32, N>) {
    let parts = temp::<f32, { GROUPS }, N>();
    sum_groups(x.split(0, GROUPS), parts);
    sum_cols(parts, y);
}

#[maco::megakernel]
pub fn transposed(x: In<bf16, M, N>, y: Out<bf16, N, M>) {
    transpose(x, y);
}

#[maco::megakernel]
pub fn widened(x: In<bf16, M, N>, y: Out<f32, M, N>) {
    to_f32(x, y);
}

#[maco::megakernel]
pub fn narrowed(x: In<f32, M, N>, y: Out<bf16, M, N>) {
    to_bf16(x, y);
}

#[maco::megakernel]
pub fn rotated(
    x: In<bf16, M, { 2 * HEADS * F }>,
    positions: In<u32, M>,
    cos: In<f32, M, F>,
    sin: In<f32, M, F>,
    y: Out<bf16, M, { 2 * HEADS * F }>,
) {
    rope(x.split(1, HEADS).swap(0, 1), positions, cos, sin, y.split(1, HEADS).swap(0, 1));
}

#[maco::megakernel]
pub fn embedded(ids: In<u32, M>, table: In<bf16, M, N>, y: Out<bf16, M, N>) {
    embedding(ids, table, y);
}

#[maco::megakernel]
pub fn gathered(x: In<bf16, M, N>, columns: In<u32, M, N>, y: Out<bf16, M, N>) {
    gather(x, columns, y);
}

#[maco::megakernel]
pub fn combined(ids: In<u32, M, { COMBINED }>, weights: In<f32, M, { COMBINED }>, x: In<bf16, { COMBINED * M }, N>, y: Out<bf16, M, N>) {
    gather_sum(ids, weights, x, y);
}

#[maco::megakernel]
pub fn scattered(columns: In<u32, M, N>, x: In<bf16, M, N>, y: InOut<bf16, M, N>) {
    scatter(columns, x, y);
}

#[maco::megakernel]
pub fn replaced(ids: In<u32, M>, x: In<bf16, M, N>, y: InOut<bf16, M, N>) {
    index_copy(ids, x, y);
}

#[maco::megakernel]
pub fn quantised(x: In<bf16, M, N>, q: Out<i8, M, N>, scale: Out<f32, M, 1>) {
    quantise(x, q, scale);
}

#[maco::megakernel]
pub fn dequantised(q: In<i8, M, N>, scale: In<f32, M, 1>, y: Out<bf16, M, N>) {
    dequantise(q, scale, y);
}

#[maco::megakernel]
pub fn largest(x: In<bf16, M, N>, y: Out<u32, M, 1>) {
    argmax(x, y);
}

#[maco::megakernel]
pub fn chosen(x: In<bf16, M, N>, values: Out<bf16, M, { CHOSEN }>, indices: Out<u32, M, { CHOSEN }>) {
    top_k(x, values, indices);
}
