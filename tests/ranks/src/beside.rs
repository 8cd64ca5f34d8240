//! Kernels that NCCL runs beside.

use maco::prelude::*;

/// y = the sum of x · wᵀ over all ranks, z = y; and least = the least w of all ranks.
#[maco::megakernel]
pub fn summed(
    #[shard(1)] x: In<bf16, M, K>,
    #[shard(1)] w: In<bf16, N, K>,
    y: Out<bf16, M, N>,
    z: Out<bf16, M, N>,
    #[shard(1)] v: In<f32, M, N>,
    least: Out<f32, M, N>,
) {
    let part = temp::<bf16, M, N>().partial(Sum);
    linear(x, w, part);
    all_reduce(part, y).via(Nccl);
    let own = temp::<f32, M, N>().partial(Min);
    copy(v, own);
    all_reduce_min(own, least).via(Nccl);
    copy(y, z);
}

/// y = the sum of x over all ranks, by the way that the plan chooses.
#[maco::megakernel]
pub fn chosen(#[shard(0)] x: In<bf16, M, N>, y: Out<bf16, M, N>) {
    let part = temp::<bf16, M, N>().partial(Sum);
    copy(x, part);
    all_reduce(part, y);
}
