//! Two GEMMs at once in every form, and reductions of several numbers at once.
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

/// Pairs with an epilogue, and a GEMM of one that waits for what they make.
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
        let all = x.fold((0, 0.0, 0.0), |v| (1, v, 0.0), join);
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
unsafe fn spread_by(threads: &mut maco::Simt, x: maco::ReadTile<f32, 1, 0>, y: maco::Tile<f32, 1, 0>) {
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
fn spread_reference(x: maco::ReadTile<f32, 1, 0>, y: maco::Tile<f32, 1, 0>) {
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

/// Bytes of scratch of [`reverse`]: a block of a row, as it is written, and behind it an mbarrier.
const REVERSE: usize = 8200;
/// Elements of a block, of which each half of the threads has one half.
const BLOCK: usize = 4096;

/// What [`reverse`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn reverse_by(threads: &mut maco::Simt<'_, REVERSE>, x: maco::ReadTile<bf16, 1, 0>, y: maco::Tile<bf16, 1, 0>) {
    const HALF: u32 = BLOCK as u32 / 2;
    let cols = x.cols();
    let block = threads.shared::<bf16, 0, BLOCK>();
    // One thread plays both halves, one after another.
    let halves = threads.threads.div_ceil(128);
    let (half, first, step) = (threads.thread / 128, threads.thread % 128, threads.threads.div_ceil(halves));
    let all = threads.threads;
    // SAFETY: all threads come here, and to the end: none leaves the loop before the others.
    unsafe {
        threads.mbarriers::<{ 2 * BLOCK }, 1>(all, |threads, barriers| {
            let written = barriers.at(0);
            let (mut begin, mut parity) = (0, 0);
            while begin < cols {
                let count = (cols - begin).min(BLOCK as u32);
                // The half with place `at`.
                let around = |at: u32| if halves == 1 { (0, count) } else { (at / HALF * HALF, count.min((at / HALF + 1) * HALF)) };
                let (from, to) = around(half * HALF);
                let mut at = from + first;
                while at < to {
                    block.write(at, x.pointer(0, (begin + at) as i32).read());
                    at += step;
                }
                if half == 0 {
                    threads.sync_some::<0, 128>();
                } else {
                    threads.sync_some::<1, 128>();
                }
                // Each half is turned in place, by those who wrote it.
                at = first;
                while at < to.saturating_sub(from) / 2 {
                    let (low, high) = (from + at, to - 1 - at);
                    let (one, other) = (block.read(low), block.read(high));
                    block.write(low, other);
                    block.write(high, one);
                    at += step;
                }
                written.arrive();
                let there = written.wait(parity);
                at = threads.thread;
                while there && at < count {
                    let (from, to) = around(at);
                    y.pointer(0, (cols - 1 - begin - (from + to - 1 - at)) as i32).write(block.read(at));
                    at += all;
                }
                // Nobody reads the block any more.
                threads.sync();
                (begin, parity) = (begin + BLOCK as u32, parity ^ 1);
            }
        });
    }
}

fn reverse_reference(x: maco::ReadTile<bf16, 1, 0>, y: maco::Tile<bf16, 1, 0>) {
    // SAFETY: this thread is all there are.
    unsafe { reverse_by(&mut maco::Simt::alone_with(&mut maco::Scratch::new()), x, y) }
}

/// y = the elements of each row of x, the last one first.
///
/// # Safety
/// None of its own: it stays in its rows.
#[maco::task(simt, shared = 8200, tile(i = 1), cpu = reverse_reference)]
pub unsafe fn reverse(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, N>, #[write(i, ..)] y: Tensor<bf16, M, N>) {
    // SAFETY: all threads come here.
    unsafe { reverse_by(cta, x, y) }
}

/// Bytes of scratch of [`double`]: two stages, and behind them their mbarriers.
const DOUBLE: usize = 40_000;
/// Elements of a stage.
const STAGE: usize = 8192;

/// What [`double`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn double_by(threads: &mut maco::Simt<'_, DOUBLE>, x: maco::ReadTile<bf16, 1, 0>, y: maco::Tile<bf16, 1, 0>) {
    let (cols, first, step) = (x.cols(), threads.thread, threads.threads);
    let twice = |v: bf16| bf16::from_f32(2.0 * v.to_f32());
    let aligned = (x.pointer(0, 0) as u64 | y.pointer(0, 0) as u64).is_multiple_of(16) && cols.is_multiple_of(8);
    if !aligned {
        let mut at = first;
        while at < cols {
            // SAFETY: inside the tiles' rows; each thread has places of its own.
            unsafe { y.pointer(0, at as i32).write(twice(x.pointer(0, at as i32).read())) };
            at += step;
        }
        return;
    }
    let count = |stage: u32| (cols - stage * STAGE as u32).min(STAGE as u32);
    let stages = threads.shared::<bf16, 0, { 2 * STAGE }>();
    let begin = |stage: u32| stage % 2 * STAGE as u32;
    // SAFETY: all threads come here, and to the end; copies are inside the rows, at multiples of 16 bytes, and each is waited for.
    unsafe {
        threads.mbarriers::<{ 4 * STAGE }, 2>(1, |threads, full| {
            let load = |stage: u32| {
                if first == 0 && stage * (STAGE as u32) < cols {
                    full.at(stage % 2).arrive_expect(2 * count(stage));
                    stages.load(begin(stage), x.pointer(0, (stage * STAGE as u32) as i32), count(stage), &full.at(stage % 2));
                }
            };
            load(0);
            let mut stage = 0;
            while stage * (STAGE as u32) < cols {
                // Into the stage whose copy to memory is complete.
                load(stage + 1);
                // Also where this is no longer so: the launch's results are nobody's then.
                let there = full.at(stage % 2).wait(stage / 2 % 2);
                let mut at = first;
                while there && at < count(stage) {
                    stages.write(begin(stage) + at, twice(stages.read(begin(stage) + at)));
                    at += step;
                }
                threads.sync_copies();
                if first == 0 {
                    stages.store(begin(stage), y.pointer(0, (stage * STAGE as u32) as i32), count(stage));
                }
                stage += 1;
            }
        });
    }
}

