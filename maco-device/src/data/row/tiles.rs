//! Tiles that a closure gets row by row, read and written.

use super::RowView;
use crate::data::element::Element;
use crate::data::tile::{BY_ELEMENT, Tile};
use crate::sync::ring::Ring;
use maco_abi::PAGE_BYTES;

/// Tiles handed out row by row. A tile of one row is the same row every time.
pub trait RowInputs: Copy {
    /// What the closure gets.
    type Rows;
    /// `NEAR`: of tiles that are all [near](RowInputs::near).
    #[doc(hidden)]
    fn row<const NEAR: bool>(self, row: u32, lane: u32, lanes: u32) -> Self::Rows;
    /// Whether all of them come through the ring, when those of more rows do; single rows if `singles` do.
    #[doc(hidden)]
    fn near(self, singles: bool) -> bool;
    /// How many of them have one row, and how many have more.
    #[doc(hidden)]
    const SINGLES: u32;
    #[doc(hidden)]
    const TILES: u32;
    /// Bytes of the longest row that comes through the ring, of those that have more; 0 if none does.
    #[doc(hidden)]
    fn bytes(self) -> u32;
    /// See [`Tile::fetch`]: single rows, those that come, one after the other.
    ///
    /// # Safety
    /// As there.
    #[doc(hidden)]
    unsafe fn fetch_singles(self, ring: &mut Ring) -> bool;
    /// See [`Tile::arrived`]: single rows, one after the other. `NEAR`: all are [near](RowInputs::near).
    ///
    /// # Safety
    /// As there.
    #[doc(hidden)]
    unsafe fn singles_arrived<const NEAR: bool>(self, ring: &mut Ring, held: &mut u32) -> Self;
    /// See [`Tile::fetch`]: those that have more rows and come, one after the other.
    ///
    /// # Safety
    /// As there.
    #[doc(hidden)]
    unsafe fn fetch(self, ring: &mut Ring, pages: u32, rows: (u32, u32)) -> bool;
    /// See [`Tile::arrived`]: those that have more rows, one after the other; of those that do not come, the rows from `first` on. `NEAR`: all are
    /// [near](RowInputs::near).
    ///
    /// # Safety
    /// As there.
    #[doc(hidden)]
    unsafe fn arrived<const NEAR: bool>(self, ring: &mut Ring, pages: u32, first: u32, held: &mut u32) -> Self;
}

/// Tiles written row by row, all with as many rows as the first.
pub trait RowOutputs: Copy {
    /// What the closure gets.
    type Rows: Copy;
    #[doc(hidden)]
    fn count(self) -> u32;
    /// Whether all their rows are side by side from 16-byte boundaries on.
    #[doc(hidden)]
    fn wide(self) -> bool;
    /// `WIDE`: of tiles that are [`wide`](RowOutputs::wide).
    #[doc(hidden)]
    fn row<const WIDE: bool>(self, row: u32, lane: u32, lanes: u32) -> Self::Rows;
}

impl<E: Element, const R: usize, const C: usize> Tile<E, R, C> {
    /// Whether its rows come through the ring, when those of the task do: whole rows in bulk, a single one in a page.
    #[inline(always)]
    fn comes_through_ring(self) -> bool {
        let cols = self.cols();
        // All are asked: a branch for each takes a warp longer.
        (cols > 0) & (self.near != BY_ELEMENT) & (R != 1 || cols.saturating_mul(E::BYTES) <= PAGE_BYTES) & self.copies(1, cols)
    }

    /// A row. `WIDE`: its elements are known to be side by side, from a 16-byte boundary on.
    #[inline(always)]
    fn row_view<const WIDE: bool>(self, row: u32, lane: u32, lanes: u32) -> RowView<E> {
        let row = if R == 1 { 0 } else { row };
        let (base, stride) = (self.pointer(row as i32, 0), if WIDE { 1 } else { self.view.col_stride });
        let near = if self.near <= BY_ELEMENT { 0 } else { self.near + row * self.view.row_stride * E::BYTES };
        RowView { base, near, len: self.cols(), stride, lane, lanes, wide: WIDE || stride == 1 && base as usize & 15 == 0 }
    }
}

impl<E: Element, const R: usize, const C: usize> RowInputs for Tile<E, R, C> {
    type Rows = RowView<E>;
    #[inline(always)]
    fn row<const NEAR: bool>(self, row: u32, lane: u32, lanes: u32) -> RowView<E> {
        let view = self.row_view::<NEAR>(row, lane, lanes);
        // SAFETY: it is in a page of the ring then, and these do not begin where shared memory does.
        unsafe { core::hint::assert_unchecked(!NEAR || view.near != 0) };
        view
    }
    #[inline(always)]
    fn near(self, singles: bool) -> bool {
        (R != 1 || singles) & self.comes_through_ring()
    }
    const SINGLES: u32 = if R == 1 { 1 } else { 0 };
    const TILES: u32 = if R == 1 { 0 } else { 1 };
    #[inline(always)]
    fn bytes(self) -> u32 {
        // Of more than 4 GiB: as many as there are, and not what is left of them in 32 bits.
        if R != 1 && self.comes_through_ring() { self.cols().saturating_mul(E::BYTES) } else { 0 }
    }
    #[inline(always)]
    unsafe fn fetch_singles(self, ring: &mut Ring) -> bool {
        // SAFETY: passed on from the caller.
        R != 1 || !self.comes_through_ring() || unsafe { Tile::fetch(self, ring, 1, (0, 1), self.cols()) }
    }
    #[inline(always)]
    unsafe fn singles_arrived<const NEAR: bool>(self, ring: &mut Ring, held: &mut u32) -> Self {
        // SAFETY: passed on from the caller.
        if R == 1 && (NEAR || self.comes_through_ring()) { unsafe { Tile::arrived(self, ring, 1, self.cols(), held) } } else { self }
    }
    #[inline(always)]
    unsafe fn fetch(self, ring: &mut Ring, pages: u32, rows: (u32, u32)) -> bool {
        // SAFETY: passed on from the caller.
        R == 1 || !self.comes_through_ring() || unsafe { Tile::fetch(self, ring, pages, rows, self.cols()) }
    }
    #[inline(always)]
    unsafe fn arrived<const NEAR: bool>(self, ring: &mut Ring, pages: u32, first: u32, held: &mut u32) -> Self {
        // SAFETY: passed on from the caller.
        unsafe {
            match R {
                1 => self,
                _ if NEAR || self.comes_through_ring() => Tile::arrived(self, ring, pages, self.cols(), held),
                _ => self.below(first),
            }
        }
    }
}

