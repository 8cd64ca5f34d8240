//! GEMMs of what ranks exchange, which begin at a share that depends on the rank.

use maco::prelude::*;

/// x · wᵀ summed over all ranks by owners, and once more scattered; and all ranks' own rows, times vᵀ.
#[maco::megakernel]
pub fn shares(
    #[shard(1)] x: In<bf16, { R * M }, K>,
    #[shard(1)] w: In<bf16, N, K>,
    #[shard(0)] own: In<bf16, M, K>,
    v: In<bf16, N, K>,
    sum: Out<bf16, { R * M }, N>,
    #[shard(0)] mine: Out<bf16, M, N>,
    all: Out<bf16, R, M, K>,
    of_all: Out<bf16, { R * M }, N>,
) {
    let part = temp::<bf16, { R * M }, N>().partial(Sum);
    linear(x, w, part).tile(128, 256);
    all_reduce(part, sum).tile(64, 256).via(TwoShot);
    let second = temp::<bf16, { R * M }, N>().partial(Sum);
    linear(x, w, second).tile(64, 256);
    reduce_scatter(second.split(0, R), mine);
    all_gather(own, all);
    let gathered = temp::<bf16, { R * M }, K>();
    all_gather(own, gathered.split(0, R));
    linear(gathered, v, of_all).tile(64, 256);
}
