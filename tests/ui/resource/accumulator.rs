#[maco::task(tile(i = 32 | 64, j = 64 | 128), E in [bf16])]
pub fn t(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] w: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

fn main() {}
