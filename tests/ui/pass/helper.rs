//! Helpers: of every kind, with generics and closures of their own, by hand as the macro writes them, and in tasks that say of which kind they are.
use maco::prelude::{bf16, f16};
use maco::{Element, HalfElement, MmaElement};

#[maco::helper(Rows)]
fn centred<E: Element<Value = f32>>(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[write(i, ..)] y: Tensor<E, M, N>) {
    cta.rows(x, y, |x, y| {
        let mean = x.sum(|v| v) / x.len() as f32;
        y.zip(x, move |v| v - mean);
    })
}

#[maco::helper(Rows)]
fn raised(cta: &mut Cta, #[written(i, ..)] t: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, f: impl Fn(f32) -> f32, by: f32) {
    cta.zip(t, y, |v| f(v) + by + t.cols() as f32)
}

#[maco::task(tile(i = 4))]
fn twice(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] t: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, by: f32) {
    let t = centred(cta, x, t);
    raised(cta, t, y, move |v| v * v - by, by);
}

#[maco::helper(Rows)]
fn both(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>, #[write(i, j)] z: Tensor<f32, M, N>) {
    let y = cta.zip(x, y, |v| v + 1.0);
    let z = cta.zip(y, z, |v| v * 2.0);
    (y, z)
}

#[maco::task(tile(i = 4, j = 64))]
fn forked(cta: &mut Cta, #[read(i, j)] x: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>, #[write(i, j)] z: Tensor<f32, M, N>, flag: u32) {
    if flag == 1 {
        both(cta, x, y, z);
    } else {
        let z = cta.zip(x, z, |v| v);
        cta.zip(z, y, |v| v);
    }
}

#[maco::helper(Gemm)]
fn gemm<E: MmaElement>(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y)
}

#[maco::task(tile(i = 64, j = 128), E in [bf16, f16])]
fn linear(cta: &mut Cta<Gemm>, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    gemm(cta, x, w, y);
}

#[maco::helper(Gemv)]
fn few<E: HalfElement>(cta: Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.gemv(x, w, y)
}

#[maco::task(tile(i = 8, j = 8))]
fn few_rows(cta: Cta<Gemv>, #[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, K>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    few(cta, x, w, y);
}

#[maco::helper(Columns)]
fn sum_columns(cta: &mut Cta, #[read(.., j)] x: Tensor<f32, M, N>, #[write(j)] y: Tensor<f32, N>) {
    cta.columns(x, y, 0.0, |v| v, |a, b| a + b, |v| v)
}

#[maco::helper(Tiles)]
fn shifted(cta: &mut Cta, #[read(i + -1..=1, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.generate(x, y, |x, r, c| x.at(r, c) + x.at(r + 2, c))
}

#[maco::helper(Indexed)]
fn looked_up(cta: &mut Cta, #[read(i)] ids: Tensor<u32, M>, #[read(ids[i], ..)] table: Tensor<f32, V, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    cta.take(ids, table, y)
}

#[maco::task(tile(j = 64))]
fn sums(cta: &mut Cta, #[read(.., j)] x: Tensor<f32, M, N>, #[write(j)] y: Tensor<f32, N>) {
    sum_columns(cta, x, y);
}

#[maco::task(tile(i = 8))]
fn stencil(cta: &mut Cta, #[read(i + -1..=1, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    shifted(cta, x, y);
}

#[maco::task(tile(i = 8))]
fn embedding(cta: &mut Cta, #[read(i)] ids: Tensor<u32, M>, #[read(ids[i], ..)] table: Tensor<f32, V, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    looked_up(cta, ids, table, y);
}

#[maco::task(tile(i = 4))]
fn stated(cta: Cta<Rows>, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>, flag: u32) {
    if flag == 1 { cta.zip(x, y, |v| v + 1.0) } else { cta.zip(x, y, |v| v) };
}

fn main() {}
