use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<i32, M, N>) {
    linear(x, w, y);
}

fn main() {}
