//! Orders the calls, and makes the workers' lists. The order of the tiles of a call is `tile_order`'s.
//!
//! There is one global order; every list is a subsequence of it, so lists cannot deadlock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::{Lists, Options, PlanError, PlannedCall, Relation, Schedule};
use crate::ir::Graph;

/// Gives every call its range of task numbers and returns the calls in global order.
pub(super) fn number(graph: &Graph, calls: &mut [PlannedCall], relations: &[Relation]) -> Vec<u32> {
    let order =
        if graph.calls.iter().all(|call| call.priority == 0) { (0..calls.len() as u32).collect() } else { by_priority(graph, relations) };
    let mut end = 0;
    for &call in &order {
        let start = end;
        let planned = &mut calls[call as usize];
        // Any zero first: the other axes of an empty grid may be too long to multiply.
        if !planned.grid.contains(&0) {
            // No more than the plan may have.
            end += planned.split_k().tasks(planned.grid.iter().product::<u32>().into()) as u32;
        }
        planned.tasks = start..end;
    }
    order
}

/// Program order, except that among the calls whose producers have all been ordered the highest priority comes first.
fn by_priority(graph: &Graph, relations: &[Relation]) -> Vec<u32> {
    let calls = graph.calls.len();
    let mut blockers = vec![0u32; calls];
    let mut consumers = vec![Vec::new(); calls];
    for relation in relations {
        blockers[relation.consumer as usize] += 1;
        consumers[relation.producer as usize].push(relation.consumer);
    }
    let key = |call: u32| (graph.calls[call as usize].priority, Reverse(call));
    let mut ready: BinaryHeap<_> = (0..calls as u32).filter(|&call| blockers[call as usize] == 0).map(key).collect();
    let mut order = Vec::with_capacity(calls);
    while let Some((_, Reverse(call))) = ready.pop() {
        order.push(call);
        for &consumer in &consumers[call as usize] {
            blockers[consumer as usize] -= 1;
            if blockers[consumer as usize] == 0 {
                ready.push(key(consumer));
            }
        }
    }
    order
}

/// Drains: ranges of the tasks of drained calls. Neighbouring ranges are merged, since each drain costs every worker a ticket, but not those of
/// `.drain()` with those that the planner made dynamic. `order` is that of the calls.
pub(super) fn drains(graph: &Graph, calls: &[PlannedCall], order: &[u32], schedule: Schedule) -> Vec<Range<u32>> {
    let mut drains: Vec<Range<u32>> = Vec::new();
    if schedule != Schedule::Static {
        return drains;
    }
    let mut dynamic = false;
    for &call in order.iter().filter(|&&call| graph.calls[call as usize].drain) {
        let PlannedCall { tasks, dynamic: own, .. } = &calls[call as usize];
        match drains.last_mut() {
            Some(last) if last.end == tasks.start && *own == dynamic => last.end = tasks.end,
            _ if tasks.is_empty() => {}
            _ => {
                dynamic = *own;
                drains.push(tasks.clone());
            }
        }
    }
    drains
}

