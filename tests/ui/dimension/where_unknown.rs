use maco::prelude::*;

#[maco::megakernel(where M == Q)]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    copy(x, y);
}

fn main() {}
