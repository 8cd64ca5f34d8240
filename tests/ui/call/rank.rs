use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, v: In<bf16, K>, y: Out<bf16, M, K>) {
    linear(x, v, y);
}

fn main() {}
