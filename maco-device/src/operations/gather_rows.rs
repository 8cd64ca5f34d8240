//! Gathers of long rows of a table through the ring.
//!
//! The loader reads the indices and copies each row. For an index outside the table it copies another row, which costs less than a branch. The consumers read the
//! indices too, and make such a row zeros. Weighted sums of rows, short rows, and tables without aligned 16-byte pieces do not belong here: the consumers load
//! those themselves ([`SimtConsumer::blocks`] and its like).

use crate::data::element::{Element, words};
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::{special, tma};
use crate::operations::grid_stride::GridStride;
use crate::operations::simt_consumer::SimtConsumer;
use crate::sync::ring::Ring;
use maco_abi::PAGE_BYTES;

/// Least bytes of a row that comes: a copy of its own takes the loader as long as one of these (docs/internals/memory.md, "Bulk copies have a price each").
const LEAST: u32 = PAGE_BYTES / FOUR;
/// Most rows of a stage, which is a page.
const FOUR: u32 = 4;

/// Rows of a stage of rows of `bytes` bytes: one, two or four; 0 if they do not come.
#[inline(always)]
fn stage(bytes: u32) -> u32 {
    match bytes {
        ..LEAST => 0,
        LEAST => FOUR,
        _ if bytes <= PAGE_BYTES / 2 => 2,
        _ if bytes <= PAGE_BYTES => 1,
        _ => 0,
    }
}

/// Rows of a stage of `y`; 0 if they do not come through the ring.
#[inline(always)]
fn stages<E: Element, const R: usize, const C: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
    ids: Tile<u32, R, C>,
    table: Tile<E, A, B>,
    y: Tile<E, I, J>,
    task: Task,
) -> u32 {
    let (may, cols) = (const { J as u32 * E::BYTES >= LEAST } && task.has_bulk_rows(), y.cols());
    let whole = (table.row_stride() <= u32::MAX / E::BYTES) & (y.rows() <= ids.cols()) & ids.wide();
    let comes = may & cols.is_multiple_of(8) & y.wide() & table.copies(1, cols) & whole;
    if comes { stage(cols.saturating_mul(E::BYTES)) } else { 0 }
}

/// Loader: asks for all rows of `y`; returns early if the CTA no longer waits.
///
/// # Safety
/// Called by the loader thread, in the same order as consumers call [`SimtConsumer::take`].
#[inline(always)]
pub unsafe fn fetch<E: Element, const R: usize, const C: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
    ring: &mut Ring,
    ids: Tile<u32, R, C>,
    table: Tile<E, A, B>,
    y: Tile<E, I, J>,
    task: Task,
) {
    let stage = stages(ids, table, y, task);
    if stage == 0 {
        return;
    }
    let (rows, bytes) = (y.rows(), y.cols() * E::BYTES);
    let (from, stride, last) = (table.pointer(0, 0) as u64, table.row_stride() * E::BYTES, table.rows() - 1);
    let mut first = 0;
    while first < rows {
        let four = |first: u32| {
            if rows - first >= FOUR {
                // SAFETY: four elements of the tile, aligned because the rows come.
                return unsafe { words(ids.pointer(0, first as i32)) };
            }
            // SAFETY: an element of the tile, the last one behind it.
            let id = |n: u32| unsafe { ids.pointer(0, if first + n < rows { first + n } else { rows - 1 } as i32).read() };
            [id(0), id(1), id(2), id(3)]
        };
        // Indices of eight rows are on their way before the first is needed.
        let mut here = four(first);
        let next = if rows - first > FOUR { four(first + FOUR) } else { here };
        let end = if rows - first < 2 * FOUR { rows } else { first + 2 * FOUR };
        let mut turn = 0;
        while first < end {
            // The stride is opaque, so that it is a word at the product.
            let place = |row: u32| from + if row < last { row } else { last } as u64 * special::opaque(stride) as u64;
            let [a, b, c, d] = here;
            // SAFETY: (of all) rows inside a live tensor, at 16-byte boundaries because they come; the stage has space for all, and expects them.
            let acquired = unsafe {
                ring.acquire(1, stage * bytes, |room| {
                    if stage == FOUR {
                        tma::four_rows(room.shared, [place(a), place(b), place(c), place(d)], bytes, room.full);
                        return;
                    }
                    tma::row(room.shared, place(a), bytes, room.full);
                    if stage == 2 {
                        tma::row(room.shared + bytes, place(b), bytes, room.full);
                    }
                })
            };
            if !acquired {
                return;
            }
            first += stage;
            turn += stage;
            here = if stage == 1 { [b, c, d, d] } else { [c, d, c, d] };
            if turn == FOUR {
                here = next;
            }
        }
    }
}

