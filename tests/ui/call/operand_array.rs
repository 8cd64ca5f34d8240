use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, r: [In<bf16, M, N>; 2], y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    linear(x, w, y).then(add(r));
    linear(x, w, z).then(add(r[0]));
}

fn main() {}
