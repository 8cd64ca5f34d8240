//! Warp reductions: what lanes exchange and combine, in an order that depends on the lanes alone.

use crate::data::pure::Unchanging;

/// What the lanes of a warp can exchange: the state of a reduction. One word or several, each by a shuffle of its own (PTX ISA §9.7.9.6
/// `shfl.sync`).
#[diagnostic::on_unimplemented(
    message = "lanes of a warp cannot exchange `{Self}`",
    label = "not the state of a reduction",
    note = "`fold` combines `f32`, `u32`, and tuples of two to four of these"
)]
pub trait Exchange: Copy + Unchanging {
    /// The value of lane `lane ^ distance`.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn of_lane(self, distance: u32) -> Self;
    /// The value of lane `lane`.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn at_lane(self, lane: u32) -> Self;
}

impl Exchange for f32 {
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn of_lane(self, distance: u32) -> f32 {
        crate::ptx::warp::shuffle_xor(self, distance)
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn at_lane(self, lane: u32) -> f32 {
        f32::from_bits(self.to_bits().at_lane(lane))
    }
}

impl Exchange for u32 {
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn of_lane(self, distance: u32) -> u32 {
        f32::from_bits(self).of_lane(distance).to_bits()
    }
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn at_lane(self, lane: u32) -> u32 {
        crate::ptx::warp::broadcast(self, lane)
    }
}

macro_rules! tuple_exchange {
    ($($name:ident $n:tt),+) => {
        impl<$($name: Exchange),+> Exchange for ($($name,)+) {
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn of_lane(self, distance: u32) -> Self {
                ($(self.$n.of_lane(distance),)+)
            }
            #[cfg(target_arch = "nvptx64")]
            #[inline(always)]
            fn at_lane(self, lane: u32) -> Self {
                ($(self.$n.at_lane(lane),)+)
            }
        }
    };
}
tuple_exchange!(A 0, B 1);
tuple_exchange!(A 0, B 1, C 2);
tuple_exchange!(A 0, B 1, C 2, D 3);

/// `f` of eight elements, combined in pairs.
#[inline(always)]
pub(crate) fn eight<V: Copy, S: Exchange>(v: [V; 8], f: &impl Fn(V) -> S, combine: &impl Fn(S, S) -> S) -> S {
    let low = combine(combine(f(v[0]), f(v[1])), combine(f(v[2]), f(v[3])));
    let high = combine(combine(f(v[4]), f(v[5])), combine(f(v[6]), f(v[7])));
    combine(low, high)
}

/// Every lane's total, combined; every lane gets the result. The whole warp comes here: a row is handed to all its lanes alike.
#[inline(always)]
pub(crate) fn across<S: Exchange>(total: S, combine: &impl Fn(S, S) -> S) -> S {
    #[cfg(target_arch = "nvptx64")]
    {
        let mut total = total;
        let mut distance = 16;
        while distance > 0 {
            total = combine(total, total.of_lane(distance));
            distance /= 2;
        }
        total
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let _ = combine;
        total
    }
}
