//! A gated unit with a loss behind it, and a GEMM of numbers of eight bits with their scales: tasks that the library does not have.
use maco::math::{exp, ln};
use maco::prelude::*;
use maco::{Acc, E4M3, Mapped, ReadTile, Scratch, Simt};

/// y\[M, N\] = gelu(x\[M, K\] · gate\[N, K\]ᵀ) · (x · up\[N, K\]ᵀ), summed in `f32` and rounded once (GEGLU: Shazeer, 2020).
///
/// Both GEMMs run at the same time: `x` is loaded once for both, and neither of them goes through memory.
#[maco::task(tile(i = 64 | 128, j = 128), E in [bf16, f16])]
pub fn geglu(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, K>,
    #[read(j, ..)] gate: Tensor<E, N, K>,
    #[read(j, ..)] up: Tensor<E, N, K>,
    #[write(i, j)] y: Tensor<E, M, N>,
) {
    let mut acc = cta.accumulator_pair();
    for k in cta.steps(x, gate) {
        cta.mma_pair(&mut acc, x.tile(k), (gate.tile(k), up.tile(k)));
    }
    cta.store_pair(acc, y, |gate, up| gelu::apply(gate) * up);
}

/// The largest of some numbers, and the sum of e to each less that: what is known of them without having kept them.
type Seen = (f32, f32);

/// What is known of both together (Milakov and Gimelshein, 2018). One exponential: that of the larger maximum less itself is 1.
fn join(a: Seen, b: Seen) -> Seen {
    let (large, small) = if b.0 > a.0 || b.0.is_nan() { (b, a) } else { (a, b) };
    // Infinities too may be equal.
    let factor = if large.0 == small.0 { 1.0 } else { exp(small.0 - large.0) };
    (large.0, large.1 + small.1 * factor)
}

/// loss\[M, 1\] = log(Σ exp(x)) − x\[target\] along each row of x\[M, N\]: the cross-entropy of logits, with one read of them and no
/// exponential that overflows. A target outside the row counts as a logit of 0. NaN in, NaN out.
#[maco::task(tile(i = 8), E in [bf16, f16, f32])]
pub fn cross_entropy(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<E, M, N>,
    #[read(i, ..)] target: Tensor<u32, M, 1>,
    #[write(i, ..)] loss: Tensor<f32, M, 1>,
) {
    cta.rows((x, target), loss, |(x, target), loss| {
        let (largest, sum) = x.fold((f32::NEG_INFINITY, 0.0), |v| (v, 1.0), join);
        loss.put(0, largest + ln(sum) - x.at(target.at(0)))
    })
}

/// The unit alone, in one task.
#[maco::megakernel]
pub fn fused(x: In<bf16, M, K>, gate: In<bf16, N, K>, up: In<bf16, N, K>, y: Out<bf16, M, N>) {
    geglu(x, gate, up, y);
}

/// The same by tasks of the library.
#[maco::megakernel]
pub fn apart(x: In<bf16, M, K>, gate: In<bf16, N, K>, up: In<bf16, N, K>, y: Out<bf16, M, N>) {
    let open = temp::<bf16, M, N>();
    let raised = temp::<bf16, M, N>();
    linear(x, gate, open).then(gelu);
    linear(x, up, raised);
    mul(open, raised, y);
}

/// A unit, what it makes of each of V words, and the loss of each token.
#[maco::megakernel]
pub fn head(
    x: In<bf16, M, K>,
    gate: In<bf16, N, K>,
    up: In<bf16, N, K>,
    words: In<bf16, V, N>,
    target: In<u32, M, 1>,
    y: Out<bf16, M, N>,
    logits: Out<bf16, M, V>,
    loss: Out<f32, M, 1>,
) {
    geglu(x, gate, up, y);
    linear(y, words, logits);
    cross_entropy(logits, target, loss);
}

/// Columns of a step of K: a row of the swizzle.
const STEP: usize = 128;
/// Steps that are in scratch at a time.
const STAGES: usize = 3;
/// Bytes of one operand of a stage, of which a stage has two: 128 rows of 128 bytes.
const OPERAND: usize = 128 * STEP;
/// Bytes of scratch: operands A, operands B, and the barriers of the stages. What is made is gathered where the first two stages were.
const SCALED: usize = 2 * STAGES * OPERAND + 16 * STAGES;

