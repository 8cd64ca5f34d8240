use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<f32, M, N>, y: Out<f32, M, 2>) {
    sum_rows(x, y);
}

fn main() {}
