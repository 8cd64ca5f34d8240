//! Rows: the unit of reductions. On a GPU one warp owns a row and its lanes share it; on the CPU one thread has it alone.
//!
//! Lanes take blocks of eight elements in turn, whether or not eight elements are one access: what a reduction adds to what depends on the
//! length of the row alone. Rows kept in registers are in `held.rs`.

use crate::element::Element;
use crate::held::Held;
use crate::math;
use crate::tile::Tile;

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

/// An element and where it stands: what [`Row::largest`] finds. NaN is larger than any number, and the first of equals is the larger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The element; negative infinity where there is none.
    pub value: f32,
    /// Its index; `u32::MAX` where there is none.
    pub index: u32,
}

impl Entry {
    /// Less than any element.
    pub const NONE: Entry = Entry { value: f32::NEG_INFINITY, index: u32::MAX };

    /// Whether this one is the larger.
    #[inline(always)]
    pub fn beats(self, other: Entry) -> bool {
        let (nan, than) = (self.value.is_nan(), other.value.is_nan());
        let same = self.value == other.value || nan && than;
        self.value > other.value || nan && !than || same && self.index < other.index
    }
}

/// `f` of eight elements, combined in pairs.
#[inline(always)]
pub(crate) fn eight<V: Copy>(v: [V; 8], f: &impl Fn(V) -> f32, combine: &impl Fn(f32, f32) -> f32) -> f32 {
    let low = combine(combine(f(v[0]), f(v[1])), combine(f(v[2]), f(v[3])));
    let high = combine(combine(f(v[4]), f(v[5])), combine(f(v[6]), f(v[7])));
    combine(low, high)
}

