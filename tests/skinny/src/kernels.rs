//! One GEMV, alone and with what is fused into it, and chains of them.
use maco::prelude::*;

/// GEMVs of [`chain`].
pub const LINKS: usize = 6;

#[maco::megakernel]
pub fn one(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<bf16, M, N>) {
    skinny_linear(x, w, y);
}

#[maco::megakernel]
pub fn half(x: In<f16, M, K>, w: In<f16, N, K>, y: Out<f16, M, N>) {
    skinny_linear(x, w, y).then(relu);
}

/// Each GEMV waits for the one before; weights are known.
#[maco::megakernel]
pub fn chain(x: In<bf16, M, K>, w: [In<bf16, K, K>; LINKS], y: [Out<bf16, M, K>; LINKS]) {
    skinny_linear(x, w[0], y[0]);
    for n in 1..LINKS {
        skinny_linear(y[n - 1], w[n], y[n]);
    }
}

/// relu(x gateᵀ) · (x upᵀ), then down with the residual.
#[maco::megakernel]
pub fn gated(x: In<bf16, M, K>, gate: In<bf16, H, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, h: Out<bf16, M, H>, y: Out<bf16, M, K>) {
    let open = temp::<bf16, M, H>();
    skinny_linear(x, gate, open).then(relu);
    skinny_linear(x, up, h).then(mul(open));
    skinny_linear(h, down, y).then(add(x));
}

/// x aᵀ, then its product with itself: what is streamed is a result.
#[maco::megakernel]
pub fn square(x: In<bf16, M, K>, a: In<bf16, K, K>, h: Out<bf16, M, K>, y: Out<bf16, M, M>) {
    skinny_linear(x, a, h);
    skinny_linear(x, h, y);
}

/// The same with a first GEMM by larger tiles, which are stored by TMA and not by threads.
#[maco::megakernel]
pub fn stored(x: In<bf16, M, K>, a: In<bf16, K, K>, h: Out<bf16, M, K>, y: Out<bf16, M, M>) {
    linear(x, a, h).tile(64, 128);
    skinny_linear(x, h, y);
}

/// `linear` in the form that the planner chooses, and in each that it has.
#[maco::megakernel]
pub fn forms(x: In<bf16, M, K>, w: In<bf16, N, K>, chosen: Out<bf16, M, N>, streamed: Out<bf16, M, N>, staged: Out<bf16, M, N>) {
    linear(x, w, chosen);
    linear(x, w, streamed).tile(16, 8);
    linear(x, w, staged).tile(64, 128);
}

/// The same with epilogues fused into them.
#[maco::megakernel]
pub fn fused(x: In<f16, M, K>, w: In<f16, N, K>, chosen: Out<f16, M, N>, streamed: Out<f16, M, N>, staged: Out<f16, M, N>) {
    linear(x, w, chosen).then(relu).then(tanh);
    linear(x, w, streamed).then(relu).then(tanh).tile(8, 16);
    linear(x, w, staged).then(relu).then(tanh).tile(128, 128);
}

/// Calls of either form that wait for each other, with weights that are known and weights that are results.
#[maco::megakernel]
pub fn mixed(x: In<bf16, M, K>, w: In<bf16, K, K>, h: Out<bf16, M, K>, y: Out<bf16, M, K>, z: Out<bf16, M, M>) {
    linear(x, w, h);
    linear(h, w, y).tile(64, 128);
    linear(h, y, z);
}

/// Pairs of [`passed`].
pub const PAIRS: usize = 3;

/// Several times x + relu(x upᵀ) downᵀ: all between is small, and handed on.
#[maco::megakernel]
pub fn passed(x: In<bf16, M, K>, up: [In<bf16, N, K>; PAIRS], down: [In<bf16, K, N>; PAIRS], y: Out<bf16, M, K>) {
    let mut x = x;
    for n in 0..PAIRS - 1 {
        let wide = temp::<bf16, M, N>();
        let next = temp::<bf16, M, K>();
        skinny_linear(x, up[n], wide).then(relu);
        skinny_linear(wide, down[n], next).then(add(x));
        x = next;
    }
    let wide = temp::<bf16, M, N>();
    skinny_linear(x, up[PAIRS - 1], wide).then(relu);
    skinny_linear(wide, down[PAIRS - 1], y).then(add(x));
}

