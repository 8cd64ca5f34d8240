use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let v = x.slice(1, 8..4);
    copy(v, y);
}

fn main() {}