fn double_reference(x: maco::ReadTile<bf16, 1, 0>, y: maco::Tile<bf16, 1, 0>) {
    // SAFETY: this thread is all there are.
    unsafe { double_by(&mut maco::Simt::alone_with(&mut maco::Scratch::new()), x, y) }
}

/// y = 2 x, by copies in bulk.
///
/// # Safety
/// None of its own: it stays in its rows.
#[maco::task(simt, shared = 40000, tile(i = 1), cpu = double_reference)]
pub unsafe fn double(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, N>, #[write(i, ..)] y: Tensor<bf16, M, N>) {
    // SAFETY: all threads come here.
    unsafe { double_by(cta, x, y) }
}

fn flip_reference(x: maco::ReadTile<bf16, 16, 16>, y: maco::Tile<bf16, 16, 16>) {
    for row in 0..x.rows() as i32 {
        for col in 0..x.cols() as i32 {
            // SAFETY: inside both tiles.
            unsafe { y.pointer(col, row).write(x.pointer(row, col).read()) };
        }
    }
}

/// y = xᵀ, a square of 16 × 16 at a time, by the first warp, in every form that its instructions have.
///
/// # Safety
/// None of its own: it stays in its tiles.
#[maco::task(simt, shared = 1024, tile(i = 16, j = 16), cpu = flip_reference)]
pub unsafe fn flip(cta: &mut Cta, #[read(i, j)] x: Tensor<bf16, M, N>, #[write(j, i)] y: Tensor<bf16, N, M>) {
    let (thread, rows, cols) = (cta.thread, x.rows(), x.cols());
    let (before, after) = (cta.shared::<bf16, 0, 256>(), cta.shared::<bf16, 512, 256>());
    let (row, col) = (thread / 16, thread % 16);
    if row < rows && col < cols {
        // SAFETY: inside the tile.
        before.write(thread, unsafe { x.pointer(row as i32, col as i32).read() });
    }
    cta.sync();
    if thread < 32 {
        let warp = cta.warp();
        // Lane 8m + r has row r of block m; blocks 0 and 1 are side by side, 2 and 3 below them.
        let (block, line) = (warp.lane / 8, warp.lane % 8);
        let place = |down: u32, right: u32| (8 * down + line) * 16 + 8 * right;
        let [a, b] = before.load_matrix::<2, true>(&warp, place(0, block % 2));
        let [c] = before.load_matrix::<1, true>(&warp, place(1, 0));
        let [d] = before.load_matrix::<1, true>(&warp, place(1, 1));
        // Blocks change places, and are transposed already.
        after.store_matrix::<4, false>(&warp, place(block % 2, block / 2), [a, b, c, d]);
        // There and back, in the other forms.
        warp.all(true);
        let whole = after.load_matrix::<4, true>(&warp, place(block / 2, block % 2));
        warp.all(true);
        after.store_matrix::<2, true>(&warp, place(0, block % 2), [whole[0], whole[1]]);
        after.store_matrix::<1, true>(&warp, place(1, 0), [whole[2]]);
        after.store_matrix::<1, true>(&warp, place(1, 1), [whole[3]]);
    }
    cta.sync();
    if row < y.rows() && col < y.cols() {
        // SAFETY: inside the tile; each thread writes one place.
        unsafe { y.pointer(row as i32, col as i32).write(after.read(thread)) };
    }
}

