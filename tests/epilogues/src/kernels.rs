//! GEMMs with every sort of operand behind them, in each tile that they have.
use maco::prelude::*;

/// max(v, r): a user's function of two values.
#[maco::task(elementwise)]
pub fn at_least(v: f32, r: f32) -> f32 {
    if v < r { r } else { v }
}

/// v - 2 r: what is first and what is second shows.
#[maco::task(elementwise)]
pub fn minus_twice(v: f32, r: f32) -> f32 {
    v - 2.0 * r
}

/// A residual.
#[maco::megakernel]
pub fn residual(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    r: In<bf16, M, N>,
    small: Out<bf16, M, N>,
    middle: Out<bf16, M, N>,
    large: Out<bf16, M, N>,
) {
    linear(x, w, small).then(add(r)).tile(64, 128);
    linear(x, w, middle).then(add(r)).tile(128, 128);
    linear(x, w, large).then(add(r)).tile(128, 256);
}

/// A bias, an activation and a gate.
#[maco::megakernel]
pub fn gated(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    b: In<bf16, N>,
    g: In<bf16, M, N>,
    small: Out<bf16, M, N>,
    middle: Out<bf16, M, N>,
    large: Out<bf16, M, N>,
) {
    linear(x, w, small).then(add(b)).then(gelu).then(mul(g)).tile(64, 128);
    linear(x, w, middle).then(add(b)).then(gelu).then(mul(g)).tile(128, 128);
    linear(x, w, large).then(add(b)).then(gelu).then(mul(g)).tile(128, 256);
}

/// Numbers, known and not, a user's function with a tensor and with a number, of the other element.
#[maco::megakernel]
pub fn scaled(
    x: In<f16, M, K>,
    w: In<f16, N, K>,
    r: In<f16, M, N>,
    by: f32,
    small: Out<f16, M, N>,
    middle: Out<f16, M, N>,
    large: Out<f16, M, N>,
) {
    linear(x, w, small).then(scale(by)).then(minus_twice(r)).then(at_least(-3.0)).tile(64, 128);
    linear(x, w, middle).then(scale(by)).then(minus_twice(r)).then(at_least(-3.0)).tile(128, 128);
    linear(x, w, large).then(scale(by)).then(minus_twice(r)).then(at_least(-3.0)).tile(128, 256);
}

/// As many tensors as a task can have.
#[maco::megakernel]
pub fn full(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    b: In<bf16, N>,
    g: In<bf16, M, N>,
    r: In<bf16, M, N>,
    small: Out<bf16, M, N>,
    large: Out<bf16, M, N>,
) {
    linear(x, w, small).then(add(b)).then(silu_mul(g)).then(add(r)).tile(64, 128);
    linear(x, w, large).then(add(b)).then(silu_mul(g)).then(add(r)).tile(128, 256);
}

/// Elements of four bytes.
#[maco::megakernel]
pub fn wide(x: In<f32, M, K>, w: In<f32, N, K>, b: In<f32, N>, r: In<f32, M, N>, small: Out<f32, M, N>, large: Out<f32, M, N>) {
    linear(x, w, small).then(add(b)).then(mul(r)).tile(64, 128);
    linear(x, w, large).then(add(b)).then(mul(r)).tile(128, 256);
}

/// Sums in parts: the epilogue belongs to the whole.
#[maco::megakernel]
pub fn parts(x: In<bf16, M, K>, w: In<bf16, N, K>, b: In<bf16, N>, r: In<bf16, M, N>, small: Out<bf16, M, N>, large: Out<bf16, M, N>) {
    linear(x, w, small).then(add(b)).then(minus_twice(r)).tile(64, 128).split_k(2);
    linear(x, w, large).then(add(b)).then(minus_twice(r)).tile(128, 256).split_k(3);
}

/// The same of four bytes, of which a part's chunk is two of a result's.
#[maco::megakernel]
pub fn wide_parts(x: In<f32, M, K>, w: In<f32, N, K>, r: In<f32, M, N>, y: Out<f32, M, N>) {
    linear(x, w, y).then(minus_twice(r)).tile(128, 256).split_k(2);
}

/// Planes, with an operand that has them and one that has not; and of groups whose weights data names.
#[maco::megakernel]
pub fn planes(
    expert: In<u32, B>,
    x: In<bf16, B, M, K>,
    w: In<bf16, B, N, K>,
    b: In<bf16, N>,
    r: In<bf16, B, M, N>,
    y: Out<bf16, B, M, N>,
    z: Out<bf16, B, M, N>,
) {
    batched_linear(x, w, y).then(add(b)).then(minus_twice(r)).tile(1, 64, 128);
    grouped_linear(expert, x, w, z).then(minus_twice(r)).tile(1, 128, 128);
}

/// Two GEMMs that become one result.
#[maco::megakernel]
pub fn paired(
    x: In<bf16, M, K>,
    gate: In<bf16, N, K>,
    up: In<bf16, N, K>,
    r: In<bf16, M, N>,
    small: Out<bf16, M, N>,
    large: Out<bf16, M, N>,
) {
    gated_linear(x, gate, up, small).then(scale(0.5)).then(add(r)).tile(64, 128);
    gated_linear(x, gate, up, large).then(scale(0.5)).then(add(r)).tile(128, 128);
}

/// Operands that do not lie as the result does: columns from an odd one on, and a transposed matrix; and a result of the same graph.
#[maco::megakernel]
pub fn views(x: In<bf16, M, K>, w: In<bf16, N, K>, all: In<bf16, M, P>, turned: In<bf16, N, M>, y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    linear(x, w, y).then(add(all.slice(1, 1..N + 1))).tile(64, 128);
    let h = temp::<bf16, M, N>();
    linear(x, w, h).then(mul(turned.t())).tile(64, 128);
    linear(x, w, z).then(minus_twice(h)).tile(64, 128);
}

/// Few rows (GEMV), in the form that the planner chooses and in each that it has.
#[maco::megakernel]
pub fn few(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    b: In<bf16, N>,
    g: In<bf16, M, N>,
    by: f32,
    chosen: Out<bf16, M, N>,
    narrow: Out<bf16, M, N>,
    wide: Out<bf16, M, N>,
) {
    linear(x, w, chosen).then(add(b)).then(scale(by)).then(relu).then(minus_twice(g));
    skinny_linear(x, w, narrow).then(add(b)).then(scale(by)).then(relu).then(minus_twice(g)).tile(8, 8);
    skinny_linear(x, w, wide).then(add(b)).then(scale(by)).then(relu).then(minus_twice(g)).tile(16, 16);
}

/// A group of calls with an operand that is its parameter, and one that it makes.
#[maco::graph]
pub fn block(x: In<bf16, M, K>, up: In<bf16, N, K>, down: In<bf16, K, N>, y: Out<bf16, M, K>) {
    let open = temp::<bf16, M, N>();
    let h = temp::<bf16, M, N>();
    skinny_linear(x, up, open).then(relu).tile(8, 8);
    skinny_linear(x, up, h).then(mul(open)).tile(8, 8);
    skinny_linear(h, down, y).then(add(x)).tile(8, 8);
}

/// Layers that add to what comes in, each of three GEMMs.
#[maco::megakernel]
pub fn layers(x: In<bf16, M, K>, up: [In<bf16, N, K>; 2], down: [In<bf16, K, N>; 2], y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, K>();
    block(x, up[0], down[0], h);
    block(h, up[1], down[1], y);
}
