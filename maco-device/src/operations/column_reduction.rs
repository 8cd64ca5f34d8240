//! Reductions over columns, and transpositions.
//!
//! TMA boxes bring the tile through the ring: its rows are short and far apart, and a box is one copy. A stage has some rows of the whole tile, in swizzled panels
//! of 128 bytes. Where TMA cannot copy the tensor, the consumers load it themselves, and get the same bits.

use crate::data::element::Element;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::special::CONSUMER_THREADS;
use crate::hardware::{tma, warp};
use crate::math::zip8;
use crate::operations::grid_stride::GridStride;
use crate::operations::simt_consumer::SimtConsumer;
use crate::sync::ring::Ring;
use crate::sync::tensor_map_cache::TensorMapCache;
use maco_abi::{PAGE_BYTES, PANEL_ROWS, ROW_BYTES};

/// Lanes of a warp that stand side by side where columns are reduced, each with eight of them.
const ACROSS: u32 = 2;

const _: () = assert!(PANEL_ROWS * ROW_BYTES == PAGE_BYTES, "a panel is a page");

/// Rows of a column that a lane combines one after the other; then another part begins, and parts are combined. So the error of a long sum grows with N / PART
/// (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §4.2, blocked summation).
const PART: u32 = 4096;

/// With one more block of eight columns.
#[inline(always)]
fn with_block<X: Element>(part: [f32; 8], block: X::Eight, f: &impl Fn(X::Value) -> f32, combine: &impl Fn(f32, f32) -> f32) -> [f32; 8] {
    zip8(part, X::open(block), |part, v| combine(part, f(v)))
}

/// Eight columns of each.
#[inline(always)]
fn combined(a: [f32; 8], b: [f32; 8], combine: &impl Fn(f32, f32) -> f32) -> [f32; 8] {
    zip8(a, b, combine)
}

/// Panels of a tile of `cols` columns; 0: it does not come.
const fn panels<E: Element>(cols: usize) -> u32 {
    let bytes = cols as u32 * E::BYTES;
    if E::BYTES >= 2 && cols.is_multiple_of(64) && bytes <= 4 * ROW_BYTES { bytes / ROW_BYTES } else { 0 }
}

/// Whether the rows of `x` come through the ring.
#[inline(always)]
fn comes_through_ring<E: Element, const R: usize, const C: usize>(x: Tile<E, R, C>, task: Task) -> bool {
    let may = const { panels::<E>(C) > 0 };
    may & task.has_bulk_rows() & !x.view.map.is_none()
}

/// Whether columns of a tile of so many are reduced from the ring: the threads have all of them together.
const fn reduces_from_ring<X: Element>(cols: usize) -> bool {
    panels::<X>(cols) > 0
        && (cfg!(not(target_arch = "nvptx64")) || cols / 8 == ACROSS as usize * CONSUMER_THREADS as usize / warp::LANES as usize)
}

/// Loader: [`fetch`] of what consumers reduce from the ring.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn fetch_columns<E: Element, const R: usize, const C: usize>(
    ring: &mut Ring,
    tensor_maps: &mut TensorMapCache,
    x: Tile<E, R, C>,
    task: Task,
) {
    if const { reduces_from_ring::<E>(C) } {
        // SAFETY: passed on from the caller.
        unsafe { fetch(ring, tensor_maps, x, task) };
    }
}

/// Loader: asks for all rows of `x`; returns early if the CTA no longer waits.
///
/// # Safety
/// Called by the loader thread, in the same order as consumers call [`SimtConsumer::tma_columns`] or [`SimtConsumer::tma_transpose`].
#[inline(always)]
pub unsafe fn fetch<E: Element, const R: usize, const C: usize>(
    ring: &mut Ring,
    tensor_maps: &mut TensorMapCache,
    x: Tile<E, R, C>,
    task: Task,
) {
    if !comes_through_ring(x, task) {
        return;
    }
    let (map, rows) = (tensor_maps.get::<0>(x.view.map), x.rows());
    let mut row = 0;
    while row < rows {
        // SAFETY: the plan gave the operand a tensor map of boxes of one panel; the stage has space for all panels, and expects them, also what of them is
        // outside.
        let acquired = unsafe {
            ring.acquire(panels::<E>(C), panels::<E>(C) * PAGE_BYTES, |room| {
                let (mut panel, mut col) = (0, x.col);
                while panel < panels::<E>(C) {
                    tma::load(room.shared + panel * PAGE_BYTES, map, col, x.row + row as i32, x.plane, room.full);
                    panel += 1;
                    col += (ROW_BYTES / E::BYTES) as i32;
                }
            })
        };
        if !acquired {
            return;
        }
        row += PANEL_ROWS;
    }
}

