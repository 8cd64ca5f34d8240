use maco::prelude::*;

const EPS: f32 = 1e-5;
const TABLE: [f32; 2] = [1.0, 2.0];
const COUNT: u32 = 4;

const fn half(v: f32) -> f32 {
    v / 2.0
}

#[maco::task(tile(i = 64, j = 64), E in [bf16, f32])]
pub fn count(cta: &mut Cta, #[update(i, j)] x: Tensor<E, M, N>, n: u32, m: i32) {
    cta.map(x, |v| v + n as f32 + m as f32)
}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, by: f32, y: Out<bf16, M, K>) {
    copy(x, y);
    scale(y, EPS);
    scale(y, EPS * 2.0);
    scale(y, 1.0 / 8.0);
    scale(y, -0.5);
    scale(y, TABLE[1]);
    scale(y, half(3.0));
    scale(y, by);
    count(y, 3, -3);
    count(y, COUNT, -(COUNT as i32));
    count(y, K, 0);
    count(y, 2 * K + 1, 0);
    for layer in 0..COUNT as usize {
        count(y, layer, 1);
    }
}

fn main() {}
