//! Operations on numbers that each rank keeps: x becomes 5 x and what has come, with wrap. So no number that was ever wrong is right again later.

use maco::prelude::*;

/// x = 5 x + y + salt.
#[maco::task(tile(i = 16 | 64, j = 64))]
pub fn stir(cta: &mut Cta, #[read(i, j)] y: Tensor<i32, M, N>, #[update(i, j)] x: Tensor<i32, M, N>, salt: i32) {
    cta.zip((x, y), x, |(x, y)| x.wrapping_mul(5).wrapping_add(y).wrapping_add(salt))
}

/// The same of three axes.
#[maco::task(tile(r = 1, i = 16 | 64, j = 64))]
pub fn stir_planes(cta: &mut Cta, #[read(r, i, j)] y: Tensor<i32, R, M, N>, #[update(r, i, j)] x: Tensor<i32, R, M, N>, salt: i32) {
    cta.zip((x, y), x, |(x, y)| x.wrapping_mul(5).wrapping_add(y).wrapping_add(salt))
}

/// y = x, of three axes.
#[maco::task(tile(r = 1, i = 16 | 64, j = 64))]
pub fn copy_planes(cta: &mut Cta, #[read(r, i, j)] x: Tensor<i32, R, M, N>, #[write(r, i, j)] y: Tensor<i32, R, M, N>) {
    cta.zip(x, y, |v| v)
}

/// The sum, in tiles that go with signals.
#[maco::task(tile(i = 64, j = 64))]
pub fn signalled_sum(cta: &mut Cta, #[read(i, j)] part: Tensor<i32, M, N>, #[write(i, j)] y: Tensor<i32, M, N>) {
    cta.all_reduce(part, y, Sum)
}

/// A plane for each rank, stored by its sender.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn put(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<i32, R, M, N>, #[write(r, i, j)] y: Tensor<i32, R, M, N>) {
    cta.put(x).signal().wait().receive(y)
}

/// The same, loaded by its receiver.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn offer(cta: Cta<MemoryChannel>, #[read(r, i, j)] x: Tensor<i32, R, M, N>, #[write(r, i, j)] y: Tensor<i32, R, M, N>) {
    cta.offer(x).signal().wait().get(y)
}

/// The same, with a flag in each word.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn packets(cta: Cta<PacketChannel>, #[read(r, i, j)] x: Tensor<i32, R, M, N>, #[write(r, i, j)] y: Tensor<i32, R, M, N>) {
    cta.put(x).receive(y)
}

/// The same, copied by a proxy.
#[maco::task(tile(r = 1, i = 16, j = 64))]
pub fn port(cta: Cta<PortChannel>, #[read(r, i, j)] x: Tensor<i32, R, M, N>, #[write(r, i, j)] y: Tensor<i32, R, M, N>) {
    cta.put_with_signal(x).wait().receive(y)
}

/// With the sum over all ranks, once in small tiles and once in large ones.
#[maco::megakernel]
pub fn sums(#[shard(0)] x: InOut<i32, M, N>, salt: i32) {
    let part = temp::<i32, M, N>().partial(Sum);
    copy(x, part);
    let sum = temp::<i32, M, N>();
    all_reduce(part, sum);
    stir(sum, x, salt);
    let again = temp::<i32, M, N>().partial(Sum);
    copy(x, again);
    let large = temp::<i32, M, N>();
    signalled_sum(again, large);
    stir(large, x, salt);
}

/// With the greatest and the least.
#[maco::megakernel]
pub fn extremes(#[shard(0)] x: InOut<i32, M, N>, salt: i32) {
    let part = temp::<i32, M, N>().partial(Max);
    copy(x, part);
    let most = temp::<i32, M, N>();
    all_reduce_max(part, most);
    stir(most, x, salt);
    let other = temp::<i32, M, N>().partial(Min);
    copy(x, other);
    let least = temp::<i32, M, N>();
    all_reduce_min(other, least);
    stir(least, x, salt);
}

/// With what single ranks send, one behind the other.
#[maco::megakernel]
pub fn sent(#[shard(0)] x: InOut<i32, M, N>, root: u32, from: u32, to: u32, by: i32, salt: i32) {
    let told = temp::<i32, M, N>();
    broadcast(x, told, root);
    stir(told, x, salt);
    let one = temp::<i32, M, N>().shard(0);
    send(x, one, from, to);
    stir(one, x, salt);
    let passed = temp::<i32, M, N>().shard(0);
    ring(x, passed, by);
    stir(passed, x, salt);
}

/// With what has a plane for each rank.
#[maco::megakernel]
pub fn planes(#[shard(0)] x: InOut<i32, M, N>, #[shard(0)] s: InOut<i32, R, M, N>, salt: i32) {
    let gathered = temp::<i32, R, M, N>();
    all_gather(x, gathered);
    stir_planes(gathered, s, salt);
    let parts = temp::<i32, R, M, N>().partial(Sum);
    copy_planes(s, parts);
    let scattered = temp::<i32, M, N>().shard(0);
    reduce_scatter(parts, scattered);
    stir(scattered, x, salt);
    let swapped = temp::<i32, R, M, N>().shard(0);
    all_to_all(s, swapped);
    stir_planes(swapped, s, salt);
}

/// With what comes over each kind of channel.
#[maco::megakernel]
pub fn channels(#[shard(0)] s: InOut<i32, R, M, N>, salt: i32) {
    let a = temp::<i32, R, M, N>().shard(0);
    put(s, a);
    stir_planes(a, s, salt);
    let b = temp::<i32, R, M, N>().shard(0);
    offer(s, b);
    stir_planes(b, s, salt);
    let c = temp::<i32, R, M, N>().shard(0);
    packets(s, c);
    stir_planes(c, s, salt);
    let d = temp::<i32, R, M, N>().shard(0);
    port(s, d);
    stir_planes(d, s, salt);
}

/// For collectives outside: what they are to work on.
#[maco::megakernel]
pub fn taken(
    #[shard(0)] x: In<i32, M, N>,
    #[shard(0)] s: In<i32, R, M, N>,
    #[shard(0)] y: Out<i32, M, N>,
    #[shard(0)] t: Out<i32, R, M, N>,
) {
    copy(x, y);
    copy_planes(s, t);
}

/// With what they have made of it.
#[maco::megakernel]
pub fn given(
    #[shard(0)] x: InOut<i32, M, N>,
    #[shard(0)] s: InOut<i32, R, M, N>,
    #[shard(0)] y: In<i32, M, N>,
    #[shard(0)] t: In<i32, R, M, N>,
    salt: i32,
) {
    stir(y, x, salt);
    stir_planes(t, s, salt);
}
