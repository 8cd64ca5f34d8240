use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, A, B, C, D>, y: Out<bf16, M, K>) {
    copy(x.split(0, 2), y);
}

fn main() {}
