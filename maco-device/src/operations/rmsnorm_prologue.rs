//! RMSNorm prologue of a GEMV: normalises operand A, which all consumers have copied to staging memory, to the same bits as the RMSNorm task
//! ([`crate::data::rmsnorm`]).
//!
//! In that task a warp has a row, and a lane every 32nd block of eight elements. Here every thread squares blocks of any row. Then a warp adds up the blocks of each
//! lane, and the lanes, in the task's order. So a row of few thousand elements takes all threads once or twice.
//!
//! It is a function of its own, called where the GEMV holds nearly no registers: inlined, it made GEMVs spill.

use crate::data::element::HalfElement;
use crate::data::exchange::{across, eight};
use crate::data::rmsnorm;
use crate::data::task::{Norm, Task};
use crate::hardware::special::CONSUMER_THREADS;
use crate::hardware::{barrier, memory, special, warp};
use maco_abi::{CONSUMERS, STAGING_BYTES, in_band_stride, rmsnorm_bytes};

/// Sums of blocks that a lane has on their way together.
const SUMS: u32 = 8;

/// Elements of weights that are fetched together.
const LINE: u32 = 32;

/// Bytes from the first row of a tile with in-band flags to the weights of its RMSNorm prologue, if there is room for those.
const fn norm_weights(rows: u32, cols: u32) -> Option<u32> {
    let behind = (rows * in_band_stride(rows, cols) * 2 + rmsnorm_bytes(rows, cols)).next_multiple_of(16);
    if behind + cols * 2 <= STAGING_BYTES { Some(behind) } else { None }
}

/// Has the weights of the RMSNorm prologue of `rows` rows, which will lie at `at`, on their way to where they are read behind them, or if there is no
/// room, to the L2 cache, while the rows are polled for; by all consumers, who meet behind [`memory::fetched`].
///
/// # Safety
/// As of [`make`], but nobody uses what is at `at` and behind.
#[inline(always)]
pub unsafe fn fetch<E: HalfElement>(norm: Norm<E>, at: u32, rows: u32, cols: u32, thread: u32) {
    if norm.weights.wide()
        && let Some(behind) = norm_weights(rows, cols)
    {
        let mut col = thread / (CONSUMERS / CONSUMER_THREADS) * 8;
        while col < cols {
            // SAFETY: eight weights, and room for them, at 16-byte boundaries.
            unsafe { memory::fetch4(at + behind + col * 2, norm.weights.pointer(0, col as i32).cast()) };
            col += CONSUMER_THREADS * 8;
        }
        return;
    }
    let mut col = thread * LINE;
    while col < cols {
        memory::prefetch(norm.weights.pointer(0, col as i32).cast());
        col += CONSUMERS * LINE;
    }
}

/// Runs the RMSNorm prologue of `task` on `rows` rows, which lie at `at`, `in_band_stride` elements apart. `cols` is a multiple of eight. All
/// consumers have met when it ends.
///
/// # Safety
/// All consumers call, whole converged warps, behind a barrier that has made the rows known, and the weights that [`fetch`] has brought. Behind these is
/// room for [`maco_abi::rmsnorm_bytes`]. Weights are of a live tensor, and nobody writes them.
#[inline(never)]
pub unsafe fn make<E: HalfElement>(task: Task, at: u32, rows: u32, cols: u32) {
    if let Some(norm) = task.norm() {
        let rows: Rows<E> = Rows { norm, at, rows, cols };
        // SAFETY: passed on from the caller.
        unsafe { rows.make((special::thread_again() - 128) / (CONSUMERS / CONSUMER_THREADS)) };
    }
}

/// Rows of operand A that the prologue normalises.
#[derive(Clone, Copy)]
struct Rows<E> {
    norm: Norm<E>,
    /// The first row.
    at: u32,
    rows: u32,
    cols: u32,
}

impl<E: HalfElement> Rows<E> {
    /// Blocks of a row.
    #[inline(always)]
    fn across(self) -> u32 {
        self.cols / 8
    }

    /// Where the sum of squares of block `n` of all lies: behind the rows.
    #[inline(always)]
    fn sum(self, n: u32) -> u32 {
        self.at + self.rows * in_band_stride(self.rows, self.cols) * 2 + n * 4
    }

    /// Where the factor of row `row` lies: behind the sums.
    #[inline(always)]
    fn factor(self, row: u32) -> u32 {
        self.sum(self.rows * self.across() + row)
    }

    /// Row and column of block `n`.
    #[inline(always)]
    fn position(self, n: u32) -> (u32, u32) {
        // A division takes longer than all that is multiplied.
        let row = if self.rows == 1 { (n >= self.across()) as u32 } else { n.checked_div(self.across()).unwrap_or(0) };
        (row, (n - row * self.across()) * 8)
    }

    /// Where the first element of block `n` lies.
    #[inline(always)]
    fn block(self, n: u32) -> u32 {
        let (row, col) = self.position(n);
        self.at + (row * in_band_stride(self.rows, self.cols) + col) * 2
    }

