//! Tiles: raw-pointer views of a region of a tensor. Never references: other CTAs write the memory behind them.

use core::marker::PhantomData;

use crate::data::element::Element;
use crate::hardware::special;
use maco_abi::{NO_MAP, View};

/// The region of one parameter that one task touches: `R` rows and `C` columns, 0 for a whole axis.
///
/// A tile only names memory. Elements are seen inside closures given to [`crate::Cta`].
pub struct Tile<E, const R: usize, const C: usize> {
    pub(crate) view: View,
    pub(crate) plane: i32,
    pub(crate) row: i32,
    pub(crate) col: i32,
    /// Where in shared memory the tile is; 0: it is not, [`BY_ELEMENT`]: nor will it be.
    pub(crate) near: u32,
    /// Which tensor parameter of the task it is of, for errors.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) operand: u32,
    element: PhantomData<*mut E>,
}

/// [`Tile::near`] of what is read by the element.
pub(crate) const BY_ELEMENT: u32 = 1;

impl<E, const R: usize, const C: usize> Clone for Tile<E, R, C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<E, const R: usize, const C: usize> Copy for Tile<E, R, C> {}

impl<E: Element, const R: usize, const C: usize> Tile<E, R, C> {
    #[inline(always)]
    pub(crate) fn new(view: View, plane: i32, row: i32, col: i32) -> Self {
        Tile {
            view,
            plane,
            row,
            col,
            near: 0,
            #[cfg(not(target_arch = "nvptx64"))]
            operand: 0,
            element: PhantomData,
        }
    }

    /// The same tile by other names of its type.
    #[inline(always)]
    pub(crate) fn same<F, const I: usize, const J: usize>(self) -> Tile<F, I, J> {
        Tile {
            view: self.view,
            plane: self.plane,
            row: self.row,
            col: self.col,
            near: self.near,
            #[cfg(not(target_arch = "nvptx64"))]
            operand: self.operand,
            element: PhantomData,
        }
    }

