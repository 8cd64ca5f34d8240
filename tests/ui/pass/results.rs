//! Results and operands of other elements than operands A and B, wherever they come from.
use maco::prelude::*;

#[maco::megakernel]
pub fn k(
    x: In<bf16, M, K>,
    w: [In<bf16, N, K>; 2],
    b: [In<f32, N>; 2],
    all: In<f32, M, P>,
    last: Out<f32, M, N>,
    half: Out<f16, M, N>,
    turned: Out<f32, N, M>,
    y: [Out<bf16, M, N>; 2],
) {
    let first = temp::<f32, M, N>();
    let rest = all.slice(1, 0..N);
    linear(x, w[0], first).then(add(b[1]));
    let from = first;
    for at in 0..2 {
        let bias = b[at];
        linear(x, w[at], y[at]).then(add(bias)).then(add(if at == 0 { from } else { rest }));
    }
    skinny_linear(x, w[1], half).then(add(b[0])).then(add(y[0]));
    matmul(x, w[0].t(), turned.t()).then(mul(half));
    linear(x, w[1], last).then(scale(0.5));
}

fn main() {}
