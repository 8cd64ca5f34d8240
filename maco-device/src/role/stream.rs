//! Rows of a matrix through the ring, as they lie in memory: a stage has as many columns of all rows of a tile as fit.

use crate::abi::PAGE_BYTES;
use crate::element::Element;
use crate::tile::Tile;

/// Pages of a stage of `rows` rows. One thread copies row by row, which takes it as long for a short row as for a long one: more rows
/// get more space.
pub const fn pages(rows: usize) -> u32 {
    if rows > 8 { 4 } else { 2 }
}

/// Columns of a stage of `rows` rows of two-byte elements.
pub const fn columns(rows: usize) -> u32 {
    pages(rows) * PAGE_BYTES / 2 / rows as u32
}

impl<E: Element, const R: usize> Tile<E, R, 0> {
    /// Whether rows can be copied in bulk (PTX ISA §9.7.9.25.4), and read 16 bytes at a time.
    #[inline(always)]
    pub(crate) fn streams(self) -> bool {
        self.wide() && self.cols().is_multiple_of(8)
    }
}