/// The eight elements from column `col` on, a multiple of eight, of row `row` of the stage at shared address `stage`.
///
/// # Safety
/// A stage of panels that has come, and a place inside it.
#[inline(always)]
unsafe fn eight<E: Element>(stage: u32, row: u32, col: u32) -> E::Eight {
    let byte = col * E::BYTES;
    let (line, chunk) = (stage + byte / ROW_BYTES * PAGE_BYTES + row * ROW_BYTES, byte % ROW_BYTES / 16);
    // PTX ISA §5.5.7, swizzling modes: of 128 bytes, chunks of 16 are exchanged by the low three bits of the row.
    let at = |chunk: u32| line + (chunk ^ (row % 8)) * 16;
    // SAFETY: passed on from the caller; pages begin at multiples of the swizzle's eight rows.
    unsafe { E::eight_of(at(chunk), at(chunk + 1)) }
}

impl SimtConsumer {
    /// [`SimtConsumer::columns`] of what comes through the ring; false if it does not.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub fn tma_columns<X: Element, E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        x: Tile<X, R, C>,
        y: Tile<E, I, J>,
        task: Task,
        start: f32,
        f: impl Fn(X::Value) -> f32,
        combine: impl Fn(f32, f32) -> f32,
        finish: impl Fn(f32) -> E::Value,
    ) -> bool {
        /// Of a thread: eights of columns, so that all threads have those of a tile together.
        const EIGHTS: usize = if cfg!(target_arch = "nvptx64") { 1 } else { 32 };
        if !(const { reduces_from_ring::<X>(C) } && self.ring.is_some() && comes_through_ring(x, task)) {
            return false;
        }
        // Lanes stand in lines, of which each has its own eight columns, one below the other.
        let across = if self.lanes == 1 { 1 } else { ACROSS };
        let below = self.lanes / across;
        let (side, down) = (self.lane() / below, self.lane() % below);
        let own = self.thread / self.lanes * across + side;
        let step = self.threads / self.lanes * across;
        let (rows, cols) = (x.rows(), y.cols());
        let (mut totals, mut parts) = ([[start; 8]; EIGHTS], [[start; 8]; EIGHTS]);
        let (mut first, mut end) = (0, PART * below);
        while first < rows {
            if first == end {
                let mut n = 0;
                while n < EIGHTS {
                    totals[n] = combined(totals[n], parts[n], &combine);
                    parts[n] = [start; 8];
                    n += 1;
                }
                end += PART * below;
            }
            let count = if rows - first < PANEL_ROWS { rows - first } else { PANEL_ROWS };
            // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
            let (stage, shared) = unsafe { self.ring.wait_full(panels::<X>(C)) };
            macro_rules! each_eight {
                ($part:expr, $col:expr) => {
                    let (part, col): (&mut [f32; 8], u32) = ($part, $col);
                    let load = |row: u32| {
                        // SAFETY: a place inside the stage.
                        unsafe { eight::<X>(shared, row, col) }
                    };
                    let mut add = |block: X::Eight| *part = with_block::<X>(*part, block, &f, &combine);
                    let mut row = down;
                    while row + 3 * below < count {
                        let blocks = [load(row), load(row + below), load(row + 2 * below), load(row + 3 * below)];
                        add(blocks[0]);
                        add(blocks[1]);
                        add(blocks[2]);
                        add(blocks[3]);
                        row += 4 * below;
                    }
                    while row < count {
                        add(load(row));
                        row += below;
                    }
                };
            }
            if const { EIGHTS == 1 } {
                each_eight!(&mut parts[0], own * 8);
            } else {
                let mut n = 0;
                while own + n * step < C as u32 / 8 {
                    each_eight!(&mut parts[n as usize % EIGHTS], (own + n * step) * 8);
                    n += 1;
                }
            }
            self.release(stage.bit());
            first += count;
        }
        let wide = y.wide();
        let finish_eight = |t: [f32; 8], col: u32| {
            let whole = |total: f32| finish(lines_below(total, &combine));
            let values = [whole(t[0]), whole(t[1]), whole(t[2]), whole(t[3]), whole(t[4]), whole(t[5]), whole(t[6]), whole(t[7])];
            if down == 0 && col < cols {
                // SAFETY: one lane has these columns, and tiles of one grid do not overlap; the result is one row.
                unsafe { y.put_block(wide, 0, col, values) };
            }
        };
        if const { EIGHTS == 1 } {
            finish_eight(combined(totals[0], parts[0], &combine), own * 8);
        } else {
            let mut n = 0;
            while own + n * step < C as u32 / 8 {
                let n_th = n as usize % EIGHTS;
                finish_eight(combined(totals[n_th], parts[n_th], &combine), (own + n * step) * 8);
                n += 1;
            }
        }
        true
    }

    /// [`SimtConsumer::transpose`] of what comes through the ring; false if it does not.
    #[inline(always)]
    pub fn tma_transpose<E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        x: Tile<E, R, C>,
        y: Tile<E, I, J>,
        task: Task,
    ) -> bool {
        if !(self.ring.is_some() && comes_through_ring(x, task)) {
            return false;
        }
        let (rows, cols, wide) = (y.rows(), y.cols(), y.wide());
        let all = (rows == I as u32) & (cols == J as u32) & wide;
        let mut first = 0;
        while first < x.rows() {
            // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
            let (stage, shared) = unsafe { self.ring.wait_full(panels::<E>(C)) };
            // Squares of eight by eight: a warp reads eight side by side, of one line of each all banks, and writes four, whole sectors.
            let mut at = self.thread;
            while at < const { C as u32 / 8 * (PANEL_ROWS / 8) } {
                let (group, square) = (at / 32, at % 32);
                let across = const { if C / 64 > 0 { C as u32 / 64 } else { 1 } };
                let (row, col) = (group % across * 64 + square % 8 * 8, group / across * 32 + square / 8 * 8);
                // SAFETY: places inside the stage.
                let line = |n: u32| unsafe { eight::<E>(shared, col + n, row) };
                let turned = E::turn([line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)]);
                let col = first + col;
                if all {
                    let to = y.block_addresses::<false>((row, col), (1, 0));
                    // SAFETY: a square inside the tile, at multiples of eight rows and columns of aligned rows; it is one thread's, and tiles of one grid do
                    // not overlap.
                    let put = |n: u32, line: E::Eight| unsafe { E::put(to.nth(n), line) };
                    let [a, b, c, d, e, f, g, h] = turned;
                    put(0, a);
                    put(1, b);
                    put(2, c);
                    put(3, d);
                    put(4, e);
                    put(5, f);
                    put(6, g);
                    put(7, h);
                } else if row < rows && col < cols {
                    macro_rules! put {
                        ($($n:literal)*) => {$(
                            if row + $n < rows {
                                // SAFETY: the row is inside the tile; each square is one thread's, and tiles of one grid do not overlap.
                                unsafe { y.put_block(wide, row + $n, col, E::open(turned[$n])) };
                            }
                        )*};
                    }
                    put!(0 1 2 3 4 5 6 7);
                }
                at += self.threads;
            }
            self.release(stage.bit());
            first += PANEL_ROWS;
        }
        true
    }

    /// Columns: lanes of a warp stand in two lines side by side, each with eight columns; a warp has sixteen.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub fn columns<X: Element, E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        self,
        x: Tile<X, R, C>,
        y: Tile<E, I, J>,
        start: f32,
        f: impl Fn(X::Value) -> f32,
        combine: impl Fn(f32, f32) -> f32,
        finish: impl Fn(f32) -> E::Value,
    ) {
        let across = if self.lanes == 1 { 1 } else { ACROSS };
        let below = self.lanes / across;
        // In lines, as what comes through the ring.
        let (side, down) = (self.lane() / below, self.lane() % below);
        let (rows, cols) = (x.rows(), y.cols());
        let wide = (x.wide(), y.wide());
        let mut base = self.thread / self.lanes * across * 8;
        // The same for all lanes of a warp: they exchange their totals.
        while base < cols {
            let col = base + side * 8;
            let mut totals = [start; 8];
            let blocks = wide.0 && col + 8 <= x.cols();
            let load = |row: u32| {
                // SAFETY: eight columns inside the tile, at a multiple of eight columns of aligned rows.
                let line = |n: u32| unsafe { X::eight(x.pointer((row + n * below) as i32, col as i32)) };
                [line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)]
            };
            let mut first = 0;
            while first < rows {
                let end = if rows - first > PART * below { first + PART * below } else { rows };
                let mut part = [start; 8];
                let mut add = |block: X::Eight| part = with_block::<X>(part, block, &f, &combine);
                let mut add_all = |[a, b, c, d, e, f, g, h]: [X::Eight; 8]| {
                    add(a);
                    add(b);
                    add(c);
                    add(d);
                    add(e);
                    add(f);
                    add(g);
                    add(h);
                };
                let are_there = |row: u32| blocks && row + 7 * below < end;
                let mut row = first + down;
                if are_there(row) {
                    // Two sets of registers take turns, without moves. ptxas gives all loads of a loop one scoreboard, so the next eight rows are waited for
                    // with these, not behind them; sixteen at once are slower all the same (docs/internals/memory.md).
                    let mut now = load(row);
                    loop {
                        row += 8 * below;
                        if !are_there(row) {
                            add_all(now);
                            break;
                        }
                        let then = load(row);
                        add_all(now);
                        row += 8 * below;
                        if !are_there(row) {
                            add_all(then);
                            break;
                        }
                        now = load(row);
                        add_all(then);
                    }
                }
                while row < end {
                    add(x.block(wide.0, row, col));
                    row += below;
                }
                totals = combined(totals, part, &combine);
                first = end;
            }
            let t = totals;
            let whole = |total: f32| finish(lines_below(total, &combine));
            let values = [whole(t[0]), whole(t[1]), whole(t[2]), whole(t[3]), whole(t[4]), whole(t[5]), whole(t[6]), whole(t[7])];
            if down == 0 && col < cols {
                // SAFETY: one lane has these columns, and tiles of one grid do not overlap; the result is one row.
                unsafe { y.put_block(wide.1, 0, col, values) };
            }
            base += self.threads / self.lanes * across * 8;
        }
    }

    /// Squares of eight by eight: a warp reads four side by side and writes eight, so that both are whole sectors.
    #[inline(always)]
    pub fn transpose<E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(self, x: Tile<E, R, C>, y: Tile<E, I, J>) {
        let (rows, cols) = (y.rows(), y.cols());
        let wide = (x.wide(), y.wide());
        // A group is 32 squares, a place for each lane: four of them along the rows of y, and eight along its columns.
        let square = |(across, at): (u32, u32)| (at / 32 * 32 + at % 4 * 8, across * 64 + at / 4 % 8 * 8);
        let all = (rows == I as u32) & (cols == J as u32) & (x.cols() >= I as u32) & (x.rows() >= J as u32);
        if const { I > 0 && I.is_multiple_of(32) && J.is_multiple_of(64) } && all & wide.0 & wide.1 {
            let mut at = self.thread;
            while at < const { (I * J / 64) as u32 } {
                let (row, col) = square((at / I as u32, at % I as u32));
                let (from, to) = (x.block_addresses::<false>((col, row), (1, 0)), y.block_addresses::<false>((row, col), (1, 0)));
                // SAFETY: a square inside the tile, at multiples of eight rows and columns of aligned rows; it is one thread's, and tiles of one
                // grid do not overlap.
                let line = |n: u32| unsafe { E::eight(from.nth(n)) };
                let turned = E::turn([line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)]);
                // SAFETY: as above.
                let put = |n: u32, line: E::Eight| unsafe { E::put(to.nth(n), line) };
                let [a, b, c, d, e, f, g, h] = turned;
                put(0, a);
                put(1, b);
                put(2, c);
                put(3, d);
                put(4, e);
                put(5, f);
                put(6, g);
                put(7, h);
                at += self.threads;
            }
            return;
        }
        let (high, broad) = (rows.div_ceil(32), cols.div_ceil(64));
        let walk = GridStride::new(self.threads, (high * 32).max(1));
        let mut at = walk.start(self.thread);
        while high > 0 && at.0 < broad {
            let (row, col) = square(at);
            if row < rows && col < cols {
                let line = |n: u32| x.block(wide.0, col + n, row);
                let turned = E::turn([line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)]);
                macro_rules! put {
                    ($($n:literal)*) => {$(
                        if row + $n < rows {
                            // SAFETY: the row is inside the tile; each square is one thread's, and tiles of one grid do not overlap.
                            unsafe { y.put_block(wide.1, row + $n, col, E::open(turned[$n])) };
                        }
                    )*};
                }
                put!(0 1 2 3 4 5 6 7);
            }
            at = walk.next(at);
        }
    }
}

/// The totals of the lanes of one line, combined; each gets the result. In the order in which [`SimtConsumer::columns`] does it.
#[inline(always)]
fn lines_below(total: f32, combine: &impl Fn(f32, f32) -> f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let mut total = total;
        let mut distance = warp::LANES / ACROSS / 2;
        while distance > 0 {
            total = combine(total, crate::ptx::warp::shuffle_xor(total, distance));
            distance /= 2;
        }
        total
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let _ = combine;
        total
    }
}
