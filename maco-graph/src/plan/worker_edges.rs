//! Edges that never leave a worker.
//!
//! If all tasks that fill a counter are in one list, a task further down that list need not look at the counter: its worker runs
//! tasks in order and knows which are done. That spares a release, a signal, a poll and an acquire of device memory. Results
//! that travel through the ring are left out: copies by TMA are ordered through device memory only. So are drained tasks, whose
//! worker nobody knows.
//!
//! Tasks of one warp are left out as those that wait: a worker runs several at a time, each by another warp, and they would meet at barriers. Others
//! may wait for them so, at the barrier of all warps that such a wait is.
//!
//! Places are counted without what the worker claims in between, which may be any number of tasks. A task then waits for one that is
//! less far before it than the one it must come after, or is that one: tasks of a worker end in order, since each of its consumer
//! warps arrives at the end of one task after the other. And one that is too far before it to be waited for is no nearer.

use super::region::tensor_of;
use super::{Plan, Schedule};
use crate::ir::Call;

/// Which waits and signals a static plan does without.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerEdges {
    /// Per counter: the list whose tasks alone fill it, or [`NOWHERE`].
    home: Vec<u32>,
    /// Per counter: whether a wait of another list, or of a staged task, needs its signals.
    exported: Vec<bool>,
    /// Per task: list, or [`NOWHERE`] when its waits are never local, as those of staged and drained tasks.
    list: Vec<u32>,
    /// Per task: how many places of its list before it the last task is that it must come after; 0 if there is none.
    after: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl WorkerEdges {
    pub(super) fn new(plan: &Plan) -> WorkerEdges {
        if plan.schedule != Schedule::Static {
            return WorkerEdges::default();
        }
        let written = plan.graph.written();
        let direct = |call: &Call| {
            let streamed = call.task.gemv_operand_b().is_some_and(|operand| written[call.operands[operand].tensor as usize]);
            !streamed && !call.task.params.iter().filter_map(tensor_of).any(|param| param.staged)
        };
        let direct: Vec<bool> = plan.graph.calls.iter().map(direct).collect();
        let tasks = plan.tasks.len();
        let (mut list, mut position) = (vec![NOWHERE; tasks], vec![0; tasks]);
        let mut home: Vec<Option<u32>> = vec![None; plan.counters as usize];
        // Place in its list of the last task that fills a counter.
        let mut last = vec![0; plan.counters as usize];
        for worker in 0..plan.workers {
            for (at, &task) in plan.lists.of(worker as usize).iter().enumerate() {
                let direct = direct[plan.tasks[task as usize].call as usize];
                position[task as usize] = at as u32;
                if direct && !plan.graph.calls[plan.tasks[task as usize].call as usize].task.is_warp_task() {
                    list[task as usize] = worker;
                }
                for &counter in plan.signals_of(task) {
                    let home = &mut home[counter as usize];
                    *home = Some(if direct && home.is_none_or(|home| home == worker) { worker } else { NOWHERE });
                    last[counter as usize] = at as u32;
                }
            }
        }
        // Drained tasks are in no list, and one call fills a counter: theirs have had no home.
        let home: Vec<u32> = home.into_iter().map(|home| home.unwrap_or(NOWHERE)).collect();
        let mut edges = WorkerEdges { exported: vec![false; home.len()], after: vec![0; tasks], home, list };
        for wait in &plan.named {
            edges.exported[wait.counters.start as usize..wait.counters.end as usize].fill(true);
        }
        for task in 0..tasks as u32 {
            for wait in plan.waits_of(task) {
                if edges.contains(task, wait.counter) {
                    let distance = position[task as usize] - last[wait.counter as usize];
                    let after = &mut edges.after[task as usize];
                    *after = if *after == 0 { distance } else { distance.min(*after) };
                } else {
                    edges.exported[wait.counter as usize] = true;
                }
            }
        }
        edges
    }

    /// Whether `task`'s wait for `counter` is for tasks of its own list only.
    pub fn contains(&self, task: u32, counter: u32) -> bool {
        match (self.home.get(counter as usize), self.list.get(task as usize)) {
            (Some(&home), Some(&list)) => home != NOWHERE && home == list,
            _ => false,
        }
    }

    /// Whether somebody polls `counter`.
    pub fn is_signalled(&self, counter: u32) -> bool {
        self.exported.get(counter as usize).copied().unwrap_or(true)
    }

    /// How many places before `task` in its list, drains not counted, the last task is that it must come after; 0 if there is none.
    pub fn after(&self, task: u32) -> u32 {
        self.after.get(task as usize).copied().unwrap_or(0)
    }
}
