//! GEMMs in every form, of many matrices, and of groups of rows that data gives to experts.
use maco::prelude::*;

/// The same GEMM of operands that are stored in four ways.
#[maco::megakernel]
pub fn forms(
    x: In<bf16, M, K>,
    xt: In<bf16, K, M>,
    w: In<bf16, N, K>,
    wt: In<bf16, K, N>,
    nt: Out<bf16, M, N>,
    nn: Out<bf16, M, N>,
    tn: Out<bf16, M, N>,
    tt: Out<bf16, M, N>,
) {
    linear(x, w, nt);
    matmul(x, wt, nn);
    matmul_tn(xt, wt, tn);
    matmul_tt(xt, w, tt);
}

/// [`forms`] of `f16`.
#[maco::megakernel]
pub fn forms_f16(
    x: In<f16, M, K>,
    xt: In<f16, K, M>,
    w: In<f16, N, K>,
    wt: In<f16, K, N>,
    nt: Out<f16, M, N>,
    nn: Out<f16, M, N>,
    tn: Out<f16, M, N>,
    tt: Out<f16, M, N>,
) {
    linear(x, w, nt);
    matmul(x, wt, nn);
    matmul_tn(xt, wt, tn);
    matmul_tt(xt, w, tt);
}

#[maco::megakernel]
pub fn gated(x: In<f16, M, K>, gate: In<f16, N, K>, up: In<f16, N, K>, y: Out<f16, M, N>) {
    gated_linear(x, gate, up, y);
}

/// [`forms`] of many matrices.
#[maco::megakernel]
pub fn batched(
    x: In<f16, B, M, K>,
    xt: In<f16, B, K, M>,
    w: In<f16, B, N, K>,
    wt: In<f16, B, K, N>,
    nt: Out<f16, B, M, N>,
    nn: Out<f16, B, M, N>,
    tn: Out<f16, B, M, N>,
    tt: Out<f16, B, M, N>,
) {
    batched_linear(x, w, nt);
    batched_matmul(x, wt, nn);
    batched_matmul_tn(xt, wt, tn);
    batched_matmul_tt(xt, w, tt);
}

#[maco::megakernel]
pub fn batched_bf16(
    x: In<bf16, B, M, K>,
    xt: In<bf16, B, K, M>,
    w: In<bf16, B, N, K>,
    wt: In<bf16, B, K, N>,
    nt: Out<bf16, B, M, N>,
    nn: Out<bf16, B, M, N>,
    tn: Out<bf16, B, M, N>,
    tt: Out<bf16, B, M, N>,
) {
    batched_linear(x, w, nt);
    batched_matmul(x, wt, nn);
    batched_matmul_tn(xt, wt, tn);
    batched_matmul_tt(xt, w, tt);
}

#[maco::megakernel]
pub fn grouped(expert: In<u32, G>, x: In<bf16, G, T, K>, w: In<bf16, X, N, K>, y: Out<bf16, G, T, N>) {
    grouped_linear(expert, x, w, y);
}

#[maco::megakernel]
pub fn grouped_gated_bf16(expert: In<u32, G>, x: In<bf16, G, T, K>, gate: In<bf16, X, N, K>, up: In<bf16, X, N, K>, y: Out<bf16, G, T, N>) {
    grouped_gated_linear(expert, x, gate, up, y);
}

#[maco::megakernel]
pub fn grouped_gated_f16(expert: In<u32, G>, x: In<f16, G, T, K>, gate: In<f16, X, N, K>, up: In<f16, X, N, K>, y: Out<f16, G, T, N>) {
    grouped_gated_linear(expert, x, gate, up, y);
}

#[maco::megakernel]
pub fn grouped_gated_f32(expert: In<u32, G>, x: In<f32, G, T, K>, gate: In<f32, X, N, K>, up: In<f32, X, N, K>, y: Out<f32, G, T, N>) {
    grouped_gated_linear(expert, x, gate, up, y);
}

/// expert\[g\] = the first column of row g that has the largest number.
#[maco::task(tile(g = 64))]
pub fn route(cta: &mut Cta, #[read(g, ..)] scores: Tensor<f32, G, X>, #[write(g)] expert: Tensor<u32, G>) {
    cta.generate(scores, expert, |scores, _, group| {
        let (mut best, mut column) = (0, 1);
        while column < scores.cols() as i32 {
            if scores.at(group, column) > scores.at(group, best) {
                best = column;
            }
            column += 1;
        }
        best as u32
    })
}

