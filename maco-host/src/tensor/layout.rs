//! Where an element lies: strides and padding. Memory itself does not belong here.

use super::shape::{RANK, Shape};
use crate::error::Error;

/// Rows begin at multiples of this many bytes: tensor maps and 16-byte accesses need it.
pub(crate) const ROW_ALIGN: u64 = 16;

/// A shape with its row stride. The innermost axis is contiguous, and every axis further out follows from the row stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    /// Elements from one row to the next.
    pub(crate) row_stride: u64,
}

impl Layout {
    /// Rows padded to 16 bytes.
    pub(crate) fn padded(shape: Shape, element_bytes: u64) -> Result<Layout, Error> {
        let too_large = || Error::TensorTooLarge { shape };
        let bytes = shape.columns().max(1).checked_mul(element_bytes).ok_or_else(too_large)?;
        let row_stride = bytes.checked_next_multiple_of(ROW_ALIGN).ok_or_else(too_large)? / element_bytes;
        Layout::strided(shape, row_stride, element_bytes)
    }

    /// Rows at a given stride; refuses what no address space holds.
    pub(crate) fn strided(shape: Shape, row_stride: u64, element_bytes: u64) -> Result<Layout, Error> {
        let total =
            shape.elements().and(shape.rows()).and_then(|rows| rows.checked_mul(row_stride)).and_then(|n| n.checked_mul(element_bytes));
        match total {
            Some(bytes) if bytes <= isize::MAX as u64 => Ok(Layout { shape, row_stride }),
            _ => Err(Error::TensorTooLarge { shape }),
        }
    }

    /// Number of elements a user sees.
    pub(crate) fn elements(&self) -> u64 {
        self.shape.elements().expect("checked when the layout was made")
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.shape.rows().expect("checked when the layout was made")
    }

    /// Elements from the first to the last, inclusive; padding after the last row is not counted.
    pub(crate) fn span(&self) -> u64 {
        if self.elements() == 0 { 0 } else { (self.rows() - 1) * self.row_stride + self.shape.columns() }
    }

    /// Elements to allocate: whole padded rows.
    pub(crate) fn allocation(&self) -> u64 {
        self.rows() * self.row_stride
    }

    /// Whether no row is padded.
    pub(crate) fn contiguous(&self) -> bool {
        self.row_stride == self.shape.columns() || self.rows() <= 1
    }

    /// Elements from one index to the next along each axis; entries beyond the rank are 0.
    pub(crate) fn strides(&self) -> [u64; RANK] {
        let rank = self.shape.len();
        let mut strides = [0; RANK];
        strides[rank - 1] = 1;
        let mut stride = self.row_stride;
        for axis in (0..rank - 1).rev() {
            strides[axis] = stride;
            stride = stride.saturating_mul(self.shape[axis]);
        }
        strides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(extents: &[u64]) -> Shape {
        Shape::new(extents).unwrap()
    }

    #[test]
    fn rows_are_padded_to_16_bytes() {
        assert_eq!(Layout::padded(shape(&[3, 5]), 2).unwrap().row_stride, 8);
        assert_eq!(Layout::padded(shape(&[3, 8]), 2).unwrap().row_stride, 8);
        assert_eq!(Layout::padded(shape(&[3, 5]), 4).unwrap().row_stride, 8);
        assert_eq!(Layout::padded(shape(&[9]), 2).unwrap().row_stride, 16);
        assert_eq!(Layout::padded(shape(&[9, 0]), 2).unwrap().row_stride, 8);
    }

    #[test]
    fn strides_follow_the_row_stride() {
        let layout = Layout::padded(shape(&[2, 3, 5]), 2).unwrap();
        assert_eq!(layout.strides(), [24, 8, 1, 0]);
        assert_eq!(layout.span(), 5 * 8 + 5);
        assert_eq!(layout.allocation(), 48);
        assert!(!layout.contiguous());
        assert_eq!(Layout::padded(shape(&[7]), 4).unwrap().strides(), [1, 0, 0, 0]);
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(matches!(Layout::padded(shape(&[u64::MAX]), 2), Err(Error::TensorTooLarge { .. })));
        assert!(matches!(Layout::padded(shape(&[1 << 40, 1 << 40]), 2), Err(Error::TensorTooLarge { .. })));
        assert!(matches!(Layout::strided(shape(&[1 << 40, 1]), 1 << 30, 2), Err(Error::TensorTooLarge { .. })));
    }
}
