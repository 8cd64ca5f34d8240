//! What a task touches of a tensor, as a box of its coordinates: the hull, which may hold more elements than the task touches.

use maco_abi::{AXES, RANK};

use super::super::PlannedCall;
use super::super::region::tensor_of;
use crate::ir::{Call, View};
use crate::spec::Index;

/// First coordinate and end along each axis of a tensor; `0..1` beyond the last.
pub(super) type Box = [(u64, u64); RANK];

/// One parameter of one call.
pub(super) struct Boxes<'a> {
    view: &'a View,
    region: &'a [Index],
    tile: &'a [u32],
}

impl<'a> Boxes<'a> {
    pub fn new(call: &'a Call, planned: &'a PlannedCall, operand: u32) -> Option<Boxes<'a>> {
        let param = call.task.params.iter().filter_map(tensor_of).nth(operand as usize)?;
        Some(Boxes { view: call.operands.get(operand as usize)?, region: param.region, tile: &planned.tile })
    }

    /// The box of the tile at `coord`.
    pub fn of(&self, coord: [u32; AXES]) -> Box {
        let mut found = [(0, 1); RANK];
        for (found, &offset) in found.iter_mut().zip(&self.view.offset) {
            *found = (offset, offset + 1);
        }
        for (index, axis) in self.region.iter().zip(&self.view.axes) {
            let (first, end) = self.indices(*index, axis.extent, coord);
            let along = &mut found[usize::from(axis.axis)];
            along.0 += first * axis.step;
            along.1 += end.saturating_sub(1) * axis.step;
        }
        found
    }

    /// Whether the box along tensor axis `axis` moves with grid axis `grid`.
    pub fn moves(&self, axis: usize, grid: usize) -> bool {
        self.region.iter().zip(&self.view.axes).filter(|(_, along)| usize::from(along.axis) == axis).any(|(index, _)| match *index {
            Index::All | Index::Data(_) => false,
            Index::Tile(by) | Index::TileOver(by, _) | Index::Halo { axis: by, .. } => usize::from(by) == grid,
        })
    }

    fn indices(&self, index: Index, extent: u64, coord: [u32; AXES]) -> (u64, u64) {
        let tiled = |axis: u8, coord: u32, before: u32, after: u32| {
            let (tile, coord) = (u64::from(self.tile[usize::from(axis)]), u64::from(coord));
            let first = (coord * tile).saturating_sub(before.into());
            (first, ((coord + 1) * tile + u64::from(after)).min(extent))
        };
        match index {
            Index::All | Index::Data(_) => (0, extent),
            Index::Tile(axis) => tiled(axis, coord[usize::from(axis)], 0, 0),
            Index::TileOver(axis, over) => tiled(axis, coord[usize::from(axis)] / over, 0, 0),
            Index::Halo { axis, before, after } => tiled(axis, coord[usize::from(axis)], before, after),
        }
    }
}
