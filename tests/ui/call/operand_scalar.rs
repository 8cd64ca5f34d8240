use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, by: u32, y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    linear(x, w, y).then(scale(2));
    linear(x, w, z).then(scale(by));
}

fn main() {}
