use maco::bf16;

/// Operands the other way round.
#[maco::task(tile(i = 8, j = 8))]
pub fn gemv(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, K>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    cta.gemv(w, x, y);
}

/// Rows of two lengths.
#[maco::task(tile(i = 8, j = 8))]
pub fn contracted(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, K>, #[read(j, ..)] w: Tensor<bf16, N, L>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    cta.gemv(x, w, y);
}

fn main() {}
