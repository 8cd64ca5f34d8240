use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, N, K>, b: In<bf16, N>, r: In<bf16, M, N>, y: Out<bf16, M, N>) {
    linear(x, w, y).then(add(b)).then(mul(r)).then(scale(2.0)).then(add(r)).then(mul(b));
}

fn main() {}
