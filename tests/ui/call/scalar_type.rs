use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, n: u32, y: Out<bf16, M, K>) {
    copy(x, y);
    scale(y, 2);
    scale(y, n);
}

fn main() {}
