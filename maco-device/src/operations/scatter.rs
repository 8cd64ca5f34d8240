//! Scatters: elements of a row, and whole rows, written at indices. Of equal indices the last one counts, so writes keep the order of the tensor.
//!
//! Gathers do not belong here: see `generic_loads.rs` and `gather_rows.rs`. Sums of rows: `index_add.rs`.

use crate::data::element::Element;
use crate::data::inputs::Inputs;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::{barrier, fence, memory, warp};
use crate::operations::grid_stride::GridStride;
use crate::operations::simt_consumer::SimtConsumer;
use crate::sync::ring::Ring;
use maco_abi::PAGE_BYTES;

/// No position: of an index that is not there.
pub(super) const NONE: u32 = u32::MAX;
/// Most pages of the table in which each row of a result has the last index that names it, a word each.
const TABLE: u32 = 8;

/// Pages of that table for `y[ids[i], ..] = x[i, ..]`; 0 if there is none: few indices of many rows take less by themselves, and rows that are no aligned
/// blocks are not copied by blocks.
#[inline(always)]
fn table<E: Element, const J: usize>(ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) -> u32 {
    let (rows, cols, count) = (y.rows(), y.cols(), ids.cols());
    let many = (rows / 4 <= count) & (count <= x.rows()) & (rows > 0) & (rows <= TABLE * PAGE_BYTES / 4);
    let comes = task.has_bulk_rows() & many & x.wide() & y.wide() & cols.is_multiple_of(8) & (cols > 0);
    if comes { (rows * 4).div_ceil(PAGE_BYTES) } else { 0 }
}

/// Loader: hands out the pages of the table, if there is one.
///
/// # Safety
/// Called by the loader thread, in the same order as consumers call [`SimtConsumer::index_copy`].
#[inline(always)]
pub unsafe fn reserve<E: Element, const J: usize>(ring: &mut Ring, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) {
    let pages = table(ids, x, y, task);
    if pages > 0 {
        // SAFETY: passed on from the caller. Nothing is copied: the stage is full when it is theirs.
        unsafe { ring.acquire(pages, 0, |_| ()) };
    }
}

impl SimtConsumer {
    /// `y[row, ids[row, k]] = x[row, k]`, a row for each warp; four indices of each lane on their way before the first is looked at.
    #[inline(always)]
    pub fn scatter<E: Element, const I: usize>(self, ids: Tile<u32, I, 0>, x: Tile<E, I, 0>, y: Tile<E, I, 0>) {
        let (rows, cols, count) = (y.rows(), y.cols(), ids.cols());
        let (ids, x) = (ids.readers(false), x.readers(false));
        let mut row = self.thread / self.lanes;
        while row < rows {
            let mut first = 0;
            while first < count {
                let k = |n: u32| first + n * self.lanes + self.lane();
                let id = |n: u32| if k(n) < count { ids.at(row as i32, k(n) as i32) } else { NONE };
                let named = [id(0), id(1), id(2), id(3)];
                let value = |n: u32| x.at(row as i32, k(n) as i32);
                let values = [value(0), value(1), value(2), value(3)];
                let put = |id: u32, value: E::Value| {
                    // Of lanes with the same index the last one writes, and behind a barrier those that come later.
                    let last = warp::matching(id) >> self.lane() == 1;
                    if last && id < cols {
                        // SAFETY: the position is inside the tile, whose row is this warp's.
                        unsafe { y.pointer(row as i32, id as i32).write(E::element(value)) };
                    }
                    warp::sync();
                };
                put(named[0], values[0]);
                put(named[1], values[1]);
                put(named[2], values[2]);
                put(named[3], values[3]);
                first += 4 * self.lanes;
            }
            row += self.threads / self.lanes;
        }
    }

