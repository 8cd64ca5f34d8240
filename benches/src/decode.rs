//! A decoder's work for one token: GEMVs, each waiting for the one before.
use maco::prelude::*;

/// Pairs of GEMVs of [`gemv`].
pub const PAIRS: usize = 8;

/// x, up, down, up, down …
#[maco::megakernel]
pub fn gemv(x: In<bf16, M, K>, up: [In<bf16, N, K>; PAIRS], down: [In<bf16, K, N>; PAIRS], y: Out<bf16, M, K>) {
    let mut x = x;
    for n in 0..PAIRS - 1 {
        let wide = temp::<bf16, M, N>();
        let next = temp::<bf16, M, K>();
        skinny_linear(x, up[n], wide);
        skinny_linear(wide, down[n], next);
        x = next;
    }
    let wide = temp::<bf16, M, N>();
    skinny_linear(x, up[PAIRS - 1], wide);
    skinny_linear(wide, down[PAIRS - 1], y);
}

/// Layers of [`layers`].
pub const LAYERS: usize = 16;
/// Added to the mean square in [`layer`]'s norm.
pub const EPSILON: f32 = 1e-5;

/// A decoder's layer without attention: of its P queries, keys and values the first D, the queries, go on as if attention had given them
/// back.
#[maco::graph]
pub fn layer(
    x: In<bf16, M, D>,
    projection: In<bf16, P, D>,
    output: In<bf16, D, D>,
    norm: In<bf16, D>,
    gate_up: In<bf16, { 2 * H }, D>,
    down: In<bf16, D, H>,
    y: Out<bf16, M, D>,
) {
    let projected = temp::<bf16, M, P>();
    let attended = temp::<bf16, M, D>();
    let normal = temp::<bf16, M, D>();
    let gate = temp::<bf16, M, H>();
    let wide = temp::<bf16, M, H>();
    skinny_linear(x, projection, projected);
    skinny_linear(projected.slice(1, 0..D), output, attended).then(add(x));
    rmsnorm(attended, norm, normal, EPSILON);
    skinny_linear(normal, gate_up.slice(0, 0..H), gate).then(silu);
    skinny_linear(normal, gate_up.slice(0, H..2 * H), wide).then(mul(gate));
    skinny_linear(wide, down, y).then(add(attended));
}

/// Every layer waits for the one before.
#[maco::megakernel]
pub fn layers(
    x: In<bf16, M, D>,
    projection: [In<bf16, P, D>; LAYERS],
    output: [In<bf16, D, D>; LAYERS],
    norm: [In<bf16, D>; LAYERS],
    gate_up: [In<bf16, { 2 * H }, D>; LAYERS],
    down: [In<bf16, D, H>; LAYERS],
    y: Out<bf16, M, D>,
) {
    let mut x = x;
    for n in 0..LAYERS - 1 {
        let next = temp::<bf16, M, D>();
        layer(x, projection[n], output[n], norm[n], gate_up[n], down[n], next);
        x = next;
    }
    layer(x, projection[LAYERS - 1], output[LAYERS - 1], norm[LAYERS - 1], gate_up[LAYERS - 1], down[LAYERS - 1], y);
}
