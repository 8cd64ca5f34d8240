//! Dot products of few rows of one matrix with rows of another, on the tensor cores (PTX ISA §9.7.15.5 `mma`), for tiles whose time is that
//! of loading the other matrix.
//!
//! The warps divide the columns of a stage among themselves, 32 at a time. Which of them a fragment's columns are does not matter as long
//! as both matrices agree: a lane takes eight that lie together, so that each of its accesses has 16 bytes. All code is unrolled: an index
//! that is no literal would keep an array in local memory.

use super::stream;
use crate::element::{Factor, HalfElement};
use crate::ptx::{matrix, memory};
use crate::tile::Tile;

/// Sums that are made of each dot product: one per warp.
pub const PARTS: u32 = crate::abi::CONSUMERS / 32;

/// Eight elements.
type Eight = [u32; 4];

/// What a lane has of `x` beside a stage, for up to eight groups of 32 columns: rows `g`, and rows `g + 8`.
#[derive(Clone, Copy)]
pub struct Columns([[Eight; 2]; 8]);

/// This warp's part of the sums, in four: of each group of 8 rows of `w`, and of groups of columns as far as there are more.
pub struct Dots<const I: usize, const J: usize>([[f32; 4]; 4]);

/// Groups of 32 columns that a warp has of a stage.
const fn groups(rows: usize) -> u32 {
    stream::columns(rows) / 32 / PARTS
}

/// The first of this lane's eight columns, of group `group` of the stage that begins with column `k`.
#[inline(always)]
fn column(thread: u32, k: u32, group: u32) -> u32 {
    k + (thread / 32 + group * PARTS) * 32 + thread % 4 * 8
}

/// The first `left` elements, and zeros; what was beyond may be anything, also NaN.
#[inline(always)]
fn first(words: Eight, left: i32) -> Eight {
    let word = |n: i32| {
        let word = words[n as usize];
        if left >= 2 * n + 2 {
            word
        } else if left == 2 * n + 1 {
            word & 0xffff
        } else {
            0
        }
    };
    [word(0), word(1), word(2), word(3)]
}

/// Loads what belongs to the stage that begins with column `k`, of stages of `J` rows.
///
/// # Safety
/// `x` is of a live tensor, [`Tile::streams`], and nobody writes its tile.
#[inline(always)]
pub unsafe fn columns<E: HalfElement, const I: usize, const J: usize>(x: Tile<E, I, 0>, k: u32, thread: u32) -> Columns {
    let (rows, cols, lane_row) = (x.rows(), x.cols(), thread % 32 / 4);
    let tail = k + stream::columns(J) > cols;
    // The first address of each row; from there on, 16 bytes at a time.
    let (low, high) = (x.pointer(lane_row as i32, 0), x.pointer(lane_row as i32 + 8, 0));
    let eight = |row: u32, at: *mut E, group: u32| {
        let col = column(thread, k, group);
        // SAFETY: a row streams, so that eight columns from a multiple of eight inside it are memory; or no access.
        let words = unsafe { memory::load4_if(row < rows && col < cols, at.wrapping_add(col as usize).cast()) };
        if tail { first(words, cols as i32 - col as i32) } else { words }
    };
    let one = |group: u32| {
        if group >= groups(J) {
            return [[0; 4]; 2];
        }
        [eight(lane_row, low, group), if I > 8 { eight(lane_row + 8, high, group) } else { [0; 4] }]
    };
    Columns([one(0), one(1), one(2), one(3), one(4), one(5), one(6), one(7)])
}

impl<const I: usize, const J: usize> Dots<I, J> {
    /// All zero.
    #[inline(always)]
    pub fn new() -> Self {
        const { assert!((I == 8 || I == 16) && (J == 8 || J == 16 || J == 32)) };
        // SAFETY: all bits zero is 0.0.
        Dots(unsafe { core::mem::zeroed() })
    }

