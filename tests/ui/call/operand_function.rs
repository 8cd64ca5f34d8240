use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, r: In<bf16, M, N>, y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    linear(x, w, y).then(gelu(r));
    linear(x, w, z).then(add);
}

fn main() {}
