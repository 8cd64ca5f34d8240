//! Rows in registers: read from memory once, however often they are reduced.
//!
//! An index that is no literal would keep the array in local memory: registers go around by a group instead, past code that is written
//! once, and are back where they were after each pass.

use core::cell::Cell;

use crate::element::Element;
use crate::exchange::{Exchange, across};
use crate::largest::{Entry, largest_across};
use crate::math;
use crate::row::{Group, Row, RowMut, RowValues, fold, largest};

/// A row whose first [`Held::BLOCKS`] blocks of each lane are in registers: on a GPU 8 KiB of a row of elements of two bytes, 6 KiB
/// of four, since weights beside it take twice the registers too. What is longer is read again.
pub struct Held<E: Element> {
    row: Row<E>,
    /// Those of the next group in front.
    blocks: Cell<[E::Eight; 16]>,
}

impl<E: Element> Row<E> {
    /// The row in registers, all loads on their way at once.
    #[inline(always)]
    pub fn hold(self) -> Held<E> {
        let group = Group::first::<&Held<E>, E>(&self);
        if !self.wide() {
            let held = Held::empty(self);
            let mut group = group;
            while group.goes_on::<&Held<E>>() && group.is_held::<&Held<E>>() {
                held.take(group, RowValues::group(&self, group));
                (&held).turn(group);
                group = group.next();
            }
            return held;
        }
        macro_rules! one {
            ($($n:literal)*) => {
                [$(if const { $n < Held::<E>::BLOCKS } && group.place($n) < group.whole() { self.wide_block(group.place($n)) } else { E::Eight::default() }),*]
            };
        }
        Held { row: self, blocks: Cell::new(one!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)) }
    }
}

impl<E: Element> RowMut<E> {
    /// Writes `f(values)` to every element, as [`RowMut::zip`] does, and holds what was written, as rounded.
    #[inline(always)]
    pub fn zip_held<X: RowValues>(&mut self, inputs: X, f: impl Fn(X::Values) -> E::Value) -> Held<E> {
        let held = Held::empty(self.read());
        let mut group = Group::first::<(X, &Held<E>), E>(&held.row);
        while group.goes_on::<(X, &Held<E>)>() {
            let blocks = inputs.group(group);
            macro_rules! one {
                ($($n:literal)*) => {
                    [$(if group.has($n) {
                        let v = X::open(blocks[$n]);
                        E::close([f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])])
                    } else {
                        E::Eight::default()
                    }),*]
                };
            }
            let made = one!(0 1 2 3);
            self.put_group(group, made);
            held.take(group, made);
            inputs.turn(group);
            (&held).turn(group);
            group = group.next();
        }
        for j in held.row.tail() {
            self.put_own(j, f(inputs.value(j)));
        }
        held
    }
}

impl<E: Element> Held<E> {
    /// Blocks of eight that a lane holds.
    pub const BLOCKS: usize = if E::BYTES > 2 { 6 } else { 16 };

    #[inline(always)]
    fn empty(row: Row<E>) -> Held<E> {
        Held { row, blocks: Cell::new([E::Eight::default(); 16]) }
    }

    /// The group that is in front.
    #[inline(always)]
    pub(crate) fn front(&self) -> [E::Eight; 4] {
        let b = self.blocks.get();
        [b[0], b[1], b[2], b[3]]
    }

    /// Puts the next group in front.
    #[inline(always)]
    pub(crate) fn rotate(&self) {
        let b = self.blocks.get();
        self.blocks.set(if const { Self::BLOCKS == 16 } {
            [b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15], b[0], b[1], b[2], b[3]]
        } else {
            [b[2], b[3], b[4], b[5], b[0], b[1], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]
        });
    }

    /// Holds a group that was made, if there is room for it.
    #[inline(always)]
    fn take(&self, group: Group, made: [E::Eight; 4]) {
        if group.is_held::<&Self>() {
            let b = self.blocks.get();
            let [c, d] = if const { Self::BLOCKS == 16 } { [made[2], made[3]] } else { [b[2], b[3]] };
            self.blocks.set([made[0], made[1], c, d, b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]);
        }
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

    /// Combines `f(element)` over the row, in the order of [`Row::fold`].
    #[inline(always)]
    pub fn fold<S: Exchange>(&self, start: S, f: impl Fn(E::Value) -> S, combine: impl Fn(S, S) -> S) -> S {
        across(fold(&self, self.row, start, &f, &combine), &combine)
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
        largest_across(largest(&self, self.row, after))
    }
}
