//! The result of a run.

use std::time::Duration;

/// A run that ended without error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// From the start of the launch to its end: on a GPU between two events around the kernel, on a CPU between waking the
    /// workers and the last one's end.
    pub elapsed: Duration,
    /// Tasks that ran.
    pub tasks: usize,
    /// Workers that ran them.
    pub workers: u32,
}
