//! Collectives that NCCL does beside the kernel: their chunks, and the order of the tiles that those are made of.

use maco_abi::{AXES, ExchangeTask};

use super::PlannedCall;
use super::pushed_tiles::{operand, producer};
use super::region::{Regions, tensor_of};
use super::split_k::SplitK;
use super::tile_order::{ROWS, TileOrder};
use super::tile_selection::{Choice, bytes};
use crate::ir::{Call, Graph, View};
use crate::spec::{Access, Collective, Index, TaskKind, TensorParam};

/// Least bytes of a chunk: a gate costs some 5 µs, and 4 MiB take 40 to 70 µs of two GPUs.
const CHUNK_BYTES: u64 = 4 << 20;
/// Most chunks of a call.
const CHUNKS: u64 = 16;
/// Chunks are multiples of so many rows, which are whole tiles of GEMMs.
const CHUNK_ROWS: u64 = 128;

/// The chunks of a call, by the code of its largest tile, `whole`: the tasks read and write nothing. A chunk has its rows of all planes. None of what NCCL cannot
/// exchange so.
pub(super) fn of(call: &Call, whole: Choice) -> Option<Choice> {
    let params: Vec<&TensorParam> = call.task.params.iter().filter_map(tensor_of).collect();
    let ([x, y], [read, written]) = (&call.operands[..], &params[..]) else { return None };
    let [.., Index::Tile(along), Index::Tile(across)] = *written.region else { return None };
    let by_rows = matches!(*read.region, [.., Index::Tile(down), Index::Tile(right)] if (down, right) == (along, across));
    // Of rows that follow one another without a gap: the last axes of their tensors.
    let follow = |view: &View| view.axes.iter().enumerate().all(|(n, axis)| usize::from(axis.axis) == n && axis.step == 1);
    let extents = |view: &View| view.axes.iter().rev().take(2).map(|axis| axis.extent).collect::<Vec<_>>();
    let [columns, rows] = extents(y)[..] else { return None };
    let fits = by_rows
        && whole.is_large(call)
        && call.task.collective().is_some_and(Collective::by_nccl)
        && follow(x)
        && follow(y)
        && extents(x) == extents(y);
    if !fits {
        return None;
    }
    let row = columns.max(1) * u64::from(bytes(call, written));
    let least = CHUNK_BYTES.div_ceil(row).max(rows.div_ceil(CHUNKS));
    let each = least.next_multiple_of(CHUNK_ROWS).min(rows.max(1));
    let (mut tile, mut grid) = ([1; AXES], [1; AXES]);
    for (index, axis) in written.region.iter().zip(&y.axes) {
        let Index::Tile(tiled) = *index else { continue };
        let size = if tiled == along { each } else { axis.extent.max(1) };
        tile[usize::from(tiled)] = u32::try_from(size).ok()?;
        grid[usize::from(tiled)] = u32::try_from(axis.extent.div_ceil(size)).ok()?;
    }
    Some(Choice { tile, grid, split_k: SplitK { whole: 0, parts: ExchangeTask::ONE_SHOT }, nccl: true, ..whole })
}

/// Has the last tiles of GEMMs, whose results NCCL exchanges, made in groups of rows of a chunk: else the chunks of a whole group are left when the last tile is made.
pub(super) fn order_producers(graph: &Graph, calls: &mut [PlannedCall], choices: &mut [Choice], regions: &mut Regions) {
    for index in 0..calls.len() {
        let planned = &calls[index];
        if !planned.nccl {
            continue;
        }
        let Some(made) = producer(graph, index) else { continue };
        let (call, by) = (&graph.calls[index], &graph.calls[made as usize]);
        let (Some((x, read)), Some((y, written))) = (operand(call, Access::Read), operand(by, Access::Write)) else { continue };
        let ([.., Index::Tile(along), Index::Tile(_)], [Index::Tile(0), Index::Tile(1)]) = (read.region, written.region) else { continue };
        let (chunk, tile) = (planned.tile[usize::from(*along)], choices[made as usize].tile[0]);
        let is_pushed = calls.iter().any(|call| call.pushed_by == Some(made));
        // Who sends tiles knows them by their order.
        if x != y || is_pushed || !matches!(by.task.kind, TaskKind::Gemm { .. }) || !chunk.is_multiple_of(tile) {
            continue;
        }
        let order = TileOrder { last_rows: (chunk / tile).min(ROWS), ..TileOrder::GROUPS };
        (choices[made as usize].order, calls[made as usize].order) = (order, order);
        regions.set_order(made, order);
    }
}
