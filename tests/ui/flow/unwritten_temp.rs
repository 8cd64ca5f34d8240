use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, K>();
    add(x, h, y);
}

fn main() {}
