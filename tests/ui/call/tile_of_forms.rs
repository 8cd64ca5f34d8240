use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>, z: Out<bf16, M, K>) {
    linear(x, w, y).tile(16, 128);
    linear(x, w, z).tile(16, 8).split_k(2);
}

fn main() {}
