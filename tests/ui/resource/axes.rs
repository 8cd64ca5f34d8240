use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<f32, A, B, C, D, E>, y: Out<f32, A, B>) {
    copy(x, y);
}

fn main() {}
