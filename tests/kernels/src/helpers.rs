//! Tasks whose work is in helper functions: a GEMM, a GEMV, rows of two elements, and two operations of which one reads what the other has written.
use maco::prelude::*;
use maco::{Element, HalfElement, MmaElement};

#[maco::helper(Gemm)]
fn gemm<E: MmaElement>(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] w: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y)
}

/// y = x · wᵀ
#[maco::task(tile(i = 64, j = 128))]
pub fn many_rows(
    cta: &mut Cta<Gemm>,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    gemm(cta, x, w, y);
}

#[maco::helper(Gemv)]
fn few<E: HalfElement>(cta: Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.gemv(x, w, y)
}

/// The same for few rows.
#[maco::task(tile(i = 8, j = 8))]
pub fn few_rows(
    cta: Cta<Gemv>,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    few(cta, x, w, y);
}

/// y = x less the first element of its row.
#[maco::helper(Rows)]
fn less_first<E: Element<Value = f32>>(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<E, M, N>) {
    cta.rows(x, y, |x, y| {
        let first = x.elements().at(0);
        y.zip(x, move |v| v - first);
    })
}

/// y has the rows of each tile of t in reverse, each element changed by `f`.
#[maco::helper(Tiles)]
fn reversed(
    cta: &mut Cta,
    #[written(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
    last: i32,
    f: impl Fn(f32) -> f32,
) {
    cta.generate(t, y, |t, r, c| f(t.at(last - r, c)))
}

/// t = x less the first of its row, then y has the rows of each tile of t in reverse, plus `by`.
#[maco::task(tile(i = 16))]
pub fn rows_then_positions(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<f32, M, N>,
    #[write(i, ..)] t: Tensor<f32, M, N>,
    #[write(i, ..)] y: Tensor<f32, M, N>,
    by: f32,
) {
    let t = less_first(cta, x, t);
    reversed(cta, t, y, 15, move |v| v + by);
}

#[maco::megakernel]
pub fn helped(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    many: Out<bf16, M, N>,
    few: Out<bf16, M, N>,
    v: In<f32, M, N>,
    t: Out<f32, M, N>,
    y: Out<f32, M, N>,
    by: f32,
) {
    many_rows(x, w, many);
    few_rows(x, w, few);
    rows_then_positions(v, t, y, by);
}