/// The experts are results: whose weights a group gets is known when it runs.
#[maco::megakernel]
pub fn routed(
    scores: In<f32, G, X>,
    x: In<bf16, G, T, K>,
    up: In<bf16, X, H, K>,
    down: In<bf16, X, K, H>,
    expert: Out<u32, G>,
    y: Out<bf16, G, T, K>,
) {
    let h = temp::<bf16, G, T, H>();
    route(scores, expert);
    grouped_linear(expert, x, up, h).then(silu);
    grouped_linear(expert, h, down, y);
}

/// A layer of a mixture of experts with its router.
#[maco::megakernel]
pub fn moe(
    x: In<bf16, M, H>,
    router: In<bf16, X, H>,
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
    let logits = temp::<bf16, M, X>();
    let scores = temp::<f32, M, X>();
    linear(x, router, logits);
    to_f32(logits, scores);
    experts(x, scores, gate, up, down, weights, ids, expert, rows, counts, y);
}

/// The sort of tokens by experts alone.
#[maco::megakernel]
pub fn sorted(ids: In<u32, M, K>, counts: Out<u32, X>, expert: Out<u32, G>, rows: Out<u32, R>, place: Out<u32, M, K>) {
    group_rows(ids, counts, expert, rows, place);
}

/// [`forms`] of `f32`, one of them in parts.
#[maco::megakernel]
pub fn forms_f32(
    x: In<f32, M, K>,
    xt: In<f32, K, M>,
    w: In<f32, N, K>,
    wt: In<f32, K, N>,
    nt: Out<f32, M, N>,
    nn: Out<f32, M, N>,
    tn: Out<f32, M, N>,
    tt: Out<f32, M, N>,
    parts: Out<f32, M, N>,
) {
    linear(x, w, nt);
    matmul(x, wt, nn);
    matmul_tn(xt, wt, tn);
    matmul_tt(xt, w, tt);
    matmul(x, wt, parts).split_k(3);
}

#[maco::megakernel]
pub fn gated_f32(x: In<f32, M, K>, gate: In<f32, N, K>, up: In<f32, N, K>, y: Out<f32, M, N>) {
    gated_linear(x, gate, up, y);
}

#[maco::megakernel]
pub fn batched_f32(
    x: In<f32, B, M, K>,
    xt: In<f32, B, K, M>,
    w: In<f32, B, N, K>,
    wt: In<f32, B, K, N>,
    nt: Out<f32, B, M, N>,
    nn: Out<f32, B, M, N>,
    tn: Out<f32, B, M, N>,
    tt: Out<f32, B, M, N>,
) {
    batched_linear(x, w, nt);
    batched_matmul(x, wt, nn);
    batched_matmul_tn(xt, wt, tn);
    batched_matmul_tt(xt, w, tt);
}

#[maco::megakernel]
pub fn grouped_f32(expert: In<u32, G>, x: In<f32, G, T, K>, w: In<f32, X, N, K>, y: Out<f32, G, T, N>) {
    grouped_linear(expert, x, w, y);
}

/// Two GEMMs whose results `f32` keeps whole: the second one reads what the first one has written.
#[maco::megakernel]
pub fn chain_f32(x: In<f32, M, K>, up: In<f32, H, K>, down: In<f32, H, N>, hidden: Out<f32, M, H>, y: Out<f32, M, N>) {
    linear(x, up, hidden).then(relu);
    matmul(hidden, down, y);
}

/// y = x · wᵀ, not rounded to `bf16`.
#[maco::task(tile(i = 64 | 128, j = 128 | 256))]
pub fn wide(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<f32, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// GEMMs of one element with results of another, and a pair of GEMMs whose weights are contracted along their rows.
#[maco::task(tile(i = 64 | 128, j = 128))]
pub fn both(
    cta: &mut Cta,
    #[read(.., i)] x: Tensor<f32, K, M>,
    #[read(.., j)] v: Tensor<f32, K, N>,
    #[read(.., j)] w: Tensor<f32, K, N>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, v) {
        cta.mma_pair(&mut acc, x.tile(k), (v.tile(k), w.tile(k)));
    }
    cta.store_pair(acc, y, |v, w| v - w);
}

#[maco::megakernel]
pub fn mixed(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    xt: In<f32, K, M>,
    vt: In<f32, K, N>,
    wt: In<f32, K, N>,
    y: Out<f32, M, N>,
    z: Out<bf16, M, N>,
) {
    wide(x, w, y);
    both(xt, vt, wt, z);
}
