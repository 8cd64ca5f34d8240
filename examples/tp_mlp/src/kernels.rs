//! A tensor-parallel MLP with what follows it: y = rmsnorm(x + down · gelu(up · x)). Each rank has `H` columns of the hidden layer. Sizes are those of one rank.
use maco::prelude::*;

#[maco::megakernel]
pub fn mlp(x: In<bf16, M, K>, #[shard(0)] up: In<bf16, H, K>, #[shard(1)] down: In<bf16, K, H>, weight: In<bf16, K>, y: Out<bf16, M, K>) {
    let h = temp::<bf16, M, H>().shard(1);
    linear(x, up, h).then(gelu); // column-parallel: no rank needs another's columns
    let part = temp::<bf16, M, K>().partial(Sum);
    linear(h, down, part); // row-parallel: each rank has a summand of every element
    let sum = temp::<bf16, M, K>();
    all_reduce(part, sum);
    let residual = temp::<bf16, M, K>();
    add(x, sum, residual);
    rmsnorm(residual, weight, y, 1e-6);
}
