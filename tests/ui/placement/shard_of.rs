use maco::prelude::*;

#[maco::megakernel]
fn sharded(x: In<bf16, M, K>, y: Out<bf16, M, K>) {
    let part = x.shard(0);
    let other = temp::<bf16, M, K>().shard(rows);
    copy(part, other);
    copy(other, y);
}

fn main() {}
