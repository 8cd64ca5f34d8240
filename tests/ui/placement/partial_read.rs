use maco::prelude::*;

#[maco::megakernel]
pub fn k(x: In<bf16, M, K>, w: In<bf16, K, K>, y: Out<bf16, M, K>) {
    let part = temp::<bf16, M, K>().partial(Sum);
    linear(x, w, part);
    copy(part, y);
}

fn main() {}
