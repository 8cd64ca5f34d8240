#[maco::task(tile(i = 64 | 128, j = 128 | 256), E in [bf16])]
pub fn t(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] a: Tensor<E, N, K>,
    #[read(j, ..)] b: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, a) {
        cta.mma_pair(&mut acc, x.tile(k), (a.tile(k), b.tile(k)));
    }
    cta.store_pair(acc, y, |a, b| a + b);
}

fn main() {}
