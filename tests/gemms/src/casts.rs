//! GEMMs in every form whose results are of another element than their operands.
use maco::prelude::*;

/// `bf16` that becomes `f32`, of operands that are stored in four ways.
#[maco::megakernel]
pub fn widened(
    x: In<bf16, M, K>,
    xt: In<bf16, K, M>,
    w: In<bf16, N, K>,
    wt: In<bf16, K, N>,
    nt: Out<f32, M, N>,
    nn: Out<f32, M, N>,
    tn: Out<f32, M, N>,
    tt: Out<f32, M, N>,
) {
    linear(x, w, nt);
    matmul(x, wt, nn);
    matmul_tn(xt, wt, tn);
    matmul_tt(xt, w, tt);
}

/// `f32` that becomes halves of both kinds.
#[maco::megakernel]
pub fn narrowed(
    x: In<f32, M, K>,
    xt: In<f32, K, M>,
    w: In<f32, N, K>,
    wt: In<f32, K, N>,
    nt: Out<bf16, M, N>,
    nn: Out<f16, M, N>,
    tn: Out<bf16, M, N>,
    tt: Out<f16, M, N>,
) {
    linear(x, w, nt);
    matmul(x, wt, nn);
    matmul_tn(xt, wt, tn);
    matmul_tt(xt, w, tt);
}

/// Planes, and groups whose experts data names.
#[maco::megakernel]
pub fn planes(
    expert: In<u32, G>,
    x: In<f16, G, T, K>,
    xt: In<f16, G, K, T>,
    w: In<f16, G, N, K>,
    wt: In<f16, G, K, N>,
    nt: Out<f32, G, T, N>,
    nn: Out<bf16, G, T, N>,
    tn: Out<bf16, G, T, N>,
    tt: Out<f32, G, T, N>,
    named: Out<f32, G, T, N>,
) {
    batched_linear(x, w, nt);
    batched_matmul(x, wt, nn);
    batched_matmul_tn(xt, wt, tn);
    batched_matmul_tt(xt, w, tt);
    grouped_linear(expert, x, w, named);
}
