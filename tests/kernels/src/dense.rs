//! GEMMs, epilogues, layers, groups of calls.
use library::{block, double};
use maco::prelude::*;

pub const LAYERS: usize = 3;

#[maco::megakernel]
pub fn gemm(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<bf16, M, N>) {
    linear(x, w, y);
}

#[maco::megakernel]
pub fn gemm_f16(x: In<f16, M, K>, w: In<f16, N, K>, y: Out<f16, M, N>) {
    linear(x, w, y);
}

/// Multiplied as tf32.
#[maco::megakernel]
pub fn gemm_f32(x: In<f32, M, K>, w: In<f32, N, K>, y: Out<f32, M, N>) {
    linear(x, w, y);
}

/// Multiplied as tf32, both operands transposed in shared memory.
#[maco::megakernel]
pub fn turned_f32(a: In<f32, K, M>, b: In<f32, K, N>, y: Out<f32, M, N>) {
    matmul_tn(a, b, y);
}

/// Every tile shape of the library's `linear` at once.
#[maco::megakernel]
pub fn tiles(x: In<bf16, M, K>, w: In<bf16, N, K>, a: Out<bf16, M, N>, b: Out<bf16, M, N>, c: Out<bf16, M, N>, d: Out<bf16, M, N>) {
    linear(x, w, a).tile(64, 128);
    linear(x, w, b).tile(64, 256);
    linear(x, w, c).tile(128, 128);
    linear(x, w, d).tile(128, 256);
}

/// y = a · b with b stored [K, N].
#[maco::megakernel]
pub fn plain_gemm(a: In<bf16, M, K>, b: In<bf16, K, N>, y: Out<bf16, M, N>) {
    matmul(a, b, y);
}

#[maco::megakernel]
pub fn mlp(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>();
    linear(x, up, h).then(gelu);
    linear(h, down, y);
}

/// A chain over an array of weights, with a scalar and a task of another crate.
#[maco::megakernel]
pub fn layers(x: In<bf16, M, K>, w: [In<bf16, K, K>; LAYERS], by: f32, y: Out<bf16, M, K>) {
    let mut h = temp::<bf16, M, K>();
    linear(x, w[0], h);
    for layer in 1..LAYERS {
        let next = temp::<bf16, M, K>();
        linear(h, w[layer], next);
        scale(next, by);
        h = next;
    }
    double(h, y);
}

/// A group of calls of another crate, twice.
#[maco::megakernel]
pub fn blocks(x: In<bf16, M, K>, up: In<bf16, H, K>, down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let middle = temp::<bf16, M, K>();
    block(x, up, down, middle);
    block(middle, up, down, y);
}

/// The same weights read by two branches that meet again.
#[maco::megakernel]
pub fn diamond(x: In<bf16, M, K>, w: In<bf16, K, K>, v: In<bf16, K, K>, y: Out<bf16, M, K>) {
    let left = temp::<bf16, M, K>();
    let right = temp::<bf16, M, K>();
    linear(x, w, left);
    linear(x, v, right);
    add(left, right, y);
}

/// On one rank a partial sum is the sum.
#[maco::megakernel]
pub fn reduced(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<bf16, M, N>) {
    let part = temp::<bf16, M, N>().partial(Sum);
    linear(x, w, part);
    all_reduce(part, y);
}
