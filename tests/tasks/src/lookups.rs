//! Rows and elements that indices name, read and written, and rotary embedding.
use maco::prelude::*;

pub const HEADS: usize = 3;

#[maco::megakernel]
pub fn lookups_bf16(
    table: In<bf16, V, N>,
    ids: In<u32, M>,
    many: In<u32, M, K>,
    weights: In<f32, M, K>,
    embedded: Out<bf16, M, N>,
    combined: Out<bf16, M, N>,
    picked: Out<bf16, M, K>,
) {
    embedding(ids, table, embedded);
    gather_sum(many, weights, table, combined);
    gather(embedded, many, picked);
}

/// Heads that lie side by side in a row, as a projection leaves them.
#[maco::megakernel]
pub fn rotated_bf16(
    x: In<bf16, T, { 2 * HEADS * F }>,
    positions: In<u32, T>,
    cos: In<f32, P, F>,
    sin: In<f32, P, F>,
    halves: Out<bf16, T, { 2 * HEADS * F }>,
    neighbours: Out<bf16, T, { 2 * HEADS * F }>,
) {
    rope(x.split(1, HEADS).swap(0, 1), positions, cos, sin, halves.split(1, HEADS).swap(0, 1));
    rope_interleaved(x.split(1, HEADS).swap(0, 1), positions, cos, sin, neighbours.split(1, HEADS).swap(0, 1));
}

#[maco::megakernel]
pub fn lookups_f32(
    table: In<f32, V, N>,
    ids: In<u32, M>,
    many: In<u32, M, K>,
    weights: In<f32, M, K>,
    embedded: Out<f32, M, N>,
    combined: Out<f32, M, N>,
    picked: Out<f32, M, K>,
) {
    embedding(ids, table, embedded);
    gather_sum(many, weights, table, combined);
    gather(embedded, many, picked);
}

/// Heads that lie side by side in a row, as a projection leaves them.
#[maco::megakernel]
pub fn rotated_f32(
    x: In<f32, T, { 2 * HEADS * F }>,
    positions: In<u32, T>,
    cos: In<f32, P, F>,
    sin: In<f32, P, F>,
    halves: Out<f32, T, { 2 * HEADS * F }>,
    neighbours: Out<f32, T, { 2 * HEADS * F }>,
) {
    rope(x.split(1, HEADS).swap(0, 1), positions, cos, sin, halves.split(1, HEADS).swap(0, 1));
    rope_interleaved(x.split(1, HEADS).swap(0, 1), positions, cos, sin, neighbours.split(1, HEADS).swap(0, 1));
}

/// In place: elements of rows, whole rows, and sums of rows.
#[maco::megakernel]
pub fn written_bf16(
    many: In<u32, M, K>,
    x: In<bf16, M, K>,
    y: InOut<bf16, M, N>,
    ids: In<u32, M>,
    rows: In<bf16, M, N>,
    copied: InOut<bf16, V, N>,
    added: InOut<bf16, V, N>,
) {
    scatter(many, x, y);
    index_copy(ids, rows, copied);
    index_add(ids, rows, added);
}

/// In place: elements of rows, whole rows, and sums of rows.
#[maco::megakernel]
pub fn written_f32(
    many: In<u32, M, K>,
    x: In<f32, M, K>,
    y: InOut<f32, M, N>,
    ids: In<u32, M>,
    rows: In<f32, M, N>,
    copied: InOut<f32, V, N>,
    added: InOut<f32, V, N>,
) {
    scatter(many, x, y);
    index_copy(ids, rows, copied);
    index_add(ids, rows, added);
}

#[maco::megakernel]
pub fn added_bf16(ids: In<u32, M>, rows: In<bf16, M, N>, added: InOut<bf16, V, N>) {
    index_add(ids, rows, added);
}

#[maco::megakernel]
pub fn added_f16(ids: In<u32, M>, rows: In<f16, M, N>, added: InOut<f16, V, N>) {
    index_add(ids, rows, added);
}

/// Two operations in a body, which have no table of the indices.
#[maco::task(tile(j = 256))]
pub fn add_twice(
    cta: &mut Cta,
    #[read(..)] ids: Tensor<u32, M>,
    #[read(.., j)] x: Tensor<bf16, M, N>,
    #[update(.., j)] y: Tensor<bf16, V, N>,
    #[update(.., j)] z: Tensor<bf16, V, N>,
) {
    cta.index_add(ids, x, y);
    cta.index_add(ids, x, z);
}

#[maco::megakernel]
pub fn added_twice(ids: In<u32, M>, rows: In<bf16, M, N>, added: InOut<bf16, V, N>, again: InOut<bf16, V, N>) {
    add_twice(ids, rows, added, again);
}
