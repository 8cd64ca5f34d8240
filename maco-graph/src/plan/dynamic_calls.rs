//! Which memory-bound calls are scheduled dynamically: workers claim their tiles by ticket, because memory bandwidth differs between multiprocessors.
//!
//! With as many bytes for each worker, the first one may end a large copy when the last one has still half of its tasks to do.
//! A ticket costs one atomic addition in device memory, and the load of a descriptor after it. So it pays where tasks are many, and long enough to hide both
//! ([`super::DeviceModel::ticket`]). What it gains: docs/internals/memory.md.

use super::{Options, Schedule, workload};
use crate::ir::{Call, Graph};
use crate::spec::TaskKind;

/// Least tasks per worker, a bound of this heuristic: with fewer, workers that are ahead have little left to take from those behind.
const ROUNDS: u64 = 12;
/// Least workers, likewise: with fewer, memory is not what they wait for.
const WORKERS: u32 = 16;

/// Whether workers claim the `tasks` tasks of a call although it has no `.drain()`.
pub(super) fn is_dynamic(graph: &Graph, call: &Call, tasks: u64, options: &Options) -> bool {
    let free = options.schedule == Schedule::Static && options.assignment.is_none() && options.costs.is_none() && !call.drain;
    // What bounds a SIMT body of the user's is not known.
    let bound = !(matches!(call.task.kind, TaskKind::Gemm { .. } | TaskKind::Gemv { .. }) || call.task.is_simt());
    // Lists with drains are in the order of calls, and tasks of collectives could not stand behind those that make their tiles (`collective_order`).
    let alone = !graph.calls.iter().any(|call| call.task.collective().is_some());
    free && bound
        && alone
        && options.workers >= WORKERS
        && tasks >= ROUNDS * u64::from(options.workers)
        && workload::bytes_moved(graph, call).0 / tasks >= options.model.bytes_behind_a_ticket()
}
