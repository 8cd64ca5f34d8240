use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let g = temp::<bf16, M, K>();
    copy(x, g);
    copy(g, y);
    scale(g, 2.0);
}

fn main() {}
