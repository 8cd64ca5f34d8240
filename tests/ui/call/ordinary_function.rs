use maco::prelude::*;

mod helpers {
    pub fn scaled(x: f32) -> f32 {
        2.0 * x
    }
}

fn square(x: f32) -> f32 {
    x * x
}

fn copied(_x: u32, _y: u32) {}

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<bf16, M, N>, z: Out<bf16, M, K>) {
    linear(x, w, y).then(square).then(helpers::scaled);
    copied(x, z);
}

#[maco::graph]
pub fn g(x: In<bf16, M, K>, z: Out<bf16, M, K>) {
    copied(x, z);
    drop(x);
}

fn main() {}
