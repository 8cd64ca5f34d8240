//! Kernels whose calls say what they overlap with.

use maco::prelude::*;

/// sum = x · wᵀ over all ranks, and beside it gate = x · vᵀ, of each rank: by a group.
#[maco::graph]
pub fn gated(
    #[shard(1)] x: In<bf16, M, K>,
    #[shard(1)] w: In<bf16, N, K>,
    #[shard(1)] v: In<bf16, N, K>,
    sum: Out<bf16, M, N>,
    #[shard(0)] gate: Out<bf16, M, N>,
) {
    let part = temp::<bf16, M, N>().partial(Sum);
    linear(x, w, part);
    all_reduce(part, sum).overlap_group("gates");
    linear(x, v, gate).overlap_group("gates");
}

/// Twice the same, in groups of their own; and once more by the next call.
#[maco::megakernel]
pub fn overlapped(
    #[shard(1)] x: In<bf16, M, K>,
    #[shard(1)] w: In<bf16, N, K>,
    #[shard(1)] v: In<bf16, N, K>,
    first: Out<bf16, M, N>,
    #[shard(0)] gate: Out<bf16, M, N>,
    second: Out<bf16, M, N>,
    #[shard(0)] other: Out<bf16, M, N>,
    third: Out<bf16, M, N>,
    #[shard(0)] last: Out<bf16, M, N>,
) {
    gated(x, w, v, first, gate);
    gated(x, v, w, second, other);
    let part = temp::<bf16, M, N>().partial(Sum);
    linear(x, w, part);
    all_reduce(part, third).overlap_next();
    linear(x, v, last);
}
