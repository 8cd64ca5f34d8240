//! Where the tiles of GEMMs begin whose operands or results ranks exchange: at a share that depends on the rank.
//!
//! All ranks have the same tasks, waits and counters; only the tasks of such a GEMM are numbered in another order. Tasks that exchange tiles stay in one order on all
//! ranks (`collective_order`), so nothing can wait in a circle.
//!
//! - A GEMM whose result is summed by owners, or scattered, makes the tiles of the next rank first and its own last: others wait for a tile until it has travelled, and
//!   the own ones need not travel. At no time do all ranks send to one.
//! - A GEMM of what ranks have gathered begins with the own part, which is there first.

use maco_abi::{AXES, ExchangeTask};

use super::events::Events;
use super::pushed_tiles::{operand, operands, producer};
use super::tile_order::{Shares, TileOrder};
use super::{Options, PlannedCall};
use crate::ir::{Graph, View};
use crate::spec::{Access, Collective, Index, TaskKind};

/// Has the calls begin at this rank's share, and their tasks numbered so.
pub(super) fn begin(graph: &Graph, calls: &mut [PlannedCall], events: &mut Events, options: &Options) {
    if options.ranks < 2 || !options.own_share {
        return;
    }
    let turned = turned(graph, calls, options);
    if turned.is_empty() {
        return;
    }
    for &(call, order) in &turned {
        let planned = &mut calls[call];
        planned.order = order;
        let grid = grid(planned);
        events.tasks[planned.tasks.start as usize..planned.tasks.end as usize].sort_by_key(|task| order.place(grid, task.coord));
    }
    // Waits and signals stand task after task.
    let (waits, signals) = (std::mem::take(&mut events.waits), std::mem::take(&mut events.signals));
    for task in &mut events.tasks {
        let (first_wait, first_signal) = (events.waits.len() as u32, events.signals.len() as u32);
        events.waits.extend(&waits[task.first_wait as usize..][..usize::from(task.waits)]);
        events.signals.extend(&signals[task.first_signal as usize..][..usize::from(task.signals)]);
        (task.first_wait, task.first_signal) = (first_wait, first_signal);
    }
}

/// Tiles along each axis, 1 beyond the last.
pub(super) fn grid(planned: &PlannedCall) -> [u32; AXES] {
    let mut grid = [1; AXES];
    grid.iter_mut().zip(&planned.grid).for_each(|(to, &tiles)| *to = tiles);
    grid
}

/// The calls that begin elsewhere on each rank, with their order on this one.
fn turned(graph: &Graph, calls: &[PlannedCall], options: &Options) -> Vec<(usize, TileOrder)> {
    let (count, next) = (options.ranks, (options.rank + 1) % options.ranks);
    let mut turned: Vec<(usize, TileOrder)> = Vec::new();
    // Makers of what is exchanged, which are not to be turned for what they read.
    let mut makers = Vec::new();
    let mut add = |call: usize, order| {
        if may_turn(graph, calls, call) && turned.iter().all(|&(other, _)| other != call) {
            turned.push((call, order));
        }
    };
    for (index, planned) in calls.iter().enumerate() {
        let Some(collective) = graph.calls[index].task.collective() else { continue };
        let Some(made) = producer(graph, index).map(|made| made as usize) else { continue };
        makers.push(made);
        let order = calls[made].order;
        match collective {
            _ if planned.nccl => {}
            Collective::AllReduce(_) if has_owners(planned) && same_columns(graph, calls, made, index) => {
                add(made, TileOrder { columns: Shares::Neighbours { count, first: next }, ..order });
            }
            Collective::ReduceScatter(_) if planes(graph, calls, index, Access::Read, made, Access::Write) => {
                add(made, TileOrder { rows: Shares::InTurn { count, first: next }, ..order });
            }
            _ => {}
        }
    }
    for index in 0..calls.len() {
        if graph.calls[index].task.collective() != Some(Collective::AllGather) || calls[index].nccl {
            continue;
        }
        for reader in (index + 1..calls.len()).filter(|reader| !makers.contains(reader)) {
            if planes(graph, calls, index, Access::Write, reader, Access::Read) {
                let rows = Shares::Behind { count, first: options.rank };
                add(reader, TileOrder { rows, ..calls[reader].order });
            }
        }
    }
    turned
}

