//! Loads at positions that threads compute: by position, by index, in pairs, and sums of gathered rows.
//!
//! Rows and tiles that come through the ring do not belong here.

use crate::data::element::Element;
use crate::data::inputs::Inputs;
use crate::data::tile::Tile;
use crate::math::zip8;
use crate::operations::grid_stride::GridStride;
use crate::operations::simt_consumer::SimtConsumer;

/// Blocks that a thread makes by position before it stores the first, where each reads so many accesses of 16 bytes at least.
const fn ahead(accesses: u32) -> u32 {
    match accesses {
        1..=3 => 8,
        0 | 4 => 4,
        _ => 2,
    }
}
impl SimtConsumer {
    /// `y[row, col] = f(inputs, row, col)`, an element for each thread, neighbours to neighbours; eight on their way before the first is stored.
    #[inline(always)]
    pub fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
        let (rows, cols, readers) = (y.rows(), y.cols(), inputs.readers(false));
        if cols == 0 {
            return;
        }
        let walk = GridStride::new(self.threads, cols);
        let mut at = walk.start(self.thread);
        let make = |(row, col): (u32, u32)| f(&readers, row as i32, col as i32);
        let put = |(row, col): (u32, u32), value: E::Value| {
            if row < rows {
                // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                unsafe { y.pointer(row as i32, col as i32).write(E::element(value)) };
            }
        };
        while at.0 < rows {
            // Of what reads more than two elements for each there is one: every further one takes the registers of its loads.
            if const { X::ACCESSES > 3 } {
                put(at, make(at));
                at = walk.next(at);
                continue;
            }
            // Behind the last one a thread makes its first again: a branch for each would cost more. Positions are made anew for the stores.
            let (first, mut position) = (at, at);
            let mut value = || {
                let value = make(if position.0 < rows { position } else { first });
                position = walk.next(position);
                value
            };
            let values = [value(), value(), value(), value(), value(), value(), value(), value()];
            let mut each = |value: E::Value| {
                put(at, value);
                at = walk.next(at);
            };
            each(values[0]);
            each(values[1]);
            each(values[2]);
            each(values[3]);
            each(values[4]);
            each(values[5]);
            each(values[6]);
            each(values[7]);
        }
    }

    /// Over the blocks of rows of so many columns, and the first of this thread; without columns there is none.
    #[inline(always)]
    fn blocks_of(self, cols: u32) -> Option<(GridStride, (u32, u32))> {
        let across = cols.div_ceil(8);
        if across == 0 {
            return None;
        }
        let walk = GridStride::new(self.threads, across);
        Some((walk, walk.start(self.thread)))
    }

    /// Blocks of eight columns for each thread, neighbours to neighbours.
    #[inline(always)]
    pub fn blocks<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> [E::Value; 8],
    ) {
        let (rows, cols, wide) = (y.rows(), y.cols(), y.wide());
        let Some((walk, mut at)) = self.blocks_of(cols) else { return };
        if !(wide && cols.is_multiple_of(8) && inputs.whole()) {
            let readers = inputs.readers(false);
            while at.0 < rows {
                let values = f(&readers, at.0 as i32, (at.1 * 8) as i32);
                // SAFETY: the row is inside the tile; each block is one thread's, and tiles of one grid do not overlap.
                unsafe { y.put_block(wide, at.0, at.1 * 8, values) };
                at = walk.next(at);
            }
            return;
        }
        let readers = inputs.readers(true);
        while at.0 < rows {
            // Behind the last one a thread makes its first again. Positions are made anew for the stores: they would take registers.
            let (first, mut position) = (at, at);
            let mut make = || {
                let (row, block) = if position.0 < rows { position } else { first };
                position = walk.next(position);
                f(&readers, row as i32, (block * 8) as i32)
            };
            macro_rules! ahead {
                ($($n:literal)*) => {{
                    // All on their way before the first is stored.
                    let values = [$(if const { $n < ahead(X::ACCESSES) } { make() } else { [E::Value::default(); 8] }),*];
                    $(if const { $n < ahead(X::ACCESSES) } {
                        if at.0 < rows {
                            // SAFETY: a block inside the tile, whose rows are whole aligned blocks; it is this thread's, and tiles of one grid do not
                            // overlap.
                            unsafe { E::store8(y.pointer(at.0 as i32, (at.1 * 8) as i32), values[$n]) };
                        }
                        at = walk.next(at);
                    })*
                }};
            }
            ahead!(0 1 2 3 4 5 6 7);
        }
    }

    /// Blocks of the left half of each row, each with the one at the same position of the right half; the columns are a multiple of 16. Four such pairs are on
    /// their way before the first is stored, two of elements of four bytes, and with them what `name` says of the rows of the next four.
    #[inline(always)]
    pub fn pairs_of_blocks<X: Inputs, E: Element, const I: usize, const J: usize>(
        self,
        inputs: X,
        y: Tile<E, I, J>,
        name: impl Fn(&X::Readers, i32) -> i32,
        f: impl Fn(&X::Readers, i32, i32, i32) -> ([E::Value; 8], [E::Value; 8]),
    ) {
        let (rows, half, wide) = (y.rows(), y.cols() / 2, y.wide());
        let Some((walk, mut at)) = self.blocks_of(half) else { return };
        let whole = wide && inputs.whole();
        let put = |(row, block): (u32, u32), (left, right): ([E::Value; 8], [E::Value; 8])| {
            if row < rows {
                // SAFETY: the row is inside the tile, and so are both blocks, which are one thread's; tiles of one grid do not overlap. Where all is whole,
                // rows are aligned blocks.
                unsafe {
                    if whole {
                        E::store8(y.pointer(row as i32, (block * 8) as i32), left);
                        E::store8(y.pointer(row as i32, (half + block * 8) as i32), right);
                    } else {
                        y.put_block(wide, row, block * 8, left);
                        y.put_block(wide, row, half + block * 8, right);
                    }
                }
            }
        };
        if !whole {
            let readers = inputs.readers(false);
            while at.0 < rows {
                let row = at.0 as i32;
                put(at, f(&readers, name(&readers, row), row, (at.1 * 8) as i32));
                at = walk.next(at);
            }
            return;
        }
        let readers = inputs.readers(true);
        let first = at;
        // Behind the last one a thread makes its first again.
        let there = |position: (u32, u32)| if position.0 < rows { position } else { first };
        let four = |at: (u32, u32)| {
            let (b, c) = (walk.next(at), walk.next(walk.next(at)));
            [at, b, c, walk.next(c)]
        };
        let name = |position: (u32, u32)| name(&readers, there(position).0 as i32);
        let make = |position: (u32, u32), named: i32| {
            let (row, block) = there(position);
            f(&readers, named, row as i32, (block * 8) as i32)
        };
        let names = |[a, b, c, d]: [(u32, u32); 4]| [name(a), name(b), name(c), name(d)];
        let mut positions = four(at);
        let mut named = if at.0 < rows { names(positions) } else { [0; 4] };
        while positions[0].0 < rows {
            let [a, b, c, d] = positions;
            if const { E::BYTES > 2 } {
                // Two pairs are as many bytes as four of two-byte elements; four would not fit the registers.
                let pairs = (make(a, named[0]), make(b, named[1]));
                put(a, pairs.0);
                put(b, pairs.1);
                let pairs = (make(c, named[2]), make(d, named[3]));
                positions = four(walk.next(d));
                named = names(positions);
                put(c, pairs.0);
                put(d, pairs.1);
                continue;
            }
            let pairs = (make(a, named[0]), make(b, named[1]), make(c, named[2]), make(d, named[3]));
            positions = four(walk.next(d));
            named = names(positions);
            put(a, pairs.0);
            put(b, pairs.1);
            put(c, pairs.2);
            put(d, pairs.3);
        }
    }

    /// Blocks as [`SimtConsumer::blocks`], each the sum of `count` blocks of `x`: four of each of two blocks on their way before the first is added, or two of each of four.
    #[inline(always)]
    pub fn sums<X: Inputs, E: Element<Value = f32>, const R: usize, const C: usize, const I: usize, const J: usize>(
        self,
        terms: X,
        x: Tile<E, R, C>,
        y: Tile<E, I, J>,
        count: u32,
        f: impl Fn(&X::Readers, i32, i32) -> (i32, f32),
    ) {
        let (rows, cols, wide) = (y.rows(), y.cols(), y.wide());
        let Some((walk, mut at)) = self.blocks_of(cols) else { return };
        let terms = terms.readers(false);
        let add = |sum: [f32; 8], (weight, v): (f32, [f32; 8])| zip8(sum, v, |sum, v| sum + weight * v);
        if !(wide && cols.is_multiple_of(8) && x.whole()) {
            let x = x.readers(false);
            while at.0 < rows {
                let (mut sum, mut k) = ([0.0; 8], 0);
                while k < count {
                    let (row, weight) = f(&terms, at.0 as i32, k as i32);
                    sum = add(sum, (weight, x.eight(row, (at.1 * 8) as i32)));
                    k += 1;
                }
                // SAFETY: the row is inside the tile; each block is one thread's, and tiles of one grid do not overlap.
                unsafe { y.put_block(wide, at.0, at.1 * 8, sum) };
                at = walk.next(at);
            }
            return;
        }
        let x = x.readers(true);
        let put = |(row, block): (u32, u32), sum: [f32; 8]| {
            if row < rows {
                // SAFETY: a block inside the tile, whose rows are whole aligned blocks; it is this thread's, and tiles of one grid do not overlap.
                unsafe { E::store8(y.pointer(row as i32, (block * 8) as i32), sum) };
            }
        };
        if count <= 2 {
            // Few terms: four blocks at a time, and what names the rows of the next four comes while these do.
            let terms_of = |at: (u32, u32)| {
                let term = |k: u32| {
                    let is_there = k < count && at.0 < rows;
                    // Behind the last one the first is named again: nothing outside the region is read, which a CPU refuses. A GPU finds zeros there.
                    let first = !is_there && cfg!(not(target_arch = "nvptx64"));
                    let named = f(&terms, if first { 0 } else { at.0 as i32 }, if first { 0 } else { k as i32 });
                    if is_there { named } else { (-1, 0.0) }
                };
                (term(0), term(1))
            };
            let four = |at: (u32, u32)| {
                let (b, c) = (walk.next(at), walk.next(walk.next(at)));
                [at, b, c, walk.next(c)]
            };
            let mut positions = four(at);
            let named = |[a, b, c, d]: [(u32, u32); 4]| [terms_of(a), terms_of(b), terms_of(c), terms_of(d)];
            let mut now = named(positions);
            while positions[0].0 < rows {
                let block = |((first, by), (second, also)): ((i32, f32), (i32, f32)), at: (u32, u32)| {
                    let col = (at.1 * 8) as i32;
                    ((by, x.eight(first, col)), (also, x.eight(second, col)))
                };
                let loaded =
                    [block(now[0], positions[0]), block(now[1], positions[1]), block(now[2], positions[2]), block(now[3], positions[3])];
                let next = four(walk.next(positions[3]));
                now = named(next);
                let sum = |(first, second)| add(add([0.0; 8], first), second);
                put(positions[0], sum(loaded[0]));
                put(positions[1], sum(loaded[1]));
                put(positions[2], sum(loaded[2]));
                put(positions[3], sum(loaded[3]));
                positions = next;
            }
            return;
        }
        while at.0 < rows {
            let second = walk.next(at);
            let below = if second.0 < rows { second } else { at };
            let (mut a, mut b) = ([0.0; 8], [0.0; 8]);
            let mut k = 0;
            while k < count {
                let term = |(row, block): (u32, u32), k: u32| {
                    // As above, of terms.
                    let first = k >= count && cfg!(not(target_arch = "nvptx64"));
                    let (named, weight) = f(&terms, row as i32, if first { 0 } else { k as i32 });
                    // Behind the last term zero times zeros, which is no change of a sum that begins with 0.
                    let (named, weight) = if k < count { (named, weight) } else { (-1, 0.0) };
                    (weight, x.eight(named, (block * 8) as i32))
                };
                let here = (term(at, k), term(at, k + 1), term(at, k + 2), term(at, k + 3));
                let there = (term(below, k), term(below, k + 1), term(below, k + 2), term(below, k + 3));
                a = add(add(add(add(a, here.0), here.1), here.2), here.3);
                b = add(add(add(add(b, there.0), there.1), there.2), there.3);
                k += 4;
            }
            put(at, a);
            put(second, b);
            at = walk.next(second);
        }
    }
}
