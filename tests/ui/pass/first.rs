use maco::prelude::*;

/// A function of two values.
#[maco::task(elementwise)]
pub fn at_least(v: f32, r: f32) -> f32 {
    if v < r { r } else { v }
}

#[maco::graph]
pub fn block(x: In<bf16, M, K>, w: In<bf16, N, K>, b: In<bf16, N>, by: f32, y: Out<bf16, M, N>) {
    linear(x, w, y).first(silu).first(scale(by)).then(add(b)).then(scale(by));
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, b: In<bf16, N>, by: f32, y: [Out<bf16, M, N>; 3], z: Out<f32, M, N>) {
    block(x, w, b, by, y[0]);
    linear(x, w, y[1]).first(at_least(-1.0)).split_k(2);
    matmul(x, w.t(), y[2]).then(gelu).first(gelu).tile(64, 128);
    linear(x, w, z).first(gelu);
}

fn main() {}
