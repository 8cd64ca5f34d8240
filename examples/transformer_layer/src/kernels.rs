//! A tensor-parallel layer of a transformer: attention and a gated feed-forward layer, each with its norm in front and its residual behind. Each rank has `H`
//! heads and `F` columns of the feed-forward layer. Sizes are those of one rank: `B` sequences of `T` tokens, heads of `D` elements, a model `K` wide.
use maco::prelude::*;

/// y = x, plane by plane of any strides: heads into planes of their own, and back.
#[maco::task(tile(h = 1, t = 64, d = 128), E in [bf16, f16])]
pub fn planes(cta: &mut Cta, #[read(h, t, d)] x: Tensor<E, H, T, D>, #[write(h, t, d)] y: Tensor<E, H, T, D>) {
    cta.zip(x, y, |v| v)
}

/// y\[h\] = x · w\[h\]ᵀ: a projection whose columns are heads. Tiles of one row for all heads follow each other, so `x` is read once from memory.
#[maco::task(tile(i = 64 | 128, h = 1, j = 128), E in [bf16, f16])]
pub fn project(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(h, j, ..)] w: Tensor<E, H, D, K>,
    #[write(h, i, j)] y: Tensor<E, H, M, D>,
) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// x += mask in every plane, in place. Of scores a mask of negative infinity takes an element out.
#[maco::task(tile(p = 1, i = 4 | 16 | 64, j = 1024), E in [bf16, f16])]
pub fn masked(cta: &mut Cta, #[update(p, i, j)] x: Tensor<E, P, T, S>, #[read(i, j)] mask: Tensor<E, T, S>) {
    cta.zip((x, mask), x, |(x, mask)| x + mask)
}

/// y = x₁ + down · (silu(gate · h₂) · (up · h₂)), where h₂ = rmsnorm(x₁), x₁ = x + out · attention(h₁), h₁ = rmsnorm(x).
///
/// Rows of `x` are tokens, sequence after sequence. `qkv` are the projections to queries, keys and values, `by` is what scores are multiplied with.
#[maco::megakernel]
pub fn layer(
    x: In<bf16, { B * T }, K>,
    positions: In<u32, B, T>,
    cos: In<f32, T, { D / 2 }>,
    sin: In<f32, T, { D / 2 }>,
    mask: In<bf16, T, T>,
    norms: [In<bf16, K>; 2],
    #[shard(0)] qkv: [In<bf16, H, D, K>; 3],
    #[shard(1)] out: In<bf16, K, { H * D }>,
    #[shard(0)] gate: In<bf16, F, K>,
    #[shard(0)] up: In<bf16, F, K>,
    #[shard(1)] down: In<bf16, K, F>,
    by: f32,
    y: Out<bf16, { B * T }, K>,
) {
    let h = temp::<bf16, { B * T }, K>();
    rmsnorm(x, norms[0], h, 1e-6);

    // Column-parallel: no rank needs another's heads. These lie one after the other: H planes of all tokens are H · B planes of one sequence each.
    let at = temp::<u32, { B * T }>();
    copy(positions, at.split(0, B));
    let projected = temp::<bf16, { H * B * T }, D>();
    let q = temp::<bf16, { H * B * T }, D>();
    project(h, qkv[0], projected.split(0, H));
    rope(projected.split(0, H), at, cos, sin, q.split(0, H));
    let projected = temp::<bf16, { H * B * T }, D>();
    let k = temp::<bf16, { H * B * T }, D>();
    project(h, qkv[1], projected.split(0, H));
    rope(projected.split(0, H), at, cos, sin, k.split(0, H));
    let v = temp::<bf16, { H * B * T }, D>();
    project(h, qkv[2], v.split(0, H));

    let scores = temp::<bf16, { H * B * T }, T>();
    batched_linear(q.split(0, H * B), k.split(0, H * B), scores.split(0, H * B)).then(scale(by));
    masked(scores.split(0, H * B), mask);
    let shares = temp::<bf16, { H * B * T }, T>();
    softmax(scores, shares);
    let mixed = temp::<bf16, { H * B * T }, D>();
    batched_matmul(shares.split(0, H * B), v.split(0, H * B), mixed.split(0, H * B));
    let heads = temp::<bf16, { B * T }, { H * D }>().shard(1);
    planes(mixed.split(0, H), heads.split(1, H).swap(0, 1)); // beside each other, as the columns of `out`

    // Row-parallel: each rank has a summand of every element. Tiles of the sum come while others are multiplied, and rows that are whole go on.
    // With few tokens `all_reduce_add_rmsnorm` does the two calls in one task, whole rows at a time.
    let part = temp::<bf16, { B * T }, K>().partial(Sum);
    linear(heads, out, part);
    let attention = temp::<bf16, { B * T }, K>();
    all_reduce(part, attention);
    let residual = temp::<bf16, { B * T }, K>();
    let h = temp::<bf16, { B * T }, K>();
    add_rmsnorm(attention, x, norms[1], residual, h, 1e-6);

    let hidden = temp::<bf16, { B * T }, F>().shard(1);
    gated_linear(h, gate, up, hidden);
    let part = temp::<bf16, { B * T }, K>().partial(Sum);
    linear(hidden, down, part);
    let sum = temp::<bf16, { B * T }, K>();
    all_reduce(part, sum);
    add(residual, sum, y);
}
