//! A gated unit with a loss behind it, and a product of numbers of eight bits with their scales: tasks that the library does not have.
use maco::math::{exp, ln};
use maco::prelude::*;
use maco::{Acc, E4M3, Scratch, Simt, Swizzled, Tile};

/// y\[M, N\] = gelu(x\[M, K\] · gate\[N, K\]ᵀ) · (x · up\[N, K\]ᵀ), summed in `f32` and rounded once (GEGLU: Shazeer, 2020).
///
/// Both products are made at the same time: `x` is loaded once for both, and neither of them goes through memory.
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
/// Bytes of one factor of a stage, of which a stage has two: 128 rows of 128 bytes.
const FACTOR: usize = 128 * STEP;
/// Bytes of scratch: two stages. What is made is gathered where the first one was.
const SCALED: usize = 4 * FACTOR;

/// Fills a factor of a stage with columns `k..k + 128` of the rows of a tile, zeros beyond it.
///
/// # Safety
/// Called by all threads of a body, whose scratch and tile these are; nobody reads the factor.
#[inline(always)]
unsafe fn fill(threads: &Simt<'_, SCALED>, factor: Swizzled<'_, E4M3, 128, STEP>, from: Tile<i8, 128, 0>, k: u32) {
    const LINES: u32 = STEP as u32 / 16;
    let (rows, cols) = (from.rows(), from.cols());
    let aligned = (from.pointer(0, 0) as u64 | u64::from(cols)).is_multiple_of(16);
    let mut at = threads.thread;
    while at < 128 * LINES {
        let (row, col) = (at / LINES, at % LINES * 16);
        let mut words = [0; 4];
        if aligned && row < rows && k + col < cols {
            // SAFETY: 16 bytes of a row, at a multiple of 16 bytes.
            words = unsafe { from.pointer(row as i32, (k + col) as i32).cast::<Line>().read() }.0;
        } else if row < rows {
            // Four loops of constant length: what is indexed by a value would not be in registers.
            let byte = |n: u32| match k + col + n < cols {
                // SAFETY: inside the row.
                true => unsafe { from.pointer(row as i32, (k + col + n) as i32).read() as u8 as u32 },
                false => 0,
            };
            let word = |n: u32| byte(n) | byte(n + 1) << 8 | byte(n + 2) << 16 | byte(n + 3) << 24;
            words = [word(0), word(4), word(8), word(12)];
        }
        factor.write16(row, col, words);
        at += threads.threads;
    }
}

/// 16 bytes in one access.
#[repr(C, align(16))]
struct Line([u32; 4]);

/// What [`scaled`] does, by however many threads there are.
///
/// # Safety
/// Called by all threads of a body, whose tiles these are.
#[inline(always)]
unsafe fn scaled_by(
    threads: &mut Simt<'_, SCALED>,
    x: Tile<i8, 128, 0>,
    w: Tile<i8, 128, 0>,
    (scale_x, scale_w): (Tile<f32, 1, 128>, Tile<f32, 1, 128>),
    y: Tile<bf16, 128, 128>,
) {
    let first = (threads.swizzled::<E4M3, 0, 128, STEP>(), threads.swizzled::<E4M3, FACTOR, 128, STEP>());
    let second = (threads.swizzled::<E4M3, { 2 * FACTOR }, 128, STEP>(), threads.swizzled::<E4M3, { 3 * FACTOR }, 128, STEP>());
    let out = threads.swizzled::<bf16, 0, 128, 128>();
    let warpgroup = threads.warpgroup();
    // Each warpgroup has 64 rows; the one thread of a reference has one half after the other.
    let mut block = warpgroup.index;
    while block < 2 {
        let rows = 64 * block;
        let mut acc = Acc::<f32, 128>::zeros();
        // SAFETY: all threads come here; a stage is filled when all have waited for the product that read it.
        warpgroup.multiply(&mut acc, |queue| unsafe {
            let (mut k, mut odd) = (0, false);
            fill(threads, first.0, x, 0);
            fill(threads, first.1, w, 0);
            loop {
                threads.sync_copies();
                let (now, next) = if odd { (second, first) } else { (first, second) };
                queue.add(now.0.along(rows), now.1.along(0));
                queue.commit();
                k += STEP as u32;
                if k < x.cols() {
                    // While the tensor cores multiply. The product before this one is complete, for both warpgroups.
                    fill(threads, next.0, x, k);
                    fill(threads, next.1, w, k);
                }
                queue.wait::<0>();
                if k >= x.cols() {
                    break;
                }
                odd = !odd;
            }
        });
        acc.map(&warpgroup, |row, col, sum| {
            // Beyond the tile nobody asks for the result.
            // SAFETY: inside the tiles of the scales.
            let at =
                |scale: Tile<f32, 1, 128>, at: u32, end: u32| if at < end { unsafe { scale.pointer(0, at as i32).read() } } else { 0.0 };
            sum * at(scale_x, rows + row, y.rows()) * at(scale_w, col, y.cols())
        });
        // Nobody reads the stages any more.
        threads.sync();
        acc.store(&warpgroup, out, rows, 0);
        warpgroup.sync();
        let mut at = warpgroup.thread;
        while at < 64 * 128 {
            let (row, col) = (rows + at / 128, at % 128);
            if row < y.rows() && col < y.cols() {
                // SAFETY: inside the tile; each element is one thread's.
                unsafe { y.pointer(row as i32, col as i32).write(out.read(row, col)) };
            }
            at += warpgroup.threads;
        }
        block += warpgroup.count;
    }
}

fn scaled_reference(
    x: Tile<i8, 128, 0>,
    w: Tile<i8, 128, 0>,
    scale_x: Tile<f32, 1, 128>,
    scale_w: Tile<f32, 1, 128>,
    y: Tile<bf16, 128, 128>,
) {
    // SAFETY: this thread is all there are.
    unsafe { scaled_by(&mut Simt::alone_with(&mut Scratch::new()), x, w, (scale_x, scale_w), y) }
}

/// y\[i, j\] = (x\[i\] · w\[j\]) · scale_x\[i\] · scale_w\[j\] for x\[M, K\] and w\[N, K\] of numbers of eight bits, 4 of exponent and 3 of fraction
/// ([`E4M3`]), in which rows have been divided by their scales; summed in `f32`, rounded once.
///
/// # Safety
/// None of its own: it stays in its tiles.
#[maco::task(simt, shared = 65536, tile(i = 128, j = 128), cpu = scaled_reference)]
pub unsafe fn scaled(
    cta: &mut Cta,
    #[read(i, ..)] x: Tensor<i8, M, K>,
    #[read(j, ..)] w: Tensor<i8, N, K>,
    #[read(i)] scale_x: Tensor<f32, M>,
    #[read(j)] scale_w: Tensor<f32, N>,
    #[write(i, j)] y: Tensor<bf16, M, N>,
) {
    // SAFETY: all threads come here.
    unsafe { scaled_by(cta, x, w, (scale_x, scale_w), y) }
}

/// The product of quantised rows.
#[maco::megakernel]
pub fn quantised(x: In<i8, M, K>, w: In<i8, N, K>, scale_x: In<f32, M>, scale_w: In<f32, N>, y: Out<bf16, M, N>) {
    scaled(x, w, scale_x, scale_w, y);
}
