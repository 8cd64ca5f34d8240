//! What a GEMV multiplies by is not the parameter that the plan takes it for: loads of another one would not wait for who writes it.
use maco::prelude::*;

#[maco::task(tile(i = 8, j = 8))]
fn shadowed(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[read(j, ..)] v: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    let w = v;
    cta.gemv(x, w, y);
}

#[maco::task(tile(i = 8, j = 8))]
fn unnamed(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[read(j, ..)] v: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    cta.gemv(x, (w, v).1, y);
}

fn main() {}
