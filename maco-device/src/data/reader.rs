//! Reads of a tile by position: bounded by the tensor and by the region that the task declares.

use crate::data::element::Element;
use crate::data::tile::Tile;

/// Reads elements of a tile by position, inside closures only. Positions count from the tile's origin, before a halo.
///
/// Outside the tensor is zero. Outside the declared region but inside the tensor lies what another task may write at the same time. A GPU
/// reads zero there as well; the CPU ends the task with an error (MACO0069), except for what the region's end cuts off of a block of eight that begins inside at a
/// multiple of eight columns. An axis that is whole (`..`) or that data names is its own region.
pub struct Reader<E, const R: usize, const C: usize> {
    tile: Tile<E, R, C>,
    rows: Span,
    cols: Span,
    /// Whether blocks of eight from multiples of eight columns on are one aligned access each, or outside.
    whole: bool,
}

/// The positions along one axis that are in the region and in the tensor.
#[derive(Clone, Copy)]
struct Span {
    first: u32,
    count: u32,
}

impl Span {
    /// Of a region of `size` positions (0: the whole axis) that begins at element `origin` of `extent`; before the tensor in a halo.
    #[inline(always)]
    fn new(extent: u32, origin: i32, size: usize) -> Span {
        if size == 0 {
            // It begins where the tensor does: known to be zero, `first` takes no register.
            return Span { first: 0, count: if origin < 0 { 0 } else { extent.saturating_sub(origin as u32) } };
        }
        let (first, left) = match origin {
            // No position is 2³¹ or more.
            ..0 => (origin.unsigned_abs(), (extent + origin.unsigned_abs()).min(1 << 31)),
            _ => (0, extent.saturating_sub(origin as u32)),
        };
        let end = if left < size as u32 { left } else { size as u32 };
        Span { first, count: end.saturating_sub(first) }
    }

    /// Whether position `p` is one of them. One before `first` wraps to at least 2³¹ - `first`, and `first + count` is at most 2³¹.
    #[inline(always)]
    fn has(self, p: i32) -> bool {
        (p as u32).wrapping_sub(self.first) < self.count
    }

    /// Of the eight positions from `p` on, those that it has: from one, to before the other.
    #[inline(always)]
    fn of_eight(self, p: i32) -> (u32, u32) {
        let (first, end) = (i64::from(self.first), i64::from(self.first) + i64::from(self.count));
        let within = |position: i64| (position - i64::from(p)).clamp(0, 8) as u32;
        (within(first), within(end))
    }
}

impl<E: Element, const R: usize, const C: usize> Reader<E, R, C> {
    #[inline(always)]
    pub(crate) fn new(tile: Tile<E, R, C>, whole: bool) -> Self {
        let rows = if tile.plane < 0 { 0 } else { tile.view.rows };
        Reader { tile, rows: Span::new(rows, tile.row, R), cols: Span::new(tile.view.cols, tile.col, C), whole }
    }

    /// The element at (`row`, `col`) from the tile's origin; zero outside the tensor, see [`Reader`].
    #[inline(always)]
    pub fn at(&self, row: i32, col: i32) -> E::Value {
        #[cfg(not(target_arch = "nvptx64"))]
        self.refuse(row, col, 1);
        let inside = self.rows.has(row) & self.cols.has(col);
        // SAFETY: if so, the position is inside the view, which the plan made from a live tensor.
        unsafe { E::read_if(inside, self.tile.pointer(row, col)) }.value()
    }

    /// The eight elements from (`row`, `col`) on; zero outside the tensor, see [`Reader`]. One 16-byte access if `col` is a multiple of eight,
    /// elements lie side by side and rows begin at multiples of 16 bytes.
    #[inline(always)]
    pub fn at8(&self, row: i32, col: i32) -> [E::Value; 8] {
        #[cfg(not(target_arch = "nvptx64"))]
        self.refuse(row, col, 8);
        self.eight(row, col)
    }

    /// As [`Reader::at8`], but zero outside the region everywhere: of rows that data name, and may not have.
    #[inline(always)]
    pub(crate) fn eight(&self, row: i32, col: i32) -> [E::Value; 8] {
        let inside = self.rows.has(row);
        let at = self.tile.pointer(row, col);
        if self.whole && col & 7 == 0 {
            // No branch: the use of what it loads would wait in it, before the next load.
            // SAFETY: if inside, eight positions of the view, which the plan made from a live tensor; `whole` promises the alignment, and
            // that region and tensor end at a multiple of eight columns.
            return E::open(unsafe { E::eight_if(inside & self.cols.has(col), at) });
        }
        let (from, to) = self.cols.of_eight(col);
        let eight = if col & 7 == 0 && (from, to) == (0, 8) && self.tile.wide() {
            // SAFETY: if inside, eight positions of the view, which the plan made from a live tensor; `wide` promises the alignment.
            unsafe { E::eight_if(inside, at) }
        } else {
            // SAFETY: the positions are inside the view.
            unsafe { E::gather::<false>(at, self.tile.view.col_stride, from, if inside { to } else { 0 }) }
        };
        E::open(eight)
    }

