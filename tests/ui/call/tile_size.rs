use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>) {
    matmul(x, w, y).tile(64, 96);
}

fn main() {}
