use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: [In<bf16, M, K>; 3], y: Out<bf16, M, K>) {
    copy(x, y);
    copy(x[0], y);
}

fn main() {}
