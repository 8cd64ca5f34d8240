//! Kernels that NCCL runs beside.

use maco::prelude::*;

use crate::collectives::planes;

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

/// Every other collective, and a sum of what they make; by scalars that change from launch to launch.
#[maco::megakernel]
pub fn every(
    #[shard(0)] x: In<bf16, M, N>,
    #[shard(0)] mine: In<bf16, R, M, N>,
    gathered: Out<bf16, R, M, N>,
    #[shard(0)] scattered: Out<bf16, M, N>,
    #[shard(0)] swapped: Out<bf16, R, M, N>,
    told: Out<bf16, M, N>,
    #[shard(0)] sent: Out<bf16, M, N>,
    #[shard(0)] passed: Out<bf16, M, N>,
    #[shard(0)] both: Out<bf16, M, N>,
    root: u32,
    from: u32,
    to: u32,
    by: i32,
) {
    let own = temp::<bf16, M, N>().shard(0);
    copy(x, own);
    all_gather(own, gathered).via(Nccl);
    let parts = temp::<bf16, R, M, N>().partial(Sum);
    planes(mine, parts);
    reduce_scatter(parts, scattered).via(Nccl);
    all_to_all(mine, swapped).via(Nccl);
    broadcast(own, told, root).via(Nccl);
    send(x, sent, from, to).via(Nccl);
    ring(own, passed, by).via(Nccl);
    add(sent, passed, both);
}
