use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>) {
    linear(x, w);
    linear(x, w, y);
}

fn main() {}
