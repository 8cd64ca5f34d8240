use maco::prelude::*;

#[maco::graph]
pub fn g(
    a: In<f32, A, B, C, D>,
    b: In<f32, E, F, G, H>,
    c: In<f32, I, J, K, L>,
    d: In<f32, M, N, O, P>,
    e: In<f32, Q>,
    y: Out<f32, Q>,
) {
    let _ = (a, b, c, d);
    copy(e.split(0, 1), y.split(0, 1));
}

fn main() {}
