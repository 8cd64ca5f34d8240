use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, r: In<bf16, B, M, N>, y: Out<bf16, M, N>) {
    linear(x, w, y).then(add(r));
}

fn main() {}