    /// Rows of the tile inside the tensor.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.tile.rows()
    }

    /// Columns of the tile inside the tensor.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.tile.cols()
    }

    /// Ends the task if one of the `count` positions from (`row`, `col`) on is in the tensor but not in the region.
    ///
    /// Of a block of eight from a multiple of eight columns on that begins inside, what is past the region's end is cut off: blocks need not divide a tile, and
    /// what belongs to these columns is dropped. Any other block has a distance, which the region must have as well.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn refuse(&self, row: i32, col: i32, count: i32) {
        if self.tile.plane < 0 || !on_axis(self.tile.view.rows, self.tile.row, row) {
            return;
        }
        let cut = count > 1 && col % 8 == 0 && in_region(C, col);
        let outside = |col: &i32| on_axis(self.tile.view.cols, self.tile.col, *col) && !(in_region(R, row) && (cut || in_region(C, *col)));
        if let Some(col) = (0..count).map(|n| col.saturating_add(n)).find(outside) {
            std::panic::resume_unwind(Box::new(OutsideRegion {
                operand: self.tile.operand,
                position: (row, col),
                region: [R as u32, C as u32],
            }));
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
fn on_axis(extent: u32, origin: i32, position: i32) -> bool {
    (0..i64::from(extent)).contains(&(i64::from(origin) + i64::from(position)))
}

#[cfg(not(target_arch = "nvptx64"))]
fn in_region(size: usize, position: i32) -> bool {
    size == 0 || (0..size as i64).contains(&i64::from(position))
}

/// A body read outside its region: what its thread unwinds with on the CPU.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideRegion {
    /// Which tensor parameter of the task was read.
    pub operand: u32,
    /// Row and column, from the tile's origin.
    pub position: (i32, i32),
    /// Rows and columns of the region; 0: the whole axis.
    pub region: [u32; 2],
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use maco_abi::View;

    /// Against the definition: 0 ≤ p < size and 0 ≤ origin + p < extent.
    #[test]
    fn a_span_is_the_region_in_the_tensor() {
        let ends = [i32::MIN, i32::MIN + 1, i32::MAX - 1, i32::MAX];
        for (extent, origin, size) in all([0, 1, 7, 8, 9, 64, i32::MAX as u32], [-9, -1, 0, 1, 8, 60, i32::MAX], [0, 1, 8, 10, 64]) {
            // A whole axis begins where the tensor does.
            if size == 0 && origin < 0 {
                continue;
            }
            let span = Span::new(extent, origin, size);
            let near = (-12..80).chain(
                [extent as i32, (extent as i32).wrapping_sub(origin)]
                    .into_iter()
                    .flat_map(|end| [end.wrapping_sub(1), end, end.wrapping_add(1)]),
            );
            for p in near.chain(ends) {
                let expected = p >= 0 && in_region(size, p) && on_axis(extent, origin, p);
                assert_eq!(span.has(p), expected, "position {p} of {size} from {origin} in {extent}");
            }
            for p in -20..80 {
                let (from, to) = span.of_eight(p);
                let found: Vec<i32> = (p..p + 8).filter(|&p| span.has(p)).collect();
                let expected: Vec<i32> = (from as i32..to as i32).map(|n| p + n).collect();
                assert_eq!(expected, found, "eight from {p} of {size} from {origin} in {extent}");
            }
        }
    }

    /// Tiles of 20 columns with a halo of one, in the middle of a tensor and at its ends: a block from a multiple of eight on that begins in the region may end
    /// outside, no other one.
    #[test]
    fn a_block_of_eight_stays_in_the_region() {
        let data = [1.0f32; 3 * 60];
        let view =
            View { base: data.as_ptr() as u64, rows: 3, cols: 60, row_stride: 60, col_stride: 1, plane_stride: 0, map: maco_abi::NO_MAP };
        for origin in [-1, 19, 39] {
            let reader = Reader::new(Tile::<f32, 1, 22>::new(view, 0, 1, origin), false);
            for (row, col) in (-2..=2).flat_map(|row| (-70..70).map(move |col| (row, col))) {
                let inside: Vec<i32> = (col..col + 8).filter(|col| (-1..2).contains(&row) && (0..60).contains(&(origin + col))).collect();
                let in_region = |col: &i32| row == 0 && (0..22).contains(col);
                let allowed = inside.iter().all(in_region) || (col % 8 == 0 && in_region(&col));
                let read = std::panic::catch_unwind(|| reader.at8(row, col));
                match read {
                    Ok(eight) => {
                        let expected: Vec<f32> =
                            (col..col + 8).map(|c| f32::from(u8::from(in_region(&c) && inside.contains(&c)))).collect();
                        assert!(allowed && eight[..] == expected, "({row}, {col}) from {origin}: {eight:?}");
                    }
                    Err(error) => {
                        let at = error.downcast::<OutsideRegion>().expect("it says where").position;
                        assert!(
                            !allowed && at.0 == row && inside.contains(&at.1) && !in_region(&at.1),
                            "({row}, {col}) from {origin}: {at:?}"
                        );
                    }
                }
            }
        }
    }

    fn all<const A: usize, const B: usize, const C: usize>(
        extents: [u32; A],
        origins: [i32; B],
        sizes: [usize; C],
    ) -> impl Iterator<Item = (u32, i32, usize)> {
        extents
            .into_iter()
            .flat_map(move |extent| origins.into_iter().flat_map(move |origin| sizes.into_iter().map(move |size| (extent, origin, size))))
    }
}
