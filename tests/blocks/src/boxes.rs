//! Bodies that copy boxes of their tensors: GEMMs through stages, operands that lie across, and every swizzle there and back.
use maco::prelude::*;
use maco::{Acc, Mapped, S8, Scratch, Simt, Tf32, Tile};

/// Stages of [`through`].
const STAGES: usize = 3;
/// Columns of a step of K: a panel.
const STEP: usize = 64;
/// Bytes of one operand of a stage: 128 rows.
const OPERAND: usize = 128 * 128;
/// Bytes of scratch of [`through`]: stages, and behind them their barriers. The result is gathered where the first two were.
const THROUGH: usize = 2 * STAGES * OPERAND + 16 * STAGES;

/// What [`through`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn through_by(
    threads: &mut Simt<'_, THROUGH>,
    x: &Mapped<bf16, 128, 0, 128>,
    w: &Mapped<bf16, 128, 0, 128>,
    y: &Mapped<bf16, 128, 128, 64>,
) {
    let a = threads.swizzled_tiles::<bf16, 0, STAGES, 128, STEP>();
    let b = threads.swizzled_tiles::<bf16, { STAGES * OPERAND }, STAGES, 128, STEP>();
    let out = threads.swizzled_tiles::<bf16, 0, 2, 64, 128>();
    let steps = x.cols().div_ceil(STEP as u32).max(1);
    let (first, all) = (threads.thread == 0, threads.threads);
    // Each warpgroup has 64 rows; the one thread of a reference has one half after the other.
    let mut block = threads.warpgroup().index;
    while block < 2 {
        let mut acc = Acc::<f32, 128>::zeros();
        // SAFETY: all threads come here, and to the end; what is copied is waited for, and a stage is given back when its product is made.
        unsafe {
            threads.pipeline::<{ 2 * STAGES * OPERAND }, STAGES>(1, all, |threads, pipeline| {
                let warpgroup = threads.warpgroup();
                let (mut producer, mut consumer) = (pipeline.producer(), pipeline.consumer());
                let (mut asked, mut n) = (0, 0);
                warpgroup.multiply(&mut acc, |queue| {
                    loop {
                        // The stage of the product before the newest one is free.
                        while first && asked < steps.min(n + STAGES as u32 - 1) {
                            let Some(stage) = producer.acquire() else { break };
                            let (a, b) = (a.at(stage), b.at(stage));
                            let full = producer.commit_copies(a.bytes() + b.bytes());
                            let k = (asked * STEP as u32) as i32;
                            a.load(x, 0, k, &full);
                            b.load(w, 0, k, &full);
                            asked += 1;
                        }
                        // Of an aborted launch the product is nobody's.
                        let stage = consumer.acquire().unwrap_or(n % STAGES as u32);
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

fn through_reference(x: Mapped<bf16, 128, 0, 128>, w: Mapped<bf16, 128, 0, 128>, y: Mapped<bf16, 128, 128, 64>) {
    // SAFETY: this thread is all there are.
    unsafe { through_by(&mut Simt::alone_with(&mut Scratch::new()), &x, &w, &y) }
}

/// y = x · wᵀ through three stages that one thread fills.
///
/// # Safety
/// None of its own: it stays in its tiles.
#[maco::task(simt, shared = 98352, boxes(x = 128, w = 128, y = 64), tile(i = 128, j = 128), cpu = through_reference)]
pub unsafe fn through(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<bf16, M, K>,
    #[read(j, ..)] w: Tensor<bf16, N, K>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    // SAFETY: all threads come here.
    unsafe { through_by(cta, &x, &w, &y) }
}

/// What threads write is copied in boxes, and what boxes brought is copied in boxes.
#[maco::megakernel]
pub fn boxes_through(x: In<bf16, M, K>, w: In<bf16, N, K>, v: In<bf16, N, N>, h: Out<bf16, M, K>, y: Out<bf16, M, N>, z: Out<bf16, M, N>) {
    copy(x, h);
    through(h, w, y);
    through(y, v, z);
}

/// Bytes of scratch of [`across`]: two operands and a barrier.
const ACROSS: usize = 2 * OPERAND + 8;

/// What [`across`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn across_by(threads: &mut Simt<'_, ACROSS>, x: &Mapped<bf16, 0, 128, 64>, w: &Mapped<bf16, 0, 128, 64>, y: Tile<f32, 128, 128>) {
    let (a, b) = (threads.swizzled::<bf16, 0, STEP, 128>(), threads.swizzled::<bf16, OPERAND, STEP, 128>());
    let (first, rows) = (threads.thread == 0, x.rows());
    let mut block = threads.warpgroup().index;
    while block < 2 {
        let mut acc = Acc::<f32, 128>::zeros();
        // SAFETY: all threads come here, and to the end; what is copied is waited for.
        unsafe {
            threads.mbarriers::<{ 2 * OPERAND }, 1>(1, |threads, barriers| {
                let full = barriers.at(0);
                let (mut k, mut parity) = (0, 0);
                while k < rows {
                    if first {
                        full.arrive_expect(a.bytes() + b.bytes());
                        a.load(x, k as i32, 0, &full);
                        b.load(w, k as i32, 0, &full);
                    }
                    // Of an aborted launch the product is nobody's.
                    let _ = full.wait(parity);
                    let warpgroup = threads.warpgroup();
                    warpgroup.multiply(&mut acc, |queue| queue.add(a.across(64 * block), b.across(0)));
                    // Nobody reads the operands any more.
                    threads.sync();
                    (k, parity) = (k + STEP as u32, parity ^ 1);
                }
            });
        }
        let warpgroup = threads.warpgroup();
        acc.for_each(&warpgroup, |row, col, sum| {
            let row = row + 64 * block;
            if row < y.rows() && col < y.cols() {
                // SAFETY: inside the tile; each element is one thread's.
                unsafe { y.pointer(row as i32, col as i32).write(sum) };
            }
        });
        block += warpgroup.count;
    }
}

fn across_reference(x: Mapped<bf16, 0, 128, 64>, w: Mapped<bf16, 0, 128, 64>, y: Tile<f32, 128, 128>) {
    // SAFETY: this thread is all there are.
    unsafe { across_by(&mut Simt::alone_with(&mut Scratch::new()), &x, &w, y) }
}

/// y = xᵀ · w, one step of K at a time.
///
/// # Safety
/// None of its own: it stays in its tiles.
#[maco::task(simt, shared = 32776, boxes(x = 64, w = 64), tile(i = 128, j = 128), cpu = across_reference)]
pub unsafe fn across(
    cta: &mut Cta,
    #[read(.., i)] x: Tensor<bf16, K, M>,
    #[read(.., j)] w: Tensor<bf16, K, N>,
    #[write(i, j)] y: Tensor<f32, M, N>,
) {
    // SAFETY: all threads come here.
    unsafe { across_by(cta, &x, &w, y) }
}

#[maco::megakernel]
pub fn boxes_across(x: In<bf16, K, M>, w: In<bf16, K, N>, y: Out<f32, M, N>) {
    across(x, w, y);
}

/// Rows of a tile of the bodies below.
pub const ROWS: usize = 32;
/// Columns of one.
pub const COLS: usize = 64;
/// How many rows of x a tile's box begins before the tile.
pub const UP: i32 = 3;
/// How many columns.
pub const LEFT: i32 = 16;
/// Bytes of scratch of these bodies: two tiles of at most four bytes an element, and a barrier.
const MIRROR: usize = 2 * 4 * ROWS * COLS + 8;

/// A tile with four rows and eight columns more on each side.
type Around<E, const SWIZZLE: usize> = Mapped<E, { ROWS + 8 }, { COLS + 32 }, ROWS, SWIZZLE>;

/// What the tasks below do, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn mirror_by<T: maco::OperandType, const SWIZZLE: usize>(
    threads: &mut Simt<'_, MIRROR>,
    x: &Around<T::Element, SWIZZLE>,
    y: &Mapped<T::Element, ROWS, COLS, ROWS, SWIZZLE>,
) {
    let before = threads.swizzled_by::<T, 0, ROWS, COLS, SWIZZLE>();
    let after = threads.swizzled_by::<T, { 4 * ROWS * COLS }, ROWS, COLS, SWIZZLE>();
    let (thread, step) = (threads.thread, threads.threads);
    // SAFETY: all threads come here, and to the end; what is copied is waited for, and stored by one thread inside the tile.
    unsafe {
        threads.mbarriers::<{ 8 * ROWS * COLS }, 1>(1, |threads, barriers| {
            let full = barriers.at(0);
            if thread == 0 {
                full.arrive_expect(before.bytes());
                before.load(x, 4 - UP, 16 - LEFT, &full);
            }
            // Also where nothing has come: the launch's results are nobody's then.
            let _ = full.wait(0);
            let mut at = thread;
            while at < (ROWS * COLS) as u32 {
                let (row, col) = (at / COLS as u32, at % COLS as u32);
                after.write(row, col, before.read(row, COLS as u32 - 1 - col));
                at += step;
            }
            threads.sync_copies();
            if thread == 0 {
                after.store(y, 0, 0);
            }
        });
    }
}

/// A body, its reference by one thread, and the task.
macro_rules! mirrors {
    ($($task:ident $reference:ident: $element:ident as $type:ident, $swizzle:literal;)*) => {$(
        fn $reference(x: Around<$element, $swizzle>, y: Mapped<$element, ROWS, COLS, ROWS, $swizzle>) {
            // SAFETY: this thread is all there are.
            unsafe { mirror_by::<$type, $swizzle>(&mut Simt::alone_with(&mut Scratch::new()), &x, &y) }
        }

        /// Tiles of y are those of x, three rows further down and sixteen columns to the right, with columns in reverse; plane by plane.
        ///
        /// # Safety
        /// None of its own: it stays in its tiles.
        #[maco::task(
            simt,
            shared = 16392,
            boxes(x = 32 swizzle $swizzle, y = 32 swizzle $swizzle),
            tile(b = 1, i = 32, j = 64),
            cpu = $reference
        )]
        pub unsafe fn $task(
            cta: &mut Cta,
            #[read(b, i + -4..=4, j + -16..=16)] x: Tensor<$element, B, M, N>,
            #[write(b, i, j)] y: Tensor<$element, B, M, N>,
        ) {
            // SAFETY: all threads come here.
            unsafe { mirror_by::<$type, $swizzle>(cta, &x, &y) }
        }
    )*};
}
mirrors! {
    mirror128 mirror128_reference: bf16 as bf16, 128;
    mirror64 mirror64_reference: f16 as f16, 64;
    mirror32 mirror32_reference: f32 as Tf32, 32;
    mirror16 mirror16_reference: i8 as S8, 16;
}

/// Every swizzle, in every size of an element; and boxes that bodies have stored.
#[maco::megakernel]
pub fn boxes_mirrored(
    a: In<bf16, B, M, N>,
    b: In<f16, B, M, N>,
    c: In<f32, B, M, N>,
    d: In<i8, B, M, N>,
    p: Out<bf16, B, M, N>,
    q: Out<f16, B, M, N>,
    r: Out<f32, B, M, N>,
    s: Out<i8, B, M, N>,
    twice: Out<bf16, B, M, N>,
) {
    mirror128(a, p);
    mirror64(b, q);
    mirror32(c, r);
    mirror16(d, s);
    mirror128(p, twice);
}