/// What [`scaled`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn scaled_by(
    threads: &mut Simt<'_, SCALED>,
    x: &Mapped<i8, 128, 0, 128>,
    w: &Mapped<i8, 128, 0, 128>,
    (scale_x, scale_w): (ReadTile<f32, 1, 128>, ReadTile<f32, 1, 128>),
    y: &Mapped<bf16, 128, 128, 64>,
) {
    let a = threads.swizzled_tiles::<E4M3, 0, STAGES, 128, STEP>();
    let b = threads.swizzled_tiles::<E4M3, { STAGES * OPERAND }, STAGES, 128, STEP>();
    let out = threads.swizzled_tiles::<bf16, 0, 2, 64, 128>();
    let steps = x.cols().div_ceil(STEP as u32).max(1);
    let (first, all) = (threads.thread == 0, threads.threads);
    // Each warpgroup has 64 rows; the one thread of a reference has one half after the other.
    let mut block = threads.warpgroup().index;
    while block < 2 {
        let rows = 64 * block;
        let mut acc = Acc::<f32, 128>::zeros();
        // SAFETY: all threads come here, and to the end; what is copied is waited for, and a stage is given back when its product is made.
        unsafe {
            threads.pipeline::<{ 2 * STAGES * OPERAND }, STAGES>(1, all, |threads, pipeline| {
                let (mut producer, mut consumer) = (pipeline.producer(), pipeline.consumer());
                let (mut asked, mut step) = (0, 0);
                threads.warpgroup().multiply(&mut acc, |queue| {
                    loop {
                        // One thread is a step ahead of the products; beyond the tensors there are zeros.
                        while first && asked < steps.min(step + STAGES as u32 - 1) {
                            let Some(stage) = producer.acquire() else { break };
                            let (a, b) = (a.at(stage), b.at(stage));
                            let full = producer.commit_copies(a.bytes() + b.bytes());
                            let k = (asked * STEP as u32) as i32;
                            a.load(x, 0, k, &full);
                            b.load(w, 0, k, &full);
                            asked += 1;
                        }
                        // Of an aborted launch the product is nobody's.
                        let stage = consumer.acquire().unwrap_or(step % STAGES as u32);
                        queue.add(a.at(stage).along(rows), b.at(stage).along(0));
                        queue.commit();
                        // All products but the newest one are made.
                        queue.wait::<1>();
                        if step > 0 {
                            consumer.release();
                        }
                        step += 1;
                        if step >= steps {
                            break;
                        }
                    }
                });
            });
        }
        let warpgroup = threads.warpgroup();
        acc.map(&warpgroup, |row, col, sum| {
            // Beyond the tile nobody asks for the result.
            // SAFETY: inside the tiles of the scales.
            let at = |scale: ReadTile<f32, 1, 128>, at: u32, end: u32| {
                if at < end { unsafe { scale.pointer(0, at as i32).read() } } else { 0.0 }
            };
            sum * at(scale_x, rows + row, y.rows()) * at(scale_w, col, y.cols())
        });
        // Nobody reads the stages any more.
        acc.store(&warpgroup, out.at(block), 0, 0);
        warpgroup.sync_copies();
        if warpgroup.thread == 0 {
            // SAFETY: rows of this block, inside the tile, which its warpgroup has written and met behind.
            unsafe { out.at(block).store(y, rows as i32, 0) };
        }
        block += warpgroup.count;
    }
}

fn scaled_reference(
    x: Mapped<i8, 128, 0, 128>,
    w: Mapped<i8, 128, 0, 128>,
    scale_x: ReadTile<f32, 1, 128>,
    scale_w: ReadTile<f32, 1, 128>,
    y: Mapped<bf16, 128, 128, 64>,
) {
    // SAFETY: this thread is all there are.
    unsafe { scaled_by(&mut Simt::alone_with(&mut Scratch::new()), &x, &w, (scale_x, scale_w), &y) }
}

/// y\[i, j\] = (x\[i\] · w\[j\]) · scale_x\[i\] · scale_w\[j\] for x\[M, K\] and w\[N, K\] of numbers of eight bits, 4 of exponent and 3 of fraction
/// ([`E4M3`]), in which rows have been divided by their scales; summed in `f32`, rounded once.
///
/// # Safety
/// None of its own: it stays in its tiles.
#[maco::task(simt, shared = 98352, boxes(x = 128, w = 128, y = 64), tile(i = 128, j = 128), cpu = scaled_reference)]
pub unsafe fn scaled(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<i8, M, K>,
    #[read(j, ..)] w: Tensor<i8, N, K>,
    #[read(i)] scale_x: Tensor<f32, M>,
    #[read(j)] scale_w: Tensor<f32, N>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    // SAFETY: all threads come here.
    unsafe { scaled_by(cta, &x, &w, (scale_x, scale_w), &y) }
}

/// The GEMM of quantised rows.
#[maco::megakernel]
pub fn quantised(x: In<i8, M, K>, w: In<i8, N, K>, scale_x: In<f32, M>, scale_w: In<f32, N>, y: Out<bf16, M, N>) {
    scaled(x, w, scale_x, scale_w, y);
}
