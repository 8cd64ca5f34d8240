//! A three-layer perceptron as one kernel: 64 pixels → 128 → 64 → 10 scores.
use maco::prelude::*;

/// x = max(x + b, 0) in every row.
#[maco::task(tile(i = 64, j = 64))]
pub fn bias_relu(cta: &mut Cta, #[update(i, j)] x: Tensor<bf16, M, N>, #[read(j)] b: Tensor<bf16, N>) {
    cta.zip((x, b), x, |(x, b)| (x + b).max(0.0))
}

#[maco::megakernel]
pub fn classify(
    images: In<bf16, M, P>,
    w1: In<bf16, A, P>,
    b1: In<bf16, A>,
    w2: In<bf16, B, A>,
    b2: In<bf16, B>,
    w3: In<bf16, C, B>,
    b3: In<bf16, C>,
    scores: Out<bf16, M, C>,
) {
    let first = temp::<bf16, M, A>();
    linear(images, w1, first);
    bias_relu(first, b1);
    let second = temp::<bf16, M, B>();
    linear(first, w2, second);
    bias_relu(second, b2);
    linear(second, w3, scores);
    bias(scores, b3);
}
