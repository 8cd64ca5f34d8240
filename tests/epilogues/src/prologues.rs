//! GEMMs with an elementwise prologue on operand A, in every form and in each tile that they have.
use maco::prelude::*;

/// 1 / v: infinite at 0, which nobody is to see behind the end of a contraction.
#[maco::task(elementwise)]
pub fn one_over(v: f32) -> f32 {
    1.0 / v
}

/// max(v, r): a user's function of two values.
#[maco::task(elementwise)]
pub fn at_least(v: f32, r: f32) -> f32 {
    if v < r { r } else { v }
}

/// Each tile of `bf16`.
#[maco::megakernel]
pub fn tiles(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    small: Out<bf16, M, N>,
    middle: Out<bf16, M, N>,
    large: Out<bf16, M, N>,
    any: Out<bf16, M, N>,
) {
    linear(x, w, small).first(one_over).tile(64, 128);
    linear(x, w, middle).first(one_over).tile(128, 128);
    linear(x, w, large).first(one_over).tile(128, 256);
    linear(x, w, any).first(one_over);
}

/// Several functions, numbers known and not, beside an epilogue that has some of its own; of the other element.
#[maco::megakernel]
pub fn numbers(
    x: In<f16, M, K>,
    w: In<f16, N, K>,
    b: In<f16, N>,
    by: f32,
    then: f32,
    small: Out<f16, M, N>,
    middle: Out<f32, M, N>,
    large: Out<f16, M, N>,
) {
    linear(x, w, small).first(one_over).first(scale(by)).first(at_least(-1.0)).then(add(b)).then(scale(then)).tile(64, 128);
    linear(x, w, middle).first(one_over).first(scale(by)).first(at_least(-1.0)).then(add(b)).then(scale(then)).tile(128, 128);
    linear(x, w, large).then(add(b)).then(scale(then)).first(one_over).first(scale(by)).first(at_least(-1.0)).tile(128, 256);
}

/// Operands whose contraction runs along the rows: operand A, operand B, both.
#[maco::megakernel]
pub fn turned(
    x: In<bf16, M, K>,
    u: In<bf16, K, M>,
    w: In<bf16, N, K>,
    v: In<bf16, K, N>,
    nn: Out<bf16, M, N>,
    tn: Out<bf16, M, N>,
    large: Out<bf16, M, N>,
    tt: Out<bf16, M, N>,
) {
    matmul(x, v, nn).first(one_over).tile(128, 128);
    matmul_tn(u, v, tn).first(one_over).tile(64, 128);
    matmul_tn(u, v, large).first(one_over).tile(128, 256);
    matmul_tt(u, w, tt).first(one_over).tile(128, 128);
}

/// Elements of four bytes, which are multiplied as tf32, as they lie and turned.
#[maco::megakernel]
pub fn wide(
    x: In<f32, M, K>,
    u: In<f32, K, M>,
    w: In<f32, N, K>,
    v: In<f32, K, N>,
    small: Out<f32, M, N>,
    large: Out<f32, M, N>,
    tn: Out<f32, M, N>,
    tt: Out<f32, M, N>,
) {
    linear(x, w, small).first(one_over).tile(64, 128);
    linear(x, w, large).first(one_over).tile(128, 256);
    matmul_tn(u, v, tn).first(one_over).tile(64, 128);
    matmul_tt(u, w, tt).first(one_over).tile(128, 128);
}

/// Sums in parts, each of which applies the prologue to what it multiplies.
#[maco::megakernel]
pub fn parts(x: In<bf16, M, K>, w: In<bf16, N, K>, b: In<bf16, N>, small: Out<bf16, M, N>, large: Out<bf16, M, N>) {
    linear(x, w, small).first(one_over).then(add(b)).tile(64, 128).split_k(2);
    linear(x, w, large).first(one_over).then(add(b)).tile(128, 256).split_k(3);
}

/// Planes, groups whose weights data names, and two GEMMs that become one result.
#[maco::megakernel]
pub fn planes(
    expert: In<u32, B>,
    x: In<bf16, B, M, K>,
    w: In<bf16, B, N, K>,
    y: Out<bf16, B, M, N>,
    z: Out<bf16, B, M, N>,
    small: Out<bf16, B, M, N>,
    large: Out<bf16, B, M, N>,
) {
    batched_linear(x, w, y).first(one_over).tile(1, 64, 128);
    grouped_linear(expert, x, w, z).first(one_over).tile(1, 128, 128);
    grouped_gated_linear(expert, x, w, w, small).first(one_over).tile(1, 64, 128);
    grouped_gated_linear(expert, x, w, w, large).first(one_over).tile(1, 128, 128);
}

/// `x · wᵀ` by a task of one's own: its prologue is the call's affair.
#[maco::task(tile(i = 64, j = 128), E in [bf16, f16])]
pub fn own_linear(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// What a task of its own would have made of operand A, and of what another GEMM has made: the same bits.
#[maco::megakernel]
pub fn same(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    back: In<bf16, K, N>,
    fused: Out<bf16, M, N>,
    apart: Out<bf16, M, N>,
    own: Out<bf16, M, N>,
    fused_again: Out<bf16, M, K>,
    apart_again: Out<bf16, M, K>,
) {
    let h = temp::<bf16, M, K>();
    gelu(x, h);
    linear(h, w, apart).tile(64, 128);
    linear(x, w, fused).first(gelu).tile(64, 128);
    own_linear(x, w, own).first(gelu);
    let g = temp::<bf16, M, N>();
    silu(apart, g);
    linear(g, back, apart_again).tile(128, 128);
    linear(fused, back, fused_again).first(silu).tile(128, 128);
}
