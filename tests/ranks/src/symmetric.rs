//! Results in symmetric memory, which other ranks store.

use maco::prelude::*;

/// Each rank stores its plane for rank r in rank r's `y`.
#[maco::task(tile(r = 1, i = 16 | 64, j = 64), E in [bf16, f32, i32, i8])]
pub fn store(cta: Cta<SymmetricChannel>, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    let opened = cta.open(&y);
    let granted = opened.signal().wait();
    let stored = granted.put(x);
    stored.signal().wait().receive(y)
}

/// Plane r of y is the `x` of rank r.
#[maco::task(tile(r = 1, i = 16, j = 64), E in [bf16, f32])]
pub fn store_all(cta: Cta<SymmetricChannel>, #[read(i, j)] x: Tensor<E, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.open(&y).signal().wait().put(x).signal().wait().receive(y)
}

macro_rules! exchanges {
    ($name:ident, $element:ident) => {
        /// To the other ranks, and by a temp back again: into results that callers give, of which one has other readers.
        #[maco::megakernel]
        pub fn $name(
            #[shard(0)] x: In<$element, R, M, N>,
            #[shard(0)]
            #[symmetric]
            y: Out<$element, R, M, N>,
            #[shard(0)] same: Out<$element, R, M, N>,
            #[shard(0)] back: Out<$element, R, M, N>,
        ) {
            store(x, y);
            copy_planes(y, same);
            let come = temp::<$element, R, M, N>().shard(0).symmetric();
            store(y, come);
            copy_planes(come, back);
        }
    };
}
exchanges!(of_bf16, bf16);
exchanges!(of_f32, f32);
exchanges!(of_i32, i32);

/// y = x.
#[maco::task(tile(r = 1, i = 16, j = 64), E in [bf16, f32, i32])]
pub fn copy_planes(cta: &mut Cta, #[read(r, i, j)] x: Tensor<E, R, M, N>, #[write(r, i, j)] y: Tensor<E, R, M, N>) {
    cta.zip(x, y, |v| v);
}

/// A result that is read and stored again, twice.
#[maco::megakernel]
pub fn again(
    #[shard(0)] x: In<f32, R, M, N>,
    #[symmetric]
    #[shard(0)]
    y: InOut<f32, R, M, N>,
) {
    let mine = temp::<f32, R, M, N>().shard(0);
    store(x, y);
    copy_planes(y, mine);
    store(mine, y);
    let again = temp::<f32, R, M, N>().shard(0);
    copy_planes(y, again);
    store(again, y);
}

/// Not marked.
#[maco::megakernel]
pub fn unmarked(#[shard(0)] x: In<f32, R, M, N>, #[shard(0)] y: Out<f32, R, M, N>) {
    store(x, y);
}

maco::task_set! { pub stores: store<f32>, copy_planes<f32> }
