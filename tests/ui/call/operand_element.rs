use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, r: In<i32, M, N>, y: Out<bf16, M, N>) {
    linear(x, w, y).then(mul(r));
}

fn main() {}
