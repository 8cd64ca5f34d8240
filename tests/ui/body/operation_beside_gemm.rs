use maco::prelude::*;

#[maco::task(tile(i = 64, j = 128))]
pub fn raised(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
    cta.map(y, |v| v + 1.0);
}

#[maco::task(tile(i = 8, j = 16))]
pub fn shifted(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    cta.gemv(x, w, y);
    cta.map(y, |v| v + 1.0)
}

fn main() {}