/// Whether a call is a GEMM of whole tiles, of a grid of rows and columns.
fn may_turn(graph: &Graph, calls: &[PlannedCall], call: usize) -> bool {
    let planned = &calls[call];
    // Of a GEMM that is split in part, the first tiles are the same on all ranks.
    matches!(graph.calls[call].task.kind, TaskKind::Gemm { .. })
        && planned.parts == 1
        && planned.grid.len() == 2
        && !planned.grid.contains(&0)
        && !planned.tasks.is_empty()
        && planned.order == TileOrder::GROUPS
}

/// Whether each tile of an all-reduce belongs to a rank.
fn has_owners(planned: &PlannedCall) -> bool {
    matches!(planned.exchange_task(0, 0), Some(ExchangeTask::SendToOwner | ExchangeTask::Reduce))
}

/// Whether a column of tiles of `made` is one of `call`, which reads what it writes.
fn same_columns(graph: &Graph, calls: &[PlannedCall], made: usize, call: usize) -> bool {
    let tile = |call: usize, access| {
        let (view, param) = operand(&graph.calls[call], access)?;
        let [Index::Tile(_), Index::Tile(column)] = *param.region else { return None };
        Some((view, *calls[call].tile.get(usize::from(column))?))
    };
    let (made, read) = (tile(made, Access::Write), tile(call, Access::Read));
    made.is_some() && made == read
}

/// Whether `call` has a tensor with a plane for each rank, which are the rows of what `gemm` reads or writes, whole tiles of it each.
fn planes(graph: &Graph, calls: &[PlannedCall], call: usize, access: Access, gemm: usize, rows: Access) -> bool {
    let Some((view, _)) = operand(&graph.calls[call], access) else { return false };
    let is_rows = |whole: &View, index: Option<&Index>| {
        let ([plane, row, _], [axis, _], Some(&Index::Tile(0))) = (&view.axes[..], &whole.axes[..], index) else { return false };
        let tile = calls[gemm].tile.first().map_or(1, |&rows| u64::from(rows));
        whole.tensor == view.tensor
            && whole.offset == view.offset
            && [plane.axis, row.axis] == [axis.axis; 2]
            && [row.step, axis.step] == [1; 2]
            && plane.step == row.extent
            && plane.extent * plane.step == axis.extent
            && plane.step.is_multiple_of(tile)
    };
    operands(&graph.calls[gemm]).any(|(whole, param)| param.access == rows && is_rows(whole, param.region.first()))
}

/// The latest number that each task has on any rank: its own, but for tasks of calls that begin elsewhere on each.
pub(super) fn latest(calls: &[PlannedCall], events: &Events) -> Vec<u32> {
    let mut latest: Vec<u32> = (0..events.tasks.len() as u32).collect();
    for planned in calls.iter().filter(|planned| planned.order.has_shares()) {
        let grid = grid(planned);
        let (rows, columns) = (planned.order.rows.count_and_first().0, planned.order.columns.count_and_first().0);
        for task in planned.tasks.clone() {
            let coord = events.tasks[task as usize].coord;
            let places = (0..rows.max(columns)).map(|first| planned.order.beginning_at(first).place(grid, coord));
            latest[task as usize] = planned.tasks.start + places.max().unwrap_or(0);
        }
    }
    latest
}

impl PlannedCall {
    /// Which share its order begins with, of how many, if that depends on the rank.
    pub fn first_share(&self) -> Option<(u32, u32)> {
        let shares = [self.order.rows, self.order.columns].map(Shares::count_and_first);
        shares.into_iter().find(|&(count, _)| count > 1).map(|(count, first)| (first, count))
    }
}

impl super::Plan {
    /// The tasks in which ranks exchange tiles, in the order in which they come: call, coordinates and part. All ranks have the same. Other tasks may come in another
    /// order on each.
    ///
    /// Whatever waits for another rank is one of these tasks, and waits for a task of another rank that is one of these too, or that one of these waits for on that rank:
    /// a GEMM that sends a tile is waited for by the task that has this tile on the same rank. So take all ranks' tasks in one order: what stands on any rank before
    /// the first of these, then that on all ranks, and so on. Each list follows it, and each wait is for what is before it. The first task in it that has not ended
    /// finds all that it waits for.
    pub fn exchanges(&self) -> impl Iterator<Item = (u32, [u32; AXES], u32)> + '_ {
        let exchanges = |&task: &u32| self.graph.calls[self.tasks[task as usize].call as usize].task.collective().is_some();
        let mut tasks: Vec<u32> = (0..self.tasks.len() as u32).filter(exchanges).collect();
        tasks.sort_by_key(|&task| self.lists.positions.get(task as usize).copied().unwrap_or(task));
        tasks.into_iter().map(|task| {
            let node = &self.tasks[task as usize];
            (node.call, node.coord, node.part)
        })
    }
}
