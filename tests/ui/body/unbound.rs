use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    temp::<bf16, M, K>();
    x.t();
    copy(x, y);
}

fn main() {}
