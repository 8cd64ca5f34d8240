//! Rows of a matrix through the ring, as they lie in memory: a stage has as many columns of all rows of a tile as fit.

use crate::abi::PAGE_BYTES;
use crate::element::Element;
use crate::tile::Tile;

/// Pages of a stage. One thread copies row by row: with shorter rows it could not keep up with memory.
pub const PAGES: u32 = 2;

/// Columns of a stage of `rows` rows of two-byte elements.
pub const fn columns(rows: usize) -> u32 {
    PAGES * PAGE_BYTES / 2 / rows as u32
}

impl<E: Element, const R: usize> Tile<E, R, 0> {
    /// Whether rows can be copied in bulk (PTX ISA §9.7.9.25.4), and read 16 bytes at a time up to a multiple of eight columns.
    #[inline(always)]
    pub(crate) fn streams(self) -> bool {
        let cols = self.cols();
        self.wide() && (cols.is_multiple_of(8) || cols.next_multiple_of(8) <= self.row_stride())
    }
}