impl<E: Element, const R: usize, const C: usize> RowOutputs for Tile<E, R, C> {
    type Rows = RowView<E>;
    #[inline(always)]
    fn count(self) -> u32 {
        self.rows()
    }
    #[inline(always)]
    fn wide(self) -> bool {
        Tile::wide(self)
    }
    #[inline(always)]
    fn row<const WIDE: bool>(self, row: u32, lane: u32, lanes: u32) -> RowView<E> {
        self.row_view::<WIDE>(row, lane, lanes)
    }
}

impl RowInputs for () {
    type Rows = ();
    #[inline(always)]
    fn row<const NEAR: bool>(self, _: u32, _: u32, _: u32) {}
    #[inline(always)]
    fn near(self, _: bool) -> bool {
        true
    }
    const SINGLES: u32 = 0;
    const TILES: u32 = 0;
    #[inline(always)]
    fn bytes(self) -> u32 {
        0
    }
    #[inline(always)]
    unsafe fn fetch_singles(self, _: &mut Ring) -> bool {
        true
    }
    #[inline(always)]
    unsafe fn singles_arrived<const NEAR: bool>(self, _: &mut Ring, _: &mut u32) {}
    #[inline(always)]
    unsafe fn fetch(self, _: &mut Ring, _: u32, _: (u32, u32)) -> bool {
        true
    }
    #[inline(always)]
    unsafe fn arrived<const NEAR: bool>(self, _: &mut Ring, _: u32, _: u32, _: &mut u32) {}
}

macro_rules! tuple_rows {
    ($($name:ident $n:tt),+) => {
        impl<$($name: RowInputs),+> RowInputs for ($($name,)+) {
            type Rows = ($($name::Rows,)+);
            #[inline(always)]
            fn row<const NEAR: bool>(self, row: u32, lane: u32, lanes: u32) -> Self::Rows {
                ($(self.$n.row::<NEAR>(row, lane, lanes),)+)
            }
            #[inline(always)]
            fn near(self, singles: bool) -> bool {
                $(self.$n.near(singles))&+
            }
            const SINGLES: u32 = 0 $(+ $name::SINGLES)+;
            const TILES: u32 = 0 $(+ $name::TILES)+;
            #[inline(always)]
            fn bytes(self) -> u32 {
                let mut most = 0;
                $(if self.$n.bytes() > most {
                    most = self.$n.bytes();
                })+
                most
            }
            #[inline(always)]
            unsafe fn fetch_singles(self, ring: &mut Ring) -> bool {
                // SAFETY: passed on from the caller.
                unsafe { $(self.$n.fetch_singles(ring))&&+ }
            }
            #[inline(always)]
            unsafe fn singles_arrived<const NEAR: bool>(self, ring: &mut Ring, held: &mut u32) -> Self {
                // SAFETY: passed on from the caller.
                unsafe { ($(self.$n.singles_arrived::<NEAR>(ring, held),)+) }
            }
            #[inline(always)]
            unsafe fn fetch(self, ring: &mut Ring, pages: u32, rows: (u32, u32)) -> bool {
                // SAFETY: passed on from the caller.
                unsafe { $(self.$n.fetch(ring, pages, rows))&&+ }
            }
            #[inline(always)]
            unsafe fn arrived<const NEAR: bool>(self, ring: &mut Ring, pages: u32, first: u32, held: &mut u32) -> Self {
                // SAFETY: passed on from the caller.
                unsafe { ($(self.$n.arrived::<NEAR>(ring, pages, first, held),)+) }
            }
        }
    };
}
tuple_rows!(A 0);
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
            fn wide(self) -> bool {
                $(self.$n.wide())&&+
            }
            #[inline(always)]
            fn row<const WIDE: bool>(self, row: u32, lane: u32, lanes: u32) -> Self::Rows {
                ($(self.$n.row::<WIDE>(row, lane, lanes),)+)
            }
        }
    };
}
tuple_outputs!(A 0);
tuple_outputs!(A 0, B 1);
tuple_outputs!(A 0, B 1, C 2);
tuple_outputs!(A 0, B 1, C 2, D 3);

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::RowInputs;
    use crate::Tile;
    use maco_abi::View;

    /// Rows of 4 GiB and a little more are not taken for that little.
    #[test]
    fn rows_beyond_32_bits_of_bytes_do_not_come_through_the_ring() {
        let bytes = |cols: u32| {
            let view = View { base: 1 << 40, rows: 8, cols, row_stride: cols, col_stride: 1, ..View::default() };
            RowInputs::bytes(Tile::<f32, 8, 0>::new(view, 0, 0, 0))
        };
        assert_eq!(bytes(64), 256);
        for beyond in [4, 64, 16384] {
            assert_eq!(bytes((1 << 30) + beyond), u32::MAX, "{beyond} elements beyond 4 GiB");
        }
    }
}
