//! Chooses the tile of every call: forced by `.tile(..)`, or the variant that a small cost model likes best.
//!
//! The model is that of a call alone on the device: waves of tasks over the workers, each as long as one tile takes. It is
//! meant to rank the variants of one task, not to predict times.

use super::region::tensor_of;
use super::{AXES, PlanError, PlannedCall, Site};
use crate::ir::Call;
use crate::spec::{Access, ElementSpec, Index, TaskKind, TaskSpec, TensorParam};

/// Cycles that a tile costs whatever its size: waits, descriptor, the ends of the pipeline.
const TILE_CYCLES: f64 = 800.0;
/// Bytes that one SM gets per cycle out of the second-level cache while all SMs load (H200).
const BYTES_PER_CYCLE: f64 = 40.0;
/// Multiply-adds of one SM's tensor cores per cycle (16-bit, dense).
const PRODUCTS_PER_CYCLE: f64 = 2048.0;

/// The tile and grid of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    axes: usize,
    /// Which of the allowed sizes, per grid axis.
    variants: [u32; AXES],
    /// Tile size per grid axis; 1 beyond the last.
    pub tile: [u32; AXES],
    /// Tiles along each grid axis; 1 beyond the last.
    pub grid: [u32; AXES],
}

impl Choice {
    /// The call as the plan lists it, without its tasks.
    pub fn planned(&self, call: &Call) -> PlannedCall {
        let op = call.slot.saturating_add(call.task.instance(call.element, &self.variants[..self.axes]));
        PlannedCall { tile: self.tile[..self.axes].to_vec(), grid: self.grid[..self.axes].to_vec(), op, tasks: 0..0 }
    }
}

/// One use of a grid axis by a parameter: the elements that its tiles walk over.
#[derive(Clone, Copy)]
struct Use {
    axis: usize,
    extent: u64,
    param: &'static str,
}

/// Chooses tiles; keeps its scratch memory between calls.
#[derive(Default)]
pub(super) struct Chooser {
    uses: Vec<Use>,
}

impl Chooser {
    /// The tile and grid of `call`, which has passed [`super::check::call`].
    pub fn choose(&mut self, site: Site, call: &Call, workers: u32) -> Result<Choice, PlanError> {
        let task = call.task;
        self.collect_uses(call);
        if let Some(axis) = (0..task.axes.len()).find(|&axis| self.uses.iter().all(|u| u.axis != axis)) {
            return Err(PlanError::UnusedAxis { site, axis: task.axes[axis].name });
        }
        if let Some(tile) = &call.tile {
            let variants = forced(site, task, tile)?;
            return self.place(site, task, variants);
        }
        let cost = Cost::new(call, workers);
        let mut best: Option<(f64, Choice)> = None;
        let mut refused = None;
        // Larger variants first: of two that cost the same, the one with fewer tasks.
        for index in (0..task.tile_variants()).rev() {
            match self.place(site, task, digits(task, index)) {
                Err(error) => refused = Some(error),
                Ok(choice) => {
                    let time = cost.of(&choice);
                    if best.is_none_or(|(least, _)| time < least) {
                        best = Some((time, choice));
                    }
                }
            }
        }
        match (best, refused) {
            (Some((_, choice)), _) => Ok(choice),
            (None, Some(error)) => Err(error),
            (None, None) => self.place(site, task, [0; AXES]),
        }
    }

    fn collect_uses(&mut self, call: &Call) {
        self.uses.clear();
        for (param, view) in call.task.params.iter().filter_map(tensor_of).zip(&call.operands) {
            for (&index, view_axis) in param.region.iter().zip(&view.axes) {
                let (axis, extent) = match index {
                    Index::All | Index::Data(_) => continue,
                    Index::Tile(axis) | Index::Halo { axis, .. } => (axis, view_axis.extent),
                    // Every tile of the parameter serves `divisor` tiles of the grid. Extents fit 31 bits, divisors 32.
                    Index::TileOver(axis, divisor) => (axis, view_axis.extent * u64::from(divisor)),
                };
                self.uses.push(Use { axis: usize::from(axis), extent, param: param.name });
            }
        }
    }