/// Every lane's total, combined; every lane gets the result. The whole warp comes here: a row is handed to all its lanes alike.
#[inline(always)]
pub(crate) fn across(total: f32, combine: &impl Fn(f32, f32) -> f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let mut total = total;
        let mut distance = 16;
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

/// The largest of every lane's entry; every lane gets it.
#[inline(always)]
pub(crate) fn largest_across(best: Entry) -> Entry {
    #[cfg(target_arch = "nvptx64")]
    {
        use crate::ptx::warp::shuffle_xor;
        let mut best = best;
        let mut distance = 16;
        while distance > 0 {
            let index = shuffle_xor(f32::from_bits(best.index), distance).to_bits();
            let other = Entry { value: shuffle_xor(best.value, distance), index };
            if other.beats(best) {
                best = other;
            }
            distance /= 2;
        }
        best
    }
    #[cfg(not(target_arch = "nvptx64"))]
    best
}

/// The larger of `best` and the elements of a block that are below `limit`.
#[inline(always)]
pub(crate) fn largest_of(best: Entry, limit: Option<Entry>, v: [f32; 8], index: u32) -> Entry {
    let mut best = best;
    macro_rules! one {
        ($($n:literal)*) => {$(
            let entry = Entry { value: v[$n], index: index + $n };
            if entry.beats(best) && limit.is_none_or(|limit| limit.beats(entry)) {
                best = entry;
            }
        )*};
    }
    one!(0 1 2 3 4 5 6 7);
    best
}

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

    /// The same row, to be read element by element.
    #[inline(always)]
    pub(crate) fn narrow(self) -> Row<E> {
        Row { wide: false, ..self }
    }

    /// The block that begins at `j`.
    ///
    /// # Safety
    /// The row is wide, `j` a multiple of eight and `j + 8` not beyond its end.
    #[inline(always)]
    pub(crate) unsafe fn block(&self, j: u32) -> E::Eight {
        // SAFETY: eight elements inside the row, which lies inside a live tensor; `wide` promises the alignment.
        unsafe { E::eight(self.base.add(j as usize)) }
    }

    /// The block that begins at `j`, wide or not; it lies inside the row.
    #[inline(always)]
    fn any_block(&self, j: u32) -> E::Eight {
        if self.wide {
            // SAFETY: callers pass a multiple of eight below `whole`.
            unsafe { self.block(j) }
        } else {
            E::gather(|n| self.element(j + n as u32))
        }
    }

    /// Combines `f(element)` over the row; `combine` must be associative and commutative. Every lane gets the result.
    ///
    /// Order: fixed per device (blocks of eight in pairs, block after block of a lane, then a butterfly), so results repeat bit for bit.
    #[inline(always)]
    pub fn fold(&self, start: f32, f: impl Fn(E::Value) -> f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        across(self.fold_from(self.first(), start, &f, &combine), &combine)
    }

    /// This lane's total from block `j` on.
    #[inline(always)]
    pub(crate) fn fold_from(&self, j: u32, start: f32, f: &impl Fn(E::Value) -> f32, combine: &impl Fn(f32, f32) -> f32) -> f32 {
        let (mut total, mut j, step, whole) = (start, j, self.step(), self.whole());
        // Four blocks on their way before the first is needed.
        while self.wide && j + 3 * step < whole {
            // SAFETY: the row is wide; multiples of eight below `whole`.
            let blocks = unsafe { (self.block(j), self.block(j + step), self.block(j + 2 * step), self.block(j + 3 * step)) };
            total = combine(total, eight(E::open(blocks.0), f, combine));
            total = combine(total, eight(E::open(blocks.1), f, combine));
            total = combine(total, eight(E::open(blocks.2), f, combine));
            total = combine(total, eight(E::open(blocks.3), f, combine));
            j += 4 * step;
        }
        while j < whole {
            total = combine(total, eight(E::open(self.any_block(j)), f, combine));
            j += step;
        }
        for j in self.tail() {
            total = combine(total, f(self.element(j).value()));
        }
        total
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
        largest_across(self.largest_from(self.first(), Entry::NONE, None))
    }

    /// This lane's largest entry below `limit` from block `j` on.
    #[inline(always)]
    pub(crate) fn largest_from(&self, j: u32, best: Entry, limit: Option<Entry>) -> Entry {
        let (mut best, mut j) = (best, j);
        while j < self.whole() {
            best = largest_of(best, limit, E::open(self.any_block(j)), j);
            j += self.step();
        }
        for j in self.tail() {
            let entry = Entry { value: self.at(j), index: j };
            if entry.beats(best) && limit.is_none_or(|limit| limit.beats(entry)) {
                best = entry;
            }
        }
        best
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
        let (mut j, step, whole) = (row.first(), row.step(), row.whole());
        if row.wide && inputs.wide(whole) {
            macro_rules! four {
                ($a:literal $b:literal $c:literal $d:literal) => {
                    if const { X::HELD > $a } && j < whole {
                        // SAFETY: all rows are wide, and no input is shorter than `whole`.
                        unsafe { self.four::<X, $a, $b, $c, $d>(&inputs, j, &f) };
                        j += 4 * step;
                    }
                };
            }
            four!(0 1 2 3);
            four!(4 5 6 7);
            four!(8 9 10 11);
            four!(12 13 14 15);
            while j < whole {
                // SAFETY: as above.
                unsafe { self.four::<X, FAR, FAR, FAR, FAR>(&inputs, j, &f) };
                j += 4 * step;
            }
        } else {
            self.one_by_one(&inputs, &f);
        }
        for j in row.tail() {
            self.put_own(j, f(inputs.value(j)));
        }
    }

    /// Whole blocks, element by element.
    #[inline(always)]
    pub(crate) fn one_by_one<X: RowValues>(&mut self, inputs: &X, f: &impl Fn(X::Values) -> E::Value) {
        let (mut j, whole) = (self.0.first(), self.0.whole());
        while j < whole {
            // SAFETY: inside a block of this lane.
            unsafe { self.write(j, f(inputs.value(j))) };
            j += if j & 7 == 7 { self.0.step() - 7 } else { 1 };
        }
    }

    /// Four blocks: all are on their way before the first is needed.
    ///
    /// # Safety
    /// The row and the inputs are wide, and no input is shorter than the row's whole blocks, among which `j` is.
    #[inline(always)]
    unsafe fn four<X: RowValues, const A: usize, const B: usize, const C: usize, const D: usize>(
        &mut self,
        inputs: &X,
        j: u32,
        f: &impl Fn(X::Values) -> E::Value,
    ) {
        let (step, whole) = (self.0.step(), self.0.whole());
        let (b, c, d) = (j + step, j + 2 * step, j + 3 * step);
        // SAFETY: (of the calls) passed on from the caller; multiples of eight below `whole`.
        let blocks = unsafe {
            (
                inputs.block::<A>(j),
                if b < whole { inputs.block::<B>(b) } else { X::Blocks::default() },
                if c < whole { inputs.block::<C>(c) } else { X::Blocks::default() },
                if d < whole { inputs.block::<D>(d) } else { X::Blocks::default() },
            )
        };
        let close = |blocks: X::Blocks| {
            let v = X::open(blocks);
            E::close([f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])])
        };
        // SAFETY: (of the calls) as above.
        unsafe {
            self.put_block(j, close(blocks.0));
            if b < whole {
                self.put_block(b, close(blocks.1));
            }
            if c < whole {
                self.put_block(c, close(blocks.2));
            }
            if d < whole {
                self.put_block(d, close(blocks.3));
            }
        }
    }

    /// Writes the block that begins at `j`.
    ///
    /// # Safety
    /// The row is wide, `j` a multiple of eight below `whole`, and the block this lane's.
    #[inline(always)]
    pub(crate) unsafe fn put_block(&mut self, j: u32, block: E::Eight) {
        // SAFETY: inside the row, which lies inside a live tensor; `wide` promises the alignment.
        unsafe { E::put(self.0.base.add(j as usize), block) };
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

/// Rows read together, place by place: rows, rows in registers, and tuples of them.
pub trait RowValues: Copy {
    /// What a closure gets.
    type Values: Copy;
    /// Eight of each, packed.
    #[doc(hidden)]
    type Blocks: Copy + Default;
    /// Blocks of a lane that are in registers.
    #[doc(hidden)]
    const HELD: usize;
    /// Whether blocks before `end` are one access each, or in registers.
    #[doc(hidden)]
    fn wide(&self, end: u32) -> bool;
    /// The block that begins at `j`, this lane's number `N`, or any if `N` is [`FAR`].
    ///
    /// # Safety
    /// `wide(j + 8)`, and `j` is a multiple of eight.
    #[doc(hidden)]
    unsafe fn block<const N: usize>(&self, j: u32) -> Self::Blocks;
    #[doc(hidden)]
    fn open(blocks: Self::Blocks) -> [Self::Values; 8];
    /// Values at a place; zero after the end.
    #[doc(hidden)]
    fn value(&self, j: u32) -> Self::Values;
}

/// Not in registers.
#[doc(hidden)]
pub const FAR: usize = usize::MAX;

impl<E: Element> RowValues for Row<E> {
    type Values = E::Value;
    type Blocks = E::Eight;
    const HELD: usize = 0;
    #[inline(always)]
    fn wide(&self, end: u32) -> bool {
        self.wide && end <= self.len
    }
    #[inline(always)]
    unsafe fn block<const N: usize>(&self, j: u32) -> E::Eight {
        // SAFETY: passed on from the caller.
        unsafe { Row::block(self, j) }
    }
    #[inline(always)]
    fn open(block: E::Eight) -> [E::Value; 8] {
        E::open(block)
    }
    #[inline(always)]
    fn value(&self, j: u32) -> E::Value {
        self.at(j)
    }
}

impl<E: Element> RowValues for &Held<E> {
    type Values = E::Value;
    type Blocks = E::Eight;
    const HELD: usize = Held::<E>::BLOCKS;
    #[inline(always)]
    fn wide(&self, end: u32) -> bool {
        self.row().wide() && end <= self.len()
    }
    #[inline(always)]
    unsafe fn block<const N: usize>(&self, j: u32) -> E::Eight {
        // SAFETY: passed on from the caller.
        unsafe { self.number::<N>(j) }
    }
    #[inline(always)]
    fn open(block: E::Eight) -> [E::Value; 8] {
        E::open(block)
    }
    #[inline(always)]
    fn value(&self, j: u32) -> E::Value {
        self.row().at(j)
    }
}

macro_rules! tuple_values {
    ($($name:ident $n:tt),+) => {
        impl<$($name: RowValues),+> RowValues for ($($name,)+) {
            type Values = ($($name::Values,)+);
            type Blocks = ($($name::Blocks,)+);
            const HELD: usize = {
                let mut most = 0;
                $(if $name::HELD > most {
                    most = $name::HELD;
                })+
                most
            };
            #[inline(always)]
            fn wide(&self, end: u32) -> bool {
                $(self.$n.wide(end))&&+
            }
            #[inline(always)]
            unsafe fn block<const N: usize>(&self, j: u32) -> Self::Blocks {
                // SAFETY: passed on from the caller.
                unsafe { ($(self.$n.block::<N>(j),)+) }
            }
            #[inline(always)]
            fn open(blocks: Self::Blocks) -> [Self::Values; 8] {
                let v = ($($name::open(blocks.$n),)+);
                [
                    ($(v.$n[0],)+), ($(v.$n[1],)+), ($(v.$n[2],)+), ($(v.$n[3],)+),
                    ($(v.$n[4],)+), ($(v.$n[5],)+), ($(v.$n[6],)+), ($(v.$n[7],)+),
                ]
            }
            #[inline(always)]
            fn value(&self, j: u32) -> Self::Values {
                ($(self.$n.value(j),)+)
            }
        }
    };
}
tuple_values!(A 0, B 1);
tuple_values!(A 0, B 1, C 2);
tuple_values!(A 0, B 1, C 2, D 3);

/// Tiles handed out row by row. A tile of one row is the same row every time.
pub trait RowInputs: Copy {
    /// What the closure gets.
    type Rows;
    #[doc(hidden)]
    fn row(self, row: u32, lane: u32, lanes: u32) -> Self::Rows;
}

/// Tiles written row by row, all with as many rows as the first.
pub trait RowOutputs: Copy {
    /// What the closure gets.
    type Rows;
    #[doc(hidden)]
    fn count(self) -> u32;
    #[doc(hidden)]
    fn row(self, row: u32, lane: u32, lanes: u32) -> Self::Rows;
}

impl<E: Element, const R: usize, const C: usize> Tile<E, R, C> {
    #[inline(always)]
    fn row_view(self, row: u32, lane: u32, lanes: u32) -> Row<E> {
        let row = if R == 1 { 0 } else { row };
        let (base, stride) = (self.pointer(row as i32, 0), self.view.col_stride);
        Row { base, len: self.cols(), stride, lane, lanes, wide: stride == 1 && base as usize & 15 == 0 }
    }
}

impl<E: Element, const R: usize, const C: usize> RowInputs for Tile<E, R, C> {
    type Rows = Row<E>;
    #[inline(always)]
    fn row(self, row: u32, lane: u32, lanes: u32) -> Row<E> {
        self.row_view(row, lane, lanes)
    }
}

impl<E: Element, const R: usize, const C: usize> RowOutputs for Tile<E, R, C> {
    type Rows = RowMut<E>;
    #[inline(always)]
    fn count(self) -> u32 {
        self.rows()
    }
    #[inline(always)]
    fn row(self, row: u32, lane: u32, lanes: u32) -> RowMut<E> {
        RowMut(self.row_view(row, lane, lanes))
    }
}

impl RowInputs for () {
    type Rows = ();
    #[inline(always)]
    fn row(self, _: u32, _: u32, _: u32) {}
}

macro_rules! tuple_rows {
    ($($name:ident $n:tt),+) => {
        impl<$($name: RowInputs),+> RowInputs for ($($name,)+) {
            type Rows = ($($name::Rows,)+);
            #[inline(always)]
            fn row(self, row: u32, lane: u32, lanes: u32) -> Self::Rows {
                ($(self.$n.row(row, lane, lanes),)+)
            }
        }
    };
}
tuple_rows!(A 0, B 1);
tuple_rows!(A 0, B 1, C 2);
tuple_rows!(A 0, B 1, C 2, D 3);

macro_rules! tuple_outputs {
    ($($name:ident $n:tt),+) => {
        impl<$($name: RowOutputs),+> RowOutputs for ($($name,)+) {
            type Rows = ($($name::Rows,)+);
            #[inline(always)]
            fn count(self) -> u32 {
                self.0.count()
            }
            #[inline(always)]
            fn row(self, row: u32, lane: u32, lanes: u32) -> Self::Rows {
                ($(self.$n.row(row, lane, lanes),)+)
            }
        }
    };
}
tuple_outputs!(A 0, B 1);
tuple_outputs!(A 0, B 1, C 2);

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::Entry;

    /// A total order: exactly one of two different entries is the larger.
    #[test]
    fn entries_are_ordered() {
        let values = [f32::NAN, f32::INFINITY, 1.0, 1.0, 0.0, -0.0, -1.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
        let entries: Vec<Entry> = values.into_iter().zip(0..).map(|(value, index)| Entry { value, index }).collect();
        for (n, &a) in entries.iter().enumerate() {
            for (m, &b) in entries.iter().enumerate() {
                assert_eq!(a.beats(b), n < m, "{a:?} and {b:?}");
            }
            assert!(a.beats(Entry::NONE));
        }
        assert!(!Entry::NONE.beats(Entry::NONE));
    }
}
