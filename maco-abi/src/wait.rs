//! What a task waits for: counters, and counters that data name.

/// Wait until `counter` reaches `need`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Index into the counter bank.
    pub counter: u32,
    /// Arrivals needed. With [`IN_BAND_FLAGS`] nobody waits for them.
    pub need: u32,
}

/// Bit of [`Wait::need`]: the data have in-band flags, which the task polls instead of the counter. The counter is for the watchdog: it says what a task that hangs
/// polls for.
pub const IN_BAND_FLAGS: u32 = 1 << 31;

/// Wait for the rows of a tensor that another one names: eight words of [`crate::Launch::overflow`].
///
/// The task's region of the naming tensor is `rows` rows of it from row `coord[axis] * rows`; each element `e` names a row, and the
/// wait is for counter `base + (first + e) / size` to reach `need`. Rows from `limit` on do not exist and are not waited for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indirect {
    /// Which tensor parameter names the rows, [`FLAT`] and [`KNOWN`].
    pub operand: u32,
    /// Grid axis of its rows; 3 for none.
    pub axis: u32,
    /// Rows of it per tile.
    pub rows: u32,
    /// First counter.
    pub base: u32,
    /// Rows per counter.
    pub size: u32,
    /// Rows there are.
    pub limit: u32,
    /// Arrivals needed, the same for all counters.
    pub need: u32,
    /// Row of the first counter's rows at which row 0 of the view lies.
    pub first: u32,
}

/// Bit of [`Indirect::operand`]: the tensor has rank 1, so that tiles count its elements.
pub const FLAT: u32 = 1 << 8;
/// Bit of [`Indirect::operand`]: no task writes the names, so that they can be read before anything has been waited for.
pub const KNOWN: u32 = 1 << 9;

const _: () = {
    assert!(size_of::<Wait>() == 8);
    assert!(size_of::<Indirect>() == 32);
};
