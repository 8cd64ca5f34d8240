use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    copy(x, y);
    let v = x.slice(1, 8..4);
    add(v, v, y);
}

fn main() {}
