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
    /// Much of the task library (a kernel has at most 128 instances) and the tasks that are measured, in one kernel: a dispatch costs what it
    /// costs a user's program.
    pub ops: linear<bf16>, matmul<bf16>, add, mul, bias, copy, scale, gelu, relu, silu, rmsnorm, softmax, sum_rows,
        start, empty, idle, awaited, bump, relay, busy, transfer, identity, halo, all, weights
}
