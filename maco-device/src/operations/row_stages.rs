//! Stages of rows that bulk copies bring through the ring, as they lie in memory.
//!
//! For a GEMV, a stage has all rows of a tile of weights, and as many columns as fit. For elementwise and row operations, a stage has some rows of one tile; tiles
//! that are read together have stages in turn. Loader and consumers both compute from the tiles what comes through the ring, and how much of it is in a stage.

use crate::data::element::Element;
use crate::data::inputs::Inputs;
use crate::data::row::{RowInputs, RowOutputs};
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::tma;
use crate::sync::ring::{Ring, Room};
use maco_abi::{self as abi, PAGE_BYTES, PAGES};

/// Pages of a stage of `rows` rows. Small stages come and go evenly, which counts where GEMVs wait for each other (docs/internals/gemv.md); but rows that
/// one thread copies one by one take it as long if they are short: many get more space.
pub const fn pages(rows: usize) -> u32 {
    if rows > 16 { 4 } else { 2 }
}

/// Columns of a stage of `rows` rows of two-byte elements; 8, 16 or 32 rows, for which nothing is divided.
#[inline(always)]
pub const fn columns(rows: usize) -> u32 {
    let elements = pages(rows) * PAGE_BYTES / 2;
    match rows {
        8 => elements / 8,
        16 => elements / 16,
        _ => elements / 32,
    }
}

/// Whether a stage of `rows` rows has those that a box of weights in pieces has.
pub const fn boxed(rows: usize) -> bool {
    columns(rows) == abi::WEIGHT_BOX_PIECES * abi::PIECE && (rows as u32).is_multiple_of(abi::WEIGHT_BOX_ROWS)
}

/// Most pages of a stage of whole rows.
const MOST: u32 = 4;
/// Most rows of a stage of whole rows: one for each consumer warp.
const ROWS: u32 = crate::shared_memory::WARPS;

/// How tiles come through the ring: `rows` at a time, in stages of `pages`.
#[derive(Clone, Copy)]
pub struct Stages {
    /// 0: they do not.
    pub rows: u32,
    pub pages: u32,
}

impl Stages {
    /// They do not.
    pub const NONE: Stages = Stages { rows: 0, pages: 0 };

    /// Of parts of rows, of at most `bytes` bytes: a page each, of as many rows as fit, but a power of two, for which nothing is divided.
    #[inline(always)]
    pub const fn of_elements(bytes: u32) -> Stages {
        let fits = bytes.wrapping_sub(1) < PAGE_BYTES;
        let rows = PAGE_BYTES >> ((u32::BITS - bytes.wrapping_sub(1).leading_zeros()) % u32::BITS);
        if fits { Stages { rows, pages: 1 } } else { Stages::NONE }
    }

    /// Of whole rows of `tiles` tiles, of at most `bytes` bytes, beside `singles` single rows that each hold a page meanwhile.
    #[inline(always)]
    pub fn of_rows(tiles: u32, singles: u32, bytes: u32) -> Stages {
        // Wherever in the ring the first of the tiles begins, the last one finds room behind it: a stage does not go over the ring's end.
        let room = (PAGES + 1 - singles) / (tiles + 1);
        let most = PAGE_BYTES * if room < MOST { room } else { MOST };
        if bytes == 0 || bytes > most {
            return Stages::NONE;
        }
        let mut rows = ROWS;
        while rows * bytes > most {
            rows /= 2;
        }
        Stages { rows, pages: (rows * bytes).div_ceil(PAGE_BYTES) }
    }

    /// Whether single rows come too, for a task of `rows` rows: they are held until its end, and later stages would come round to them.
    #[inline(always)]
    pub fn singles(self, rows: u32) -> bool {
        self.any() && rows <= self.rows
    }

    /// How many rows of `rows` a stage has from row `first` on.
    #[inline(always)]
    pub fn next(self, first: u32, rows: u32) -> u32 {
        if rows - first < self.rows { rows - first } else { self.rows }
    }

