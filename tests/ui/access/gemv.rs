//! A GEMV into what is `#[read]`.
use maco::prelude::*;

#[maco::task(tile(i = 8, j = 8))]
fn t(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[read(i, j)] y: Tensor<bf16, M, N>,
    #[write(i, j)] z: Tensor<bf16, M, N>,
) {
    if z.rows() > 8 { cta.gemv(x, w, z) } else { cta.gemv(x, w, y) }
}

fn main() {}
