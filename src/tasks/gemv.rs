//! GEMV and GEMMs with few rows: they are bound by reading operand B once.

use crate::prelude::*;

/// y\[M, N\] = x\[M, K\] · w\[N, K\]ᵀ for M up to 16 or so (GEMV when M is 1), summed in `f32` and rounded once. Loads `w`
/// before `x` is ready: see [`cta.gemv`](crate::Operations::gemv). The planner chooses this form for [`linear`](super::linear) where it is faster; a call by
/// this name always has it.
///
/// The result may have another element than the operands, `f32` too.
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
