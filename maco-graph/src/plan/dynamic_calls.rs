//! Which calls are left to whichever multiprocessor is free, since memory bounds them: not all get the same share of it.
//!
//! On an H200 the first of 132 workers with as many bytes each ends a copy of 256 MiB when the last one has still half of its tasks to do, and the copy takes as long as that one: 72 µs where
//! workers claim tiles 67 (docs/internals/memory.md). A ticket costs a worker an addition in device memory, behind which a descriptor comes, so it pays where tasks are many, and long enough to hide both.

use super::{Options, Schedule, workload};
use crate::ir::{Call, Graph};
use crate::spec::TaskKind;

/// Tasks for each worker from which on they are claimed.
const ROUNDS: u64 = 12;
/// Workers from which on they do not get the same share of the memory.
const WORKERS: u32 = 16;
/// Bytes of a task that take longer than its ticket.
const BYTES: u64 = 16 * 1024;

/// Whether the `tasks` tasks of a call are claimed though the graph does not say so.
pub(super) fn is_dynamic(graph: &Graph, call: &Call, tasks: u64, options: &Options) -> bool {
    let free = options.schedule == Schedule::Static && options.assignment.is_none() && options.costs.is_none() && !call.drain;
    // Of a body of the user's own nobody knows what bounds it.
    let bound = !matches!(call.task.kind, TaskKind::Gemm { .. } | TaskKind::Gemv { .. } | TaskKind::Simt { .. });
    free && bound
        && options.workers >= WORKERS
        && tasks >= ROUNDS * u64::from(options.workers)
        && workload::bytes_moved(graph, call).0 / tasks >= BYTES
}
