use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<f16, K, K>, y: Out<bf16, M, K>) {
    linear(x, w, y);
}

fn main() {}
