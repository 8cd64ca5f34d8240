//! The reference check of tests: every pair of tasks, element by element. Slow and simple.
//!
//! Nothing of the planner's region arithmetic is used here: elements are listed one by one from views and signatures.

use std::ops::Range;

use super::Plan;
use crate::ir::{TensorKind, View};
use crate::spec::{Access, Index, TensorParam};

/// What one task does to one argument, element by element.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// Which tensor parameter.
    pub operand: usize,
    /// Index of the tensor.
    pub tensor: u32,
    /// How.
    pub access: Access,
    /// The region depends on data: the elements are all that it may hold.
    pub data: bool,
    /// Row-major element numbers in the tensor, in row-major order of the region.
    pub elements: Vec<usize>,
}

/// Two tasks of which one writes what the other touches, without a chain of waits between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Task of the earlier call.
    pub earlier: u32,
    /// Task of the later call, or of the same one.
    pub later: u32,
    /// The tensor.
    pub tensor: u32,
    /// An element that both touch.
    pub element: usize,
}

/// What task `task` touches.
pub fn footprints(plan: &Plan, task: u32) -> Vec<Footprint> {
    let node = &plan.tasks[task as usize];
    let call = &plan.graph.calls[node.call as usize];
    let tile = &plan.calls[node.call as usize].tile;
    let params = call.task.params.iter().filter_map(super::region::tensor_of);
    let each = |(operand, (param, view)): (usize, (&TensorParam, &View))| Footprint {
        operand,
        tensor: view.tensor,
        access: param.access,
        data: param.region.iter().any(|index| matches!(index, Index::Data(_))),
        elements: elements(plan, param, view, tile, &node.coord),
    };
    params.zip(&call.operands).enumerate().map(each).collect()
}

fn elements(plan: &Plan, param: &TensorParam, view: &View, tile: &[u32], coord: &[u32]) -> Vec<usize> {
    let shape = &plan.graph.tensors[view.tensor as usize].shape;
    let mut coordinates = vec![view.offset.clone()];
    for (&index, view_axis) in param.region.iter().zip(&view.axes) {
        let at = |axis: u8| (i64::from(coord[usize::from(axis)]), i64::from(tile[usize::from(axis)]));
        let (first, end) = match index {
            Index::All | Index::Data(_) => (0, i64::MAX),
            Index::Tile(axis) => (at(axis).0 * at(axis).1, (at(axis).0 + 1) * at(axis).1),
            Index::TileOver(axis, over) => {
                let (coord, tile) = at(axis);
                (coord / i64::from(over) * tile, (coord / i64::from(over) + 1) * tile)
            }
            Index::Halo { axis, before, after } => {
                let (coord, tile) = at(axis);
                (coord * tile - i64::from(before), (coord + 1) * tile + i64::from(after))
            }
        };
        let indices = first.max(0)..end.min(view_axis.extent as i64);
        coordinates = coordinates
            .iter()
            .flat_map(|coordinate| {
                indices.clone().map(move |n| {
                    let mut moved = coordinate.clone();
                    moved[usize::from(view_axis.axis)] += n as u64 * view_axis.step;
                    moved
                })
            })
            .collect();
    }
    let number =
        |coordinate: &Vec<u64>| coordinate.iter().zip(shape).fold(0, |number, (&c, &extent)| number * extent as usize + c as usize);
    coordinates.iter().map(number).collect()
}

/// The bytes of the memory of temps that an element of a tensor takes, if it lies there as it is: neither an argument nor with in-band flags.
pub fn bytes(plan: &Plan, tensor: u32, element: usize) -> Option<Range<usize>> {
    let (of, range) = (&plan.graph.tensors[tensor as usize], plan.temps.ranges[tensor as usize]);
    let in_band = plan.relations.iter().any(|relation| relation.in_band && relation.tensor == tensor);
    if of.kind != TensorKind::Temp || in_band || of.shape.contains(&0) {
        return None;
    }
    let (columns, size) = (*of.shape.last()? as usize, of.element.bytes() as usize);
    let row = (columns * size).next_multiple_of(16);
    let at = range.offset as usize + element / columns * row + element % columns * size;
    Some(at..at + size)
}

