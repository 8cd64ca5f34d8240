//! A layer of a mixture of experts.
use maco::prelude::*;

/// From the scores of the tokens on.
#[maco::megakernel]
pub fn layer(
    x: In<bf16, M, H>,
    scores: In<f32, M, X>,
    gate: In<bf16, X, I, H>,
    up: In<bf16, X, I, H>,
    down: In<bf16, X, H, I>,
    weights: Out<f32, M, K>,
    ids: Out<u32, M, K>,
    expert: Out<u32, G>,
    rows: Out<u32, R>,
    counts: Out<u32, X>,
    y: Out<bf16, M, H>,
) {
    experts(x, scores, gate, up, down, weights, ids, expert, rows, counts, y);
}
