//! A helper writes an operand beside a GEMM: its loads would begin before.
use maco::prelude::*;

#[maco::helper(Rows)]
fn doubled(cta: &mut Cta, #[read(i, j)] x: Tensor<bf16, M, N>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    cta.zip(x, y, |v| 2.0 * v)
}

#[maco::task(tile(i = 64, j = 128))]
fn linear(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[read(i, j)] r: Tensor<bf16, M, N>,
    #[write(i, j)] t: Tensor<bf16, M, N>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    doubled(cta, r, t);
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

fn main() {}
