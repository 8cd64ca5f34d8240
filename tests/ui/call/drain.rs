use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>, z: Out<bf16, M, K>) {
    linear(x, w, y).drain(3);
    linear(x, w, z).drain().priority(1).drain();
}

fn main() {}
