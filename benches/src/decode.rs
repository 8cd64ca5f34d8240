//! What a decoder does with one token: products that stream their weights, each waiting for the one before.
use maco::prelude::*;

/// Pairs of products of [`gemv`].
pub const PAIRS: usize = 8;

/// x, up, down, up, down …
#[maco::megakernel]
pub fn gemv(x: In<bf16, M, K>, up: [In<bf16, N, K>; PAIRS], down: [In<bf16, K, N>; PAIRS], y: Out<bf16, M, K>) {
    let mut x = x;
    for n in 0..PAIRS - 1 {
        let wide = temp::<bf16, M, N>();
        let next = temp::<bf16, M, K>();
        skinny_linear(x, up[n], wide);
        skinny_linear(wide, down[n], next);
        x = next;
    }
    let wide = temp::<bf16, M, N>();
    skinny_linear(x, up[PAIRS - 1], wide);
    skinny_linear(wide, down[PAIRS - 1], y);
}
