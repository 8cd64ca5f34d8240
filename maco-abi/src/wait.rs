//! What a task waits for: counters, and counters that data name.

use crate::limits::AXES;

/// A counter of this launch: its place in the counter bank ([`crate::Launch::counters`]). With schedulers, which count arrivals themselves, a worker.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CounterIndex(pub u32);

/// No counter: an unused inline wait.
pub const NO_COUNTER: CounterIndex = CounterIndex(u32::MAX);

/// Wait until a counter has so many arrivals: two words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Which counter.
    pub counter: CounterIndex,
    /// Arrivals needed, below 2³¹; see also [`Wait::has_in_band_flags`].
    pub need: u32,
}

/// Bit of [`Wait::need`].
const IN_BAND_FLAGS: u32 = 1 << 31;

impl Wait {
    /// For nothing.
    pub const NONE: Wait = Wait { counter: NO_COUNTER, need: 0 };

    /// For `need` arrivals at `counter`.
    pub const fn new(counter: CounterIndex, need: u32) -> Wait {
        Wait { counter, need }
    }

    /// The same wait, of data with in-band flags.
    pub const fn in_band(self) -> Wait {
        Wait { need: self.need | IN_BAND_FLAGS, ..self }
    }

    /// Whether the data have in-band flags, which the task polls instead of the counter. The counter is for the watchdog: it says what a task that hangs polls for.
    pub const fn has_in_band_flags(self) -> bool {
        self.need & IN_BAND_FLAGS != 0
    }

    /// Arrivals needed, of data with in-band flags too.
    pub const fn arrivals(self) -> u32 {
        self.need & !IN_BAND_FLAGS
    }

    /// Whether all arrivals have come, of which `seen` have been seen; for nothing, always. Whoever polls flags in data does not ask.
    pub const fn has_arrived(self, seen: u32) -> bool {
        seen >= self.need
    }

    /// The wait of those who look at counters: for nothing where the data have in-band flags.
    pub const fn counted(self) -> Wait {
        if self.has_in_band_flags() { Wait::NONE } else { self }
    }

    /// Whether it is for nothing.
    pub const fn is_none(self) -> bool {
        self.counter.0 == NO_COUNTER.0
    }

    /// From its words.
    pub const fn decode([counter, need]: [u32; 2]) -> Wait {
        Wait { counter: CounterIndex(counter), need }
    }

    /// Its words.
    pub const fn encode(self) -> [u32; 2] {
        [self.counter.0, self.need]
    }
}

/// Wait for the rows of a tensor that another one names: eight words of [`crate::Launch::overflow`].
///
/// The task's region of the naming tensor is `rows` rows of it from row `coord[axis] * rows`; each element `e` names a row, and the
/// wait is for counter `base + (first + e) / size` to reach `need`. Rows from `limit` on do not exist and are not waited for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indirect {
    /// Which tensor parameter names the rows: a [`Naming`], encoded.
    pub naming: u32,
    /// Grid axis of its rows; [`NO_AXIS`] for none.
    pub axis: u32,
    /// Rows of it per tile.
    pub rows: u32,
    /// First counter.
    pub base: CounterIndex,
    /// Rows per counter.
    pub size: u32,
    /// Rows there are.
    pub limit: u32,
    /// Arrivals needed, the same for all counters.
    pub need: u32,
    /// Row of the first counter's rows at which row 0 of the view lies.
    pub first: u32,
}

/// [`Indirect::axis`]: all tasks have all rows.
pub const NO_AXIS: u32 = AXES as u32;

impl Indirect {
    /// Its words in [`crate::Launch::overflow`].
    pub const fn encode(self) -> [u32; 8] {
        [self.naming, self.axis, self.rows, self.base.0, self.size, self.limit, self.need, self.first]
    }

    /// From its words.
    pub const fn decode([naming, axis, rows, base, size, limit, need, first]: [u32; 8]) -> Indirect {
        Indirect { naming, axis, rows, base: CounterIndex(base), size, limit, need, first }
    }
}

/// The tensor parameter of a task whose elements name rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Its number.
    pub operand: u8,
    /// It has rank 1, so that tiles count its elements.
    pub flat: bool,
    /// No task writes the names, so that they can be read before anything has been waited for.
    pub known: bool,
}

const FLAT: u32 = 1 << 8;
const KNOWN: u32 = 1 << 9;

impl Naming {
    /// In a word.
    pub const fn encode(self) -> u32 {
        self.operand as u32 | if self.flat { FLAT } else { 0 } | if self.known { KNOWN } else { 0 }
    }

    /// From a word.
    pub const fn decode(word: u32) -> Naming {
        Naming { operand: word as u8, flat: word & FLAT != 0, known: word & KNOWN != 0 }
    }
}

const _: () = {
    assert!(size_of::<Wait>() == 8);
    assert!(size_of::<Indirect>() == 32);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn naming_operands_survive() {
        for operand in 0..=u8::MAX {
            for (flat, known) in [(false, false), (false, true), (true, false), (true, true)] {
                let naming = Naming { operand, flat, known };
                assert_eq!(Naming::decode(naming.encode()), naming);
            }
        }
    }

    proptest! {
        #[test]
        fn waits_survive(counter in 0..u32::MAX, need in 0..1u32 << 31) {
            let wait = Wait::new(CounterIndex(counter), need);
            prop_assert!(!wait.is_none() && !wait.has_in_band_flags() && wait.in_band().has_in_band_flags());
            prop_assert_eq!(Wait::decode(wait.encode()), wait);
            prop_assert_eq!(Wait::decode(wait.in_band().encode()), wait.in_band());
            prop_assert_eq!((wait.in_band().counter, wait.in_band().arrivals(), wait.arrivals()), (wait.counter, need, need));
        }

        /// Data with in-band flags are waited for by no counter, and all else by its count.
        #[test]
        fn waits_arrive_with_their_count(counter in 0..u32::MAX, need in 0..1u32 << 31, seen in 0..1u32 << 31) {
            let wait = Wait::new(CounterIndex(counter), need);
            prop_assert_eq!(wait.has_arrived(seen), need <= seen);
            prop_assert_eq!((wait.counted(), wait.in_band().counted()), (wait, Wait::NONE));
            prop_assert!(Wait::NONE.is_none() && Wait::NONE.has_arrived(0));
        }

        #[test]
        fn waits_that_data_name_survive(words: [u32; 8]) {
            prop_assert_eq!(Indirect::decode(words).encode(), words);
        }
    }
}
