//! Bodies of threads that tests break: with copies in bulk, with boxes and tensor cores, with a prologue.
use maco::prelude::*;
use maco::{Acc, Mapped, ReadTile, Scratch, Simt, Tile};

/// Most elements of a row of [`double`].
const ROW: usize = 512;
/// Bytes of scratch of [`double`]: a row, and behind it a barrier.
const DOUBLE: usize = 2 * ROW + 8;

/// What [`double`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn double_by(threads: &mut Simt<'_, DOUBLE>, x: ReadTile<bf16, 1, 0>, y: Tile<bf16, 1, 0>) {
    let (cols, first, step) = (x.cols(), threads.thread, threads.threads);
    let row = threads.shared::<bf16, 0, ROW>();
    // SAFETY: all threads come here, and to the end; copies are inside the rows, at multiples of 16 bytes, and each is waited for.
    unsafe {
        threads.mbarriers::<{ 2 * ROW }, 1>(1, |threads, barriers| {
            let full = barriers.at(0);
            if first == 0 {
                full.arrive_expect(2 * cols);
                row.load(0, x.pointer(0, 0), cols, &full);
            }
            // Also where nothing has come: the launch's results are nobody's then.
            let there = full.wait(0);
            let mut at = first;
            while there && at < cols {
                row.write(at, bf16::from_f32(2.0 * row.read(at).to_f32()));
                at += step;
            }
            threads.sync_copies();
            if first == 0 {
                row.store(0, y.pointer(0, 0), cols);
            }
        });
    }
}

fn double_reference(x: ReadTile<bf16, 1, 0>, y: Tile<bf16, 1, 0>) {
    // SAFETY: this thread is all there are.
    unsafe { double_by(&mut Simt::alone_with(&mut Scratch::new()), x, y) }
}

/// y = 2 x, by copies in bulk.
///
/// # Safety
/// Rows have a multiple of 8 elements, at most [`ROW`].
#[maco::task(simt, shared = 1032, tile(i = 1), cpu = double_reference)]
pub unsafe fn double(cta: &mut Cta, #[read(i, ..)] x: Tensor<bf16, M, N>, #[write(i, ..)] y: Tensor<bf16, M, N>) {
    // SAFETY: all threads come here.
    unsafe { double_by(cta, x, y) }
}

/// Columns of a step of K.
const STEP: usize = 64;
/// Bytes of the operands of [`through`] in one step: 128 rows and 64.
const OPERANDS: usize = (128 + 64) * 2 * STEP;
/// Bytes of scratch of [`through`]: two stages, and behind them their barriers. The result is gathered where the first one was.
const THROUGH: usize = 2 * OPERANDS + 32;

/// What [`through`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn through_by(
    threads: &mut Simt<'_, THROUGH>,
    x: &Mapped<bf16, 128, 0, 128>,
    w: &Mapped<bf16, 64, 0, 64>,
    y: &Mapped<bf16, 128, 64, 64>,
) {
    let a = threads.swizzled_tiles::<bf16, 0, 2, 128, STEP>();
    let b = threads.swizzled_tiles::<bf16, { 2 * 128 * 2 * STEP }, 2, 64, STEP>();
    let out = threads.swizzled_tiles::<bf16, 0, 2, 64, 64>();
    let steps = x.cols().div_ceil(STEP as u32).max(1);
    let (first, all) = (threads.thread == 0, threads.threads);
    // Each warpgroup has 64 rows; the one thread of a reference has one half after the other.
    let mut block = threads.warpgroup().index;
    while block < 2 {
        let mut acc = Acc::<f32, 64>::zeros();
        // SAFETY: all threads come here, and to the end; what is copied is waited for, and a stage is given back when its product is made.
        unsafe {
            threads.pipeline::<{ 2 * OPERANDS }, 2>(1, all, |threads, pipeline| {
                let warpgroup = threads.warpgroup();
                let (mut producer, mut consumer) = (pipeline.producer(), pipeline.consumer());
                let (mut asked, mut n) = (0, 0);
                warpgroup.multiply(&mut acc, |queue| {
                    loop {
                        // The stage of the product before the newest one is free.
                        while first && asked < steps.min(n + 1) {
                            let Some(stage) = producer.acquire() else { break };
                            let (a, b) = (a.at(stage), b.at(stage));
                            let full = producer.commit_copies(a.bytes() + b.bytes());
                            let k = (asked * STEP as u32) as i32;
                            a.load(x, 0, k, &full);
                            b.load(w, 0, k, &full);
                            asked += 1;
                        }
                        // Of an aborted launch the product is nobody's.
                        let stage = consumer.acquire().unwrap_or(n % 2);
                        queue.add(a.at(stage).along(64 * block), b.at(stage).along(0));
                        queue.commit();
                        queue.wait::<1>();
                        if n > 0 {
                            consumer.release();
                        }
                        n += 1;
                        if n >= steps {
                            break;
                        }
                    }
                });
            });
        }
        let warpgroup = threads.warpgroup();
        // Nobody reads the stages any more.
        acc.store(&warpgroup, out.at(block), 0, 0);
        warpgroup.sync_copies();
        if warpgroup.thread == 0 {
            // SAFETY: rows of this block, inside the task's tile, which its warpgroup has written and met behind.
            unsafe { out.at(block).store(y, (64 * block) as i32, 0) };
        }
        block += warpgroup.count;
    }
}

