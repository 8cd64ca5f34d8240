//! Products with few rows on one side: their time is that of reading the other side once.

use crate::prelude::*;

/// y\[M, N\] = x\[M, K\] · w\[N, K\]ᵀ for M up to 16 or so (GEMV when M is 1), summed in `f32` and rounded once. Streams `w`
/// ahead of what it waits for: see [`Cta::gemv`](crate::Cta::gemv). [`linear`](super::linear) gets this
/// form by itself where the plan likes it better; by this name, it always is.
///
/// The result may hold another element than the factors, `f32` too.
///
/// Error: at most (K + 16) · 2⁻²⁴ · Σ |x · w|, and one rounding. On a GPU products are added in another order than on the CPU, the same at
/// every run.
#[maco_macros::task(crate = crate, tile(i = 8 | 16, j = 8 | 16), E in [bf16, f16])]
pub fn skinny_linear(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] w: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    cta.gemv(x, w, y);
}
