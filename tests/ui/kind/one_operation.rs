//! A body that looks like one operation, and would be two: what it reads is loaded before it runs.
use maco::prelude::*;

#[maco::task(tile(i = 4))]
fn twice(cta: &mut Cta, #[update(i, ..)] x: Tensor<f32, M, N>) {
    let double = || cta.map(x, |v| 2.0 * v);
    double();
    double();
}

#[maco::task(tile(i = 4))]
fn stated(cta: Cta<Rows>, #[update(i, ..)] x: Tensor<f32, M, N>) {
    for _ in 0..2 {
        cta.map(x, |v| 2.0 * v);
    }
}

#[maco::task(tile(i = 8, j = 8))]
fn gated(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
    #[write(i, j)] z: Tensor<bf16, M, N>,
) {
    cta.gemv(x, w, y);
    cta.gemv(x, w, z);
}

fn main() {}
