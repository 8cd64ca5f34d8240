use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, b: In<bf16, M>, y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    linear(x, w, y).then(gelu).then(add(x));
    linear(x, w, z).then(add(b));
}

fn main() {}
