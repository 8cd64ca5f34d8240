//! The largest element of a row, and where it stands.

use crate::exchange::across;

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

/// The largest of every lane's entry; every lane gets it.
#[inline(always)]
pub(crate) fn largest_across(best: Entry) -> Entry {
    let entry = |(value, index): (f32, u32)| Entry { value, index };
    entry(across((best.value, best.index), &|best, other| if entry(other).beats(entry(best)) { other } else { best }))
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
    use super::{Entry, next};

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
