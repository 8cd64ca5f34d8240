//! Which GEMM sends the tiles of an all-reduce to the other ranks as it stores them, so that the all-reduce has no tasks that send.
//!
//! The store role copies what it has in shared memory to the messages of the other ranks as well as to the result: nothing is read again for it, and no consumer waits.

use maco_abi::{BOX, ExchangeTask, OPERANDS, columns};

use super::PlannedCall;
use super::region::tensor_of;
use super::split_k::SplitK;
use super::tile_order::TileOrder;
use super::tile_selection::Choice;
use crate::ir::{Call, Graph, View};
use crate::spec::{Access, Collective, Index, TaskKind, TensorParam};

/// The GEMM that sends tiles of call `index`, which has the tiles of `choice`, and the tasks that each of these has left; `calls` are those before it.
pub(super) fn pushed_by(graph: &Graph, index: usize, choice: &Choice, calls: &[PlannedCall]) -> Option<(u32, SplitK)> {
    let call = &graph.calls[index];
    let sums = matches!(call.task.collective(), Some(Collective::AllReduce(_)));
    if !sums || !choice.is_signalled(call) || choice.nccl {
        return None;
    }
    let producer = producer(graph, index)?;
    let planned = &calls[producer as usize];
    let free = calls.iter().all(|other| other.pushed_by != Some(producer));
    if !free || !fits(graph, call, choice.tile, producer, planned) {
        return None;
    }
    let parts = choice.split_k.parts;
    if planned.parts == 1 {
        return Some((producer, SplitK { whole: 0, parts: parts - 1 }));
    }
    let whole = tiles_of_whole(planned, [choice.tile[0], choice.tile[1]], [choice.grid[0], choice.grid[1]]);
    // The other tiles have one task more: of two that send and receive, the first.
    (whole > 0 && parts == ExchangeTask::ONE_SHOT).then_some((producer, SplitK { whole, parts }))
}

/// How many tiles of an all-reduce, the first ones in task order, are made by tasks of `gemm` that make a whole tile, of which no other tile is a part. The tiles of
/// the all-reduce are `tile`, in a grid of `grid`.
fn tiles_of_whole(gemm: &PlannedCall, tile: [u32; 2], grid: [u32; 2]) -> u32 {
    let mut whole = grid[0] * grid[1];
    loop {
        let mut first = whole;
        let mut at = 0;
        TileOrder::GROUPS.for_each_tile([grid[0], grid[1], 1], |[row, col, _]| {
            let of = [row * tile[0] / gemm.tile[0], col * tile[1] / gemm.tile[1]];
            if at < first
                && !(gemm.order.place([gemm.grid[0], gemm.grid[1], 1], [of[0], of[1], 0]) < gemm.whole
                    && are_first(gemm, of, tile, grid, whole))
            {
                first = at;
            }
            at += 1;
        });
        if first == whole {
            return whole;
        }
        whole = first;
    }
}

/// Whether the tiles of an all-reduce that tile `of` of `gemm` is made of are among the first `whole`.
fn are_first(gemm: &PlannedCall, of: [u32; 2], tile: [u32; 2], grid: [u32; 2], whole: u32) -> bool {
    let along = |axis: usize| {
        let each = gemm.tile[axis] / tile[axis];
        of[axis] * each..grid[axis].min((of[axis] + 1) * each)
    };
    along(0).all(|row| along(1).all(|col| TileOrder::GROUPS.place([grid[0], grid[1], 1], [row, col, 0]) < whole))
}

/// The one call before `index` that writes what it reads.
pub(super) fn producer(graph: &Graph, index: usize) -> Option<u32> {
    let (view, _) = operand(&graph.calls[index], Access::Read)?;
    let mut writers = (0..index).filter(|&before| {
        let written = operands(&graph.calls[before]).filter(|(_, param)| param.access.writes());
        written.into_iter().any(|(written, _)| written.tensor == view.tensor)
    });
    let first = writers.next()?;
    if writers.next().is_some() { None } else { Some(first as u32) }
}