    /// Whether they do.
    #[inline(always)]
    pub fn any(self) -> bool {
        self.rows > 0
    }
}

/// How what is read element by element comes through the ring, if it does.
#[inline(always)]
pub fn element_stages<X: Inputs, E: Element, const I: usize, const J: usize>(inputs: X, y: Tile<E, I, J>, task: Task) -> Stages {
    let (rows, cols) = (y.rows(), y.cols());
    // Of ragged rows the last block would go past the ring: all go past it.
    // The loader has no registers for more than three tiles.
    // All are asked: a branch for each takes a warp longer.
    let comes = const { X::BYTES > 0 && X::ACCESSES <= 6 }
        && task.has_bulk_rows() & cols.is_multiple_of(8) & y.wide() & inputs.wide() & inputs.copies(rows, cols);
    if comes { Stages::of_elements(cols.saturating_mul(X::BYTES)) } else { Stages::NONE }
}

/// How what is read row by row comes through the ring, if it does.
#[inline(always)]
pub fn row_stages<X: RowInputs, Y: RowOutputs>(inputs: X, y: Y, task: Task) -> Stages {
    let comes = X::TILES > 0 && y.count() > 0 && task.has_bulk_rows();
    if comes { Stages::of_rows(X::TILES, X::SINGLES, inputs.bytes()) } else { Stages::NONE }
}

impl<E: Element, const R: usize> Tile<E, R, 0> {
    /// Whether rows can be copied in bulk (PTX ISA §9.7.9.25.4), and read 16 bytes at a time.
    #[inline(always)]
    pub(crate) fn is_bulk_copied(self) -> bool {
        self.wide() && self.cols().is_multiple_of(8)
    }
}

impl<E: Element, const R: usize, const C: usize> Tile<E, R, C> {
    /// Whether `rows` rows of `cols` columns can be copied in bulk.
    #[inline(always)]
    pub(crate) fn copies(self, rows: u32, cols: u32) -> bool {
        let inside = (self.row >= 0) & (self.col >= 0) & (rows <= self.rows()) & (cols <= self.cols());
        inside & self.wide() & cols.wrapping_mul(E::BYTES).is_multiple_of(16)
    }

    /// Loader: copies `rows` rows of `cols` columns from row `first` on to the next stage, one behind the other; false if the CTA no longer waits.
    ///
    /// # Safety
    /// Called by the loader thread, in the same order as consumers call [`Tile::arrived`]; the rows [`copy`](Tile::copies), and `pages` pages have
    /// room for them.
    #[inline(always)]
    pub(crate) unsafe fn fetch(self, ring: &mut Ring, pages: u32, (first, rows): (u32, u32), cols: u32) -> bool {
        let row = cols * E::BYTES;
        let copy = |room: Room| {
            let stride = self.row_stride() as u64 * E::BYTES as u64;
            let (mut left, mut bytes) = (rows, row);
            // Rows that lie one behind the other on both sides are one copy.
            if stride == bytes as u64 {
                bytes *= rows;
                left = 1;
            }
            let (mut from, mut to) = (self.pointer(first as i32, 0) as u64, room.shared);
            while left > 0 {
                // SAFETY: inside a live tensor, at 16-byte boundaries because it copies; the stage has space for all rows, and expects them.
                unsafe { tma::row(to, from, bytes, room.full) };
                from += stride;
                to += bytes;
                left -= 1;
            }
        };
        // SAFETY: passed on from the caller.
        unsafe { ring.acquire(pages, row * rows, copy) }
    }

    /// Consumer: the same rows in shared memory, as a tile, when they are there; the stage is added to `held`.
    ///
    /// # Safety
    /// Called by every consumer thread, in the same order as the loader calls [`Tile::fetch`].
    #[inline(always)]
    pub(crate) unsafe fn arrived(self, ring: &mut Ring, pages: u32, cols: u32, held: &mut u32) -> Self {
        // SAFETY: passed on from the caller.
        let (stage, shared) = unsafe { ring.wait_full(pages) };
        *held |= stage.bit();
        self.nearby(shared, cols)
    }
}
