//! What `dispatch` and `boundary` measure: tasks, and their bodies again as plain kernels, which the peers launch; and other plain kernels of
//! peers.
//!
//! How a graph is made of the tasks is in `graphs.rs`, what is timed in `bin/`.

use maco::prelude::*;

pub mod boundary;
pub mod dispatch;
pub mod plain;
pub mod row;

#[cfg(target_arch = "nvptx64")]
mod body;
#[cfg(target_arch = "nvptx64")]
mod ptx;

use boundary::{all, halo, identity, weights};
use dispatch::{awaited, bump, busy, empty, idle, relay, start, transfer};

maco::task_set! {
    /// What a model calls and the tasks that are measured, in one kernel: a dispatch costs what it costs a user's program.
    pub ops: linear<bf16>, matmul<bf16>, add<bf16>, copy<bf16>, gelu<bf16>, rmsnorm<bf16>, softmax<bf16>,
        start, empty, idle, awaited, bump, relay, busy, transfer, identity, halo, all, weights
}
