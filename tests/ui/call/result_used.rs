use maco::prelude::*;

/// What else is done with `y` is done with elements of `E`.
#[maco::task(tile(i = 64, j = 128), E in [bf16, f16])]
pub fn gemm(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    let _ = y.rows();
    cta.store(acc, y);
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<f32, M, N>) {
    gemm(x, w, y);
}

fn main() {}