/// Of one result, each half of its columns is multiplied.
#[maco::megakernel]
pub fn parts(x: In<bf16, M, K>, all: In<bf16, P, K>, part: In<bf16, K, N>, first: Out<bf16, M, K>, second: Out<bf16, M, K>) {
    let projected = temp::<bf16, M, P>();
    skinny_linear(x, all, projected);
    skinny_linear(projected.slice(1, 0..N), part, first);
    skinny_linear(projected.slice(1, N..2 * N), part, second).then(silu);
}

/// A decoder's layer without attention, of `E`'s kind: projection with residual, norm, a gated unit, and down with what the norm read.
#[maco::megakernel]
pub fn layer(
    x: In<bf16, M, D>,
    output: In<bf16, D, D>,
    norm: In<bf16, D>,
    gate: In<bf16, H, D>,
    up: In<bf16, H, D>,
    down: In<bf16, D, H>,
    epsilon: f32,
    y: Out<bf16, M, D>,
) {
    let attended = temp::<bf16, M, D>();
    let normal = temp::<bf16, M, D>();
    let open = temp::<bf16, M, H>();
    let wide = temp::<bf16, M, H>();
    skinny_linear(x, output, attended).then(add(x));
    rmsnorm(attended, norm, normal, epsilon);
    skinny_linear(normal, gate, open).then(silu);
    skinny_linear(normal, up, wide).then(mul(open));
    skinny_linear(wide, down, y).then(add(attended));
}

/// A norm of a user's own, as the library's.
#[maco::task(tile(i = 4), E in [bf16, f16])]
pub fn own_norm(
    cta: &mut Cta,
    epsilon: f32,
    #[write(i, ..)] normal: Tensor<E, M, N>,
    #[read(..)] scale: Tensor<E, N>,
    #[read(i, ..)] x: Tensor<E, M, N>,
) {
    cta.rmsnorm(x, scale, normal, epsilon)
}

/// Two norms of one result, by weights that lie in one tensor; GEMVs of one norm, of the other, and of what both are of. Of weights, the second
/// ones begin anywhere.
#[maco::megakernel]
pub fn norms(
    x: In<f16, M, K>,
    first: In<f16, N, K>,
    weights: In<f16, P>,
    w: [In<f16, K, N>; 3],
    sum: Out<f16, M, K>,
    a: Out<f16, M, K>,
    b: Out<f16, M, K>,
    c: Out<f16, M, K>,
) {
    let wide = temp::<f16, M, N>();
    let one = temp::<f16, M, N>();
    let other = temp::<f16, M, N>();
    skinny_linear(x, first, wide);
    rmsnorm(wide, weights.slice(0, 0..N), one, 0.25);
    own_norm(1e-5, other, weights.slice(0, P - N..P), wide);
    skinny_linear(one, w[0], a);
    skinny_linear(other, w[1], b).then(relu);
    skinny_linear(wide, w[2], c);
    skinny_linear(one, w[0], sum).then(add(x));
}

/// A norm of half of each row of a result.
#[maco::megakernel]
pub fn half_norm(x: In<bf16, M, K>, first: In<bf16, P, K>, norm: In<bf16, N>, w: In<bf16, K, N>, y: Out<bf16, M, K>) {
    let wide = temp::<bf16, M, P>();
    let normal = temp::<bf16, M, N>();
    skinny_linear(x, first, wide);
    rmsnorm(wide.slice(1, N..2 * N), norm, normal, 1e-6);
    skinny_linear(normal, w, y);
}

/// A map of a user's own, with a scalar of the launch.
#[maco::task(tile(i = 4, j = 128), E in [bf16, f16])]
pub fn own_map(cta: &mut Cta, by: f32, #[write(i, j)] mapped: Tensor<E, M, N>, #[read(i, j)] x: Tensor<E, M, N>) {
    cta.zip(x, mapped, |v| if v < 0.0 { v } else { v * by })
}

/// The same of a function of values.
#[maco::task(elementwise)]
pub fn bend(v: f32) -> f32 {
    v - v * v * 0.25
}

