use maco::bf16;

/// Operands that are contracted along two dimensions.
#[maco::task(tile(i = 64, j = 128))]
pub fn contracted(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, L>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// What is kept of the operands, the other way round.
#[maco::task(tile(i = 128, j = 128))]
pub fn kept(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, K>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, w.tile(k), x.tile(k));
    }
    cta.store(acc, y);
}

fn main() {}