    /// The weights of block `n`; zeros if there is none.
    ///
    /// # Safety
    /// Weights are of a live tensor, and nobody writes them; they are wide ([`crate::Tile::wide`]).
    #[inline(always)]
    unsafe fn weights(self, n: u32) -> [u32; 4] {
        let from = match norm_weights(self.rows, self.cols) {
            Some(behind) => special::generic(self.at + behind) as *const E,
            None => self.norm.weights.pointer(0, 0).cast_const(),
        };
        let (row, col) = self.position(n);
        // SAFETY: eight weights, at a 16-byte boundary.
        unsafe { memory::load4_if(row < self.rows, from.wrapping_add(col as usize).cast()) }
    }

    /// The weights of block `n`, one by one.
    ///
    /// # Safety
    /// As [`Rows::weights`]; there is such a block.
    #[inline(always)]
    unsafe fn gather(self, n: u32) -> [u32; 4] {
        let (weights, col) = (self.norm.weights, self.position(n).1);
        let (mut packed, mut at) = (0u128, 0);
        while at < 8 {
            // SAFETY: one of eight weights.
            let weight = unsafe { weights.pointer(0, (col + at) as i32).read() };
            packed = packed >> 16 | u128::from(weight.half()) << 112;
            // Opaque, or each would be written out.
            at = special::opaque(at + 1);
        }
        [packed as u32, (packed >> 32) as u32, (packed >> 64) as u32, (packed >> 96) as u32]
    }

    /// Normalises them, this thread the blocks from `first` on, every `CONSUMER_THREADS`-th.
    ///
    /// # Safety
    /// As of [`make`].
    #[inline(always)]
    unsafe fn make(self, first: u32) {
        let wide = self.norm.weights.wide();
        // Of global memory, they are on their way while squares are added up.
        // SAFETY: passed on from the caller.
        let mut weights = if wide { unsafe { self.weights(first) } } else { [0; 4] };
        let (all, mut before) = (self.rows * self.across(), 0);
        // As often for all, who meet behind it.
        while before < all {
            let n = before + first;
            if n < all {
                // SAFETY: a block of a row.
                let block = E::open(unsafe { memory::load_shared4(self.block(n)) });
                // SAFETY: behind the rows is room for its sum, which nobody reads before the barrier.
                unsafe { memory::store_part(self.sum(n), eight(block, &rmsnorm::square, &|a, b| a + b)) };
            }
            before += CONSUMER_THREADS;
        }
        barrier::sync_consumers();
        let (lane, mut row) = (warp::lane_again(), first / warp::LANES);
        while row < self.rows {
            // SAFETY: all consumers have added.
            let sum = unsafe { self.total(row, lane) };
            if lane == 0 {
                // SAFETY: behind the rows and sums; one thread writes the row's.
                unsafe { memory::store_factor(self.factor(row), rmsnorm::scale(sum, self.cols, self.norm.epsilon)) };
            }
            row += CONSUMER_THREADS / warp::LANES;
        }
        barrier::sync_consumers();
        // Likewise.
        let mut before = 0;
        while !wide && before < all {
            let n = before + first;
            if n < all {
                // SAFETY: as above; a block of this thread.
                unsafe { self.scale(n, self.gather(n)) };
            }
            before += CONSUMER_THREADS;
        }
        while wide && before < all {
            let n = before + first;
            // SAFETY: (of all) passed on from the caller; blocks of this thread, whose factors are there.
            unsafe {
                let then = self.weights(n + CONSUMER_THREADS);
                self.scale(n, weights);
                weights = then;
            }
            before += CONSUMER_THREADS;
        }
        barrier::sync_consumers();
    }

    /// The sum of all squares of a row, which every lane of its warp gets.
    #[inline(always)]
    unsafe fn total(self, row: u32, lane: u32) -> f32 {
        let (blocks, from) = (self.across(), self.sum(row * self.across()));
        let (mut total, mut block) = (0.0, lane);
        // As often for all lanes, and without a branch for each: what is not there adds nothing.
        let mut base = 0;
        while base < blocks {
            let part = |n: u32| {
                let at = block + n * warp::LANES;
                // SAFETY: a sum of the row, or its last one.
                let sum = unsafe { memory::load_part(from + at.min(blocks - 1) * 4) };
                if at < blocks { sum } else { 0.0 }
            };
            let sums = [part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)];
            total += sums[0];
            total += sums[1];
            total += sums[2];
            total += sums[3];
            total += sums[4];
            total += sums[5];
            total += sums[6];
            total += sums[7];
            block += SUMS * warp::LANES;
            base += SUMS * warp::LANES;
        }
        across(total, &|a, b| a + b)
    }

    /// Multiplies block `n`, if there is one, by its row's factor and its weights.
    #[inline(always)]
    unsafe fn scale(self, n: u32, weights: [u32; 4]) {
        let (row, at) = (self.position(n).0, self.block(n));
        if row >= self.rows {
            return;
        }
        // SAFETY: (of all) passed on from the caller: in a row, at a 16-byte boundary, and this thread's.
        let (v, factor) = unsafe { (E::open(memory::load_shared4(at)), memory::load_factor(self.factor(row))) };
        let w = E::open(weights);
        let one = |n: usize| rmsnorm::scaled(v[n], w[n], factor);
        // SAFETY: as above.
        unsafe { memory::receive_shared4(at, E::close([one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7)])) };
    }
}
