//! Rows and elements that indices name. An index outside the tensor reads zeros, where PyTorch stops with an error.
//!
//! In flight, of each of 256 threads: four blocks of eight elements, of two bytes 16 KiB a multiprocessor (of `gather_sum` one block, of two rows);
//! `gather` has eight elements.

use crate::math::zip8;
use crate::prelude::*;

/// y\[M, N\]: row i is row `ids[i]` of `table`\[V, N\]. Exact.
#[maco_macros::task(crate = crate, tile(i = 16 | 64, j = 1024), E in [bf16, f16, f32, i32, u32])]
pub fn embedding(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, M>,
    #[read(ids[i], j)] table: Tensor<E, V, N>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    cta.blocks((ids, table), y, |(ids, table), r, c| table.at8(ids.at(0, r) as i32, c))
}

/// y\[M, K\]: element (i, k) is element `ids[i, k]` of row i of x\[M, N\]. Exact.
#[maco_macros::task(crate = crate, tile(i = 16), E in [bf16, f16, f32, i32, u32])]
pub fn gather(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[read(i, ..)] ids: Tensor<u32, M, K>, #[write(i, ..)] y: Tensor<E, M, K>) {
    cta.generate((x, ids), y, |(x, ids), r, c| x.at(r, ids.at(r, c) as i32))
}

/// y\[M, N\]: row i is the sum over k of `weights[i, k]` · row `ids[i, k]` of x\[V, N\], added in the order of k: what brings the results of
/// experts back to their tokens.
///
/// Error: rounding to E, and K · 2⁻²⁴ Σ |weight · x|. NaN and infinities as in the sum.
#[maco_macros::task(crate = crate, tile(i = 16, j = 1024), E in [bf16, f16, f32])]
pub fn gather_sum(
    cta: &mut Cta,
    #[read(i, ..)] ids: Tensor<u32, M, K>,
    #[read(i, ..)] weights: Tensor<f32, M, K>,
    #[read(ids[i], j)] x: Tensor<E, V, N>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    cta.blocks((ids, weights, x), y, |(ids, weights, x), r, c| {
        let (mut sum, mut k, count) = ([0.0; 8], 0, ids.cols() as i32);
        let row = |k: i32| x.at8(ids.at(r, k) as i32, c);
        // Two rows on their way before the first is needed.
        while k + 1 < count {
            let (a, b, wa, wb) = (row(k), row(k + 1), weights.at(r, k), weights.at(r, k + 1));
            sum = zip8(sum, a, |sum, v| sum + wa * v);
            sum = zip8(sum, b, |sum, v| sum + wb * v);
            k += 2;
        }
        if k < count {
            let w = weights.at(r, k);
            sum = zip8(sum, row(k), |sum, v| sum + w * v);
        }
        sum
    })
}
