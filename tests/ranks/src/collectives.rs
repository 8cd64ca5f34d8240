//! Every collective, for every element that it has.

use maco::prelude::*;

/// y = x, of three axes.
#[maco::task(tile(r = 1, i = 16, j = 64), E in [bf16, f16, f32, i32])]
pub fn planes(cta: &mut Cta, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.zip(x, y, |v| v);
}

macro_rules! collectives {
    ($name:ident, $element:ident) => {
        /// `x` goes through every collective by itself; `mine` has a plane for each rank.
        #[maco::megakernel]
        pub fn $name(
            #[shard(0)] x: In<$element, M, N>,
            #[shard(0)] mine: In<$element, R, M, N>,
            sum: Out<$element, M, N>,
            most: Out<$element, M, N>,
            least: Out<$element, M, N>,
            gathered: Out<$element, R, M, N>,
            #[shard(0)] scattered: Out<$element, M, N>,
            #[shard(0)] swapped: Out<$element, R, M, N>,
        ) {
            let part = temp::<$element, M, N>().partial(Sum);
            copy(x, part);
            all_reduce(part, sum);
            let greater = temp::<$element, M, N>().partial(Max);
            copy(x, greater);
            all_reduce_max(greater, most);
            let less = temp::<$element, M, N>().partial(Min);
            copy(x, less);
            all_reduce_min(less, least);
            all_gather(x, gathered);
            let parts = temp::<$element, R, M, N>().partial(Sum);
            planes(mine, parts);
            reduce_scatter(parts, scattered);
            all_to_all(mine, swapped);
        }
    };
}
collectives!(of_bf16, bf16);
collectives!(of_f16, f16);
collectives!(of_f32, f32);
collectives!(of_i32, i32);

/// y = the sum of `part` over all ranks, in tiles that go with signals: 16 KiB of `bf16`, 32 KiB of `f32`.
#[maco::task(tile(i = 64, j = 128), E in [bf16, f32])]
pub fn large_sum(cta: &mut Cta, #[read(i, j)] part: Tensor<E, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.all_reduce(part, y, Sum)
}

/// Plane r of y is the `x` of rank r, likewise.
#[maco::task(tile(r = 1, i = 64, j = 128), E in [bf16])]
pub fn large_gather(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.all_gather(x, y)
}

/// y = the sum of this rank's plane of `part`, likewise.
#[maco::task(tile(i = 64, j = 128), E in [bf16])]
pub fn large_scatter(cta: &mut Cta, #[read(.., i, j)] part: Tensor<E, R, M, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    cta.reduce_scatter(part, y, Sum)
}

/// Plane r of y is this rank's plane of the `x` of rank r, likewise.
#[maco::task(tile(r = 1, i = 64, j = 128), E in [bf16])]
pub fn large_swap(cta: &mut Cta, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.all_to_all(x, y)
}

/// Every collective that all answer in large tiles, and one in small tiles beside them.
#[maco::megakernel]
pub fn large(
    #[shard(0)] x: In<bf16, M, N>,
    #[shard(0)] mine: In<bf16, R, M, N>,
    #[shard(0)] x32: In<f32, M, N>,
    sum: Out<bf16, M, N>,
    sum32: Out<f32, M, N>,
    small: Out<bf16, R, M, N>,
    gathered: Out<bf16, R, M, N>,
    #[shard(0)] scattered: Out<bf16, M, N>,
    #[shard(0)] swapped: Out<bf16, R, M, N>,
) {
    let part = temp::<bf16, M, N>().partial(Sum);
    copy(x, part);
    large_sum(part, sum);
    let part32 = temp::<f32, M, N>().partial(Sum);
    copy(x32, part32);
    large_sum(part32, sum32);
    small_gather(x, small);
    large_gather(x, gathered);
    let parts = temp::<bf16, R, M, N>().partial(Sum);
    planes(mine, parts);
    large_scatter(parts, scattered);
    large_swap(mine, swapped);
}

/// The same as [`large_gather`] in tiles that go as packets.
#[maco::task(tile(r = 1, i = 63, j = 128), E in [bf16])]
pub fn small_gather(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.all_gather(x, y)
}

macro_rules! norms {
    ($name:ident, $element:ident) => {
        /// An all-reduce, a residual and its RMSNorm, in one task and in two.
        #[maco::megakernel]
        pub fn $name(
            #[shard(0)] x: In<$element, M, N>,
            residual: In<$element, M, N>,
            weight: In<$element, N>,
            sum: Out<$element, M, N>,
            y: Out<$element, M, N>,
            sum_of_two: Out<$element, M, N>,
            y_of_two: Out<$element, M, N>,
            epsilon: f32,
        ) {
            let part = temp::<$element, M, N>().partial(Sum);
            copy(x, part);
            all_reduce_add_rmsnorm(part, residual, weight, sum, y, epsilon);
            let whole = temp::<$element, M, N>();
            all_reduce(part, whole);
            add_rmsnorm(whole, residual, weight, sum_of_two, y_of_two, epsilon);
        }
    };
}
norms!(norm_of_bf16, bf16);
norms!(norm_of_f16, f16);
norms!(norm_of_f32, f32);

/// What one rank sends to others, who do not answer: by scalars that change from launch to launch.
#[maco::megakernel]
pub fn one_way(
    #[shard(0)] x: In<f32, M, N>,
    told: Out<f32, M, N>,
    #[shard(0)] sent: Out<f32, M, N>,
    #[shard(0)] passed: Out<f32, M, N>,
    root: u32,
    from: u32,
    to: u32,
    by: i32,
) {
    broadcast(x, told, root);
    send(x, sent, from, to);
    ring(x, passed, by);
}

/// A chain: each call needs what all ranks have made before it.
#[maco::megakernel]
pub fn chain(#[shard(0)] x: In<f32, M, N>, #[shard(0)] y: Out<f32, M, N>, mean: Out<f32, M, N>) {
    let a = temp::<f32, M, N>().shard(0);
    ring(x, a, 1);
    let b = temp::<f32, M, N>().partial(Sum);
    add(x, a, b);
    let c = temp::<f32, M, N>();
    all_reduce(b, c);
    let d = temp::<f32, M, N>().shard(0);
    add(c, x, d);
    ring(d, y, -1);
    let e = temp::<f32, M, N>().partial(Mean);
    copy(y, e);
    all_reduce_mean(e, mean);
}

/// Nothing in it says that there are ranks but the call.
#[maco::megakernel]
pub fn told(x: In<f32, M, N>, y: Out<f32, M, N>) {
    broadcast(x, y, 0);
}

/// Every collective but all-reduces, by NCCL beside the kernel, and a sum of what they make; by scalars that change from launch to launch.
#[maco::megakernel]
pub fn every_by_nccl(
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
