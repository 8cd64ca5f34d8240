//! Rows: the unit of reductions. On a GPU one warp owns a row and its lanes share it; on the CPU one thread has it alone.
//!
//! Lanes take blocks of eight elements in turn, whether or not eight elements are one access: what a reduction adds to what depends on the
//! length of the row alone. Rows kept in registers are in `held.rs`; several rows at once, and those of tiles, in files of their own.

mod tiles;
mod values;

pub use tiles::{RowInputs, RowOutputs};
pub use values::RowValues;

use crate::element::Element;
use crate::exchange::{Exchange, across, eight};
use crate::hardware::special;
use crate::largest::{Entry, largest_across, largest_of};
use crate::math;

/// A row of an input, inside a closure of [`crate::Cta::rows`].
#[derive(Clone, Copy)]
pub struct Row<E> {
    base: *mut E,
    len: u32,
    stride: u32,
    lane: u32,
    lanes: u32,
    /// Whether a block of eight is one aligned access.
    wide: bool,
}

/// A row of the result.
pub struct RowMut<E>(Row<E>);

impl<E: Element> Row<E> {
    /// Number of elements.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the row has no element.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `j`; zero at and after the end.
    #[inline(always)]
    pub fn at(&self, j: u32) -> E::Value {
        if j < self.len { self.element(j).value() } else { E::Value::default() }
    }

    #[inline(always)]
    fn element(&self, j: u32) -> E {
        // SAFETY: callers stay inside the row, which lies inside a live tensor of the plan.
        unsafe { self.base.add(j as usize * self.stride as usize).read() }
    }

    /// First element of this lane's first block.
    #[inline(always)]
    pub(crate) fn first(&self) -> u32 {
        self.lane * 8
    }

    /// From one block of this lane to its next.
    #[inline(always)]
    pub(crate) fn step(&self) -> u32 {
        self.lanes * 8
    }

    /// Where whole blocks end.
    #[inline(always)]
    pub(crate) fn whole(&self) -> u32 {
        self.len & !7
    }

    /// This lane's element after the whole blocks, if it has one: each lane one, on a GPU.
    #[inline(always)]
    pub(crate) fn tail(&self) -> impl Iterator<Item = u32> + use<E> {
        let (mut j, len, lanes) = (self.whole() + self.lane, self.len, self.lanes);
        core::iter::from_fn(move || {
            let now = j;
            j += lanes;
            (now < len).then_some(now)
        })
    }

    /// Whether whole blocks are one aligned access each.
    #[inline(always)]
    pub(crate) fn wide(&self) -> bool {
        self.wide
    }

    /// The block that begins at `j`, a multiple of eight below `whole`, of a wide row.
    #[inline(always)]
    pub(crate) fn wide_block(&self, j: u32) -> E::Eight {
        debug_assert!(self.wide && j + 8 <= self.len);
        // SAFETY: eight elements inside the row, which lies inside a live tensor; `wide` promises the alignment.
        unsafe { E::eight(self.base.wrapping_add(j as usize)) }
    }

