//! Rows of a table that indices name, through the ring.
//!
//! The loader reads the indices and asks for each row; consumers read them too. A row that the table does not have is not asked for: zeros are made of it.
//! Sums of such rows, and tables that are not made of aligned 16-byte pieces, do not belong here: those consumers load themselves, by [`Share::blocks`] and its
//! like.

use super::Share;
use super::ring::{Ring, Room};
use crate::abi::PAGE_BYTES;
use crate::element::Element;
use crate::hardware::tma;
use crate::task::Task;
use crate::tile::Tile;

/// Least bytes of a row for which a copy of its own is worth the loader's time (docs/internals/memory.md, "Bulk copies have a price each").
const LEAST: u32 = 1024;
/// Most rows of a stage, which is a page.
const MOST: u32 = 8;
/// No row of any table.
const NOWHERE: u32 = u32::MAX;

/// Rows of a stage of tiles of `cols` columns; 0: they do not come.
const fn stage<E: Element>(cols: usize) -> u32 {
    let bytes = cols as u32 * E::BYTES;
    if bytes == 0 || bytes > PAGE_BYTES {
        return 0;
    }
    let fits = PAGE_BYTES / bytes;
    if fits < MOST { fits } else { MOST }
}

/// Whether the rows of `y` come through the ring.
#[inline(always)]
fn comes<E: Element, const A: usize, const B: usize, const I: usize, const J: usize>(
    table: Tile<E, A, B>,
    y: Tile<E, I, J>,
    task: Task,
) -> bool {
    let cols = y.cols();
    let may = const { stage::<E>(J) > 0 } && task.streams();
    may & cols.is_multiple_of(8) & (cols * E::BYTES >= LEAST) & y.wide() & table.copies(0, cols)
}

/// The row of `table` that index `n` of `ids` names, if `wanted` and there, else [`NOWHERE`]; without a branch, behind which its use would wait for it.
#[inline(always)]
fn named<E: Element, const A: usize, const B: usize, const R: usize, const C: usize>(
    ids: Tile<u32, R, C>,
    table: Tile<E, A, B>,
    n: u32,
    wanted: bool,
) -> u32 {
    let wanted = wanted & (n < ids.cols());
    // SAFETY: if so, an element inside the tile, which lies inside a live tensor.
    let id = unsafe { u32::read_if(wanted, ids.pointer(0, n as i32)) };
    if wanted & (id < table.rows()) { id } else { NOWHERE }
}

/// Loader: asks for all rows of `y`; returns early if the CTA no longer waits.
///
/// # Safety
/// Called by the loader thread, in the same order as consumers call [`Share::take`].
#[inline(always)]
pub unsafe fn fetch<E: Element, const R: usize, const C: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
    ring: &mut Ring,
    ids: Tile<u32, R, C>,
    table: Tile<E, A, B>,
    y: Tile<E, I, J>,
    task: Task,
) {
    if !comes(table, y, task) {
        return;
    }
    let (rows, bytes) = (y.rows(), y.cols() * E::BYTES);
    let (from, stride) = (table.pointer(0, 0) as u64, table.row_stride() as u64 * E::BYTES as u64);
    let mut first = 0;
    while first < rows {
        // Indices of two stages are on their way before the first is needed.
        let at =
            |n: u32| if const { stage::<E>(J) > 0 } && n % MOST < stage::<E>(J) { n / MOST * stage::<E>(J) + n % MOST } else { NOWHERE };
        let row = |n: u32| named(ids, table, first.wrapping_add(at(n)), (at(n) != NOWHERE) & (at(n) < rows - first));
        let mut here = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
        let next = [row(8), row(9), row(10), row(11), row(12), row(13), row(14), row(15)];
        let mut turn = 0;
        while turn < 2 && first < rows {
            let [a, b, c, d, e, f, g, h] = here;
            let is = |row: u32| (row != NOWHERE) as u32;
            let count = is(a) + is(b) + is(c) + is(d) + is(e) + is(f) + is(g) + is(h);
            let copy = |room: Room| {
                let ask = |n: u32, row: u32| {
                    if row != NOWHERE {
                        // SAFETY: a row inside a live tensor, at 16-byte boundaries because it comes; the stage has space for all rows, and expects those
                        // that are there.
                        unsafe { tma::row(room.shared + n * bytes, from + row as u64 * stride, bytes, room.full) };
                    }
                };
                ask(0, a);
                ask(1, b);
                ask(2, c);
                ask(3, d);
                ask(4, e);
                ask(5, f);
                ask(6, g);
                ask(7, h);
            };
            // SAFETY: passed on from the caller.
            if !unsafe { ring.acquire(1, count * bytes, copy) } {
                return;
            }
            here = next;
            first += const { stage::<E>(J) };
            turn += 1;
        }
    }
}

impl Share {
    /// `y[row, ..] = table[ids[row], ..]`; a row that the table does not have is zeros.
    #[inline(always)]
    pub fn take<E: Element, const R: usize, const C: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
        &mut self,
        ids: Tile<u32, R, C>,
        table: Tile<E, A, B>,
        y: Tile<E, I, J>,
        task: Task,
    ) {
        if !(self.ring.is_some() && comes(table, y, task)) {
            return self.blocks((ids.by_element(true), table), y, |(ids, table), row, col| table.at8(ids.at(0, row) as i32, col));
        }
        let (rows, cols) = (y.rows(), y.cols());
        // Threads side by side in a row, each with blocks of eight columns, the others below.
        let across = (cols / 8).next_power_of_two().min(self.threads);
        let (own, line, down) =
            (self.thread & (across - 1), self.thread >> across.trailing_zeros(), self.threads >> across.trailing_zeros());
        let mut first = 0;
        while first < rows {
            let left = rows - first;
            let count = if left < const { stage::<E>(J) } { left } else { const { stage::<E>(J) } };
            let four = |line: u32| {
                let row = |n: u32| named(ids, table, first + line + n * down, line + n * down < count);
                [row(0), row(1), row(2), row(3)]
            };
            // They come while the rows do.
            let mut named = four(line);
            // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
            let (stage, shared) = unsafe { self.ring.wait_full(1) };
            let mut line = line;
            while line < count {
                let mut col = own * 8;
                while col < cols {
                    let at = |n: u32| if line + n * down < count { line + n * down } else { line };
                    let load = |n: u32, row: u32| {
                        // SAFETY: a block inside the stage, at a multiple of eight columns of rows that lie one behind the other.
                        let block = unsafe { E::eight_near(shared + (at(n) * cols + col) * E::BYTES) };
                        if row != NOWHERE { block } else { E::Eight::default() }
                    };
                    let blocks = [load(0, named[0]), load(1, named[1]), load(2, named[2]), load(3, named[3])];
                    let put = |n: u32, block: E::Eight| {
                        if line + n * down < count {
                            // SAFETY: a block inside the tile, at a multiple of eight columns of aligned rows; it is this thread's, and tiles of one grid do
                            // not overlap.
                            unsafe { E::put(y.pointer((first + line + n * down) as i32, col as i32), block) };
                        }
                    };
                    put(0, blocks[0]);
                    put(1, blocks[1]);
                    put(2, blocks[2]);
                    put(3, blocks[3]);
                    col += across * 8;
                }
                line += 4 * down;
                if line < count {
                    named = four(line);
                }
            }
            self.release(stage.bit());
            first += count;
        }
    }
}
