use maco::prelude::*;

#[maco::megakernel]
pub fn k(#[shard(2)] x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    copy(x, y);
}

fn main() {}