/// The first pair of tasks that touch an element, one of them to write it, and are not ordered as the program says: by
/// counters alone, or by in-band flags on that element. Writes of one grid through data-dependent regions count as disjoint. Split-K parts of one tile
/// count as one task: the last of them to end writes the tile, and its readers wait for all parts.
///
/// Or a pair of which the later one writes a byte that an element of another temp has, which the earlier one touches.
pub fn conflict(plan: &Plan) -> Option<Conflict> {
    let before = reachable(plan);
    let all: Vec<Vec<Footprint>> = (0..plan.tasks.len() as u32).map(|task| footprints(plan, task)).collect();
    let sets: Vec<Vec<(Vec<u64>, &Footprint)>> =
        all.iter().map(|task| task.iter().map(|footprint| (bits(&footprint.elements), footprint)).collect()).collect();
    let memory: Vec<Vec<Vec<u64>>> = all.iter().map(|task| task.iter().map(|footprint| in_memory(plan, footprint)).collect()).collect();
    for a in 0..all.len() {
        for b in a + 1..all.len() {
            // Which temp has the memory first is decided by the order of tasks.
            if before[b][a / 64] & (1 << (a % 64)) == 0 && memory[a].iter().any(|own| !own.is_empty()) {
                for (x, one) in memory[a].iter().zip(&all[a]) {
                    for (y, other) in memory[b].iter().zip(&all[b]) {
                        if one.tensor != other.tensor
                            && other.access.writes()
                            && let Some(element) = common(x, y)
                        {
                            return Some(Conflict { earlier: a as u32, later: b as u32, tensor: one.tensor, element });
                        }
                    }
                }
            }
            // Program order is that of calls, whatever the order of tasks.
            let (earlier, later) = if plan.tasks[a].call <= plan.tasks[b].call { (a, b) } else { (b, a) };
            let same_call = plan.tasks[a].call == plan.tasks[b].call;
            if !same_call && before[later][earlier / 64] & (1 << (earlier % 64)) != 0 {
                continue;
            }
            let in_band = in_band(plan, earlier as u32, later as u32);
            for (x, one) in &sets[earlier] {
                for (y, other) in &sets[later] {
                    let writes = one.access.writes() || other.access.writes();
                    let one_tile = plan.tasks[a].coord == plan.tasks[b].coord;
                    let promised = same_call && (one.data || other.data || one_tile)
                        || in_band.is_some_and(|(from, to)| from == one.operand && to == other.operand);
                    if one.tensor == other.tensor
                        && writes
                        && !promised
                        && let Some(element) = common(x, y)
                    {
                        return Some(Conflict { earlier: earlier as u32, later: later as u32, tensor: one.tensor, element });
                    }
                }
            }
        }
    }
    None
}

/// The first task of a phase that may begin before a task has ended that it depends on, behind that one: there is no chain of waits.
pub fn too_early(plan: &Plan) -> Option<(u32, u32)> {
    let before = reachable(plan);
    let tasks = |calls: &[u32]| calls.iter().flat_map(|&call| plan.calls[call as usize].tasks.clone()).collect::<Vec<u32>>();
    plan.graph.phases.iter().find_map(|phase| {
        let later = tasks(&phase.comm);
        let pairs = tasks(&phase.behind).into_iter().flat_map(|earlier| later.iter().map(move |&later| (earlier, later)));
        pairs.into_iter().find(|&(earlier, later)| before[later as usize][earlier as usize / 64] & (1 << (earlier % 64)) == 0)
    })
}

/// The parameters by which `later` reads what `earlier` writes with in-band flags.
fn in_band(plan: &Plan, earlier: u32, later: u32) -> Option<(usize, usize)> {
    let relation = plan.in_band_input(plan.tasks[later as usize].call)?;
    let waits = plan.waits_of(later).iter().any(|wait| relation.counters.contains(&wait.counter));
    (relation.producer == plan.tasks[earlier as usize].call && waits)
        .then_some((relation.producer_operand as usize, relation.consumer_operand as usize))
}

/// The bytes of a footprint in memory that several temps have; none elsewhere.
fn in_memory(plan: &Plan, footprint: &Footprint) -> Vec<u64> {
    let range =
        |tensor: u32| bytes(plan, tensor, 0).map(|first| first.start as u64..first.start as u64 + plan.temps.ranges[tensor as usize].bytes);
    let Some(own) = range(footprint.tensor) else { return Vec::new() };
    let others = (0..plan.graph.tensors.len() as u32).filter(|&other| other != footprint.tensor).filter_map(range);
    if !others.into_iter().any(|other| other.start < own.end && own.start < other.end) {
        return Vec::new();
    }
    let bytes: Vec<usize> = footprint.elements.iter().filter_map(|&element| bytes(plan, footprint.tensor, element)).flatten().collect();
    bits(&bytes)
}

fn bits(elements: &[usize]) -> Vec<u64> {
    let mut bits = vec![0; elements.iter().max().map_or(0, |most| most / 64 + 1)];
    for element in elements {
        bits[element / 64] |= 1 << (element % 64);
    }
    bits
}

fn common(a: &[u64], b: &[u64]) -> Option<usize> {
    a.iter().zip(b).enumerate().find(|(_, (x, y))| *x & *y != 0).map(|(word, (x, y))| word * 64 + (x & y).trailing_zeros() as usize)
}

/// Per task, the set of tasks that have signalled before its waits are over. In-band flags acquire nothing else, so such waits do not count.
fn reachable(plan: &Plan) -> Vec<Vec<u64>> {
    let words = plan.tasks.len().div_ceil(64);
    let mut senders = vec![Vec::new(); plan.counters as usize];
    for task in 0..plan.tasks.len() as u32 {
        for &counter in plan.signals_of(task) {
            senders[counter as usize].push(task as usize);
        }
    }
    let mut before: Vec<Vec<u64>> = Vec::with_capacity(plan.tasks.len());
    for task in 0..plan.tasks.len() as u32 {
        let mut own = vec![0; words];
        let in_band = plan.in_band_input(plan.tasks[task as usize].call).map_or(0..0, |relation| relation.counters.clone());
        for wait in plan.waits_of(task).iter().filter(|wait| !in_band.contains(&wait.counter)) {
            // A wait for fewer signals than are sent proves nothing about any one sender.
            let senders = &senders[wait.counter as usize];
            for &sender in senders.iter().filter(|_| wait.need as usize == senders.len()) {
                own[sender / 64] |= 1 << (sender % 64);
                for (word, other) in own.iter_mut().zip(&before[sender]) {
                    *word |= other;
                }
            }
        }
        before.push(own);
    }
    before
}
