//! What is done to operands in a full stage before they are multiplied: an elementwise prologue, and the transposition of tf32.

use crate::data::element::{MmaElement, MmaFormat, pack, unpacked};
use crate::data::epilogue::{Epilogue, Scalars};
use crate::data::task::Task;
use crate::math::tf32;
use crate::ptx::{memory, special, warp};
use maco_abi::{BOX, CONSUMERS, ROW_BYTES};

/// Rows, and columns, of a block that [`turn`] transposes.
pub const BLOCK: u32 = 32;

/// Applies the elementwise prologue of operand A to `rows` rows of 128 bytes at `at`, with the 128-byte swizzle, in place. Rows are rows of the operand, and
/// columns are the contraction's; `across`: the other way round, 64 columns of the operand after another. The contraction goes on for `left` elements.
///
/// # Safety
/// Called by consumer thread `thread`, its whole warp converged; the rows are the consumers', and nobody else's until they meet.
#[inline(always)]
pub unsafe fn map_operand_a<T: Epilogue, E: MmaElement>(at: u32, rows: u32, across: bool, left: i32, task: Task, thread: u32) {
    const ROWS: u32 = CONSUMERS / 8;
    const { assert!(64u32.is_multiple_of(ROWS) && ROWS.is_multiple_of(8)) };
    let (row, block) = (thread / 8, thread % 8);
    let mut from = at + row * ROW_BYTES + (block ^ row % 8) * 16;
    let scalars = Scalars::of::<T>(task);
    let f = T::first(&scalars);
    // Of this thread's first element; of rows, from one turn to the next 32 further, and behind 64 they begin again.
    let mut k = if across { row } else { block * (16 / E::BYTES) } as i32;
    let mut n = 0;
    while n < rows / ROWS {
        // SAFETY: 16 bytes of a row, at a 16-byte boundary, of this thread alone.
        let [a, b, c, d] = unsafe { memory::load_shared4(from) };
        let one = |word: u32, high: bool, k: i32| {
            let value = unpacked::<E>(word, high);
            if k < left { f(value) } else { value }
        };
        let word = |word: u32, n: i32| {
            if E::MMA_FORMAT == MmaFormat::Tf32 {
                return tf32(one(word, false, if across { k } else { k + n })).to_bits();
            }
            let (low, high) = if across { (k, k) } else { (k + 2 * n, k + 2 * n + 1) };
            pack::<E>(one(word, false, low), one(word, true, high))
        };
        // SAFETY: as above.
        unsafe { memory::store_shared4(from, [word(a, 0), word(b, 1), word(c, 2), word(d, 3)]) };
        from += ROWS * ROW_BYTES;
        if across {
            k = (k + ROWS as i32) % BOX as i32;
        }
        // Opaque, or each turn would be written out, with registers of its own.
        n = special::opaque(n + 1);
    }
}

/// Transposes `blocks` blocks of 32 × 32 elements of `f32` in place, which lie at `at` with the 128-byte swizzle: rows of what is kept
/// become rows of 32 steps of the contraction. Each warp of the consumers has every eighth.
///
/// # Safety
/// Called by consumer thread `thread`, its whole warp converged; the blocks are the consumers', and nobody else's until they meet.
#[inline(always)]
pub unsafe fn turn(at: u32, blocks: u32, thread: u32) {
    let (own, lane) = (thread % 32 / 8, thread % 8);
    // Squares of eight by eight, four at a time, since a lane has few registers beside its sums: those that stay, then two pairs that
    // change places, three times. In each access the squares, and the rows of what is written, are on different banks. One loop over
    // blocks and rounds, whose length nobody knows: addresses of several would not fit the registers either.
    let mut n = thread / 32 * 4;
    while n < blocks * 4 {
        let base = at + n / 4 * (BLOCK * ROW_BYTES);
        let other = (own ^ n % 4) * 8 + lane;
        let (from, to) = (base + own * 8 * ROW_BYTES, base + other * ROW_BYTES);
        macro_rules! column {
            // SAFETY: words of the block.
            ($($k:literal)*) => { unsafe { [$(memory::load_shared(from + $k * ROW_BYTES + (other * 4 ^ $k * 16))),*] } };
        }
        let v = column!(0 1 2 3 4 5 6 7);
        warp::sync();
        // SAFETY: 16 bytes of the block each, at a 16-byte boundary; all lanes have read the squares.
        unsafe {
            memory::store_shared4(to + ((own * 2 ^ lane) * 16), [v[0], v[1], v[2], v[3]]);
            memory::store_shared4(to + ((own * 2 + 1 ^ lane) * 16), [v[4], v[5], v[6], v[7]]);
        }
        n += if n % 4 < 3 { 1 } else { CONSUMERS / 32 * 4 - 3 };
    }
}
