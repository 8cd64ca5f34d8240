//! Assigns the tasks of a GEMV to the workers that computed what its epilogue reads.
//!
//! Without costs tasks are assigned round robin (`schedule`). Where each tile of a GEMV needs one tile of an earlier call, as the operand of its
//! epilogue, each task goes to the worker of that tile: such an edge needs no counter (`worker_edges`). A signal to another worker waits for a
//! fence, and the fence for the loads of weights in flight (`docs/internals/gemv.md`).
//!
//! Calls with workers of their own (`worker_ranges`) are assigned to these, round robin for each range.

use super::PlannedCall;
use super::events::Events;
use super::worker_ranges::Ranges;
use crate::ir::Graph;

/// In the last round of a call at most one worker in so many may be idle: calls with the same assignment leave the same workers idle.
const EMPTY: u32 = 8;

/// The worker of every task, if any call has the assignment of an earlier one, or workers of its own; else none. `order` is that of the calls.
pub(super) fn follow_producers(graph: &Graph, calls: &[PlannedCall], order: &[u32], events: &Events, ranges: &Ranges) -> Option<Vec<u32>> {
    // The one task that fills a counter; MANY: there are several.
    const MANY: u32 = u32::MAX;
    if !ranges.any() && !graph.calls.iter().any(|call| call.task.gemv_operand_b().is_some()) {
        return None;
    }
    let mut filler: Vec<Option<u32>> = vec![None; events.counters as usize];
    for (task, node) in (0..).zip(&events.tasks) {
        for &counter in &events.signals[node.first_signal as usize..][..usize::from(node.signals)] {
            let filler = &mut filler[counter as usize];
            *filler = Some(if filler.is_none() { task } else { MANY });
        }
    }
    // The latest call of which each task of `call` needs the one of the same number.
    let before = |call: u32| {
        let own = &calls[call as usize].tasks;
        let needs = |task: u32| {
            let node = &events.tasks[task as usize];
            let waits = &events.waits[node.first_wait as usize..][..usize::from(node.waits)];
            waits.iter().filter_map(|wait| filler[wait.counter as usize].filter(|&task| task != MANY))
        };
        let producers = needs(own.start).map(|task| events.tasks[task as usize].call);
        let all = |&producer: &u32| {
            let theirs = &calls[producer as usize].tasks;
            theirs.len() == own.len() && own.clone().zip(theirs.clone()).all(|(task, other)| needs(task).any(|need| need == other))
        };
        producers.filter(all).max_by_key(|&producer| calls[producer as usize].tasks.start)
    };
    let fills = |tasks: u32, workers: u32| tasks.next_multiple_of(workers) - tasks <= tasks.next_multiple_of(workers) / EMPTY;
    let mut placement = vec![0; events.tasks.len()];
    let (mut begins, mut next, mut any) = (vec![0; calls.len()], Vec::new(), ranges.any());
    for &call in order {
        let tasks = calls[call as usize].tasks.clone();
        if tasks.is_empty() {
            continue;
        }
        let gemv = graph.calls[call as usize].task.gemv_operand_b().is_some();
        let own = ranges.of(call);
        let workers = own.len() as u32;
        let alike = |&producer: &u32| ranges.of(producer) == own;
        let producer = if gemv && fills(tasks.len() as u32, workers) { before(call).filter(alike) } else { None };
        any |= producer.is_some();
        // Behind the latest task of the range.
        let at = next.iter().position(|(range, _)| *range == own).unwrap_or_else(|| {
            next.push((own.clone(), 0));
            next.len() - 1
        });
        let begin = producer.map_or(next[at].1, |producer| begins[producer as usize]);
        begins[call as usize] = begin;
        for (number, task) in (0..).zip(tasks.clone()) {
            placement[task as usize] = own.start + (begin + number) % workers;
        }
        if producer.is_none() {
            next[at].1 = (begin + tasks.len() as u32) % workers;
        }
    }
    any.then_some(placement)
}