    /// Adds the products of a stage that begins with column `k` of `w` and lies at `stage`.
    ///
    /// # Safety
    /// Called by whole converged warps. The stage is full, and `x` is what [`columns`] gave for it.
    #[inline(always)]
    pub unsafe fn add<E: HalfElement>(&mut self, x: Columns, _: Tile<E, I, 0>, w: Tile<E, J, 0>, k: u32, stage: u32, thread: u32) {
        let cols = w.cols();
        let tail = k + stream::columns(J) > cols;
        let from = stage + thread % 32 / 4 * stream::columns(J) * 2;
        // All loads before the first product. Rows that were not copied may be any bits: they give results that nobody wants.
        let rows = |group: u32, block: u32| {
            let col = column(thread, k, group);
            // SAFETY: inside the stage, at a 16-byte boundary.
            let words = unsafe { memory::load_shared4(from + (block * 8 * stream::columns(J) + (col - k)) * 2) };
            if tail { first(words, cols as i32 - col as i32) } else { words }
        };
        macro_rules! steps {
            ($($w:ident = $group:literal, $block:literal, $sum:literal;)*) => {{
                $(let $w = rows($group, $block);)*
                $(
                    let [low, high] = x.0[$group];
                    steps!(@ $sum, [low[0], high[0], low[1], high[1]], [$w[0], $w[1]]);
                )*
                $(
                    let [low, high] = x.0[$group];
                    steps!(@ $sum, [low[2], high[2], low[3], high[3]], [$w[2], $w[3]]);
                )*
            }};
            (@ $sum:literal, $a:expr, $b:expr) => {
                if E::FACTOR == Factor::Bf16 { matrix::multiply::<true>(&mut self.0[$sum], $a, $b) } else { matrix::multiply::<false>(&mut self.0[$sum], $a, $b) }
            };
        }
        match J {
            8 => steps!(a = 0, 0, 0; b = 1, 0, 1; c = 2, 0, 2; d = 3, 0, 3; e = 4, 0, 0; f = 5, 0, 1; g = 6, 0, 2; h = 7, 0, 3;),
            16 => steps!(a = 0, 0, 0; b = 0, 1, 1; c = 1, 0, 2; d = 1, 1, 3; e = 2, 0, 0; f = 2, 1, 1; g = 3, 0, 2; h = 3, 1, 3;),
            _ => steps!(a = 0, 0, 0; b = 0, 1, 1; c = 0, 2, 2; d = 0, 3, 3; e = 1, 0, 0; f = 1, 1, 1; g = 1, 2, 2; h = 1, 3, 3;),
        }
    }

    /// Writes this warp's sums to `scratch`: `PARTS` times `I` rows of `J` columns.
    ///
    /// # Safety
    /// `scratch` is shared memory that nobody else uses but the other warps, who do the same.
    #[inline(always)]
    pub unsafe fn write(&self, scratch: u32, thread: u32) {
        let (warp, lane) = (thread / 32, thread % 32);
        let [a, b, c, d] = self.0;
        let plus = |a: [f32; 4], b: [f32; 4]| [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]];
        let put = |block: u32, sum: [f32; 4]| {
            let (row, col) = (warp * I as u32 + lane / 4, block * 8 + lane % 4 * 2);
            let at = scratch + (row * J as u32 + col) * 4;
            // SAFETY: passed on from the caller; at an 8-byte boundary.
            unsafe {
                memory::store_shared2(at, [sum[0].to_bits(), sum[1].to_bits()]);
                if I > 8 {
                    memory::store_shared2(at + 8 * J as u32 * 4, [sum[2].to_bits(), sum[3].to_bits()]);
                }
            }
        };
        match J {
            8 => put(0, plus(plus(a, b), plus(c, d))),
            16 => {
                put(0, plus(a, c));
                put(1, plus(b, d));
            }
            _ => {
                put(0, a);
                put(1, b);
                put(2, c);
                put(3, d);
            }
        }
    }
}