/// The workers' lists of tasks `0..tasks`, which are in global order, without those that workers claim from `drains`. The workers are those that the
/// options name, or `assigned` ([`super::assignment`]), or round robin.
pub(super) fn lists(tasks: u32, drains: Vec<Range<u32>>, options: &Options, assigned: Option<&[u32]>) -> Result<Lists, PlanError> {
    let refuse = |what: String| Err(PlanError::Assignment { what: what.into() });
    let (workers, assignment) = (options.workers, options.assignment.as_deref().or(assigned));
    if options.schedule != Schedule::Static {
        return match assignment {
            None => Ok(Lists { order: (0..tasks).collect(), starts: vec![0, tasks], drains, positions: Vec::new() }),
            Some(_) => refuse(format!("with {}, tasks have no worker until they run", options.schedule)),
        };
    }
    let listed = listed(tasks, &drains);
    let mut lists =
        Lists { order: Vec::with_capacity(listed.len()), starts: Vec::with_capacity(workers as usize + 1), drains, positions: Vec::new() };
    match assignment {
        None => {
            for worker in 0..workers as usize {
                lists.starts.push(lists.order.len() as u32);
                lists.order.extend(listed.iter().skip(worker).step_by(workers as usize));
            }
            lists.starts.push(listed.len() as u32);
        }
        Some(assignment) => {
            if assignment.len() != tasks as usize {
                return refuse(format!("it names {} workers for {tasks} tasks", assignment.len()));
            }
            lists.starts.resize(workers as usize + 1, 0);
            for &task in &listed {
                let worker = assignment[task as usize];
                if worker >= workers {
                    return refuse(format!("task {task} is placed on worker {worker} of {workers}"));
                }
                lists.starts[worker as usize + 1] += 1;
            }
            for worker in 0..workers as usize {
                lists.starts[worker + 1] += lists.starts[worker];
            }
            let mut next = lists.starts.clone();
            lists.order.resize(listed.len(), 0);
            for &task in &listed {
                let next = &mut next[assignment[task as usize] as usize];
                lists.order[*next as usize] = task;
                *next += 1;
            }
        }
    }
    Ok(lists)
}

/// Tasks `0..tasks` without those of `drains`.
fn listed(tasks: u32, drains: &[Range<u32>]) -> Vec<u32> {
    let starts = std::iter::once(0).chain(drains.iter().map(|drain| drain.end));
    let ends = drains.iter().map(|drain| drain.start).chain(std::iter::once(tasks));
    starts.zip(ends).flat_map(|(start, end)| start..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Entry;

    #[test]
    fn lists_are_round_robin() {
        let lists = lists(7, vec![], &Options::new(3), None).unwrap();
        assert_eq!(lists.order, [0, 3, 6, 1, 4, 2, 5]);
        assert_eq!(lists.starts, [0, 3, 5, 7]);
        let idle = super::lists(2, vec![], &Options::new(4), None).unwrap();
        assert_eq!(idle.starts, [0, 1, 2, 2, 2]);
    }

    #[test]
    fn lists_follow_an_assignment() {
        let options = Options { assignment: Some(vec![2, 0, 2, 2, 0]), ..Options::new(4) };
        let lists = lists(5, vec![], &options, None).unwrap();
        assert_eq!((lists.order, lists.starts), (vec![1, 4, 0, 2, 3], vec![0, 2, 2, 5, 5]));
        for wrong in [vec![0; 4], vec![0, 1, 2, 3, 4]] {
            assert_eq!(super::lists(5, vec![], &Options { assignment: Some(wrong), ..Options::new(4) }, None).unwrap_err().code(), 21);
        }
        assert!(super::lists(5, vec![], &Options { schedule: Schedule::Tickets, ..options }, None).is_err());
    }

    #[test]
    fn every_list_has_every_drain() {
        let lists = lists(10, vec![0..2, 5..8], &Options::new(3), None).unwrap();
        assert_eq!((&lists.order[..], &lists.starts[..]), (&[2, 8, 3, 9, 4][..], &[0, 2, 4, 5][..]));
        let entries = |list| lists.entries(list).collect::<Vec<_>>();
        assert_eq!(entries(1), [Entry::Drain(0), Entry::Task(3), Entry::Drain(1), Entry::Task(9)]);
        assert_eq!(entries(2), [Entry::Drain(0), Entry::Task(4), Entry::Drain(1)]);
        // Where a drained task is placed is nobody's concern.
        let assignment = Some(vec![9, 9, 0, 1, 0, 9, 9, 9, 1, 1]);
        let lists = super::lists(10, vec![0..2, 5..8], &Options { assignment, ..Options::new(3) }, None).unwrap();
        assert_eq!((lists.order, lists.starts), (vec![2, 4, 3, 8, 9], vec![0, 2, 5, 5]));
    }
}