    /// The grid of one variant; all uses of an axis must agree on it.
    fn place(&self, site: Site, task: &'static TaskSpec, variants: [u32; AXES]) -> Result<Choice, PlanError> {
        let mut choice = Choice { axes: task.axes.len(), variants, tile: [1; AXES], grid: [1; AXES] };
        for (axis, spec) in task.axes.iter().enumerate() {
            let tile = spec.tiles[variants[axis] as usize];
            let tiles = |u: &Use| u.extent.div_ceil(u64::from(tile));
            let mut along = self.uses.iter().filter(|u| u.axis == axis);
            let Some(first) = along.next() else { continue };
            if let Some(other) = along.find(|u| tiles(u) != tiles(first)) {
                return Err(PlanError::GridDisagreement {
                    site,
                    axis: spec.name,
                    tile,
                    param: first.param,
                    extent: first.extent,
                    tiles: tiles(first),
                    other: other.param,
                    other_extent: other.extent,
                    other_tiles: tiles(other),
                });
            }
            choice.tile[axis] = tile;
            let max = u64::from(u32::MAX);
            choice.grid[axis] = u32::try_from(tiles(first)).map_err(|_| PlanError::TooManyTasks { site, found: tiles(first), max })?;
        }
        Ok(choice)
    }
}

fn forced(site: Site, task: &'static TaskSpec, tile: &[u32]) -> Result<[u32; AXES], PlanError> {
    if tile.len() != task.axes.len() {
        return Err(PlanError::TileCount { site, expected: task.axes.len(), found: tile.len() });
    }
    let mut variants = [0; AXES];
    for ((variant, axis), &found) in variants.iter_mut().zip(task.axes).zip(tile) {
        let Some(position) = axis.tiles.iter().position(|&allowed| allowed == found) else {
            return Err(PlanError::TileVariant { site, axis: axis.name, found, allowed: axis.tiles });
        };
        *variant = position as u32;
    }
    Ok(variants)
}

/// The variant of each axis in variant number `index`, last axis fastest.
fn digits(task: &TaskSpec, mut index: u32) -> [u32; AXES] {
    let mut variants = [0; AXES];
    for (variant, axis) in variants.iter_mut().zip(task.axes).rev() {
        let count = axis.tiles.len() as u32;
        *variant = index % count;
        index /= count;
    }
    variants
}

/// Estimates how long a call takes, in cycles.
struct Cost<'a> {
    call: &'a Call,
    workers: f64,
}

impl<'a> Cost<'a> {
    fn new(call: &'a Call, workers: u32) -> Cost<'a> {
        Cost { call, workers: f64::from(workers) }
    }

    fn of(&self, choice: &Choice) -> f64 {
        let tasks: f64 = choice.grid.iter().map(|&tiles| f64::from(tiles)).product();
        let task = self.call.task;
        let (mut bytes, mut factors, mut result) = (0.0, [0.0f64; 2], 0.0f64);
        for (param, view) in task.params.iter().filter_map(tensor_of).zip(&self.call.operands) {
            let mut volume = 1.0;
            for (&index, view_axis) in param.region.iter().zip(&view.axes) {
                volume *= match index {
                    Index::All | Index::Data(_) => view_axis.extent as f64,
                    Index::Tile(axis) | Index::TileOver(axis, _) => f64::from(choice.tile[usize::from(axis)]),
                    Index::Halo { axis, before, after } => f64::from(choice.tile[usize::from(axis)]) + f64::from(before) + f64::from(after),
                };
            }
            bytes += volume * self.element_bytes(param) * if param.access == Access::Update { 2.0 } else { 1.0 };
            if param.access.writes() {
                result = result.max(volume);
            } else if param.region.contains(&Index::All) {
                factors = [factors[0].max(volume), factors[1].max(volume.min(factors[0]))];
            }
        }
        // A tile of x (m × k), of w (n × k) and of y (m × n): the square root of the volumes' product is m × n × k.
        let products = if task.kind == TaskKind::Staged { (factors[0] * factors[1] * result).sqrt() } else { 0.0 };
        let tile = TILE_CYCLES + (products / PRODUCTS_PER_CYCLE).max(bytes / BYTES_PER_CYCLE);
        (tasks / self.workers).ceil() * tile
    }

    fn element_bytes(&self, param: &TensorParam) -> f64 {
        let element = match param.element {
            ElementSpec::Fixed(element) => Some(element),
            ElementSpec::Generic => self.call.task.elements.get(self.call.element as usize).copied(),
        };
        element.map_or(4.0, |element| f64::from(element.bytes()))
    }
}