    /// The same tile, known as that of tensor parameter `operand` in errors.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn of_parameter(self, operand: u32) -> Self {
        Tile { operand, ..self }
    }

    /// Rows inside the tensor, counted from the tile's origin; none of a plane that is not there.
    #[inline(always)]
    pub fn rows(self) -> u32 {
        if self.plane < 0 { 0 } else { clip(self.view.rows, self.row, R) }
    }

    /// Columns inside the tensor, counted from the tile's origin.
    #[inline(always)]
    pub fn cols(self) -> u32 {
        clip(self.view.cols, self.col, C)
    }

    /// The same tile as one of `rows` rows and all columns, whatever its type says: its part of the tensor by itself.
    #[inline(always)]
    pub(crate) fn part(self, rows: u32) -> Tile<E, 0, 0> {
        let left = if self.plane < 0 { 0 } else { clip(self.view.rows, self.row, 0) };
        let rows = if left < rows { left } else { rows };
        let view = View { base: self.pointer(0, 0) as u64, rows, cols: clip(self.view.cols, self.col, 0), ..self.view };
        let tile = Tile::new(view, 0, 0, 0);
        #[cfg(not(target_arch = "nvptx64"))]
        let tile = tile.of_parameter(self.operand);
        tile
    }

    /// The same tile without a size.
    #[inline(always)]
    pub(crate) fn unsized_tile(self) -> Tile<E, 0, 0> {
        let tile = Tile::new(self.view, self.plane, self.row, self.col);
        #[cfg(not(target_arch = "nvptx64"))]
        let tile = tile.of_parameter(self.operand);
        tile
    }

    /// Elements from one row to the next.
    #[inline(always)]
    pub fn row_stride(self) -> u32 {
        self.view.row_stride
    }

    /// Address of an element relative to the tile's origin. Dereferencing it is for `unsafe` SIMT tasks.
    #[inline(always)]
    pub fn pointer(self, row: i32, col: i32) -> *mut E {
        let v = &self.view;
        let offset = self.plane as i64 * v.plane_stride as i64
            + (self.row + row) as i64 * v.row_stride as i64
            + (self.col + col) as i64 * v.col_stride as i64;
        (v.base as *mut E).wrapping_offset(offset as isize)
    }

    /// The same tile, of which closures read, if `condition` holds, elements here and there by [`crate::Reader::at`] or [`crate::Row::at`]: indices, weights,
    /// few elements of long rows. [`crate::Operations::rows`] then leaves it where it lies, and [`crate::Operations::blocks`] does not mind that its
    /// rows are not made of aligned blocks. What is read is the same.
    #[inline(always)]
    pub fn by_element(self, condition: bool) -> Self {
        Tile { near: if condition { BY_ELEMENT } else { self.near }, ..self }
    }

    /// The same tile of a tensor that holds `F`, whatever the signature says.
    #[inline(always)]
    pub(crate) fn of<F: Element>(self) -> Tile<F, R, C> {
        Tile { near: self.near, ..Tile::new(self.view, self.plane, self.row, self.col) }
    }

    /// The same tile of another plane.
    #[inline(always)]
    pub(crate) fn of_plane(self, plane: i32) -> Self {
        Tile { plane, ..self }
    }

    /// The rows of the tile from row `first` on.
    #[inline(always)]
    pub(crate) fn below(self, first: u32) -> Self {
        Tile { row: self.row + first as i32, ..self }
    }

    /// A copy of the tile at shared address `near`, rows `pitch` elements apart.
    #[inline(always)]
    pub(crate) fn nearby(self, near: u32, pitch: u32) -> Self {
        let base = special::generic(near);
        let view = View { base, rows: self.rows(), cols: self.cols(), row_stride: pitch, col_stride: 1, plane_stride: 0, map: NO_MAP };
        Tile { near, ..Self::new(view, 0, 0, 0) }
    }

    /// Where a thread's blocks of eight lie: the first at (`row`, `col`), each further one so many rows below and columns beside the one before. `NEAR`: in
    /// shared memory. Of a tile whose blocks are [`wide`](Tile::wide).
    #[inline(always)]
    pub(crate) fn block_addresses<const NEAR: bool>(self, (row, col): (u32, u32), (below, beside): (u32, u32)) -> BlockAddresses<E> {
        let stride = self.view.row_stride;
        let step = (below as u64 * stride as u64 + beside as u64) * E::BYTES as u64;
        let first = if NEAR { (self.near + (row * stride + col) * E::BYTES) as u64 } else { self.pointer(row as i32, col as i32) as u64 };
        BlockAddresses { first, step, element: PhantomData }
    }

    /// The eight elements from (`row`, `col`) on; zero where they lie outside the tile. `wide` is what [`Tile::wide`] says.
    #[inline(always)]
    pub(crate) fn block(self, wide: bool, row: u32, col: u32) -> E::Eight {
        let at = self.pointer(row as i32, col as i32);
        if wide && row < self.rows() && col + 8 <= self.cols() {
            // SAFETY: eight columns inside the tile, which lies inside a live tensor; `wide` and a multiple of eight promise the alignment.
            unsafe { E::eight(at) }
        } else {
            let left = if row < self.rows() { self.cols().saturating_sub(col) } else { 0 };
            // SAFETY: the positions are inside the tile.
            unsafe { E::gather::<false>(at, self.view.col_stride, 0, left) }
        }
    }

    /// Writes the eight values that belong to (`row`, `col`) on; those outside the tile are dropped.
    ///
    /// # Safety
    /// Nobody else writes these elements. `wide` is what [`Tile::wide`] says, `row` is inside the tile, `col` a multiple of eight.
    #[inline(always)]
    pub(crate) unsafe fn put_block(self, wide: bool, row: u32, col: u32, values: [E::Value; 8]) {
        let at = self.pointer(row as i32, col as i32);
        if wide && col + 8 <= self.cols() {
            // SAFETY: as in `block`.
            unsafe { E::store8(at, values) };
        } else {
            // SAFETY: the positions are inside the tile; passed on from the caller.
            unsafe { E::scatter::<false>(at, self.view.col_stride, self.cols().saturating_sub(col), E::close(values)) };
        }
    }

    /// See [`crate::access::TaskTile::tile`].
    #[inline(always)]
    pub(crate) fn step<G>(self, k: u32) -> Operand<E, G, R, C> {
        Operand { tile: self, k, region: PhantomData }
    }

    /// Length of the contracted axis: the one that is not tiled.
    #[inline(always)]
    pub(crate) fn contraction(self) -> u32 {
        if C == 0 { self.view.cols } else { self.view.rows }
    }

    /// Whether eight elements from any multiple of eight columns are one aligned 16- or 32-byte access.
    #[inline(always)]
    pub(crate) fn wide(self) -> bool {
        let v = &self.view;
        let bytes = E::BYTES;
        let misaligned =
            (v.base as u32 | v.row_stride.wrapping_mul(bytes) | v.plane_stride.wrapping_mul(bytes) | (self.col as u32).wrapping_mul(bytes))
                & 15;
        (v.col_stride == 1) & (misaligned == 0)
    }
}

