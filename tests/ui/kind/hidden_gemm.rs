//! A helper multiplies, and the task's kind is another one: nothing would be staged for it.
use maco::prelude::*;

#[maco::helper(Gemm)]
fn gemm(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, K>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y)
}

#[maco::task(tile(i = 64, j = 128))]
fn linear(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, K>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    gemm(cta, x, w, y);
}

fn main() {}
