//! What elements are computed as: numbers that ranks add and compare.

use crate::data::pure::Unchanging;

/// What elements are computed as.
pub trait Number: Copy + Default + PartialOrd + Unchanging {
    /// The sum; of integers with wrap.
    fn plus(self, other: Self) -> Self;
    /// The quotient; of integers without what is behind the point.
    fn over(self, count: u32) -> Self;
    /// Whether it is "not a number" (IEEE 754).
    fn is_no_number(self) -> bool;
}

impl Number for f32 {
    #[inline(always)]
    fn plus(self, other: f32) -> f32 {
        self + other
    }
    #[inline(always)]
    fn over(self, count: u32) -> f32 {
        self / count as f32
    }
    #[inline(always)]
    fn is_no_number(self) -> bool {
        self.is_nan()
    }
}

macro_rules! integers {
    ($($ty:ident),*) => {$(
        impl Number for $ty {
            #[inline(always)]
            fn plus(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn over(self, count: u32) -> $ty {
                self / count as $ty
            }
            #[inline(always)]
            fn is_no_number(self) -> bool {
                false
            }
        }
    )*};
}
integers!(i32, u32);
