//! GEMMs whose results, or whose operands, are of another element than their operands A and B.
use maco::prelude::*;

/// v - 2 r: what is first and what is second shows.
#[maco::task(elementwise)]
pub fn minus_twice(v: f32, r: f32) -> f32 {
    v - 2.0 * r
}

/// Halves of either kind that become `f32`, with no epilogue, and with operands of both widths.
#[maco::megakernel]
pub fn widened(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    b: In<f32, N>,
    r: In<bf16, M, N>,
    plain: Out<f32, M, N>,
    small: Out<f32, M, N>,
    middle: Out<f32, M, N>,
    large: Out<f32, M, N>,
) {
    linear(x, w, plain).tile(128, 256);
    linear(x, w, small).then(add(b)).then(minus_twice(r)).tile(64, 128);
    linear(x, w, middle).then(add(b)).then(minus_twice(r)).tile(128, 128);
    linear(x, w, large).then(add(b)).then(minus_twice(r)).tile(128, 256);
}

/// `f16` that becomes `f32`, and `bf16` that becomes `f16`, beside GEMMs that stay what they are: one path, several codes.
#[maco::megakernel]
pub fn changed(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    p: In<f16, M, K>,
    q: In<f16, N, K>,
    same: Out<bf16, M, N>,
    half: Out<f16, M, N>,
    wide: Out<f32, M, N>,
    other: Out<bf16, M, N>,
) {
    linear(x, w, same).then(scale(0.5)).tile(64, 128);
    linear(x, w, half).then(scale(0.5)).tile(128, 128);
    linear(p, q, wide).then(scale(0.5)).tile(128, 128);
    linear(p, q, other).then(scale(0.5)).tile(64, 128);
}

/// `f32` that becomes `bf16` and `f16`, with a bias in `f32` and a residual of two bytes.
#[maco::megakernel]
pub fn narrowed(
    x: In<f32, M, K>,
    w: In<f32, N, K>,
    b: In<f32, N>,
    r: In<bf16, M, N>,
    small: Out<bf16, M, N>,
    middle: Out<f16, M, N>,
    large: Out<bf16, M, N>,
) {
    linear(x, w, small).then(add(b)).then(minus_twice(r)).tile(64, 128);
    linear(x, w, middle).then(add(b)).tile(128, 128);
    linear(x, w, large).then(add(b)).then(minus_twice(r)).tile(128, 256);
}

/// Operands in `f32` beside a result in `bf16`: a bias, a matrix, as many as a task can have.
#[maco::megakernel]
pub fn biased(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    b: In<f32, N>,
    r: In<f32, M, N>,
    h: In<f16, M, N>,
    small: Out<bf16, M, N>,
    middle: Out<bf16, M, N>,
    large: Out<bf16, M, N>,
) {
    linear(x, w, small).then(add(b)).tile(64, 128);
    linear(x, w, middle).then(add(b)).then(minus_twice(r)).tile(128, 128);
    linear(x, w, large).then(add(b)).then(minus_twice(r)).then(add(h)).tile(128, 256);
}

/// Sums in parts, of which a chunk is one or two of a result's.
#[maco::megakernel]
pub fn in_parts(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    p: In<f32, M, K>,
    q: In<f32, N, K>,
    b: In<f32, N>,
    r: In<bf16, M, N>,
    wide: Out<f32, M, N>,
    half: Out<bf16, M, N>,
    narrow: Out<bf16, M, N>,
) {
    linear(x, w, wide).then(add(b)).then(minus_twice(r)).tile(128, 256).split_k(2);
    linear(x, w, half).then(add(b)).tile(64, 128).split_k(3);
    linear(p, q, narrow).then(add(b)).then(minus_twice(r)).tile(128, 128).split_k(2);
}

/// Two GEMMs that become one result, of another element.
#[maco::megakernel]
pub fn paired(
    x: In<bf16, M, K>,
    gate: In<bf16, N, K>,
    up: In<bf16, N, K>,
    r: In<f32, M, N>,
    small: Out<f32, M, N>,
    large: Out<f32, M, N>,
    half: Out<f16, M, N>,
) {
    gated_linear(x, gate, up, small).then(scale(0.5)).then(add(r)).tile(64, 128);
    gated_linear(x, gate, up, large).then(scale(0.5)).then(add(r)).tile(128, 128);
    gated_linear(x, gate, up, half).tile(128, 128);
}

/// Planes, groups whose weights data names, and the other forms of GEMMs.
#[maco::megakernel]
pub fn planes(
    expert: In<u32, B>,
    x: In<bf16, B, M, K>,
    w: In<bf16, B, N, K>,
    b: In<f32, N>,
    r: In<f32, B, M, N>,
    y: Out<f32, B, M, N>,
    z: Out<f16, B, M, N>,
) {
    batched_linear(x, w, y).then(add(b)).then(minus_twice(r)).tile(1, 64, 128);
    grouped_linear(expert, x, w, z).then(minus_twice(r)).tile(1, 128, 128);
}

/// Few rows (GEMV), in the form that the planner chooses and in each that it has; results of both widths.
#[maco::megakernel]
pub fn few(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    b: In<f32, N>,
    g: In<bf16, M, N>,
    chosen: Out<f32, M, N>,
    narrow: Out<f32, M, N>,
    wide: Out<f16, M, N>,
) {
    linear(x, w, chosen).then(add(b)).then(minus_twice(g));
    skinny_linear(x, w, narrow).then(add(b)).then(minus_twice(g)).tile(8, 8);
    skinny_linear(x, w, wide).then(add(b)).then(minus_twice(g)).tile(16, 16);
}

/// A result of another element that the next GEMM reads: of two bytes it has in-band flags, of four it has none.
#[maco::megakernel]
pub fn chain(x: In<bf16, M, K>, up: In<bf16, N, K>, down: In<f16, K, N>, side: In<f32, K, N>, y: Out<f32, M, K>, z: Out<bf16, M, K>) {
    let h = temp::<f16, M, N>();
    let g = temp::<f32, M, N>();
    skinny_linear(x, up, h).then(relu).tile(8, 8);
    skinny_linear(h, down, y).tile(8, 8);
    skinny_linear(x, up, g).then(relu).tile(8, 8);
    linear(g, side, z).tile(64, 128);
}

/// `max(x · wᵀ, 0)` by a task of one's own: a result of another element is the call's affair.
#[maco::task(tile(i = 64, j = 128), E in [bf16, f16])]
pub fn positive(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, w) {
        cta.mma_pair(&mut acc, x.tile(k), (w.tile(k), w.tile(k)));
    }
    cta.store_pair(acc, y, |v, _| if v > 0.0 { v } else { 0.0 });
}

#[maco::megakernel]
pub fn own(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<f32, M, N>) {
    positive(x, w, y);
}

/// A group of calls whose results are its parameters, and temps of several elements in one array.
#[maco::graph]
pub fn head(x: In<bf16, M, K>, w: In<bf16, N, K>, b: In<f32, N>, y: Out<f32, M, N>) {
    linear(x, w, y).then(add(b)).tile(64, 128);
}

#[maco::megakernel]
pub fn heads(x: In<bf16, M, K>, w: [In<bf16, N, K>; 2], b: [In<f32, N>; 2], y: [Out<f32, M, N>; 2]) {
    for at in 0..2 {
        head(x, w[at], b[at], y[at]);
    }
}
