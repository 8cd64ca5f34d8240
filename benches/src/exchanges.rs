//! The megakernels that `comm` measures.
use maco::prelude::*;

/// Steps of a chain.
pub const STEPS: usize = 100;

/// y = by · x
#[maco::task(tile(i = 8, j = 256))]
pub fn scaled(cta: &mut Cta, #[read(i, j)] x: Tensor<bf16, M, N>, #[write(i, j)] y: Tensor<bf16, M, N>, by: f32) {
    cta.zip(x, y, |v| v * by);
}

/// A tile, then its sum over all ranks, then the next tile.
#[maco::megakernel]
pub fn summed(#[shard(0)] x: In<bf16, M, N>, y: Out<bf16, M, N>, by: f32) {
    let mut h = x;
    for step in 0..STEPS {
        let part = temp::<bf16, M, N>().partial(Sum);
        scaled(h, part, by);
        let next = if step + 1 == STEPS { y } else { temp::<bf16, M, N>() };
        all_reduce(part, next).tile(8, 256);
        h = next;
    }
}

/// The same tiles without sums.
#[maco::megakernel]
pub fn alone(x: In<bf16, M, N>, y: Out<bf16, M, N>, by: f32) {
    let mut h = x;
    for step in 0..STEPS {
        let next = if step + 1 == STEPS { y } else { temp::<bf16, M, N>() };
        scaled(h, next, by);
        h = next;
    }
}

/// [`scaled`] in narrower tiles.
#[maco::task(tile(i = 8, j = 64))]
pub fn scaled_narrow(cta: &mut Cta, #[read(i, j)] x: Tensor<bf16, M, N>, #[write(i, j)] y: Tensor<bf16, M, N>, by: f32) {
    cta.zip(x, y, |v| v * by);
}

/// [`summed`] in narrower tiles.
#[maco::megakernel]
pub fn summed_narrow(#[shard(0)] x: In<bf16, M, N>, y: Out<bf16, M, N>, by: f32) {
    let mut h = x;
    for step in 0..STEPS {
        let part = temp::<bf16, M, N>().partial(Sum);
        scaled_narrow(h, part, by);
        let next = if step + 1 == STEPS { y } else { temp::<bf16, M, N>() };
        all_reduce(part, next).tile(8, 64);
        h = next;
    }
}

/// [`alone`] in narrower tiles.
#[maco::megakernel]
pub fn alone_narrow(x: In<bf16, M, N>, y: Out<bf16, M, N>, by: f32) {
    let mut h = x;
    for step in 0..STEPS {
        let next = if step + 1 == STEPS { y } else { temp::<bf16, M, N>() };
        scaled_narrow(h, next, by);
        h = next;
    }
}

/// y = by · x, row by row.
#[maco::task(tile(i = 1))]
pub fn scaled_row(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, N>, #[write(i, ..)] y: Tensor<bf16, M, N>, by: f32) {
    cta.zip(x, y, |v| v * by);
}

/// [`alone`], row by row.
#[maco::megakernel]
pub fn rows_alone(x: In<bf16, M, N>, y: Out<bf16, M, N>, by: f32) {
    let mut h = x;
    for step in 0..STEPS {
        let next = if step + 1 == STEPS { y } else { temp::<bf16, M, N>() };
        scaled_row(h, next, by);
        h = next;
    }
}

/// A row, then its sum over all ranks with the residual and the RMSNorm of both, then the next row.
#[maco::megakernel]
pub fn normed(
    #[shard(0)] x: In<bf16, M, N>,
    residual: In<bf16, M, N>,
    weight: In<bf16, N>,
    sums: Out<bf16, M, N>,
    y: Out<bf16, M, N>,
    by: f32,
) {
    let mut h = x;
    let mut before = residual;
    for step in 0..STEPS {
        let part = temp::<bf16, M, N>().partial(Sum);
        scaled_row(h, part, by);
        let sum = if step + 1 == STEPS { sums } else { temp::<bf16, M, N>() };
        let next = if step + 1 == STEPS { y } else { temp::<bf16, M, N>() };
        all_reduce_add_rmsnorm(part, before, weight, sum, next, 1e-6);
        before = sum;
        h = next;
    }
}

/// y = the sum of x over all ranks, by NCCL beside the kernel, chunk by chunk.
#[maco::megakernel]
pub fn gated(#[shard(0)] x: In<bf16, M, N>, y: Out<bf16, M, N>) {
    let part = temp::<bf16, M, N>().partial(Sum);
    copy(x, part);
    all_reduce(part, y).via(Nccl);
}

/// y = the sum of x over all ranks, by the way that the plan chooses.
#[maco::megakernel]
pub fn reduced(#[shard(0)] x: In<bf16, M, N>, y: Out<bf16, M, N>) {
    let part = temp::<bf16, M, N>().partial(Sum);
    copy(x, part);
    all_reduce(part, y);
}

/// Plane r of y is the x of rank r.
#[maco::megakernel]
pub fn gathered(#[shard(0)] x: In<bf16, M, N>, y: Out<bf16, R, M, N>) {
    all_gather(x, y);
}

/// y = x, of three axes.
#[maco::task(tile(r = 1, i = 8, j = 256))]
pub fn planes(cta: &mut Cta, #[read(r, i, j)] x: Tensor<bf16, R, M, N>, #[write(r, i, j)] y: Tensor<bf16, R, M, N>) {
    cta.zip(x, y, |v| v);
}

/// y = the sum of this rank's plane of x over all ranks.
#[maco::megakernel]
pub fn scattered(#[shard(0)] x: In<bf16, R, M, N>, #[shard(0)] y: Out<bf16, M, N>) {
    let part = temp::<bf16, R, M, N>().partial(Sum);
    planes(x, part);
    reduce_scatter(part, y);
}

/// Plane r of y is this rank's plane of the x of rank r.
#[maco::megakernel]
pub fn swapped(#[shard(0)] x: In<bf16, R, M, N>, #[shard(0)] y: Out<bf16, R, M, N>) {
    all_to_all(x, y);
}
