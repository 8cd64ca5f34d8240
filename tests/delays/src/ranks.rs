//! Every way from rank to rank, each behind another one: what is late somewhere is late for all.

use maco::prelude::*;

/// y = the sum of all ranks, in tiles that go with signals.
#[maco::task(tile(i = 64, j = 64))]
pub fn signalled_sum(cta: &mut Cta, #[read(i, j)] part: Tensor<f32, M, N>, #[write(i, j)] y: Tensor<f32, M, N>) {
    cta.all_reduce(part, y, Sum)
}

/// y = x, of three axes.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn planes(cta: &mut Cta, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.zip(x, y, |v| v);
}

/// A plane for each rank, stored by its sender.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn put(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

/// The same, loaded by its receiver.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn offer(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.offer(x).signal().wait().get(y)
}

/// The same, with a flag in each word.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn packets(cta: Cta<PacketChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put(x).receive(y)
}

/// The same, copied by a proxy.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn port(cta: Cta<PortChannel>, #[read(r, i, j)] x: Tensor<f32, R, M, N>, #[write(r, i, j)] y: Tensor<f32, R, M, N>) {
    cta.put_with_signal(x).wait().receive(y)
}

/// With S the sum of x over all ranks, and p the x of the rank before: `sum` is S, `large` S and that of R times S, `told` the p of rank `root`,
/// plane r of `gathered` the p of rank r, `scattered` the sum of this rank's planes of `mine`, and `back` is `mine` again, behind four exchanges of planes.
#[maco::megakernel]
pub fn exchanged(
    #[shard(0)] x: In<f32, M, N>,
    #[shard(0)] mine: In<f32, R, M, N>,
    sum: Out<f32, M, N>,
    large: Out<f32, M, N>,
    told: Out<f32, M, N>,
    gathered: Out<f32, R, M, N>,
    #[shard(0)] scattered: Out<f32, M, N>,
    #[shard(0)] swapped: Out<f32, R, M, N>,
    #[shard(0)] back: Out<f32, R, M, N>,
    root: u32,
) {
    let before = temp::<f32, M, N>().shard(0);
    ring(x, before, 1);
    let part = temp::<f32, M, N>().partial(Sum);
    copy(before, part);
    all_reduce(part, sum);
    let more = temp::<f32, M, N>().partial(Sum);
    add(before, sum, more);
    signalled_sum(more, large);
    broadcast(before, told, root);
    all_gather(before, gathered);
    let parts = temp::<f32, R, M, N>().partial(Sum);
    planes(mine, parts);
    reduce_scatter(parts, scattered);
    all_to_all(mine, swapped);
    let a = temp::<f32, R, M, N>().shard(0);
    put(mine, a);
    let b = temp::<f32, R, M, N>().shard(0);
    offer(a, b);
    let c = temp::<f32, R, M, N>().shard(0);
    packets(b, c);
    port(c, back);
}
