//! Tiles that a closure gets row by row, read and written.

use super::{Row, RowMut};
use crate::element::Element;
use crate::tile::Tile;

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
