use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>, z: Out<bf16, M, K>) {
    linear(x, w, y).split_k().priority();
    linear(x, w, z).split_k(4).priority(1).split_k(2);
}

fn main() {}
