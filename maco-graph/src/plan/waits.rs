//! What tasks wait for: counters, by number or by rows that data name.
//!
//! Why they do does not belong here.

use std::ops::Range;

/// Wait until a counter holds at least `need` signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Which counter.
    pub counter: u32,
    /// Signals it gets in one launch.
    pub need: u32,
}

/// Every task of a call waits for the rows of a tensor that indices in another tensor select.
///
/// An element `e` names row `e` of the view if that is below `limit`, and the wait is for counter
/// `counters.start + (first + e) / size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedWait {
    /// The call.
    pub call: u32,
    /// Which tensor parameter holds the row indices.
    pub operand: u32,
    /// Whether no task writes the indices.
    pub known: bool,
    /// Whether the index tensor has rank 1: a tile is then a range of its elements, else of its rows.
    pub flat: bool,
    /// Grid axis along which its tiles lie; none when every task reads all of it.
    pub axis: Option<u8>,
    /// Size of a tile along that axis.
    pub rows: u32,
    /// Counters of all rows.
    pub counters: Range<u32>,
    /// Rows per counter.
    pub size: u32,
    /// Rows of the view.
    pub limit: u32,
    /// Signals that every one of the counters gets.
    pub need: u32,
    /// Row of the first counter's first row at which the view begins.
    pub first: u32,
}
