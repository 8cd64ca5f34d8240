//! Which calls use a tensor, and which of them a later temp in its buffer must wait for.

use maco_abi::RANK;

use super::super::PlannedCall;
use super::super::region::tensor_of;
use super::boxes::Box;
use crate::ir::{Graph, View, ViewAxis};
use crate::spec::{Access as Way, Index};

/// A call's use of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub call: u32,
    /// Which tensor parameter.
    pub operand: u32,
    pub way: Way,
    /// Its tasks together touch every element of the tensor.
    pub whole: bool,
}

/// The accesses of all tensors, in program order. Calls without tasks have none.
pub(super) struct Uses {
    first: Vec<u32>,
    all: Vec<Access>,
}

impl Uses {
    pub fn new(graph: &Graph, calls: &[PlannedCall]) -> Uses {
        let each = |visit: &mut dyn FnMut(u32, Access)| {
            for (number, (call, planned)) in (0..).zip(graph.calls.iter().zip(calls)) {
                if planned.tasks.is_empty() {
                    continue;
                }
                let params = call.task.params.iter().filter_map(tensor_of);
                for (operand, (view, param)) in (0..).zip(call.operands.iter().zip(params)) {
                    if view.axes.iter().all(|axis| axis.extent > 0) {
                        let whole = is_whole(graph, view, param.region);
                        visit(view.tensor, Access { call: number, operand, way: param.access, whole });
                    }
                }
            }
        };
        let mut first = vec![0u32; graph.tensors.len() + 1];
        each(&mut |tensor, _| first[tensor as usize + 1] += 1);
        for tensor in 1..first.len() {
            first[tensor] += first[tensor - 1];
        }
        let nothing = Access { call: 0, operand: 0, way: Way::Read, whole: false };
        let (mut all, mut next) = (vec![nothing; first.last().copied().unwrap_or(0) as usize], first.clone());
        each(&mut |tensor, access| {
            let next = &mut next[tensor as usize];
            all[*next as usize] = access;
            *next += 1;
        });
        Uses { first, all }
    }

    /// The accesses of `tensor`, in program order.
    pub fn of(&self, tensor: u32) -> &[Access] {
        &self.all[self.first[tensor as usize] as usize..self.first[tensor as usize + 1] as usize]
    }

    /// The accesses of `tensor` that a task must come after to come after all of them, element by element: a later access of the whole tensor stands for
    /// those before it that it is ordered against.
    pub fn last(&self, tensor: u32) -> impl Iterator<Item = Access> + '_ {
        let all = self.of(tensor);
        all.iter().enumerate().filter_map(move |(number, access)| {
            let ordered = |later: &Access| later.whole && later.call > access.call && (later.way.writes() || access.way.writes());
            (!all[number + 1..].iter().any(ordered)).then_some(*access)
        })
    }

    /// Whether calls write every element of `tensor`: then what comes after this tensor's accesses, element by element, comes after all that its writes
    /// come after.
    pub fn covered(&self, graph: &Graph, tensor: u32) -> bool {
        let writes = || self.of(tensor).iter().filter(|access| access.way.writes());
        if writes().any(|access| access.whole) {
            return true;
        }
        let boxes: Option<Vec<Box>> = writes().map(|access| dense(graph, access)).collect();
        let Some(boxes) = boxes.filter(|boxes| boxes.len() <= PIECES) else { return false };
        let volume = |of: &Box| of.iter().fold(1u64, |volume, (first, end)| volume.saturating_mul(end - first));
        let apart = |a: &Box, b: &Box| a.iter().zip(b).any(|(a, b)| a.1 <= b.0 || b.1 <= a.0);
        let disjoint = boxes.iter().enumerate().all(|(n, a)| boxes[n + 1..].iter().all(|b| apart(a, b)));
        let whole = graph.tensors[tensor as usize].shape.iter().fold(1u64, |volume, &extent| volume.saturating_mul(extent));
        disjoint && boxes.iter().map(volume).fold(0, u64::saturating_add) == whole
    }

    /// Whether `tensor` is written before anything reads it.
    pub fn written_first(&self, tensor: u32) -> bool {
        self.of(tensor).first().is_some_and(|access| access.way == Way::Write)
    }
}

/// Most calls that may write a tensor piece by piece for [`Uses::covered`] to see it.
const PIECES: usize = 16;

/// Whether the tiles of a call touch every element of a view.
fn covers(region: &[Index]) -> bool {
    let mut axes = 0u8;
    region.iter().all(|index| match *index {
        Index::All => true,
        // Two tensor axes that move with one grid axis are a diagonal.
        Index::Tile(axis) => {
            let new = axes & (1 << axis) == 0;
            axes |= 1 << axis;
            new
        }
        _ => false,
    })
}

/// Whether the tiles of a call touch every element of a tensor.
fn is_whole(graph: &Graph, view: &View, region: &[Index]) -> bool {
    let shape = &graph.tensors[view.tensor as usize].shape;
    let same =
        |(axis, (along, &extent)): (usize, (&ViewAxis, &u64))| usize::from(along.axis) == axis && (along.step, along.extent) == (1, extent);
    covers(region) && view.axes.len() == shape.len() && view.axes.iter().zip(shape).enumerate().all(same)
}

