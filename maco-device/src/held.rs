//! Rows in registers: read from memory once, however often they are reduced.
//!
//! All code is unrolled: an index that is no literal would keep the array in local memory.

use crate::element::{Element, opaque};
use crate::math;
use crate::row::{Entry, FAR, Row, RowMut, RowValues, across, eight, largest_across, largest_of};

/// A row whose first [`Held::BLOCKS`] blocks of each lane are in registers: on a GPU 8 KiB of a row of elements of two bytes, 6 KiB
/// of four, since weights beside it take twice the registers too. What is longer is read again, and so is a row that does not begin at a
/// multiple of 16 bytes.
pub struct Held<E: Element> {
    row: Row<E>,
    blocks: [E::Eight; 16],
}

/// Runs a macro for every block that may be held.
macro_rules! each {
    ($one:ident) => {
        $one!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
}

impl<E: Element> Row<E> {
    /// The row in registers, all loads on their way at once.
    #[inline(always)]
    pub fn hold(self) -> Held<E> {
        // SAFETY: `new` asks for whole blocks of a wide row.
        Held::new(self, |j| unsafe { self.block(j) })
    }
}

impl<E: Element> RowMut<E> {
    /// Writes `f(values)` to every element, as [`RowMut::zip`] does, and holds what was written, as rounded.
    #[inline(always)]
    pub fn zip_held<X: RowValues>(&mut self, inputs: X, f: impl Fn(X::Values) -> E::Value) -> Held<E> {
        let (row, step, whole) = (self.read(), self.read().step(), self.read().whole());
        // SAFETY: callers have looked that all rows are wide, and pass a multiple of eight below `whole`.
        let made = |j: u32| unsafe {
            let v = X::open(inputs.block::<FAR>(j));
            E::close([f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])])
        };
        let held = if row.wide() && inputs.wide(whole) {
            // All loads first: those behind a store would wait for it.
            let held = Held::new(row, made);
            macro_rules! one {
                ($($n:literal)*) => {$(
                    let j = row.first() + $n * step;
                    if const { $n < Held::<E>::BLOCKS } && j < whole {
                        // SAFETY: wide, as looked for; a block of this lane.
                        unsafe { self.put_block(j, held.blocks[$n]) };
                    }
                )*};
            }
            each!(one);
            let mut j = held.rest();
            while j < whole {
                // SAFETY: as above.
                unsafe { self.put_block(j, made(j)) };
                j += step;
            }
            held
        } else {
            self.one_by_one(&inputs, &f);
            Held { row: row.narrow(), blocks: [E::Eight::default(); 16] }
        };
        for j in row.tail() {
            self.put_own(j, f(inputs.value(j)));
        }
        held
    }
}

impl<E: Element> Held<E> {
    /// Blocks of eight that a lane holds.
    pub const BLOCKS: usize = if E::BYTES > 2 { 6 } else { 16 };

    #[inline(always)]
    fn new(row: Row<E>, block: impl Fn(u32) -> E::Eight) -> Held<E> {
        let (step, whole) = (row.step(), if row.wide() { row.whole() } else { 0 });
        macro_rules! one {
            ($($n:literal)*) => {
                [$({
                    let j = row.first() + $n * step;
                    if const { $n < Self::BLOCKS } && j < whole { block(j) } else { E::Eight::default() }
                }),*]
            };
        }
        Held { row, blocks: each!(one) }
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.row.len()
    }

    /// Whether the row has no element.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// The row in memory.
    #[inline(always)]
    pub fn row(&self) -> Row<E> {
        self.row
    }

    /// This lane's first block that is not held.
    #[inline(always)]
    fn rest(&self) -> u32 {
        self.row.first() + if self.row.wide() { Self::BLOCKS as u32 * self.row.step() } else { 0 }
    }

    /// Where whole blocks that may be held end.
    #[inline(always)]
    fn end(&self) -> u32 {
        if self.row.wide() { self.row.whole() } else { 0 }
    }

    /// Block `N` of this lane, which begins at `j`.
    ///
    /// # Safety
    /// The row is wide, and `j` is a multiple of eight below its whole blocks' end.
    #[inline(always)]
    pub(crate) unsafe fn number<const N: usize>(&self, j: u32) -> E::Eight {
        if const { N < Self::BLOCKS } {
            self.near::<N>()
        } else {
            // SAFETY: passed on from the caller.
            unsafe { self.row.block(j) }
        }
    }

    /// Widened values of a whole row do not fit the registers: they are made anew from the packed ones, each time.
    #[inline(always)]
    fn near<const N: usize>(&self) -> E::Eight {
        E::again(self.blocks[const { if N < 16 { N } else { 0 } }])
    }

    /// Combines `f(element)` over the row, in the order of [`Row::fold`].
    #[inline(always)]
    pub fn fold(&self, start: f32, f: impl Fn(E::Value) -> f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        let (mut total, whole) = (start, self.end());
        macro_rules! one {
            ($($n:literal)*) => {$(
                let j = self.row.first() + $n * self.row.step();
                if const { $n < Self::BLOCKS } && j < whole {
                    total = combine(total, eight(E::open(self.near::<$n>()), &f, &combine));
                }
            )*};
        }
        each!(one);
        across(self.row.fold_from(self.rest(), total, &f, &combine), &combine)
    }

    /// Sum of `f(element)`.
    #[inline(always)]
    pub fn sum(&self, f: impl Fn(E::Value) -> f32) -> f32 {
        self.fold(0.0, f, |a, b| a + b)
    }

    /// Largest `f(element)`, NaN if one is; negative infinity for an empty row.
    #[inline(always)]
    pub fn max(&self, f: impl Fn(E::Value) -> f32) -> f32 {
        self.fold(f32::NEG_INFINITY, f, math::max)
    }
}

impl<E: Element<Value = f32>> Held<E> {
    /// The largest element, as [`Row::largest`], of those that come after `after` when all are sorted from the largest down.
    #[inline(always)]
    pub fn largest_after(&self, after: Option<Entry>) -> Entry {
        let (mut best, whole) = (Entry::NONE, self.end());
        // Else the indices of a lane's elements would be kept in registers from one search to the next.
        let first = opaque(self.row.first());
        macro_rules! one {
            ($($n:literal)*) => {$(
                let j = first + $n * self.row.step();
                if const { $n < Self::BLOCKS } && j < whole {
                    best = largest_of(best, after, E::open(self.near::<$n>()), j);
                }
            )*};
        }
        each!(one);
        largest_across(self.row.largest_from(self.rest(), best, after))
    }
}