/// Three maps of one result, GEMVs of each, one by one and two of the same, and of the result itself.
#[maco::megakernel]
pub fn maps(
    x: In<f16, M, K>,
    first: In<f16, N, K>,
    w: [In<f16, K, N>; 3],
    by: f32,
    sum: Out<f16, M, K>,
    a: Out<f16, M, K>,
    b: Out<f16, M, K>,
    c: Out<f16, M, K>,
    d: Out<f16, M, K>,
) {
    let wide = temp::<f16, M, N>();
    let open = temp::<f16, M, N>();
    let own = temp::<f16, M, N>();
    let bent = temp::<f16, M, N>();
    skinny_linear(x, first, wide);
    gelu(wide, open);
    own_map(by, own, wide);
    bend(wide, bent);
    skinny_linear(open, w[0], a);
    skinny_linear(own, w[1], b).then(relu);
    skinny_linear(wide, w[2], c);
    skinny_linear(bent, w[0], d);
    skinny_linear(open, w[1], sum).then(add(x));
}

/// A map of half of each row of a result, beside the norm of the other half.
#[maco::megakernel]
pub fn half_map(x: In<bf16, M, K>, first: In<bf16, P, K>, norm: In<bf16, N>, w: In<bf16, K, N>, y: Out<bf16, M, K>, z: Out<bf16, M, K>) {
    let wide = temp::<bf16, M, P>();
    let open = temp::<bf16, M, N>();
    let normal = temp::<bf16, M, N>();
    skinny_linear(x, first, wide);
    silu(wide.slice(1, N..2 * N), open);
    rmsnorm(wide.slice(1, 0..N), norm, normal, 1e-6);
    skinny_linear(open, w, y);
    skinny_linear(normal, w, z);
}

/// Maps that have tasks of their own: of what is read by another task too, is a result, is read twice or in part, or is of a map.
#[maco::megakernel]
pub fn kept(
    x: In<bf16, M, K>,
    w: In<bf16, K, K>,
    shown: Out<bf16, M, K>,
    y: [Out<bf16, M, K>; 4],
    half: Out<bf16, M, H>,
    v: In<bf16, H, H>,
) {
    let wide = temp::<bf16, M, K>();
    let also = temp::<bf16, M, K>();
    let twice = temp::<bf16, M, K>();
    let part = temp::<bf16, M, K>();
    let next = temp::<bf16, M, K>();
    let second = temp::<bf16, M, K>();
    skinny_linear(x, w, wide);
    gelu(wide, shown);
    silu(wide, also);
    relu(wide, twice);
    tanh(wide, part);
    sigmoid(wide, next);
    gelu(next, second);
    skinny_linear(shown, w, y[0]);
    skinny_linear(also, w, y[1]).then(add(also));
    skinny_linear(twice, w, y[2]).then(mul(twice));
    skinny_linear(part.slice(1, 0..H), v, half);
    skinny_linear(second, w, y[3]);
}

fn mark_reference<const I: usize>(x: maco::Tile<f32, I, 0>) {
    for row in 0..x.rows() as i32 {
        for col in 0..x.cols() as i32 {
            let at = x.pointer(row, col);
            // SAFETY: the position lies in the tile, which is this task's.
            unsafe { at.write(at.read() + 1.0) };
        }
    }
}

/// x += 1, in place, by a warp.
///
/// # Safety
/// None is needed.
#[maco::task(simt, warp, tile(i = 4), cpu = mark_reference)]
pub unsafe fn mark(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>) {
    let (rows, cols) = (x.rows(), x.cols());
    let mut at = cta.lane;
    while at < rows * cols {
        let place = x.pointer((at / cols) as i32, (at % cols) as i32);
        // SAFETY: the position lies in the tile, and each lane has its own.
        unsafe { place.write(place.read() + 1.0) };
        at += maco::Warp::LANES;
    }
}

/// A map that has tasks of its own, since a task of one warp is in the same megakernel.
#[maco::megakernel]
pub fn beside_warps(x: In<bf16, M, K>, first: In<bf16, N, K>, w: In<bf16, K, N>, seen: InOut<f32, M, N>, y: Out<bf16, M, K>) {
    let wide = temp::<bf16, M, N>();
    let open = temp::<bf16, M, N>();
    skinny_linear(x, first, wide);
    gelu(wide, open);
    skinny_linear(open, w, y);
    mark(seen);
}
