//! Collectives for tensors of any size, few to a megakernel: messages of one of them may take gigabytes.

use maco::prelude::*;

/// y = x, of three axes.
#[maco::task(tile(r = 1, i = 64, j = 128), E in [bf16, f16, f32, i32])]
pub fn wide_planes(cta: &mut Cta, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.zip(x, y, |v| v);
}

macro_rules! sizes {
    ($sum:ident, $planes:ident, $sent:ident, $element:ident) => {
        /// The sum.
        #[maco::megakernel]
        pub fn $sum(#[shard(0)] x: In<$element, M, N>, sum: Out<$element, M, N>) {
            let part = temp::<$element, M, N>().partial(Sum);
            copy(x, part);
            all_reduce(part, sum);
        }

        /// What has a plane for each rank.
        #[maco::megakernel]
        pub fn $planes(
            #[shard(0)] x: In<$element, M, N>,
            #[shard(0)] mine: In<$element, R, M, N>,
            gathered: Out<$element, R, M, N>,
            #[shard(0)] scattered: Out<$element, M, N>,
            #[shard(0)] swapped: Out<$element, R, M, N>,
        ) {
            all_gather(x, gathered);
            let parts = temp::<$element, R, M, N>().partial(Sum);
            wide_planes(mine, parts);
            reduce_scatter(parts, scattered);
            all_to_all(mine, swapped);
        }

        /// What one rank sends to others, who do not answer.
        #[maco::megakernel]
        pub fn $sent(
            #[shard(0)] x: In<$element, M, N>,
            told: Out<$element, M, N>,
            #[shard(0)] sent: Out<$element, M, N>,
            #[shard(0)] passed: Out<$element, M, N>,
            root: u32,
            from: u32,
            to: u32,
            by: i32,
        ) {
            broadcast(x, told, root);
            send(x, sent, from, to);
            ring(x, passed, by);
        }
    };
}
sizes!(sum_of_bf16, planes_of_bf16, sent_of_bf16, bf16);
sizes!(sum_of_f16, planes_of_f16, sent_of_f16, f16);
sizes!(sum_of_f32, planes_of_f32, sent_of_f32, f32);
sizes!(sum_of_i32, planes_of_i32, sent_of_i32, i32);

macro_rules! means {
    ($name:ident, $element:ident) => {
        /// The mean, which integers do not have.
        #[maco::megakernel]
        pub fn $name(#[shard(0)] x: In<$element, M, N>, mean: Out<$element, M, N>) {
            let part = temp::<$element, M, N>().partial(Mean);
            copy(x, part);
            all_reduce_mean(part, mean);
        }
    };
}
means!(mean_of_bf16, bf16);
means!(mean_of_f16, f16);
means!(mean_of_f32, f32);
