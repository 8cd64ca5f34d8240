//! A layer of a mixture of experts as a group of calls.

use crate::prelude::*;

/// y\[M, H\]: each token, a row of x\[M, H\], goes to the K experts with the highest of its `scores`\[M, X\], and gets the sum of their
/// results, weighted by the softmax of the scores (Shazeer et al., 2017). Expert e is down\[e\] · (silu(gate\[e\] · x) · (up\[e\] · x)), with
/// `gate` and `up` of \[X, I, H\], `down` of \[X, H, I\].
///
/// Which rows an expert gets is decided on the device: experts take as many tokens as want them. R rows in G groups are for them, of which an
/// expert fills whole ones: R / G rows each (128 is a tile's height), and `M · K / (R / G) + X` groups, are enough. What
/// [`group_rows`] says of them is in `weights`, `ids`, `expert`, `rows` and `counts`\[X\].
///
/// Error: those of [`softmax_top_k`], [`grouped_gated_linear`], [`grouped_linear`] and [`gather_sum`], each of what the one before has rounded to `bf16`
/// (`f32` of the weights). NaN and infinities as there: what a token has of them stays in its row of y.
#[maco_macros::graph(crate = crate)]
pub fn experts(
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
    let place = temp::<u32, M, K>();
    let sorted = temp::<bf16, R, H>();
    let inner = temp::<bf16, R, I>();
    let results = temp::<bf16, R, H>();
    softmax_top_k(scores, weights, ids);
    group_rows(ids, counts, expert, rows, place);
    embedding(rows, x, sorted);
    grouped_gated_linear(expert, sorted.split(0, G), gate, up, inner.split(0, G));
    grouped_linear(expert, inner.split(0, G), down, results.split(0, G));
    gather_sum(place, weights, results, y);
}
