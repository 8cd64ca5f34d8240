//! The kernels that README.md shows, word for word.
use maco::prelude::*;

/// x = max(x + b, 0) in every row. One task makes one 64 × 64 tile.
#[maco::task(tile(i = 64, j = 64))]
pub fn bias_relu(cta: &mut Cta, #[update(i, j)] x: Tensor<bf16, M, N>, #[read(j)] b: Tensor<bf16, N>) {
    cta.zip((x, b), x, |(x, b)| (x + b).max(0.0))
}

#[maco::megakernel]
pub fn mlp(x: In<bf16, M, K>, up: In<bf16, H, K>, b: In<bf16, H>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h);
    bias_relu(h, b);
    linear(h, down, y);
}
