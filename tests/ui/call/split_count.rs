use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>, z: Out<bf16, M, K>) {
    linear(x, w, y).split_k(0);
    linear(x, w, z).tile(64, 128).split_k(65);
}

fn main() {}