impl SimtConsumer {
    /// `y[row, ..] = table[ids[row], ..]`; a row that the table does not have is zeros.
    #[inline(always)]
    pub fn take<E: Element, const R: usize, const C: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
        &mut self,
        ids: Tile<u32, R, C>,
        table: Tile<E, A, B>,
        y: Tile<E, I, J>,
        task: Task,
    ) {
        let stage = if self.ring.is_some() { stages(ids, table, y, task) } else { 0 };
        if stage == 0 {
            return self.blocks((ids.by_element(true), table), y, |(ids, table), row, col| table.eight(ids.at(0, row) as i32, col));
        }
        let (rows, cols, there) = (y.rows(), y.cols(), table.rows());
        let (blocks, own) = (cols / 8, self.thread);
        let (down, stride) = (stage as u64 * y.row_stride() as u64 * E::BYTES as u64, self.threads * 8 * E::BYTES);
        // Of each thread four blocks of a stage, if it has so many: where they are does not change from stage to stage but for the row.
        let walk = GridStride::new(self.threads, blocks);
        let a = walk.start(own);
        let b = walk.next(a);
        let c = walk.next(b);
        let place = |(row, block): (u32, u32)| (row, y.pointer(row as i32, block as i32 * 8) as u64);
        let mut to = [place(a), place(b), place(c), place(walk.next(c))];
        let indices = ids.pointer(0, 0);
        let (mut first, all) = (0, stage * blocks);
        while first < rows {
            let id = |n: u32| {
                let row = first + to[n as usize].0;
                // SAFETY: an element of the tile, the last one behind it.
                unsafe { indices.add(if row < rows { row } else { rows - 1 } as usize).read() }
            };
            // They come while the rows do.
            let named = [id(0), id(1), id(2), id(3)];
            // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
            let (held, shared) = unsafe { self.ring.wait_full(1) };
            let from = shared + own * 8 * E::BYTES;
            let load = |n: u32| {
                // SAFETY: a block of the stage, whose rows lie one behind the other, or what is there in its place in the page.
                let block = unsafe { E::eight_near(if n == 0 || own + n * self.threads < all { from + n * stride } else { shared }) };
                if named[n as usize] < there { block } else { E::Eight::default() }
            };
            let loaded = [load(0), load(1), load(2), load(3)];
            let put = |n: u32| {
                let (row, to) = to[n as usize];
                if (own + n * self.threads < all) & (first + row < rows) {
                    // SAFETY: a block inside the tile, at a multiple of eight columns of aligned rows; it is this thread's, and tiles of one grid do not overlap.
                    unsafe { E::put(to as *mut E, loaded[n as usize]) };
                }
            };
            put(0);
            put(1);
            put(2);
            put(3);
            // A thread of a CPU has more.
            let mut block = own + 4 * self.threads;
            while cfg!(not(target_arch = "nvptx64")) && block < all {
                let (row, col) = (first + block / blocks, block % blocks * 8);
                if row < rows {
                    // SAFETY: as above.
                    unsafe {
                        let loaded = E::eight_near(shared + block * 8 * E::BYTES);
                        let there = ids.pointer(0, row as i32).read() < there;
                        E::put(y.pointer(row as i32, col as i32), if there { loaded } else { E::Eight::default() });
                    }
                }
                block += self.threads;
            }
            self.release(held.bit());
            first += stage;
            to = [(to[0].0, to[0].1 + down), (to[1].0, to[1].1 + down), (to[2].0, to[2].1 + down), (to[3].0, to[3].1 + down)];
        }
    }
}
