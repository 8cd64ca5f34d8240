//! Which memory-bound calls are scheduled dynamically: workers claim their tiles by ticket, because memory bandwidth differs between multiprocessors.
//!
//! On an H200, with as many bytes for each of 132 workers, the first worker ends a copy of 256 MiB when the last one has still half of its tasks to do.
//! The copy then takes 72 µs; with claimed tiles it takes 67 µs (docs/internals/memory.md).
//! A ticket costs one atomic addition in device memory, and the load of a descriptor after it. So it pays where tasks are many, and long enough to hide both.

use super::{Options, Schedule, workload};
use crate::ir::{Call, Graph};
use crate::spec::TaskKind;

/// Least tasks per worker.
const ROUNDS: u64 = 12;
/// Least workers: fewer all get the same memory bandwidth.
const WORKERS: u32 = 16;
/// Least bytes per task: they must take longer than the ticket.
const BYTES: u64 = 16 * 1024;

/// Whether workers claim the `tasks` tasks of a call although it has no `.drain()`.
pub(super) fn is_dynamic(graph: &Graph, call: &Call, tasks: u64, options: &Options) -> bool {
    let free = options.schedule == Schedule::Static && options.assignment.is_none() && options.costs.is_none() && !call.drain;
    // What bounds a SIMT body of the user's is not known.
    let bound = !(matches!(call.task.kind, TaskKind::Gemm { .. } | TaskKind::Gemv { .. }) || call.task.is_simt());
    free && bound
        && options.workers >= WORKERS
        && tasks >= ROUNDS * u64::from(options.workers)
        && workload::bytes_moved(graph, call).0 / tasks >= BYTES
}
