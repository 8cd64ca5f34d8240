//! Two products at once in every form, and reductions of several numbers at once.
use maco::prelude::*;

/// y = (x · aᵀ) · max(x · bᵀ, −1), element by element.
#[maco::task(tile(i = 64 | 128, j = 128), E in [bf16, f16])]
pub fn pair(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] a: Tensor<E, N, K>,
    #[read(j, ..)] b: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, a) {
        cta.mma_pair(&mut acc, x.tile(k), (a.tile(k), b.tile(k)));
    }
    cta.store_pair(acc, y, |a, b| a * math::max(b, -1.0));
}

/// y = xᵀ · a − 2 · xᵀ · b: contractions along rows, and the widest tile.
#[maco::task(tile(i = 64, j = 256), E in [bf16, f16])]
pub fn across(
    cta: &mut Cta,
    #[read(.., i)] x: Tensor<E, K, M>,
    #[read(.., j)] a: Tensor<E, K, N>,
    #[read(.., j)] b: Tensor<E, K, N>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, a) {
        cta.mma_pair(&mut acc, x.tile(k), (a.tile(k), b.tile(k)));
    }
    cta.store_pair(acc, y, |a, b| a - 2.0 * b);
}

/// Pairs with an epilogue, and a product of one that waits for what they make.
#[maco::megakernel]
pub fn pairs_bf16(x: In<bf16, M, K>, a: In<bf16, N, K>, b: In<bf16, N, K>, y: Out<bf16, M, N>, square: Out<bf16, M, M>) {
    pair(x, a, b, y).then(relu);
    linear(y, y, square);
}

#[maco::megakernel]
pub fn pairs_f16(x: In<f16, M, K>, a: In<f16, N, K>, b: In<f16, N, K>, y: Out<f16, M, N>, square: Out<f16, M, M>) {
    pair(x, a, b, y).then(relu);
    linear(y, y, square);
}

#[maco::megakernel]
pub fn pairs_across(x: In<bf16, K, M>, a: In<bf16, K, N>, b: In<bf16, K, N>, y: Out<bf16, M, N>) {
    across(x, a, b, y);
}

/// Count, mean and squares around the mean of numbers (Chan, Golub and LeVeque, 1979).
type Moments = (u32, f32, f32);

/// Those of both together.
fn join(a: Moments, b: Moments) -> Moments {
    let count = a.0 + b.0;
    if count == 0 {
        return a;
    }
    let (share_a, share_b) = (a.0 as f32 / count as f32, b.0 as f32 / count as f32);
    let distance = a.1 - b.1;
    (count, a.1 * share_a + b.1 * share_b, a.2 + b.2 + distance * distance * (share_a * share_b) * count as f32)
}

/// The number of elements, their mean and their variance, along each row, in one pass.
#[maco::task(tile(i = 8), E in [bf16, f32])]
pub fn moments(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[write(i, ..)] count: Tensor<u32, M, 1>,
    #[write(i, ..)] mean: Tensor<f32, M, 1>,
    #[write(i, ..)] variance: Tensor<f32, M, 1>,
) {
    cta.rows(x, (count, mean, variance), |x, (count, mean, variance)| {
        let all = x.hold().fold((0, 0.0, 0.0), |v| (1, v, 0.0), join);
        count.put(0, all.0);
        mean.put(0, all.1);
        variance.put(0, all.2 / x.len() as f32);
    })
}

#[maco::megakernel]
pub fn moments_bf16(x: In<bf16, M, N>, count: Out<u32, M, 1>, mean: Out<f32, M, 1>, variance: Out<f32, M, 1>) {
    moments(x, count, mean, variance);
}

#[maco::megakernel]
pub fn moments_f32(x: In<f32, M, N>, count: Out<u32, M, 1>, mean: Out<f32, M, 1>, variance: Out<f32, M, 1>) {
    moments(x, count, mean, variance);
}

/// What [`spread`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
unsafe fn spread_by(threads: &mut maco::Simt, x: maco::Tile<f32, 1, 0>, y: maco::Tile<f32, 1, 0>) {
    let (cols, first, step) = (x.cols(), threads.thread, threads.threads);
    // SAFETY: inside the tile's row, which nobody writes.
    let value = |at: u32| unsafe { x.pointer(0, at as i32).read() };
    let (mut largest, mut sum, mut at) = (f32::NEG_INFINITY, 0.0, first);
    while at < cols {
        largest = math::max(largest, value(at));
        sum += value(at);
        at += step;
    }
    let mean = threads.sum(sum) / cols as f32;
    // One after another: neither may overwrite what a slow warp still reads.
    let largest = threads.max(largest);
    let warp = threads.warp();
    // The same in all threads, so that neither of these changes anything.
    let largest = warp.broadcast(largest, 0);
    let factor = if warp.all(largest == mean) { 0.0 } else { 1.0 / (largest - mean) };
    at = first;
    while at < cols {
        // SAFETY: each thread writes places of its own, inside the tile's row.
        unsafe { y.pointer(0, at as i32).write((value(at) - mean) * factor) };
        at += step;
    }
}

/// One thread.
fn spread_reference(x: maco::Tile<f32, 1, 0>, y: maco::Tile<f32, 1, 0>) {
    // SAFETY: this thread is all there are.
    unsafe { spread_by(&mut maco::Simt::alone(), x, y) }
}

/// y = (x − mean(x)) / (max(x) − mean(x)) along each row, by all threads of a CTA; 0 where all are equal.
///
/// # Safety
/// None of its own: it stays in its rows.
#[maco::task(simt, tile(i = 1), cpu = spread_reference)]
pub unsafe fn spread(cta: &mut Cta, #[read(i, ..)] x: Tensor<f32, M, N>, #[write(i, ..)] y: Tensor<f32, M, N>) {
    // SAFETY: all threads come here.
    unsafe { spread_by(cta, x, y) }
}

/// Twice, so that a body begins while warps may still be in the one before.
#[maco::megakernel]
pub fn spreads(x: In<f32, M, N>, y: Out<f32, M, N>, z: Out<f32, M, N>) {
    spread(x, y);
    spread(x, z);
}
