//! Extents of a tensor. Strides and memory do not belong here.

use std::fmt;
use std::ops::Deref;

use crate::error::Error;

/// Highest rank of a tensor.
pub const RANK: usize = 4;

/// Extents of a tensor, outermost first; rank 1 to 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    extents: [u64; RANK],
    rank: u8,
}

impl Shape {
    /// Checks the rank.
    pub(crate) fn new(extents: &[u64]) -> Result<Shape, Error> {
        if extents.is_empty() || extents.len() > RANK {
            return Err(Error::Rank { found: extents.len() });
        }
        let mut shape = Shape { extents: [1; RANK], rank: extents.len() as u8 };
        shape.extents[..extents.len()].copy_from_slice(extents);
        Ok(shape)
    }

    /// Number of elements, unless it exceeds 64 bits.
    pub(crate) fn elements(&self) -> Option<u64> {
        self.iter().try_fold(1u64, |product, &extent| product.checked_mul(extent))
    }

    /// Extent of the innermost axis.
    pub(crate) fn columns(&self) -> u64 {
        self[self.len() - 1]
    }

    /// Product of all extents but the innermost, unless it exceeds 64 bits.
    pub(crate) fn rows(&self) -> Option<u64> {
        self[..self.len() - 1].iter().try_fold(1u64, |product, &extent| product.checked_mul(extent))
    }
}

impl Deref for Shape {
    type Target = [u64];
    fn deref(&self) -> &[u64] {
        &self.extents[..self.rank as usize]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// An integer that may be an extent.
pub trait Extent: Copy {
    /// The extent, unless negative.
    fn extent(self) -> Option<u64>;
}

macro_rules! extents {
    ($($ty:ty),+) => {$(
        impl Extent for $ty {
            fn extent(self) -> Option<u64> {
                u64::try_from(self).ok()
            }
        }
    )+};
}
// `i32` is what an unsuffixed literal falls back to.
extents!(u64, usize, u32, i32);

/// What can be given as the shape of a tensor: arrays and slices of integers, `[4096, 4096]`.
pub trait IntoShape {
    /// The shape.
    ///
    /// # Errors
    /// MACO0037 when the rank is not 1 to 4 or an extent is negative.
    fn into_shape(self) -> Result<Shape, Error>;
}

impl IntoShape for Shape {
    fn into_shape(self) -> Result<Shape, Error> {
        Ok(self)
    }
}

impl<T: Extent, const N: usize> IntoShape for [T; N] {
    fn into_shape(self) -> Result<Shape, Error> {
        self.as_slice().into_shape()
    }
}

impl<T: Extent> IntoShape for &[T] {
    fn into_shape(self) -> Result<Shape, Error> {
        if self.is_empty() || self.len() > RANK {
            return Err(Error::Rank { found: self.len() });
        }
        let mut extents = [1; RANK];
        for (axis, (to, from)) in extents.iter_mut().zip(self).enumerate() {
            *to = from.extent().ok_or(Error::NegativeExtent { axis })?;
        }
        Shape::new(&extents[..self.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_slices() {
        assert_eq!(&*[3, 4].into_shape().unwrap(), &[3, 4]);
        assert_eq!(&*[3u64, 4, 5].into_shape().unwrap(), &[3, 4, 5]);
        assert_eq!(&*[7usize].as_slice().into_shape().unwrap(), &[7]);
        assert_eq!([3, 4].into_shape().unwrap().to_string(), "[3, 4]");
    }

    #[test]
    fn bad_ranks_and_signs() {
        let none: [u64; 0] = [];
        assert!(matches!(none.into_shape(), Err(Error::Rank { found: 0 })));
        assert!(matches!([1, 2, 3, 4, 5].into_shape(), Err(Error::Rank { found: 5 })));
        assert!(matches!([1, -2].into_shape(), Err(Error::NegativeExtent { axis: 1 })));
    }

    #[test]
    fn products_do_not_wrap() {
        assert_eq!([0, 5].into_shape().unwrap().elements(), Some(0));
        assert_eq!([u64::MAX, 2].into_shape().unwrap().elements(), None);
        assert_eq!([2, 3, 5].into_shape().unwrap().rows(), Some(6));
        assert_eq!([5].into_shape().unwrap().rows(), Some(1));
    }
}
