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

/// The larger of `best` and the elements of a block that are below `limit`.
#[inline(always)]
pub(crate) fn largest_of(best: Entry, limit: Option<Entry>, v: [f32; 8], index: u32) -> Entry {
    let mut best = best;
    macro_rules! one {
        ($($n:literal)*) => {$(
            let entry = Entry { value: v[$n], index: index + $n };
            if entry.beats(best) && limit.is_none_or(|limit| limit.beats(entry)) {
                best = entry;
            }
        )*};
    }
    one!(0 1 2 3 4 5 6 7);
    best
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::Entry;

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
}