    /// Combines `f(element)` over the row; `combine` must be associative and commutative, and give the same bits whichever of two comes
    /// first. Every lane gets the result. `S` is a number, or several: a maximum with the sum of exponentials below it, a mean with the
    /// squares around it. By shuffles of the whole warp (PTX ISA §9.7.9.6 `shfl.sync`), five for each word of `S`.
    ///
    /// Order: fixed per device (blocks of eight in pairs, block after block of a lane, then a butterfly), so results repeat bit for bit.
    #[inline(always)]
    pub fn fold<S: Exchange>(&self, start: S, f: impl Fn(E::Value) -> S, combine: impl Fn(S, S) -> S) -> S {
        across(fold(self, *self, start, &f, &combine), &combine)
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

    /// Smallest `f(element)`, NaN if one is; infinity for an empty row.
    #[inline(always)]
    pub fn min(&self, f: impl Fn(E::Value) -> f32) -> f32 {
        self.fold(f32::INFINITY, f, math::min)
    }
}

impl<E: Element<Value = f32>> Row<E> {
    /// The largest element, the first of equal ones, NaN before any number; [`Entry::NONE`] in an empty row.
    #[inline(always)]
    pub fn largest(&self) -> Entry {
        largest_across(largest(self, *self, None))
    }
}

/// This lane's total of a row, whose values are in memory or in registers.
#[inline(always)]
pub(crate) fn fold<E: Element, X: RowValues<Values = E::Value>, S: Exchange>(
    values: &X,
    row: Row<E>,
    start: S,
    f: &impl Fn(E::Value) -> S,
    combine: &impl Fn(S, S) -> S,
) -> S {
    let (mut total, mut group) = (start, Group::first::<X, E>(&row));
    while group.goes_on::<X>() {
        let blocks = values.group(group);
        macro_rules! one {
            ($($n:literal)*) => {$(
                if group.has($n) {
                    total = combine(total, eight(X::open(blocks[$n]), f, combine));
                }
            )*};
        }
        one!(0 1 2 3);
        values.turn(group);
        group = group.next();
    }
    for j in row.tail() {
        total = combine(total, f(row.element(j).value()));
    }
    total
}

/// This lane's largest entry, of those below `limit`.
#[inline(always)]
pub(crate) fn largest<E: Element<Value = f32>, X: RowValues<Values = f32>>(values: &X, row: Row<E>, limit: Option<Entry>) -> Entry {
    let (mut best, mut group) = (Entry::NONE, Group::first::<X, E>(&row));
    while group.goes_on::<X>() {
        let blocks = values.group(group);
        macro_rules! one {
            ($($n:literal)*) => {$(
                if group.has($n) {
                    best = largest_of(best, limit, X::open(blocks[$n]), group.place($n));
                }
            )*};
        }
        one!(0 1 2 3);
        values.turn(group);
        group = group.next();
    }
    for j in row.tail() {
        let entry = Entry { value: row.at(j), index: j };
        if entry.beats(best) && limit.is_none_or(|limit| limit.beats(entry)) {
            best = entry;
        }
    }
    best
}

/// Blocks that a lane takes together: loads that are on their way before the first is needed.
#[derive(Clone, Copy)]
pub struct Group {
    /// How many blocks; known at compile time, behind all inlining.
    size: u32,
    /// How many came before.
    number: u32,
    /// First element of the warp's first block.
    base: u32,
    /// First element of the lane's block behind it.
    lane: u32,
    step: u32,
    /// Where whole blocks end.
    whole: u32,
}

impl Group {
    #[inline(always)]
    pub(crate) fn first<X: RowValues, E: Element>(row: &Row<E>) -> Group {
        Group { size: X::GROUP as u32, number: 0, base: 0, lane: row.first(), step: row.step(), whole: row.whole() }
    }

    #[inline(always)]
    pub(crate) fn next(self) -> Group {
        Group { number: self.number + 1, base: self.base + self.size * self.step, ..self }
    }

    /// Whether there is this one; the same for all lanes. Held rows go around in whole turns, unless one group was all.
    #[inline(always)]
    pub(crate) fn goes_on<X: RowValues>(self) -> bool {
        self.base < self.whole || const { X::HELD > 0 } && self.number > 1 && self.number * self.size < X::HELD as u32
    }

    /// Whether its blocks are in registers.
    #[inline(always)]
    pub(crate) fn is_held<X: RowValues>(self) -> bool {
        self.number * self.size < X::HELD as u32
    }

    /// Whether nothing of the row comes behind it.
    #[inline(always)]
    pub(crate) fn is_all(self) -> bool {
        self.number == 0 && self.size * self.step >= self.whole
    }

    /// First element of this lane's `n`-th block.
    #[inline(always)]
    pub(crate) fn place(self, n: u32) -> u32 {
        self.base + self.lane + n * self.step
    }

