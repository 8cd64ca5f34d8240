//! The largest element of a row and its index.

#[cfg(target_arch = "nvptx64")]
use crate::ptx::warp;

/// An element and where it stands: what [`Row::largest`](crate::Row::largest) finds. NaN is larger than any number, and the first of equals is the larger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The element; negative infinity where there is none.
    pub value: f32,
    /// Its index; `u32::MAX` where there is none.
    pub index: u32,
}

impl Entry {
    /// Less than any element.
    pub const NONE: Entry = Entry { value: f32::NEG_INFINITY, index: u32::MAX };

    /// Whether this one is the larger.
    #[inline(always)]
    pub fn beats(self, other: Entry) -> bool {
        let (nan, than) = (self.value.is_nan(), other.value.is_nan());
        let same = self.value == other.value || nan && than;
        self.value > other.value || nan && !than || same && self.index < other.index
    }
}

/// A value as a number whose order is that of [`Entry::beats`]: of two floating-point numbers the larger one's is larger, −0 and 0 have the same, and so
/// have all NaN, above any other's.
#[cfg(any(target_arch = "nvptx64", test))]
#[inline(always)]
fn rank(value: f32) -> u32 {
    // −0 + 0 is 0.
    let bits = (value + 0.0).to_bits();
    match (value.is_nan(), bits >> 31) {
        (true, _) => u32::MAX,
        (_, 0) => bits | 1 << 31,
        _ => !bits,
    }
}

/// The largest of every lane's entry; every lane gets it. The whole warp comes here.
///
/// By ranks of values, then by indices, an instruction for all lanes each (PTX ISA §9.7.13.13 `redux.sync`): by shuffles it takes five times the
/// comparisons of two entries one after the other, some 700 cycles.
#[inline(always)]
pub(crate) fn largest_across(best: Entry) -> Entry {
    #[cfg(target_arch = "nvptx64")]
    {
        let own = rank(best.value);
        let is_largest = own == warp::largest(own);
        let index = warp::least(if is_largest { best.index } else { u32::MAX });
        // An entry of none is less than any element but negative infinity, beside which it has the larger index.
        let lane = warp::ballot(is_largest && best.index == index).trailing_zeros();
        Entry { value: f32::from_bits(warp::broadcast(best.value.to_bits(), lane % warp::LANES)), index }
    }
    #[cfg(not(target_arch = "nvptx64"))]
    best
}

/// The larger of `best` and the elements of a block, which comes behind what `best` was found in.
#[inline(always)]
pub(crate) fn largest_of(best: Entry, v: [f32; 8], index: u32) -> Entry {
    let mut best = best;
    macro_rules! one {
        ($($n:literal)*) => {$(
            best = next(best, None, Entry { value: v[$n], index: index + $n });
        )*};
    }
    one!(0 1 2 3 4 5 6 7);
    best
}

/// The larger of `best` and an entry behind it, which is not taken unless it is below `limit`: of [`Entry::beats`] what is left when the order is
/// known, since a row is bound by these comparisons.
#[inline(always)]
pub(crate) fn next(best: Entry, limit: Option<Entry>, entry: Entry) -> Entry {
    // Also a NaN.
    let larger = !matches!(entry.value.partial_cmp(&best.value), Some(core::cmp::Ordering::Less | core::cmp::Ordering::Equal));
    let larger = larger && !best.value.is_nan() || best.index == u32::MAX;
    let below = limit.is_none_or(|limit| {
        if limit.value.is_nan() {
            !entry.value.is_nan() || limit.index < entry.index
        } else {
            limit.value > entry.value || limit.value == entry.value && limit.index < entry.index
        }
    });
    if larger && below { entry } else { best }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::{Entry, next, rank};

    /// A total order: exactly one of two different entries is the larger.
    #[test]
    fn entries_are_ordered() {
        let values = [f32::NAN, f32::INFINITY, 1.0, 1.0, 0.0, -0.0, -1.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
        let entries: Vec<Entry> = values.into_iter().zip(0..).map(|(value, index)| Entry { value, index }).collect();
        for (n, &a) in entries.iter().enumerate() {
            for (m, &b) in entries.iter().enumerate() {
                assert_eq!(a.beats(b), n < m, "{a:?} and {b:?}");
            }
            assert!(a.beats(Entry::NONE));
        }
        assert!(!Entry::NONE.beats(Entry::NONE));
    }

    /// The order of ranks is that of values.
    #[test]
    fn ranks_are_in_the_order_of_values() {
        let values = [f32::NAN, f32::INFINITY, f32::MAX, 1.0, f32::MIN_POSITIVE, 1e-45, 0.0, -1e-45, -1.0, f32::MIN, f32::NEG_INFINITY];
        assert!(values.windows(2).all(|pair| rank(pair[0]) > rank(pair[1])));
        assert_eq!((rank(0.0), rank(f32::NAN)), (rank(-0.0), rank(-f32::NAN)));
        let entries: Vec<Entry> = values.into_iter().chain([-0.0]).zip(0..).map(|(value, index)| Entry { value, index }).collect();
        for &a in &entries {
            for &b in &entries {
                let by_rank = (rank(a.value), u32::MAX - a.index) > (rank(b.value), u32::MAX - b.index);
                assert_eq!(a.beats(b), by_rank, "{a:?} and {b:?}");
            }
        }
    }

    /// Entry by entry in their order, as whoever compares each with each.
    #[test]
    fn what_comes_behind_is_compared_alike() {
        let values = [f32::NAN, f32::INFINITY, 1.0, 0.0, -0.0, -1.0, f32::NEG_INFINITY];
        let entries =
            |a: usize, b: usize, c: usize| [a, b, c].map(|n| values[n]).into_iter().zip(3..).map(|(value, index)| Entry { value, index });
        for n in 0..values.len().pow(3) {
            let of = |row: [usize; 3], limit: Option<Entry>| {
                let found = entries(row[0], row[1], row[2]).fold(Entry::NONE, |best, entry| next(best, limit, entry));
                let below = entries(row[0], row[1], row[2]).filter(|&entry| limit.is_none_or(|limit| limit.beats(entry)));
                let expected = below.fold(Entry::NONE, |best, entry| if entry.beats(best) { entry } else { best });
                assert_eq!(found.index, expected.index, "{row:?} below {limit:?}");
                found
            };
            let row = [n % 7, n / 7 % 7, n / 49];
            let first = of(row, None);
            let second = of(row, Some(first));
            of(row, Some(second));
        }
    }
}
