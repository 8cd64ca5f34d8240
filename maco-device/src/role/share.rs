//! How the consumers of a CTA, or one thread of a CPU, share work on a tile that is not divided row by row.
//!
//! What is computed does not belong here. The same code runs on every device; only how many threads and lanes there are differs.

use super::Role;
use super::cores::ELEMENTWISE;
use crate::abi::CONSUMERS;
use crate::element::{Element, MmaElement};
use crate::epilogue::Epilogue;
use crate::hardware::{special, warp};
use crate::row::{RowInputs, RowOutputs};
use crate::split::Split;
use crate::task::Task;
use crate::tile::{Inputs, Parts, Tile};

/// Places of a tile, by rows and by blocks (or elements) of a row, of which a thread takes every so many. Never numbered: a tile may have
/// more than 2³² of them.
#[derive(Clone, Copy)]
struct Walk {
    across: u32,
    down: u32,
    right: u32,
}

impl Walk {
    /// Over rows of `across` places, at least one, by `threads`.
    #[inline(always)]
    fn new(threads: u32, across: u32) -> Walk {
        Walk { across, down: threads / across, right: threads % across }
    }

    /// The first place of a thread.
    #[inline(always)]
    fn start(self, thread: u32) -> (u32, u32) {
        (thread / self.across, thread % self.across)
    }

    /// A thread's next place.
    #[inline(always)]
    fn next(self, (row, at): (u32, u32)) -> (u32, u32) {
        let over = (at + self.right >= self.across) as u32;
        (row + self.down + over, at + self.right - over * self.across)
    }
}

/// Accesses of 16 bytes that a thread has on their way before it needs the first.
const FLIGHT: u32 = 16;

/// Blocks of eight elements loaded together, each by this many accesses; no more than a thread has of a tile of `rows` × `cols` (0: any).
const fn together(accesses: u32, rows: usize, cols: usize) -> u32 {
    let most = FLIGHT / accesses;
    let most = if most == 0 { 1 } else { 1 << most.ilog2() };
    let own = (rows * cols).div_ceil(8 * CONSUMERS as usize).next_power_of_two() as u32;
    if rows * cols == 0 || own > most { most } else { own }
}

/// Of how many of these results are made by one code, which the blocks pass in turn.
const fn turn(together: u32) -> u32 {
    if together < 4 { 1 } else { 2 }
}

/// A thread among those that share.
#[derive(Clone, Copy)]
pub struct Share {
    /// This thread.
    pub thread: u32,
    /// How many there are.
    pub threads: u32,
    /// Lanes of a warp: consecutive threads whose registers can be exchanged.
    pub lanes: u32,
}

/// A consumer thread as the body of a task without tensor cores sees it.
impl Role for Share {
    type Accumulator<const I: usize, const J: usize> = ();

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) {}

    #[inline(always)]
    fn mma<E: MmaElement, const I: usize, const J: usize>(&mut self, _: &mut (), _: Parts, _: Parts) {}

    #[inline(always)]
    fn store<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(&mut self, _: (), _: Tile<E, I, J>, _: Split, _: Task) {}

    #[inline(always)]
    fn mma_pair<E: MmaElement, const I: usize, const J: usize>(&mut self, _: (&mut (), &mut ()), _: Parts, _: (Parts, Parts)) {}

    #[inline(always)]
    fn store_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        _: ((), ()),
        _: Tile<E, I, J>,
        _: Task,
        _: impl Fn(f32, f32) -> f32,
    ) {
    }

    #[inline(always)]
    fn share(&self) -> Option<Share> {
        Some(*self)
    }
}

impl Share {
    /// What a consumer thread has. Its number is read anew: what is computed from it is not kept in registers from one task to the next.
    #[inline(always)]
    pub fn consumers() -> Share {
        Share { thread: (special::thread_again() - 128) / (CONSUMERS / ELEMENTWISE), threads: ELEMENTWISE, lanes: warp::LANES }
    }

    #[inline(always)]
    fn lane(self) -> u32 {
        self.thread % self.lanes
    }

    /// One row for each warp at a time.
    #[inline(always)]
    pub fn rows<X: RowInputs, Y: RowOutputs>(self, inputs: X, y: Y, f: impl Fn(X::Rows, &mut Y::Rows)) {
        let mut row = self.thread / self.lanes;
        while row < y.count() {
            f(inputs.row(row, self.lane(), self.lanes), &mut y.row(row, self.lane(), self.lanes));
            row += self.threads / self.lanes;
        }
    }