/// The box of which a call's tiles touch every element, if it is one.
fn dense(graph: &Graph, access: &Access) -> Option<Box> {
    let call = &graph.calls[access.call as usize];
    let view = &call.operands[access.operand as usize];
    let param = call.task.params.iter().filter_map(tensor_of).nth(access.operand as usize)?;
    let mut found = [(0, 1); RANK];
    for (found, &offset) in found.iter_mut().zip(&view.offset) {
        *found = (offset, offset + 1);
    }
    let mut seen = 0u8;
    for axis in &view.axes {
        let new = seen & (1 << axis.axis) == 0;
        seen |= 1 << axis.axis;
        if !new || axis.step != 1 {
            return None;
        }
        found[usize::from(axis.axis)].1 = view.offset[usize::from(axis.axis)] + axis.extent;
    }
    covers(param.region).then_some(found)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::ir::{Call, Tensor, TensorKind};
    use crate::spec::{Axis, DimSpec, Element, ElementSpec, Param, Placement, TaskKind, TaskSpec, TensorParam};

    const fn param(way: Way, region: &'static [Index]) -> Param {
        let (name, element, dims) = ("x", ElementSpec::Fixed(Element::Bf16), &[DimSpec::Symbol(0), DimSpec::Symbol(1)]);
        Param::Tensor(TensorParam { name, access: way, element, dims, region, staged: false })
    }

    const fn task(params: &'static [Param]) -> TaskSpec {
        let axes = &[Axis { name: "i", tiles: &[8] }];
        TaskSpec { name: "t", kind: TaskKind::Tiles, axes, dims: &["M", "N"], equal: &[], gemv: None, elements: &[], params }
    }

    const ROWS: &[Index] = &[Index::Tile(0), Index::All];
    static WRITE: TaskSpec = task(&[param(Way::Write, ROWS)]);
    static READ: TaskSpec = task(&[param(Way::Read, ROWS)]);
    static UPDATE: TaskSpec = task(&[param(Way::Update, ROWS)]);
    static DIAGONAL: TaskSpec = task(&[param(Way::Write, &[Index::Tile(0), Index::Tile(0)])]);

    /// Calls on rows of a temp of 16 rows, and which of its accesses are the last ones; whether they write all of it.
    fn of(calls: &[(&'static TaskSpec, Range<u64>)]) -> (Vec<u32>, bool) {
        let placement = Placement::Replicated;
        let tensor = Tensor { name: "t".into(), kind: TensorKind::Temp, element: Element::Bf16, shape: vec![16, 16], placement };
        let call = |(task, rows): &(&'static TaskSpec, Range<u64>)| {
            let mut view = View::whole(0, &tensor);
            (view.offset[0], view.axes[0].extent) = (rows.start, rows.end - rows.start);
            Call::new(task, vec![view])
        };
        let graph = Graph { calls: calls.iter().map(call).collect(), tensors: vec![tensor.clone()], ..Graph::default() };
        let planned = |n: u32| PlannedCall {
            tile: vec![8],
            grid: vec![1],
            parts: 1,
            whole: 0,
            op: 0,
            tasks: n..n + 1,
            dynamic: false,
            prologue: None,
            pushed_by: None,
            slots: 0,
            nccl: false,
            way: None,
            order: crate::plan::TileOrder::GROUPS,
        };
        let uses = Uses::new(&graph, &(0..calls.len() as u32).map(planned).collect::<Vec<_>>());
        (uses.last(0).map(|access| access.call).collect(), uses.covered(&graph, 0))
    }

    #[test]
    fn a_whole_access_stands_for_those_that_it_is_ordered_against() {
        assert_eq!(of(&[(&WRITE, 0..16)]), (vec![0], true));
        assert_eq!(of(&[(&WRITE, 0..16), (&READ, 0..16)]), (vec![1], true));
        // Two reads are in no order.
        assert_eq!(of(&[(&WRITE, 0..16), (&READ, 0..16), (&READ, 0..16)]), (vec![1, 2], true));
        assert_eq!(of(&[(&WRITE, 0..16), (&READ, 0..16), (&READ, 0..8), (&UPDATE, 0..16), (&READ, 0..8)]), (vec![3, 4], true));
        // What is not read again is still written.
        assert_eq!(of(&[(&WRITE, 0..16), (&READ, 0..8)]), (vec![0, 1], true));
    }

    #[test]
    fn writes_of_pieces_cover_a_tensor_without_gaps() {
        assert!(of(&[(&WRITE, 0..8), (&WRITE, 8..16)]).1);
        assert!(of(&[(&WRITE, 8..16), (&READ, 8..16), (&WRITE, 0..8)]).1);
        assert!(!of(&[(&WRITE, 0..8), (&WRITE, 9..16)]).1);
        assert!(!of(&[(&WRITE, 0..8), (&WRITE, 0..8)]).1);
        assert!(!of(&[(&WRITE, 0..8), (&READ, 0..16)]).1);
        assert!(!of(&[(&DIAGONAL, 0..16)]).1);
    }
}