/// Whether the tasks of `producer` make whole tiles of `call`, an all-reduce, in boxes, each of which lies in one of them.
fn fits(graph: &Graph, call: &Call, tile: [u32; maco_abi::AXES], producer: u32, planned: &PlannedCall) -> bool {
    let gemm = &graph.calls[producer as usize];
    let (Some((x, read)), Some((_, result))) = (operand(call, Access::Read), operand(call, Access::Write)) else { return false };
    let Some((y, written)) = operand(gemm, Access::Write) else { return false };
    let ([Index::Tile(row), Index::Tile(col)], [Index::Tile(down), Index::Tile(right)]) = (read.region, written.region) else {
        return false;
    };
    let width = columns(graph.tensors[x.tensor as usize].element.bytes());
    let (rows, cols) = (tile[usize::from(*row)], tile[usize::from(*col)]);
    let of = |axis: &u8| planned.tile.get(usize::from(*axis)).copied().unwrap_or(0);
    let [height, breadth] = [x.axes[0].extent, x.axes[1].extent];
    // One accumulator, stored once, by one task.
    matches!(gemm.task.kind, TaskKind::Gemm { splits_k: true })
        && (planned.parts == 1 || planned.whole > 0)
        && planned.grid.len() == 2
        && [*down, *right] == [0, 1]
        && !planned.grid.contains(&0)
        && gemm.operands.len() < OPERANDS
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
pub(super) fn operand(call: &Call, access: Access) -> Option<(&View, &'static TensorParam)> {
    let mut found = operands(call).filter(|(_, param)| param.access == access);
    let first = found.next()?;
    if found.next().is_some() { None } else { Some(first) }
}

/// The tensor operands of a call, with what its task says of them.
pub(super) fn operands(call: &Call) -> impl Iterator<Item = (&View, &'static TensorParam)> {
    call.operands.iter().zip(call.task.params.iter().filter_map(tensor_of))
}

impl super::Plan {
    /// The all-reduce whose tiles call `gemm` sends, if it does.
    pub fn pushes(&self, gemm: u32) -> Option<u32> {
        self.calls.iter().position(|call| call.pushed_by == Some(gemm)).map(|call| call as u32)
    }

    /// Whether the task of call `gemm` whose tile is at `coord` sends tiles of an all-reduce.
    pub fn pushes_tile(&self, gemm: u32, coord: [u32; maco_abi::AXES]) -> bool {
        let Some(call) = self.pushes(gemm) else { return false };
        let (planned, gemm) = (&self.calls[call as usize], &self.calls[gemm as usize]);
        planned.whole == 0
            || are_first(gemm, [coord[0], coord[1]], [planned.tile[0], planned.tile[1]], [planned.grid[0], planned.grid[1]], planned.whole)
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
            && if self.calls[by as usize].parts == 1 {
                planned.whole == 0 && planned.parts < ExchangeTask::TWO_SHOT
            } else {
                planned.whole > 0 && planned.parts == ExchangeTask::ONE_SHOT && self.whole_tiles_are_pushed(call, by)
            }
            && fits(graph, &graph.calls[call as usize], tile, by, &self.calls[by as usize])
    }

    /// Whether each tile of `call` that has no task which sends is one that a task of `by` makes as a whole, and which it sends.
    fn whole_tiles_are_pushed(&self, call: u32, by: u32) -> bool {
        let (planned, gemm) = (&self.calls[call as usize], &self.calls[by as usize]);
        self.tasks[planned.tasks.start as usize..planned.tasks.end as usize].iter().zip(0..).all(|(task, n)| {
            let of = [0, 1].map(|axis| task.coord[axis] * planned.tile[axis] / gemm.tile[axis]);
            let makes = gemm.tasks.clone().filter(|&other| self.tasks[other as usize].coord[..2] == of);
            let pushed = self.pushes_tile(by, [of[0], of[1], 0]);
            pushed == planned.is_pushed(n) && (!pushed || makes.count() == 1)
        })
    }
}
