use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let z = copy(x, y);
    copy(x, y)
}

fn main() {}
