//! Products whose tiles an all-reduce exchanges.

use maco::prelude::*;

macro_rules! products {
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
products!(of_bf16, bf16);
products!(of_f32, f32);
