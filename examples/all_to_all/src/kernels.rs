//! An all-to-all of one's own, over two kinds of channels, between two tasks of the same megakernel: plane r of `x` goes to rank r.
use maco::prelude::*;

/// v² of each element.
#[maco::task(tile(r = 1, i = 8 | 64, j = 256))]
pub fn square(cta: &mut Cta, #[read(r, i, j)] x: Tensor<bf16, R, M, N>, #[write(r, i, j)] y: Tensor<bf16, R, M, N>) {
    cta.zip(x, y, |v| v * v)
}

/// v + 1 of each element.
#[maco::task(tile(r = 1, i = 8 | 64, j = 256))]
pub fn add_one(cta: &mut Cta, #[read(r, i, j)] x: Tensor<bf16, R, M, N>, #[write(r, i, j)] y: Tensor<bf16, R, M, N>) {
    cta.zip(x, y, |v| v + 1.0)
}

/// Plane r of y is this rank's plane of the `x` of rank r. The task at coordinate r has a channel to rank r, and this rank stores the tile there.
#[maco::task(tile(r = 1, i = 8 | 64, j = 256))]
pub fn exchange(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<bf16, R, M, N>, #[write(r, i, j)] y: Tensor<bf16, R, M, N>) {
    let stored = cta.put(x); // in the slot of rank r's task for this rank
    let told = stored.signal(); // rank r may read it
    let come = told.wait(); // rank r's tile for this rank is here
    come.receive(y)
}

/// The same, of which a proxy thread makes the copies: this rank goes on as soon as it has handed them over.
#[maco::task(tile(r = 1, i = 8 | 64, j = 256))]
pub fn exchange_by_proxy(cta: Cta<PortChannel>, #[read(r, i, j)] x: Tensor<bf16, R, M, N>, #[write(r, i, j)] y: Tensor<bf16, R, M, N>) {
    cta.put_with_signal(x).wait().receive(y)
}

#[maco::megakernel]
pub fn by_memory(#[shard(0)] x: In<bf16, R, M, N>, #[shard(0)] y: Out<bf16, R, M, N>) {
    let sent = temp::<bf16, R, M, N>().shard(0);
    square(x, sent);
    let come = temp::<bf16, R, M, N>().shard(0);
    exchange(sent, come);
    add_one(come, y);
}

#[maco::megakernel]
pub fn by_proxy(#[shard(0)] x: In<bf16, R, M, N>, #[shard(0)] y: Out<bf16, R, M, N>) {
    let sent = temp::<bf16, R, M, N>().shard(0);
    square(x, sent);
    let come = temp::<bf16, R, M, N>().shard(0);
    exchange_by_proxy(sent, come);
    add_one(come, y);
}
