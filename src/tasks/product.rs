//! Matrix products on the tensor cores.

use crate::prelude::*;

/// y\[M, N\] = x\[M, K\] · w\[N, K\]ᵀ, summed in `f32` and rounded once. One task makes one tile of y.
///
/// On the CPU products are added in the order of K, so results do not depend on the tile, but on the number of parts of `.split_k(n)`.
#[maco_macros::task(crate = crate, tile(i = 64 | 128, j = 128 | 256), E in [bf16, f16])]
pub fn linear(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, K>, #[read(j, ..)] w: Tensor<E, N, K>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(x, w) {
        cta.mma(&mut acc, x.tile(k), w.tile(k));
    }
    cta.store(acc, y);
}

/// y\[M, N\] = a\[M, K\] · b\[K, N\], summed in `f32` and rounded once.
#[maco_macros::task(crate = crate, tile(i = 64 | 128, j = 128 | 256), E in [bf16, f16])]
pub fn matmul(cta: &mut Cta, #[read(i, ..)] a: Tensor<E, M, K>, #[read(.., j)] b: Tensor<E, K, N>, #[write(i, j)] y: Tensor<E, M, N>) {
    let mut acc = cta.accumulator();
    for k in cta.steps(a, b) {
        cta.mma(&mut acc, a.tile(k), b.tile(k));
    }
    cta.store(acc, y);
}
