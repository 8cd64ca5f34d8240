//! Rows: the unit of reductions. On a GPU one warp owns a row and its lanes share it; on the CPU one thread has it alone.

use crate::element::Element;
use crate::tile::Tile;

/// A row of an input, inside a closure of [`crate::Cta::rows`].
#[derive(Clone, Copy)]
pub struct Row<E> {
    base: *mut E,
    len: u32,
    stride: u32,
    lane: u32,
    lanes: u32,
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

    /// Element `j`, which must be below `len`; larger ones are clamped.
    #[inline(always)]
    pub fn at(&self, j: u32) -> E::Value {
        let j = if j < self.len { j } else { self.len - 1 };
        // SAFETY: `j` is inside the row, which lies inside a live tensor of the plan.
        unsafe { self.base.add(j as usize * self.stride as usize).read() }.value()
    }

    /// Combines `f(element)` over the row; `combine` must be associative and commutative. Every lane gets the result.
    ///
    /// Order: fixed per device (lane-strided, then a butterfly), so results repeat bit for bit.
    #[inline(always)]
    pub fn fold(&self, start: f32, f: impl Fn(E::Value) -> f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        let mut total = start;
        let mut j = self.lane;
        while j < self.len {
            total = combine(total, f(self.at(j)));
            j += self.lanes;
        }
        #[cfg(target_arch = "nvptx64")]
        {
            // The whole warp is here: `rows` hands a row to all 32 lanes alike.
            let mut distance = 16;
            while distance > 0 {
                total = combine(total, crate::ptx::warp::shuffle_xor(total, distance));
                distance /= 2;
            }
        }
        total
    }

    /// Sum of `f(element)`.
    #[inline(always)]
    pub fn sum(&self, f: impl Fn(E::Value) -> f32) -> f32 {
        self.fold(0.0, f, |a, b| a + b)
    }

    /// Largest `f(element)`; negative infinity for an empty row.
    #[inline(always)]
    pub fn max(&self, f: impl Fn(E::Value) -> f32) -> f32 {
        self.fold(f32::NEG_INFINITY, f, |a, b| if b > a || b.is_nan() { b } else { a })
    }
}

impl<E: Element> RowMut<E> {
    /// Writes `f(j)` to every element `j`.
    #[inline(always)]
    pub fn set(&mut self, f: impl Fn(u32) -> E::Value) {
        let row = &self.0;
        let mut j = row.lane;
        while j < row.len {
            // SAFETY: `j` is inside the row; no other lane or task writes this element.
            unsafe { row.base.add(j as usize * row.stride as usize).write(E::element(f(j))) };
            j += row.lanes;
        }
    }

    /// The row as it is, for in-place updates.
    #[inline(always)]
    pub fn read(&self) -> Row<E> {
        self.0
    }
}

/// Tiles handed out row by row. A tile of one row is the same row every time.
pub trait RowInputs: Copy {
    /// What the closure gets.
    type Rows;
    #[doc(hidden)]
    fn row(self, row: u32, lane: u32, lanes: u32) -> Self::Rows;
}

impl<E: Element, const R: usize, const C: usize> Tile<E, R, C> {
    #[inline(always)]
    fn row_view(self, row: u32, lane: u32, lanes: u32) -> Row<E> {
        let row = if R == 1 { 0 } else { row };
        Row { base: self.pointer(row as i32, 0), len: self.cols(), stride: self.view.col_stride, lane, lanes }
    }

    #[inline(always)]
    pub(crate) fn row_mut(self, row: u32, lane: u32, lanes: u32) -> RowMut<E> {
        RowMut(self.row_view(row, lane, lanes))
    }
}

impl<E: Element, const R: usize, const C: usize> RowInputs for Tile<E, R, C> {
    type Rows = Row<E>;
    #[inline(always)]
    fn row(self, row: u32, lane: u32, lanes: u32) -> Row<E> {
        self.row_view(row, lane, lanes)
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
