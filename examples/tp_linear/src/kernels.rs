//! A row-parallel linear layer: y = x · wᵀ, of which each rank has the columns `K` of x and w. Sizes are those of one rank.
use maco::prelude::*;

#[maco::megakernel]
pub fn row_parallel(#[shard(1)] x: In<bf16, M, K>, #[shard(1)] w: In<bf16, N, K>, y: Out<bf16, M, N>) {
    let part = temp::<bf16, M, N>().partial(Sum);
    linear(x, w, part);
    all_reduce(part, y);
}
