use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<i32, M, K>, w: In<i32, K, K>, y: Out<i32, M, K>) {
    linear(x, w, y);
}

fn main() {}