/// Bodies with scratch between GEMMs, whose stages come and go in the same pages.
#[maco::megakernel]
pub fn scratch(
    x: In<bf16, M, K>,
    w: In<bf16, N, K>,
    v: In<bf16, N, N>,
    product: Out<bf16, M, N>,
    turned: Out<bf16, M, N>,
    doubled: Out<bf16, M, N>,
    second: Out<bf16, M, N>,
    flipped: Out<bf16, N, M>,
) {
    linear(x, w, product);
    reverse(product, turned);
    double(turned, doubled);
    linear(doubled, v, second);
    flip(second, flipped);
}

/// The same bodies alone.
#[maco::megakernel]
pub fn scratch_rows(x: In<bf16, M, N>, turned: Out<bf16, M, N>, doubled: Out<bf16, M, N>) {
    reverse(x, turned);
    double(turned, doubled);
}

/// Bytes of scratch of [`negate`]: four stages, and behind them their barriers.
const NEGATE: usize = 4 * 4096 + 64;
/// Elements of a stage.
const PART: u32 = 2048;

/// What [`negate`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn negate_by(threads: &mut maco::Simt<'_, NEGATE>, x: maco::ReadTile<bf16, 1, 0>, y: maco::Tile<bf16, 1, 0>) {
    const STAGES: usize = 4;
    let (cols, first, step) = (x.cols(), threads.thread, threads.threads);
    let aligned = (x.pointer(0, 0) as u64).is_multiple_of(16) && cols.is_multiple_of(8);
    let negated = |v: bf16| bf16::from_f32(-v.to_f32());
    if !aligned {
        let mut at = first;
        while at < cols {
            // SAFETY: inside the tiles' rows; each thread has places of its own.
            unsafe { y.pointer(0, at as i32).write(negated(x.pointer(0, at as i32).read())) };
            at += step;
        }
        return;
    }
    let places = threads.shared::<bf16, 0, { STAGES * PART as usize }>();
    let count = |n: u32| (cols - n * PART).min(PART);
    let parts = cols.div_ceil(PART);
    // SAFETY: all threads come here, and to the end; copies are inside the row, at multiples of 16 bytes, and each is waited for.
    unsafe {
        threads.pipeline::<{ 2 * STAGES * PART as usize }, STAGES>(1, step, |_, pipeline| {
            let (mut producer, mut consumer) = (pipeline.producer(), pipeline.consumer());
            let (mut asked, mut n) = (0, 0);
            while n < parts {
                // The first warp is three stages ahead: all of its lanes wait, since racecheck stands still where one of them does, and the
                // first one asks.
                while first < 32 && asked < parts.min(n + STAGES as u32 - 1) {
                    let Some(stage) = producer.acquire() else { break };
                    if first == 0 {
                        let full = producer.commit_copies(2 * count(asked));
                        places.load(stage * PART, x.pointer(0, (asked * PART) as i32), count(asked), &full);
                    } else {
                        producer.skip();
                    }
                    asked += 1;
                }
                if let Some(stage) = consumer.acquire() {
                    let mut at = first;
                    while at < count(n) {
                        y.pointer(0, (n * PART + at) as i32).write(negated(places.read(stage * PART + at)));
                        at += step;
                    }
                }
                consumer.release();
                n += 1;
            }
        });
    }
}

fn negate_reference(x: maco::ReadTile<bf16, 1, 0>, y: maco::Tile<bf16, 1, 0>) {
    // SAFETY: this thread is all there are.
    unsafe { negate_by(&mut maco::Simt::alone_with(&mut maco::Scratch::new()), x, y) }
}

/// y = −x, through stages that one thread fills.
///
/// # Safety
/// None of its own: it stays in its rows.
#[maco::task(simt, shared = 16448, tile(i = 1), cpu = negate_reference)]
pub unsafe fn negate(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, N>, #[write(i, ..)] y: Tensor<bf16, M, N>) {
    // SAFETY: all threads come here.
    unsafe { negate_by(cta, x, y) }
}

/// Twice: what one body leaves is no barrier of the next.
#[maco::megakernel]
pub fn piped(x: In<bf16, M, N>, y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    negate(x, y);
    negate(y, z);
}
