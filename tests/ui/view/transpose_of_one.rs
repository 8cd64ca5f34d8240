use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, K>, y: Out<bf16, M, K>) {
    copy(x.t(), y);
}

fn main() {}
