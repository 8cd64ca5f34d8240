//! Collectives: ranks exchange tiles. On one rank each of these is a copy.
//!
//! Each rank sends what others need, tile by tile, as soon as the tile is there: small ones as packets, large ones that all answer as data with a signal. It makes its
//! result of what comes, in the order of ranks: in `f32`, rounded once. So all ranks have the same bits in every run. Sums are those of NCCL's but for rounding: its
//! order is another one.

use crate::prelude::*;

/// y = the sum of `part` over all ranks; `part` is placed `.partial(Sum)`.
#[maco_macros::task(crate = crate, tile(i = 8 | 64, j = 64 | 256), E in [bf16, f16, f32, i32])]
pub fn all_reduce(cta: &mut Cta, #[read(i, j)] part: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.all_reduce(part, y, Sum)
}

/// sum = the sum of `part` over all ranks + residual, each of both sums rounded to E, and y = [`rmsnorm`](super::rmsnorm) of the rounded sum: what is behind the
/// last GEMM of attention and of a feed-forward layer that ranks share, in one task. `part` is placed `.partial(Sum)`. Errors, NaN and infinities as of
/// [`add_rmsnorm`](super::add_rmsnorm), whose bits `sum` has; squares are added in another order.
#[maco_macros::task(crate = crate, tile(i = 1), E in [bf16, f16, f32])]
pub fn all_reduce_add_rmsnorm(
    cta: &mut Cta,
    #[read(i, ..)] part: Tensor<E, M, N>,
    #[read(i, ..)] residual: Tensor<E, M, N>,
    #[read(..)] weight: Tensor<E, N>,
    #[write(i, ..)] sum: Tensor<E, M, N>,
    #[write(i, ..)] y: Tensor<E, M, N>,
    epsilon: f32,
) {
    cta.all_reduce_add_rmsnorm(part, residual, weight, sum, y, epsilon)
}

/// y = the mean of `part` over all ranks; `part` is placed `.partial(Sum)` or `.partial(Mean)`.
#[maco_macros::task(crate = crate, tile(i = 8 | 64, j = 256), E in [bf16, f16, f32])]
pub fn all_reduce_mean(cta: &mut Cta, #[read(i, j)] part: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.all_reduce(part, y, Mean)
}

/// y = the greatest `part` of all ranks; `part` is placed `.partial(Max)`. Of values of which one is not a number, that.
#[maco_macros::task(crate = crate, tile(i = 8 | 64, j = 256), E in [bf16, f16, f32, i32])]
pub fn all_reduce_max(cta: &mut Cta, #[read(i, j)] part: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.all_reduce(part, y, Max)
}

/// y = the least `part` of all ranks; `part` is placed `.partial(Min)`. Of values of which one is not a number, that.
#[maco_macros::task(crate = crate, tile(i = 8 | 64, j = 256), E in [bf16, f16, f32, i32])]
pub fn all_reduce_min(cta: &mut Cta, #[read(i, j)] part: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.all_reduce(part, y, Min)
}

/// Plane r of y is the `x` of rank r; `x` is a shard, and `R` the number of ranks. `y` is replicated.
#[maco_macros::task(crate = crate, tile(r = 1, i = 8 | 64, j = 256), E in [bf16, f16, f32, i32])]
pub fn all_gather(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.all_gather(x, y)
}

/// y = the sum of this rank's plane of `part` over all ranks: plane r is for rank r, and `R` the number of ranks. `part` is placed `.partial(Sum)`, and `y` is a shard.
#[maco_macros::task(crate = crate, tile(i = 8 | 64, j = 256), E in [bf16, f16, f32, i32])]
pub fn reduce_scatter(cta: &mut Cta, #[read(.., i, j)] part: Tensor<E, R, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.reduce_scatter(part, y, Sum)
}

/// Plane r of y is this rank's plane of the `x` of rank r; `R` is the number of ranks. Both are shards.
#[maco_macros::task(crate = crate, tile(r = 1, i = 8 | 64, j = 256), E in [bf16, f16, f32, i32])]
pub fn all_to_all(cta: &mut Cta, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.all_to_all(x, y)
}

/// y = the `x` of rank `root`, modulo the number of ranks.
#[maco_macros::task(crate = crate, tile(i = 8 | 64, j = 256), E in [bf16, f16, f32, i32])]
pub fn broadcast(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>, root: u32) {
    cta.broadcast(x, y, root)
}

/// y = the `x` of rank `from` on rank `to`, and each rank's own `x` on all others. Both are modulo the number of ranks.
#[maco_macros::task(crate = crate, tile(i = 8 | 64, j = 256), E in [bf16, f16, f32, i32])]
pub fn send(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>, from: u32, to: u32) {
    cta.send(x, y, from, to)
}

/// y = the `x` of the rank `by` places before, around the ring of ranks: 1 is the rank before this one, -1 the one behind.
#[maco_macros::task(crate = crate, tile(i = 8 | 64, j = 256), E in [bf16, f16, f32, i32])]
pub fn ring(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>, by: i32) {
    cta.ring(x, y, by)
}
