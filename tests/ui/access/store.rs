//! A GEMM into what is `#[read]`.
use maco::prelude::*;

#[maco::task(tile(i = 64, j = 128))]
fn t(
    cta: &mut Cta,
    #[read(i, ..)] a: Tensor<bf16, M, K>,
    #[read(j, ..)] b: Tensor<bf16, N, K>,
    #[read(i, j)] x: Tensor<bf16, M, N>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(a, b) {
        cta.mma(&mut acc, a.tile(k), b.tile(k));
    }
    let _ = y;
    cta.store(acc, x)
}

fn main() {}