    /// `y[ids[i], ..] = x[i, ..]`. Where there are many indices, each row of y first gets to know the last of those that name it, in a table in shared memory, and is
    /// then copied, eight blocks of each thread on their way.
    #[inline(always)]
    pub fn index_copy<E: Element, const J: usize>(&mut self, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) {
        let pages = if self.ring.is_some() { table(ids, x, y, task) } else { 0 };
        if pages == 0 {
            return self.copy_few(ids, x, y);
        }
        let (rows, count) = (y.rows(), ids.cols());
        // SAFETY: all consumers run the task; the loader reckons the same pages from the same tiles.
        let (held, at) = unsafe { self.ring.wait_full(pages) };
        // Who was let through without the pages goes on to the same barriers.
        let own = held.is_some();
        let mut row = self.thread;
        while own && row < rows {
            // SAFETY: (of all accesses to the table) a word of the pages, which are the consumers'.
            unsafe { memory::store_shared(at + row * 4, 0) };
            row += self.threads;
        }
        barrier::sync_consumers();
        let indices = ids.readers(false);
        let mut first = self.thread;
        while own && first < count {
            let place = |n: u32| first.wrapping_add(n * self.threads);
            let id = |n: u32| {
                let is_there = place(n) < count;
                let id = indices.at(0, if is_there { place(n) } else { first } as i32);
                if is_there { id } else { NONE }
            };
            let named = [id(0), id(1), id(2), id(3), id(4), id(5), id(6), id(7)];
            let raise = |n: usize| {
                if named[n] < rows {
                    // SAFETY: as above. Of equal indices the last one stays, whoever comes first.
                    unsafe { memory::raise_shared(at + named[n] * 4, place(n as u32) + 1) };
                }
            };
            raise(0);
            raise(1);
            raise(2);
            raise(3);
            raise(4);
            raise(5);
            raise(6);
            raise(7);
            first = first.saturating_add(8 * self.threads);
        }
        barrier::sync_consumers();
        let walk = GridStride::new(self.threads, y.cols() / 8);
        let mut place = walk.start(self.thread);
        while own && place.0 < rows {
            let mut next = || {
                let here = place;
                place = walk.next(place);
                // Counted from 1; behind the last row nobody's.
                // SAFETY: as above.
                let index = if here.0 < rows { unsafe { memory::load_shared(at + here.0 * 4) } } else { 0 };
                (here, index.wrapping_sub(1))
            };
            let moves = [next(), next(), next(), next(), next(), next(), next(), next()];
            let load = |n: usize| {
                let ((_, block), from) = moves[n];
                // SAFETY: if so, a whole block of aligned rows inside the tensor.
                unsafe { E::eight_if(from < count, x.pointer(from as i32, block as i32 * 8)) }
            };
            let blocks = [load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)];
            let put = |n: usize| {
                let ((row, block), from) = moves[n];
                if from < count {
                    // SAFETY: a block of a row inside the tile, which is this thread's; tiles of one grid do not overlap.
                    unsafe { E::put(y.pointer(row as i32, block as i32 * 8), blocks[n]) };
                }
            };
            put(0);
            put(1);
            put(2);
            put(3);
            put(4);
            put(5);
            put(6);
            put(7);
        }
        // The pages' next bytes come through the other proxy.
        fence::proxy_async_shared();
        self.release(held.bit());
    }

    /// The same for few indices. A row of y is one warp's, so that equal indices come in their order; lanes that a row does not need have the next ones. Of each lane
    /// four indices are on their way, and then a block of the rows that they name.
    #[inline(always)]
    fn copy_few<E: Element, const J: usize>(self, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>) {
        let (rows, cols, count) = (y.rows(), y.cols(), ids.cols());
        let (warps, own, lane) = (self.threads / self.lanes, self.thread / self.lanes, self.lane());
        let wide = x.wide() && y.wide() && cols.is_multiple_of(8);
        // Lanes side by side in a row, and rows at a time.
        let across = cols.div_ceil(8).next_power_of_two().min(self.lanes);
        let (side, below, together) = (lane % across, lane / across, self.lanes / across);
        let ids = ids.readers(false);
        let mut first = 0;
        while first < count {
            let id = |n: u32| {
                let i = first + n * self.lanes + lane;
                let id = if i < count { ids.at(0, i as i32) } else { NONE };
                if id < rows && id % warps == own { id } else { NONE }
            };
            let named = [id(0), id(1), id(2), id(3)];
            // Of lanes with the same index the last one counts.
            let lasts = |id: u32| {
                let is_last = warp::matching(id) >> lane == 1;
                warp::ballot(is_last && id != NONE)
            };
            let mut left = [lasts(named[0]), lasts(named[1]), lasts(named[2]), lasts(named[3])];
            let few = |left: u32| left.count_ones() <= together;
            // Where there are more of one lane's than come at a time, they come by themselves, since all of those before are written before the next.
            let merged = few(left[0]) && few(left[1]) && few(left[2]) && few(left[3]);
            let mut turn = 0;
            while left[0] | left[1] | left[2] | left[3] != 0 {
                // The rows that come next of those `here` of the `n`th index of each lane, and this lane's move.
                let next = |n: u32, here: u32, named: u32| {
                    let (mut own, mut rest, mut skipped) = (here, here, 0);
                    while skipped < together {
                        own = if skipped < below { own & own.wrapping_sub(1) } else { own };
                        rest &= rest.wrapping_sub(1);
                        skipped += 1;
                    }
                    let (is_due, at) = (merged || n == turn, own.trailing_zeros());
                    // By all lanes, before anything that they do not all do.
                    let row = warp::broadcast(named, at % self.lanes);
                    let own = if is_due && own != 0 { (first + n * self.lanes + at, row) } else { (NONE, NONE) };
                    (if is_due { rest } else { here }, own)
                };
                let [a, b, c, d] = left;
                let [(a, ma), (b, mb), (c, mc), (d, md)] =
                    [next(0, a, named[0]), next(1, b, named[1]), next(2, c, named[2]), next(3, d, named[3])];
                let moves = [ma, mb, mc, md];
                left = [a, b, c, d];
                let mut base = 0;
                while base < cols {
                    let col = base + side * 8;
                    let new = |(from, _): (u32, u32)| {
                        let is_there = from != NONE && col < cols;
                        if wide {
                            // SAFETY: if so, a whole block of aligned rows inside the tensor.
                            unsafe { E::eight_if(is_there, x.pointer(from as i32, col as i32)) }
                        } else {
                            x.block(false, if is_there { from } else { NONE }, col)
                        }
                    };
                    let blocks = [new(moves[0]), new(moves[1]), new(moves[2]), new(moves[3])];
                    let put = |(_, to): (u32, u32), block: E::Eight| {
                        if to != NONE && col < cols {
                            // SAFETY: the row is inside the tile and this warp's, which has met since an earlier one of its lanes wrote it; the block is this lane's,
                            // and tiles of one grid do not overlap.
                            unsafe { y.put_block(wide, to, col, E::open(block)) };
                        }
                        warp::sync();
                    };
                    put(moves[0], blocks[0]);
                    put(moves[1], blocks[1]);
                    put(moves[2], blocks[2]);
                    put(moves[3], blocks[3]);
                    base += across * 8;
                }
                let due = if turn == 0 {
                    a
                } else if turn == 1 {
                    b
                } else if turn == 2 {
                    c
                } else {
                    NONE
                };
                turn += (due == 0) as u32;
            }
            first += 4 * self.lanes;
        }
    }
}
