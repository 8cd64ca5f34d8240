use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, M>, y: Out<bf16, M, M>) {
    copy(x, y);
    linear(y, x, y);
}

fn main() {}
