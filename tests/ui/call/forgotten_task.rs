use maco::prelude::*;

/// A task by its parameters.
pub fn doubled(cta: &mut Cta, #[read(i, j)] x: Tensor<bf16, M, N>, #[write(i, j)] y: Tensor<bf16, M, N>) {
    cta.zip(x, y, |v| 2.0 * v)
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, N>, y: Out<bf16, M, N>) {
    doubled(x, y);
}

fn main() {}