    /// Where whole blocks of the row end.
    #[inline(always)]
    pub(crate) fn whole(self) -> u32 {
        self.whole
    }

    /// Whether that block is one of the group and of the row.
    #[inline(always)]
    pub(crate) fn has(self, n: u32) -> bool {
        n < self.size && self.place(n) < self.whole
    }
}

impl<E: Element> RowMut<E> {
    /// Number of elements.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.0.len
    }

    /// Whether the row has no element.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Writes `f(j)` to every element `j`.
    #[inline(always)]
    pub fn set(&mut self, f: impl Fn(u32) -> E::Value) {
        let row = self.0;
        let mut j = row.lane;
        while j < row.len {
            // SAFETY: `j` is inside the row; no other lane or task writes this element.
            unsafe { self.write(j, f(j)) };
            j += row.lanes;
        }
    }

    /// Writes one element, the same for all lanes; outside the row nothing.
    #[inline(always)]
    pub fn put(&mut self, j: u32, value: E::Value) {
        if j < self.0.len && j % self.0.lanes == self.0.lane {
            // SAFETY: `j` is inside the row; one lane writes.
            unsafe { self.write(j, value) };
        }
    }

    /// Writes `f(values)` to every element, where `values` are those of `inputs` at the same place; zero after an input's end.
    #[inline(always)]
    pub fn zip<X: RowValues>(&mut self, inputs: X, f: impl Fn(X::Values) -> E::Value) {
        let row = self.0;
        let mut group = Group::first::<X, E>(&row);
        while group.goes_on::<X>() {
            let blocks = inputs.group(group);
            macro_rules! made {
                ($($n:literal)*) => {
                    [$(if group.has($n) {
                        let v = X::open(blocks[$n]);
                        E::close([f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])])
                    } else {
                        E::Eight::default()
                    }),*]
                };
            }
            self.put_group(group, made!(0 1 2 3));
            inputs.turn(group);
            group = group.next();
        }
        for j in row.tail() {
            self.put_own(j, f(inputs.value(j)));
        }
    }

    /// Writes this lane's blocks of a group, wide or not.
    #[inline(always)]
    pub(crate) fn put_group(&mut self, group: Group, blocks: [E::Eight; 4]) {
        if self.0.wide {
            macro_rules! put {
                ($($n:literal)*) => {$(
                    if group.has($n) {
                        // SAFETY: inside the row, which lies inside a live tensor, and this lane's; `wide` promises the alignment.
                        unsafe { E::put(self.0.base.wrapping_add(group.place($n) as usize), blocks[$n]) };
                    }
                )*};
            }
            put!(0 1 2 3);
            return;
        }
        let mut blocks = blocks;
        let mut n = 0;
        while n < group.size {
            let j = group.place(n);
            let at = self.0.base.wrapping_add(j as usize * self.0.stride as usize);
            // SAFETY: inside the row, and this lane's.
            unsafe { E::scatter::<true>(at, self.0.stride, if j < group.whole { 8 } else { 0 }, blocks[0]) };
            let [a, b, c, d] = blocks;
            // All go around: see `Share::zip`.
            blocks = [b, c, d, a];
            n = special::opaque(n + 1);
        }
    }

    /// Writes an element of this lane, which `tail` names.
    #[inline(always)]
    pub(crate) fn put_own(&mut self, j: u32, value: E::Value) {
        // SAFETY: `tail` stays inside the row, and is each lane's own.
        unsafe { self.write(j, value) };
    }

    /// # Safety
    /// `j` is inside the row, and no other lane writes it.
    #[inline(always)]
    unsafe fn write(&mut self, j: u32, value: E::Value) {
        // SAFETY: inside the row, which lies inside a live tensor of the plan; tiles of one grid do not overlap.
        unsafe { self.0.base.add(j as usize * self.0.stride as usize).write(E::element(value)) };
    }

    /// The row as it is, for in-place updates.
    #[inline(always)]
    pub fn read(&self) -> Row<E> {
        self.0
    }
}
