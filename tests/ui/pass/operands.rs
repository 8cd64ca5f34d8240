use maco::prelude::*;

const HALF: f32 = 0.5;

/// A function of two values is a task of three tensors too.
#[maco::task(elementwise)]
pub fn at_least(v: f32, r: f32) -> f32 {
    if v < r { r } else { v }
}

#[maco::graph]
pub fn block(x: In<bf16, M, K>, w: In<bf16, N, K>, r: In<bf16, M, N>, b: In<bf16, N>, by: f32, y: Out<bf16, M, N>) {
    linear(x, w, y).then(add(b)).then(gelu).then(mul(r)).then(scale(by));
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, r: [In<bf16, M, N>; 2], b: In<bf16, N>, by: f32, y: [Out<bf16, M, N>; 4], z: Out<bf16, M, N>) {
    let mut h = temp::<bf16, M, N>();
    linear(x, w, h).then(at_least(r[0])).then(at_least(-1.0)).tile(128, 256);
    for n in 0..2 {
        let next = temp::<bf16, M, N>();
        block(x, w, h, b, by, next);
        linear(x, w, y[n]).then(add(r[n])).then(scale(HALF)).then(scale(by)).split_k(2);
        h = next;
    }
    linear(x, w, y[2]).then(add(h)).then(silu_mul(h));
    matmul(x, w.t(), y[3]).then(mul(h.t().t())).then(add(if HALF > 0.0 { r[0] } else { r[1] }));
    at_least(h, r[0], z);
}

fn main() {}
