//! Sums made in parts by several tasks.
use maco::prelude::*;

/// Every tile shape of the library's `linear`, each in another number of parts; some with an epilogue, which must come after the sum.
#[maco::megakernel]
pub fn parts(x: In<bf16, M, K>, w: In<bf16, N, K>, a: Out<bf16, M, N>, b: Out<bf16, M, N>, c: Out<bf16, M, N>, d: Out<bf16, M, N>) {
    linear(x, w, a).tile(64, 128).split_k(2);
    linear(x, w, b).tile(64, 256).split_k(3).then(relu);
    linear(x, w, c).tile(128, 128).split_k(5).then(relu);
    linear(x, w, d).tile(128, 256).split_k(8);
}

/// Sums of sums, between which h is written and read.
#[maco::megakernel]
pub fn chain(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h).split_k(3).then(relu);
    linear(h, down, y).split_k(4);
    scale(y, 2.0);
}

/// b stored [K, N], in f16.
#[maco::megakernel]
pub fn plain(a: In<f16, M, K>, b: In<f16, K, N>, y: Out<f16, M, N>) {
    matmul(a, b, y).split_k(3);
}
