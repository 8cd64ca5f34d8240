//! Edges between tasks of one worker, which need no counter.
//!
//! If all tasks that signal a counter are in one list, a later task of that list need not poll the counter: its worker runs
//! tasks in order and knows which have ended. That saves a release, a signal, a poll and an acquire in device memory. Two kinds are excluded:
//! operands that come through the ring, since TMA copies are ordered through device memory only, and drained tasks, whose
//! worker is not known.
//!
//! A warp task never waits this way: a worker runs several at a time, each on another warp, and this wait is a barrier of all warps. Other tasks
//! may wait for a warp task this way.
//!
//! Distances in a list do not count the tasks that the worker claims in between, of which there may be any number. So a task may wait for a task that is
//! nearer than the one it depends on. That is enough: the tasks of a worker end in order, since each of its consumer
//! warps arrives at the end of one task after the other. A distance beyond the device's task slots needs no wait; claimed tasks only make it longer.

use super::region::tensor_of;
use super::{Plan, Schedule};
use crate::ir::Call;

/// Which waits and signals a static plan does not need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerEdges {
    /// Per counter: the list whose tasks alone fill it, or [`NOWHERE`].
    home: Vec<u32>,
    /// Per counter: whether a task of another list, or one that reads through the ring, polls it.
    exported: Vec<bool>,
    /// Per task: its list, or [`NOWHERE`] if it always polls counters, as drained tasks do and those that read through the ring.
    list: Vec<u32>,
    /// Per task: the distance in its list to the last task that it must come after; 0 if there is none.
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
            let through_ring = call.task.gemv_operand_b().is_some_and(|operand| written[call.operands[operand].tensor as usize]);
            !through_ring && !call.task.params.iter().filter_map(tensor_of).any(|param| param.staged)
        };
        let direct: Vec<bool> = plan.graph.calls.iter().map(direct).collect();
        let tasks = plan.tasks.len();
        let (mut list, mut position) = (vec![NOWHERE; tasks], vec![0; tasks]);
        let mut home: Vec<Option<u32>> = vec![None; plan.counters as usize];
        // Position in its list of the last task that signals a counter.
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
        // Drained tasks are in no list, and one call signals a counter: their counters belong to no list.
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

    /// Whether all tasks that signal `counter` are in the list of `task`, which then need not poll it.
    pub fn contains(&self, task: u32, counter: u32) -> bool {
        match (self.home.get(counter as usize), self.list.get(task as usize)) {
            (Some(&home), Some(&list)) => home != NOWHERE && home == list,
            _ => false,
        }
    }

    /// Whether some task polls `counter`, so that it must be signalled.
    pub fn is_signalled(&self, counter: u32) -> bool {
        self.exported.get(counter as usize).copied().unwrap_or(true)
    }

    /// The distance in its list, drains not counted, from `task` back to the last task that it must come after; 0 if there is none.
    pub fn after(&self, task: u32) -> u32 {
        self.after.get(task as usize).copied().unwrap_or(0)
    }
}