/// The region of a parameter that a SIMT body only reads: [`Tile`], of which nothing can be written.
pub struct ReadTile<E, const R: usize, const C: usize>(Tile<E, R, C>);

impl<E, const R: usize, const C: usize> Clone for ReadTile<E, R, C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<E, const R: usize, const C: usize> Copy for ReadTile<E, R, C> {}

impl<E: Element, const R: usize, const C: usize> ReadTile<E, R, C> {
    /// For generated code: of a `#[read(..)]` parameter.
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(tile: Tile<E, R, C>) -> Self {
        ReadTile(tile)
    }

    /// Rows inside the tensor, counted from the tile's origin; none of a plane that is not there.
    #[inline(always)]
    pub fn rows(self) -> u32 {
        self.0.rows()
    }

    /// Columns inside the tensor, counted from the tile's origin.
    #[inline(always)]
    pub fn cols(self) -> u32 {
        self.0.cols()
    }

    /// Elements from one row to the next.
    #[inline(always)]
    pub fn row_stride(self) -> u32 {
        self.0.row_stride()
    }

    /// Address of an element relative to the tile's origin. Dereferencing it is for `unsafe` SIMT tasks.
    #[inline(always)]
    pub fn pointer(self, row: i32, col: i32) -> *const E {
        self.0.pointer(row, col)
    }
}

/// Blocks of eight elements at equal distances: addresses in bytes, of shared memory or of any.
pub struct BlockAddresses<E> {
    first: u64,
    step: u64,
    element: PhantomData<E>,
}

impl<E> Clone for BlockAddresses<E> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<E> Copy for BlockAddresses<E> {}

impl<E: Element> BlockAddresses<E> {
    /// Where block `n` is.
    #[inline(always)]
    pub(crate) fn nth(self, n: u32) -> *mut E {
        self.first.wrapping_add(n as u64 * self.step) as *mut E
    }

    /// Blocks from block `n` on.
    #[inline(always)]
    pub(crate) fn from(self, n: u32) -> Self {
        BlockAddresses { first: self.nth(n) as u64, ..self }
    }

    /// Block `n`; `NEAR`: of shared memory.
    ///
    /// # Safety
    /// It is inside a tile of aligned rows, which is `NEAR` if it says so.
    #[inline(always)]
    pub(crate) unsafe fn block<const NEAR: bool>(self, n: u32) -> E::Eight {
        if NEAR {
            // SAFETY: passed on from the caller.
            unsafe { E::eight_near((self.first as u32).wrapping_add(n * self.step as u32)) }
        } else {
            // SAFETY: as above.
            unsafe { E::eight(self.nth(n)) }
        }
    }
}

/// Extent left from `origin`, at most `size` (0: no limit).
#[inline(always)]
fn clip(extent: u32, origin: i32, size: usize) -> u32 {
    let left = (extent as i32 - origin).max(0) as u32;
    if size == 0 || left < size as u32 { left } else { size as u32 }
}

/// One step of a contraction, named by [`crate::access::TaskTile::tile`], of a tile of region `G`.
pub struct Operand<E, G, const R: usize, const C: usize> {
    tile: Tile<E, R, C>,
    k: u32,
    region: PhantomData<fn() -> G>,
}

impl<E, G, const R: usize, const C: usize> Clone for Operand<E, G, R, C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<E, G, const R: usize, const C: usize> Copy for Operand<E, G, R, C> {}

/// Marker: the contraction runs along the columns (row-major `[rows, K]`).
pub enum AlongColumns {}
/// Marker: the contraction runs along the rows (row-major `[K, columns]`).
pub enum AlongRows {}

