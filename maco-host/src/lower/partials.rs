//! The layout of split-K partial sums: chunks of [`CHUNK_BYTES`], tile after tile.

use maco_abi::{CHUNK_BYTES, CONCURRENT_PARTS, Flags, Part};
use maco_graph::plan::Plan;

use super::too_many;
use crate::error::Error;

/// The partial sums of a plan.
#[derive(Debug)]
pub(super) struct Partials {
    /// Per call: its first chunk, and chunks of one tile.
    calls: Vec<(u32, u32)>,
    /// Chunks of all.
    pub(super) chunks: u32,
}

impl Partials {
    pub(super) fn new(plan: &Plan) -> Result<Partials, Error> {
        let mut end = 0u64;
        let mut calls = Vec::with_capacity(plan.calls.len());
        for (call, planned) in plan.graph.calls.iter().zip(&plan.calls) {
            let bytes = planned.tile.iter().fold(size_of::<f32>() as u64, |bytes, &size| bytes.saturating_mul(size.into()));
            let sums = planned.parts > 1 && call.task.collective().is_none();
            let tile = if sums { bytes.div_ceil(CHUNK_BYTES.into()) * u64::from(planned.parts) } else { 0 };
            // Where they do not fit, the sum of all is refused below.
            calls.push((end as u32, tile as u32));
            let tiles = (planned.tasks.len() as u64).saturating_sub(planned.whole.into()) / u64::from(planned.parts);
            end = end.saturating_add(tile * tiles);
        }
        let chunks = u32::try_from(end).map_err(|_| too_many(&plan.graph, "chunks of partial sums", end, u32::MAX.into()))?;
        Ok(Partials { calls, chunks })
    }

    /// The split-K fields of the descriptor of task `task`: the tile's first chunk, if it is a sum, the part and how many there are, and flags. `None` if the tile is not
    /// split. Of a tile that ranks exchange the parts are sending and receiving it.
    pub(super) fn of(&self, plan: &Plan, task: u32) -> Option<(Option<u32>, u16, Flags)> {
        let node = &plan.tasks[task as usize];
        let call = &plan.calls[node.call as usize];
        if plan.graph.calls[node.call as usize].task.collective().is_some() {
            let part = call.exchange_part(task - call.tasks.start, node.part);
            return part.map(|part| (None, part.encode(), Flags::NONE));
        }
        // The parts of a tile follow one another.
        let (tile, parts) = call.tile_of(task - call.tasks.start);
        if parts == 1 {
            return None;
        }
        let split = Part { part: node.part, parts }.encode();
        let (first, chunks) = self.calls[node.call as usize];
        // All parts run at the same time, since each worker has one, after equally many unsplit tiles.
        let flags = if call.tasks.len() as u64 - u64::from(call.whole) <= plan.workers.into() { CONCURRENT_PARTS } else { Flags::NONE };
        Some((Some(first + (tile - call.whole) * chunks), split, flags))
    }
}