    /// `y = f(inputs)`: threads side by side along a row, each with blocks of eight columns, one below the other.
    ///
    /// A thread has `FLIGHT` accesses of 16 bytes on their way before it needs the first: 64 KiB of a multiprocessor with 256 consumers.
    /// Whole and ragged tiles are one code, and so are the results of all these: registers that are moved cost less than instructions in
    /// every instance of every task.
    #[inline(always)]
    pub fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        let (rows, cols) = (y.rows(), y.cols());
        if rows == 0 || cols == 0 {
            return;
        }
        // Where blocks of eight end. A tile that reads less than it writes is rare.
        let whole = if inputs.wide() && y.wide() && inputs.covers(rows, cols) { cols & !7 } else { 0 };
        let across = (if J > 0 { J.div_ceil(8) as u32 } else { whole.div_ceil(8) }).next_power_of_two().min(self.threads);
        let down = self.threads / across;
        let mut col = self.thread % across * 8;
        while col < whole {
            let mut row = self.thread / across;
            while row < rows {
                // Below the last row a thread reads its own again: a branch for every load would cost more.
                let place = |n: u32| if row + n * down < rows { row + n * down } else { row };
                // SAFETY: a row and eight columns inside all tiles, at a multiple of eight columns of aligned rows.
                let load = |n: u32| unsafe { inputs.block(place(n), col) };
                macro_rules! loads {
                    ($($n:literal)*) => { [$(if const { $n < together(X::ACCESSES, I, J) } { load($n) } else { X::Blocks::default() }),*] };
                }
                let mut blocks: [X::Blocks; 16] = loads!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                let made = const { turn(together(X::ACCESSES, I, J)) };
                let mut left = together(X::ACCESSES, I, J);
                loop {
                    macro_rules! puts {
                        ($($n:literal)*) => {$(
                            if $n < made && row + $n * down < rows {
                                let v = X::open(blocks[$n]);
                                let values = [f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])];
                                // SAFETY: as above; nobody else writes these columns.
                                unsafe { E::store8(y.pointer((row + $n * down) as i32, col as i32), values) };
                            }
                        )*};
                    }
                    puts!(0 1);
                    row += made * down;
                    // Opaque at each turn, or the compiler would write them all out.
                    left = special::opaque(left - made);
                    if left == 0 {
                        break;
                    }
                    // All go around, also those that are not needed: of registers that stay, the compiler makes turns of their own.
                    macro_rules! moved {
                        ($($n:literal)*) => { [$(blocks[const { ($n + turn(together(X::ACCESSES, I, J))) % together(X::ACCESSES, I, J) } as usize]),*] };
                    }
                    blocks = moved!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                }
            }
            col += across * 8;
        }
        if whole < cols {
            // What is no whole block, or lies in no order that has any.
            let walk = Walk::new(self.threads, cols - whole);
            let mut at = walk.start(self.thread);
            while at.0 < rows {
                // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                unsafe { y.pointer(at.0 as i32, (whole + at.1) as i32).write(E::element(f(inputs.at(at.0, whole + at.1)))) };
                at = walk.next(at);
            }
        }
    }

    /// `y[row, col] = f(inputs, row, col)`, an element for each thread, neighbours to neighbours.
    #[inline(always)]
    pub fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
        let (rows, cols, readers) = (y.rows(), y.cols(), inputs.readers());
        if cols == 0 {
            return;
        }
        let walk = Walk::new(self.threads, cols);
        let mut at = walk.start(self.thread);
        while at.0 < rows {
            let (row, col) = (at.0 as i32, at.1 as i32);
            // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
            unsafe { y.pointer(row, col).write(E::element(f(&readers, row, col))) };
            at = walk.next(at);
        }
    }

    /// Blocks of eight columns for each thread, neighbours to neighbours.
    #[inline(always)]
    pub fn blocks<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> [E::Value; 8],
    ) {
        let (rows, cols, wide, readers) = (y.rows(), y.cols(), y.wide(), inputs.readers());
        let across = cols.div_ceil(8);
        if across == 0 {
            return;
        }
        let walk = Walk::new(self.threads, across);
        let make = |(row, block): (u32, u32)| f(&readers, row as i32, (block * 8) as i32);
        let put = |(row, block): (u32, u32), values: [E::Value; 8]| {
            // SAFETY: the row is inside the tile; each block is one thread's, and tiles of one grid do not overlap.
            unsafe { y.put_block(wide, row, block * 8, values) };
        };
        let mut at = walk.start(self.thread);
        while at.0 < rows {
            let second = walk.next(at);
            let both = second.0 < rows;
            // Both on their way before the first is stored.
            let values = (make(at), make(if both { second } else { at }));
            put(at, values.0);
            if both {
                put(second, values.1);
            }
            at = walk.next(second);
        }
    }

    /// Columns: two lanes of a warp stand side by side, the others below them, each with eight columns; a warp has sixteen.
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
        let across = if self.lanes == 1 { 1 } else { 2 };
        let (below, side, down) = (self.lanes / across, self.lane() % across, self.lane() / across);
        let (rows, cols) = (x.rows(), y.cols());
        let wide = (x.wide(), y.wide());
        let mut base = self.thread / self.lanes * across * 8;
        // The same for all lanes of a warp: they exchange their totals.
        while base < cols {
            let col = base + side * 8;
            let mut totals = [start; 8];
            let mut add = |block: X::Eight| {
                let v = X::open(block);
                totals = [
                    combine(totals[0], f(v[0])),
                    combine(totals[1], f(v[1])),
                    combine(totals[2], f(v[2])),
                    combine(totals[3], f(v[3])),
                    combine(totals[4], f(v[4])),
                    combine(totals[5], f(v[5])),
                    combine(totals[6], f(v[6])),
                    combine(totals[7], f(v[7])),
                ];
            };
            let mut row = down;
            // Eight rows on their way before the first is needed.
            while wide.0 && col + 8 <= x.cols() && row + 7 * below < rows {
                // SAFETY: eight columns inside the tile, at a multiple of eight columns of aligned rows.
                let line = |n: u32| unsafe { X::eight(x.pointer((row + n * below) as i32, col as i32)) };
                let low = (line(0), line(1), line(2), line(3));
                let high = (line(4), line(5), line(6), line(7));
                add(low.0);
                add(low.1);
                add(low.2);
                add(low.3);
                add(high.0);
                add(high.1);
                add(high.2);
                add(high.3);
                row += 8 * below;
            }
            while row < rows {
                add(x.block(wide.0, row, col));
                row += below;
            }
            let t = totals;
            let whole = |total: f32| finish(lanes_below(total, &combine));
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
        // Groups of four squares along the rows of y, and of eight along its columns.
        let (high, broad) = (rows.div_ceil(32), cols.div_ceil(64));
        // A group is 32 squares: a place for each lane.
        let walk = Walk::new(self.threads, (high * 32).max(1));
        let mut at = walk.start(self.thread);
        while high > 0 && at.0 < broad {
            let (row, col) = (at.1 / 32 * 32 + at.1 % 4 * 8, at.0 * 64 + at.1 / 4 % 8 * 8);
            if row < rows && col < cols {
                let packed = if wide.0 && row + 8 <= x.cols() && col + 8 <= x.rows() {
                    // SAFETY: a square inside the tile, at a multiple of eight columns of aligned rows.
                    let line = |n: u32| unsafe { E::eight(x.pointer((col + n) as i32, row as i32)) };
                    (line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7))
                } else {
                    let line = |n: u32| x.block(false, col + n, row);
                    (line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7))
                };
                let (a, b, c, d) = (E::open(packed.0), E::open(packed.1), E::open(packed.2), E::open(packed.3));
                let (e, f, g, h) = (E::open(packed.4), E::open(packed.5), E::open(packed.6), E::open(packed.7));
                macro_rules! put {
                    ($($n:literal)*) => {$(
                        if row + $n < rows {
                            // SAFETY: the row is inside the tile; each square is one thread's, and tiles of one grid do not overlap.
                            unsafe { y.put_block(wide.1, row + $n, col, [a[$n], b[$n], c[$n], d[$n], e[$n], f[$n], g[$n], h[$n]]) };
                        }
                    )*};
                }
                put!(0 1 2 3 4 5 6 7);
            }
            at = walk.next(at);
        }
    }
}

