//! Gather: rows and elements selected by indices. An index outside the tensor reads zeros, where PyTorch stops with an error.
//!
//! In flight: of `embedding` rows of 4 KiB and more in the ring, 192 KiB a multiprocessor; of shorter ones, of each of 256 threads, eight blocks of eight elements,
//! of two bytes 32 KiB (of four bytes four blocks); of `gather_sum` four of each of two blocks; `gather` has rows in the ring as norms, and eight elements of
//! rows that do not come.

use crate::prelude::*;

/// y\[M, N\]: row i is row `ids[i]` of `table`\[V, N\], zeros if that is outside. Exact.
#[maco_macros::task(crate = crate, tile(i = 8, j = 4096), E in [bf16, f16, f32, i32, u32])]
pub fn embedding(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, M>,
    #[read(ids[i], j)] table: Tensor<E, V, N>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    cta.take(ids, table, y)
}

/// y\[M, K\]: element (i, k) is element `ids[i, k]` of row i of x\[M, N\], zero if that is outside. Exact.
#[maco_macros::task(crate = crate, tile(i = 16), E in [bf16, f16, f32, i32, u32])]
pub fn gather(cta: &mut Cta, #[read(i, ..)] x: Tensor<E, M, N>, #[read(i, ..)] ids: Tensor<u32, M, K>, #[write(i, ..)] y: Tensor<E, M, K>) {
    // The memory is read by sectors of 32 bytes, sixteen elements of two bytes.
    let few = x.cols() / 16 > y.cols();
    cta.rows((x.by_element(few), ids), y, |(x, ids), y| {
        let x = x.elements();
        y.zip(ids, |id| x.at(id))
    })
}

/// y\[M, N\]: row i is the sum over k of `weights[i, k]` · row `ids[i, k]` of x\[V, N\], added in the order of k: what brings the results of
/// experts back to their tokens.
///
/// Error: rounding to E, and K · 2⁻²⁴ Σ |weight · x|. NaN and infinities as in the sum. Of a row outside x the elements are zeros.
#[maco_macros::task(crate = crate, tile(i = 16, j = 1024), E in [bf16, f16, f32])]
pub fn gather_sum(
    cta: &mut Cta,
    #[read(i, ..)] ids: Tensor<u32, M, K>,
    #[read(i, ..)] weights: Tensor<f32, M, K>,
    #[read(ids[i], j)] x: Tensor<E, V, N>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    cta.sums((ids, weights), x, y, ids.cols(), |(ids, weights), r, k| (ids.at(r, k) as i32, weights.at(r, k)))
}