/// A step of a contraction with `N` kept rows or columns.
#[diagnostic::on_unimplemented(
    message = "MACO0017: this tile does not have the {N} rows or columns the accumulator needs",
    note = "an operand of `mma` is tiled along one axis and whole (`..`) along the other: `#[read(i, ..)]` or `#[read(.., j)]`"
)]
pub trait MmaOperand<const N: usize, Major> {
    /// Element type.
    type Element: Element;
    /// The index along which it is contracted.
    type Contracted;
    #[doc(hidden)]
    fn operand_tile(self) -> OperandTile;
}

/// An operand without its shape: what the roles work with.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct OperandTile {
    pub view: View,
    pub plane: i32,
    /// Row of the first box.
    pub row: i32,
    /// Column of the first box.
    pub col: i32,
    /// Whether the contraction runs along the rows.
    pub along_rows: bool,
}

impl OperandTile {
    /// How far the contraction goes on from the first box; no further in a plane that is not there, which is zeros.
    #[inline(always)]
    pub fn left(&self) -> i32 {
        let v = &self.view;
        match (self.plane < 0, self.along_rows) {
            (true, _) => 0,
            (_, true) => v.rows as i32 - self.row,
            (_, false) => v.cols as i32 - self.col,
        }
    }
}

impl<E: Element, R, C, const N: usize> MmaOperand<N, AlongColumns> for Operand<E, (R, C), N, 0> {
    type Element = E;
    type Contracted = C;
    #[inline(always)]
    fn operand_tile(self) -> OperandTile {
        let t = self.tile;
        OperandTile {
            view: t.view,
            plane: t.plane,
            row: t.row,
            col: t.col + (self.k * maco_abi::columns(E::BYTES)) as i32,
            along_rows: false,
        }
    }
}

impl<E: Element, R, C, const N: usize> MmaOperand<N, AlongRows> for Operand<E, (R, C), 0, N> {
    type Element = E;
    type Contracted = R;
    #[inline(always)]
    fn operand_tile(self) -> OperandTile {
        let t = self.tile;
        OperandTile {
            view: t.view,
            plane: t.plane,
            row: t.row + (self.k * maco_abi::columns(E::BYTES)) as i32,
            col: t.col,
            along_rows: true,
        }
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::Tile;
    use crate::data::element::{Element, bf16};
    use maco_abi::{NO_MAP, View};

    fn address<E: Element>(view: View, plane: i32, (row, col): (i32, i32), (down, right): (i32, i32)) -> u64 {
        Tile::<E, 0, 0>::new(view, plane, row, col).pointer(down, right) as u64
    }

    /// Of tensors with more than 2³¹ elements, and 2³² bytes: offsets are 64 bits wide, whichever axis makes them large.
    #[test]
    fn offsets_of_large_tensors_do_not_wrap() {
        let base = 1 << 40;
        let flat = View { base, rows: 1 << 20, cols: 1 << 16, row_stride: 1 << 16, col_stride: 1, ..View::default() };
        assert_eq!(address::<f32>(flat, 0, (1_000_000, 64), (7, 9)), base + 4 * (1_000_007 * 65_536 + 73));
        assert_eq!(address::<bf16>(flat, 0, (0, 0), (1_048_575, 65_535)), base + 2 * ((1 << 36) - 1));
        let turned = View { base, rows: 1 << 16, cols: 1 << 20, row_stride: 1, col_stride: 1 << 16, ..View::default() };
        assert_eq!(address::<f32>(turned, 0, (5, 1_000_000), (0, 3)), base + 4 * (5 + 1_000_003 * 65_536));
        let planes = View { base, rows: 3, cols: 5, row_stride: 5, col_stride: 1, plane_stride: u32::MAX, map: NO_MAP };
        assert_eq!(address::<f32>(planes, 100, (1, 2), (1, 2)), base + 4 * (100 * 4_294_967_295 + 14));
        let long = View { base, rows: 2, cols: i32::MAX as u32, row_stride: i32::MAX as u32, col_stride: 1, ..View::default() };
        assert_eq!(address::<f32>(long, 0, (1, 0), (0, i32::MAX - 1)), base + 4 * (2 * 2_147_483_647 - 1));
        // Before the tile's origin, as a halo is.
        assert_eq!(address::<f32>(flat, 0, (0, 0), (-1, -2)), base - 4 * 65_538);
    }
}