/// The totals of all lanes that stand in one column, combined; each gets the result.
#[inline(always)]
fn lanes_below(total: f32, combine: &impl Fn(f32, f32) -> f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let mut total = total;
        let mut distance = 16;
        while distance > 1 {
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

#[cfg(test)]
mod tests {
    use super::Walk;

    /// Every thread's places, in order, are its numbers among all: also where those exceed 32 bits.
    #[test]
    fn a_walk_of_more_than_32_bits_goes_everywhere_once() {
        for (threads, across) in [(256, 1), (256, 7), (256, 256), (2, 3), (1, 5), (256, 300), (256, (1 << 28) - 1), (256, (1 << 31) - 1)] {
            let walk = Walk::new(threads, across);
            for thread in [0, 1, threads - 1].into_iter().filter(|&thread| thread < threads) {
                let mut at = walk.start(thread);
                for n in 0..100_000u64 {
                    let number = u64::from(thread) + n * u64::from(threads);
                    assert_eq!(u64::from(at.0) * u64::from(across) + u64::from(at.1), number);
                    assert!(at.1 < across);
                    at = walk.next(at);
                }
            }
            // Far behind: row 20 of the longest rows is number 2³⁵.
            let far = (20, across - 1);
            let (row, at) = walk.next(far);
            let number = |(row, at): (u32, u32)| u64::from(row) * u64::from(across) + u64::from(at);
            assert_eq!(number((row, at)), number(far) + u64::from(threads));
        }
    }
}
