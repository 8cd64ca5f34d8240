//! Which GEMM sends the tiles of an all-reduce to the other ranks as it stores them, so that the all-reduce has no tasks that send.
//!
//! The store role copies what it has in shared memory to the messages of the other ranks as well as to the result: nothing is read again for it, and no consumer waits.

use maco_abi::{BOX, ExchangeTask, OPERANDS, columns};

use super::PlannedCall;
use super::region::tensor_of;
use super::tile_selection::Choice;
use crate::ir::{Call, Graph, View};
use crate::spec::{Access, Collective, Index, TaskKind, TensorParam};

/// The GEMM that sends the tiles of call `index`, which has the tiles of `choice`; `calls` are those before it.
pub(super) fn pushed_by(graph: &Graph, index: usize, choice: &Choice, calls: &[PlannedCall]) -> Option<u32> {
    let call = &graph.calls[index];
    if !choice.is_signalled(call) {
        return None;
    }
    let producer = producer(graph, index)?;
    let free = calls.iter().all(|other| other.pushed_by != Some(producer));
    (free && fits(graph, call, choice.tile, producer, &calls[producer as usize])).then_some(producer)
}

/// The one call before `index`, an all-reduce, that writes what it reads.
fn producer(graph: &Graph, index: usize) -> Option<u32> {
    let call = &graph.calls[index];
    if !matches!(call.task.collective(), Some(Collective::AllReduce(_))) {
        return None;
    }
    let (view, _) = operand(call, Access::Read)?;
    let mut writers = (0..index).filter(|&before| {
        let written = operands(&graph.calls[before]).filter(|(_, param)| param.access.writes());
        written.into_iter().any(|(written, _)| written.tensor == view.tensor)
    });
    let first = writers.next()?;
    if writers.next().is_some() { None } else { Some(first as u32) }
}

/// Whether the tasks of `producer` make whole tiles of `call`, an all-reduce, in boxes, each of which lies in one of them.
fn fits(graph: &Graph, call: &Call, tile: [u32; maco_abi::AXES], producer: u32, planned: &PlannedCall) -> bool {
    let product = &graph.calls[producer as usize];
    let (Some((x, read)), Some((_, result))) = (operand(call, Access::Read), operand(call, Access::Write)) else { return false };
    let Some((y, written)) = operand(product, Access::Write) else { return false };
    let ([Index::Tile(row), Index::Tile(col)], [Index::Tile(down), Index::Tile(right)]) = (read.region, written.region) else {
        return false;
    };
    let width = columns(graph.tensors[x.tensor as usize].element.bytes());
    let (rows, cols) = (tile[usize::from(*row)], tile[usize::from(*col)]);
    let of = |axis: &u8| planned.tile.get(usize::from(*axis)).copied().unwrap_or(0);
    let [height, breadth] = [x.axes[0].extent, x.axes[1].extent];
    // One accumulator, stored once, by one task.
    matches!(product.task.kind, TaskKind::Gemm { splits_k: true })
        && planned.parts == 1
        && !planned.grid.contains(&0)
        && product.operands.len() < OPERANDS
        && x == y
        && result.region == read.region
        && [*row, *col] == [0, 1]
        && call.task.axes.len() == 2
        && rows.is_multiple_of(BOX)
        && cols.is_multiple_of(width)
        && of(down).is_multiple_of(rows)
        && of(right).is_multiple_of(cols)
        && rows <= u16::MAX.into()
        && cols <= u16::MAX.into()
        // A message has the columns that its tile has; rows that there are not are sent and not read.
        && height >= u64::from(rows)
        && breadth.is_multiple_of(cols.into())
}

/// The only operand with this access.
fn operand(call: &Call, access: Access) -> Option<(&View, &'static TensorParam)> {
    let mut found = operands(call).filter(|(_, param)| param.access == access);
    let first = found.next()?;
    if found.next().is_some() { None } else { Some(first) }
}

fn operands(call: &Call) -> impl Iterator<Item = (&View, &'static TensorParam)> {
    call.operands.iter().zip(call.task.params.iter().filter_map(tensor_of))
}

impl super::Plan {
    /// The all-reduce whose tiles call `product` sends, if it does.
    pub fn pushes(&self, product: u32) -> Option<u32> {
        self.calls.iter().position(|call| call.pushed_by == Some(product)).map(|call| call as u32)
    }

    /// Whether the tiles of `call` are sent as its plan says: by nobody but its own tasks, or by the tasks of a GEMM that makes them and nothing else.
    pub(super) fn pushed_tiles_hold(&self, call: u32) -> bool {
        let planned = &self.calls[call as usize];
        let Some(by) = planned.pushed_by else { return true };
        let mut tile = [1; maco_abi::AXES];
        tile.iter_mut().zip(&planned.tile).for_each(|(to, &from)| *to = from);
        let graph = &self.graph;
        producer(graph, call as usize) == Some(by)
            && self.pushes(by) == Some(call)
            && planned.parts < ExchangeTask::TWO_SHOT
            && fits(graph, &graph.calls[call as usize], tile, by, &self.calls[by as usize])
    }
}
