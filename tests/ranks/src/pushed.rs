//! GEMMs whose tiles an all-reduce exchanges.

use maco::prelude::*;

macro_rules! gemms {
    ($name:ident, $element:ident) => {
        /// y = the sum of x · wᵀ over all ranks, and once more, for other tiles.
        #[maco::megakernel]
        pub fn $name(
            #[shard(1)] x: In<$element, M, K>,
            #[shard(1)] w: In<$element, N, K>,
            y: Out<$element, M, N>,
            other: Out<$element, M, N>,
        ) {
            let part = temp::<$element, M, N>().partial(Sum);
            linear(x, w, part);
            all_reduce(part, y);
            let second = temp::<$element, M, N>().partial(Sum);
            linear(x, w, second);
            all_reduce(second, other);
        }
    };
}
gemms!(of_bf16, bf16);
gemms!(of_f32, f32);

/// The sum of x · wᵀ over all ranks, its tiles each way that there is; one-shot and, of the second GEMM, two-shot they are sent by the GEMMs.
#[maco::megakernel]
pub fn ways(
    #[shard(1)] x: In<bf16, M, K>,
    #[shard(1)] w: In<bf16, N, K>,
    by_packets: Out<bf16, M, N>,
    one_shot: Out<bf16, M, N>,
    two_shot: Out<bf16, M, N>,
    of_another: Out<bf16, M, N>,
) {
    let part = temp::<bf16, M, N>().partial(Sum);
    linear(x, w, part).tile(128, 256);
    all_reduce(part, by_packets).via(Packets);
    all_reduce(part, one_shot).via(OneShot);
    all_reduce(part, two_shot).via(TwoShot);
    let second = temp::<bf16, M, N>().partial(Sum);
    linear(x, w, second).tile(128, 256);
    all_reduce(second, of_another).via(TwoShot);
}
