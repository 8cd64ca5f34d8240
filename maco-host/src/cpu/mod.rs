//! The CPU device: threads as workers, running the same task bodies by the same protocol as a GPU.
//!
//! What a task does, and how counters work, does not belong here: both are `maco-device`'s.

mod executor;
mod machine;
mod pipeline;
mod pool;

pub(crate) use executor::Executor;
pub(crate) use pool::Pool;
