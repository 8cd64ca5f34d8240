//! What is measured.
use maco::prelude::*;

#[maco::megakernel]
pub fn product(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<bf16, M, N>) {
    linear(x, w, y);
}

/// Two chained products, as the peer's graph has them.
#[maco::megakernel]
pub fn chain(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h);
    linear(h, down, y);
}

/// The same with a GELU, which the peer's graph does not have.
#[maco::megakernel]
pub fn mlp(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h).then(gelu);
    linear(h, down, y);
}

/// Many small calls on one tensor: what a plan is made of when it is long.
#[maco::megakernel]
pub fn updates(x: InOut<bf16, M, N>, by: f32) {
    for _call in 0..100 {
        scale(x, by);
    }
}
