use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    scale(y, 2.0);
    add(x, x, y);
}

fn main() {}
