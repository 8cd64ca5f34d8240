//! The megakernels that `overlap` measures: GEMMs of which each rank has a summand.
use maco::prelude::*;

/// y = the sum of down · gelu(up · x) over all ranks, each of which has `H` columns of the hidden layer.
#[maco::megakernel]
pub fn mlp_summed(x: In<bf16, M, K>, #[shard(0)] up: In<bf16, H, K>, #[shard(1)] down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>().shard(1);
    linear(x, up, h).then(gelu);
    let part = temp::<bf16, M, K>().partial(Sum);
    linear(h, down, part);
    all_reduce(part, y);
}

/// The same, with NCCL beside the kernel.
#[maco::megakernel]
pub fn mlp_by_nccl(x: In<bf16, M, K>, #[shard(0)] up: In<bf16, H, K>, #[shard(1)] down: In<bf16, K, H>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>().shard(1);
    linear(x, up, h).then(gelu);
    let part = temp::<bf16, M, K>().partial(Sum);
    linear(h, down, part);
    all_reduce(part, y).via(Nccl);
}