fn through_reference(x: Mapped<bf16, 128, 0, 128>, w: Mapped<bf16, 64, 0, 64>, y: Mapped<bf16, 128, 64, 64>) {
    // SAFETY: this thread is all there are.
    unsafe { through_by(&mut Simt::alone_with(&mut Scratch::new()), &x, &w, &y) }
}

/// y = x · wᵀ by boxes, through two stages that one thread fills.
///
/// # Safety
/// None of its own: it stays in its tiles.
#[maco::task(simt, shared = 49184, boxes(x = 128, w = 64, y = 64), tile(i = 128, j = 64), cpu = through_reference)]
pub unsafe fn through(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    // SAFETY: all threads come here.
    unsafe { through_by(cta, &x, &w, &y) }
}

/// What the bodies below do, one element after another.
fn shift_reference<const I: usize, const J: usize>(by: ReadTile<bf16, 1, J>, x: ReadTile<bf16, I, J>, y: Tile<bf16, I, J>) {
    for r in 0..I as i32 {
        for c in 0..J as i32 {
            // SAFETY: the task's author promises whole tiles, so every element lies inside the tensors.
            unsafe { y.pointer(r, c).write(sum(by.pointer(0, c).read(), x.pointer(r, c).read())) };
        }
    }
}

fn sum(a: bf16, b: bf16) -> bf16 {
    bf16::from_f32(a.to_f32() + b.to_f32())
}

/// y[i, ..] = x[i, ..] + by, which no task writes.
///
/// # Safety
/// The tensors have a multiple of 8 rows and of 256 columns.
#[maco::task(simt, prologue, tile(i = 8, j = 256), cpu = shift_reference)]
pub unsafe fn shift(
    cta: &mut Cta,
    #[read(j)] by: Tensor<bf16, N>,
    #[read(i, j)] x: Tensor<bf16, M, N>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    let at = cta.thread as i32;
    // SAFETY: one thread for each column of the tile.
    let by = unsafe { by.pointer(0, at).read() };
    if !cta.wait_for_inputs() {
        return;
    }
    let mut r = 0;
    while r < 8 {
        // SAFETY: as above.
        unsafe { y.pointer(r, at).write(sum(by, x.pointer(r, at).read())) };
        r += 1;
    }
}

/// The same by a warp.
///
/// # Safety
/// The tensors have a multiple of 8 rows and of 32 columns.
#[maco::task(simt, warp, prologue, tile(i = 8, j = 32), cpu = shift_reference)]
pub unsafe fn shift_warp(
    cta: &mut Cta,
    #[read(j)] by: Tensor<bf16, N>,
    #[read(i, j)] x: Tensor<bf16, M, N>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    let at = cta.lane as i32;
    // SAFETY: one lane for each column of the tile.
    let by = unsafe { by.pointer(0, at).read() };
    if !cta.wait_for_inputs() {
        return;
    }
    let mut r = 0;
    while r < 8 {
        // SAFETY: as above.
        unsafe { y.pointer(r, at).write(sum(by, x.pointer(r, at).read())) };
        r += 1;
    }
}

/// y = 2 (x + 2 by) · wᵀ, by bodies of every kind; then a task that waits for the last.
#[maco::megakernel]
pub fn bodies(by: In<bf16, K>, x: In<bf16, M, K>, w: In<bf16, N, K>, y: Out<f32, M, N>) {
    let once = temp::<bf16, M, K>();
    shift(by, x, once);
    let twice = temp::<bf16, M, K>();
    shift_warp(by, once, twice);
    let doubled = temp::<bf16, M, K>();
    double(twice, doubled);
    let product = temp::<bf16, M, N>();
    through(doubled, w, product);
    to_f32(product, y).tile(16, 1024);
}
