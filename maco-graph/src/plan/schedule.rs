//! Orders the calls and the tiles of a call, and makes the workers' lists.
//!
//! There is one global order; every list is a subsequence of it, so lists cannot deadlock.

use maco_abi::AXES;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::message_slots::PLANES_LAST;
use super::{Lists, Options, PlanError, PlannedCall, Relation, Schedule};
use crate::ir::Graph;

/// Rows of tiles per group: the tiles of a group are ordered column by column, so that operands are still in the L2 cache.
pub(super) const ROWS: u32 = 16;

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

/// Calls `each` with every coordinate of `grid` in task order: in groups of rows, column by column. Of three axes the first is slowest and the other two are rows and
/// columns. A group has [`ROWS`] rows; with fewer `last_rows` the last ones are halved until they have as few. With [`PLANES_LAST`] the first axis is the fastest instead.
pub(super) fn for_each_tile(grid: [u32; AXES], last_rows: u32, mut each: impl FnMut([u32; AXES])) {
    if last_rows == PLANES_LAST {
        if grid[0] > 0 {
            let each: &mut dyn FnMut([u32; AXES]) = &mut |[row, column, _]| (0..grid[0]).for_each(|plane| each([plane, row, column]));
            for_each_tile([grid[1], grid[2], 1], ROWS, each);
        }
        return;
    }
    let planes = if grid[2] > 1 { grid[0] } else { 1 };
    let (rows, columns) = if grid[2] > 1 { (grid[1], grid[2]) } else { (grid[0], grid[1].min(grid[1] * grid[2])) };
    for plane in 0..planes {
        let mut first = 0;
        while first < rows {
            let end = first + group(rows - first, last_rows);
            for column in 0..columns {
                for row in first..end {
                    each(if grid[2] > 1 { [plane, row, column] } else { [row, column, 0] });
                }
            }
            first = end;
        }
    }
}

/// Rows of the next group, of so many that are left.
fn group(left: u32, last_rows: u32) -> u32 {
    match left {
        _ if left > ROWS || last_rows >= ROWS => ROWS.min(left),
        _ if left <= last_rows => left,
        _ => (left / 2).next_multiple_of(last_rows),
    }
}

/// The place of tile `row`, `column` in the order of [`for_each_tile`], of a grid of two axes whose groups all have [`ROWS`] rows.
pub(super) fn position(rows: u32, columns: u32, [row, column]: [u32; 2]) -> u32 {
    let first = row / ROWS * ROWS;
    first * columns + column * ROWS.min(rows - first) + row % ROWS
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

    fn walk(grid: [u32; AXES]) -> Vec<[u32; AXES]> {
        let mut tiles = Vec::new();
        for_each_tile(grid, ROWS, |coord| tiles.push(coord));
        tiles
    }

    /// Groups of 16 rows, then of 8, 4, 4; of what is left of 16, the same.
    #[test]
    fn last_groups_have_fewer_rows() {
        let rows = |rows, last_rows| {
            let (mut left, mut groups) = (rows, Vec::new());
            while left > 0 {
                groups.push(group(left, last_rows));
                left -= groups[groups.len() - 1];
            }
            groups
        };
        assert_eq!(rows(64, 4), [16, 16, 16, 8, 4, 4]);
        assert_eq!(rows(36, 4), [16, 16, 4]);
        assert_eq!(rows(13, 3), [6, 3, 3, 1]);
        assert_eq!(rows(33, ROWS), [16, 16, 1]);
        let mut tiles = Vec::new();
        for_each_tile([21, 3, 1], 2, |coord| tiles.push(coord));
        let last: Vec<u32> = tiles[48..].iter().map(|coord| coord[0]).collect();
        assert_eq!(last, [16, 17, 16, 17, 16, 17, 18, 19, 18, 19, 18, 19, 20, 20, 20]);
        tiles.sort_unstable();
        tiles.dedup();
        assert_eq!(tiles.len(), 63);
    }

    #[test]
    fn every_tile_once() {
        for grid in [[1, 1, 1], [40, 1, 1], [33, 7, 1], [3, 20, 5], [2, 1, 3], [0, 4, 1], [4, 0, 1], [4, 4, 0], [0, 0, 0]] {
            let mut tiles = walk(grid);
            assert_eq!(tiles.len() as u32, grid.iter().product::<u32>(), "{grid:?}");
            tiles.sort_unstable();
            tiles.dedup();
            assert_eq!(tiles.len() as u32, grid.iter().product::<u32>(), "{grid:?}");
            assert!(tiles.iter().all(|coord| (0..AXES).all(|axis| coord[axis] < grid[axis])));
        }
    }

    /// Where tiles have slots in turn, device code finds a tile's place by its coordinates.
    #[test]
    fn device_code_knows_the_order() {
        for [rows, columns] in [[1, 1], [16, 3], [33, 7], [40, 1], [5, 20]] {
            let mut next = 0;
            for_each_tile([rows, columns, 1], ROWS, |[row, column, _]| {
                assert_eq!(maco_abi::task_order(rows, columns, [row, column]), next);
                assert_eq!(position(rows, columns, [row, column]), next);
                next += 1;
            });
            let mut tiles = Vec::new();
            for_each_tile([3, rows, columns], PLANES_LAST, |coord| tiles.push(coord));
            assert_eq!(tiles.len() as u32, 3 * next);
            for (n, &[plane, row, column]) in tiles.iter().enumerate() {
                assert_eq!((plane, maco_abi::task_order(rows, columns, [row, column])), (n as u32 % 3, n as u32 / 3));
            }
        }
    }

    #[test]
    fn tiles_go_column_by_column_in_groups_of_sixteen_rows() {
        let tiles = walk([20, 3, 1]);
        assert_eq!(tiles[0], [0, 0, 0]);
        assert_eq!(tiles[15], [15, 0, 0]);
        assert_eq!(tiles[16], [0, 1, 0]);
        assert_eq!(tiles[48], [16, 0, 0]);
        assert_eq!(tiles[52], [16, 1, 0]);
    }

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
