//! Chooses the tile of every call, and in how many parts each tile's sum is made: forced by `.tile(..)` and `.split_k(..)`, or what a
//! small cost model likes best.
//!
//! The model is that of a call alone on the device: waves of tasks over the workers, each as long as one tile, or part of one, takes. It
//! is meant to rank the variants of one task, not to predict times.

use super::region::tensor_of;
use super::work::{contraction, element};
use super::{AXES, Options, PlanError, PlannedCall, Site};
use crate::ir::{Call, View, ViewAxis};
use crate::spec::{Access, Element, Index, MOST_PARTS, TaskSpec, TensorParam};

/// Cycles that a tile costs whatever its size: waits, descriptor, the ends of the pipeline.
const TILE_CYCLES: f64 = 800.0;
/// Bytes that one SM gets per cycle out of the second-level cache while all SMs load (H200).
const BYTES_PER_CYCLE: f64 = 40.0;
/// Multiply-adds of one SM's tensor cores per cycle (16-bit, dense); of tf32 half as many.
const PRODUCTS_PER_CYCLE: f64 = 2048.0;

/// Cycles that a part costs beside its bytes: to announce it, to see that others have come, to claim what is to be added up.
const PART_CYCLES: f64 = 2000.0;
/// Elements of a sum that one task adds up at a time, from all parts.
const CHUNK: f64 = 64.0 * 128.0;
/// Most parts that the model tries: more of them cost more than the steps that they spare.
const TRIED: u32 = 16;
/// Bytes of partial sums of one call, and of all, that the model may ask for: they should stay in the second-level cache, and a plan of
/// many calls should not need more memory than its weights.
const CALL_BYTES: f64 = (32 << 20) as f64;
const ALL_BYTES: f64 = (256 << 20) as f64;
/// Bytes of an element of a partial sum.
const PARTIAL_BYTES: f64 = 4.0;
/// Bytes of the elements of one step of a contraction.
const STEP_BYTES: u64 = 128;

/// The tile, parts and grid of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    axes: usize,
    /// Which of the allowed sizes, per grid axis.
    variants: [u32; AXES],
    /// Tile size per grid axis; 1 beyond the last.
    pub tile: [u32; AXES],
    /// Tiles along each grid axis; 1 beyond the last.
    pub grid: [u32; AXES],
    /// Parts of each tile's sum.
    pub parts: u32,
}

impl Choice {
    /// The call as the plan lists it, without its tasks.
    pub fn planned(&self, call: &Call) -> PlannedCall {
        let op = call.slot.saturating_add(call.task.instance(call.element, &self.variants[..self.axes]));
        PlannedCall { tile: self.tile[..self.axes].to_vec(), grid: self.grid[..self.axes].to_vec(), parts: self.parts, op, tasks: 0..0 }
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
    /// Bytes of partial sums that nobody asked for.
    partial: f64,
}

impl Chooser {
    /// The tile, parts and grid of `call`, which has passed [`super::check::call`].
    pub fn choose(&mut self, site: Site, call: &Call, options: &Options) -> Result<Choice, PlanError> {
        let task = call.task;
        self.collect_uses(call);
        if let Some(axis) = (0..task.axes.len()).find(|&axis| self.uses.iter().all(|u| u.axis != axis)) {
            return Err(PlanError::UnusedAxis { site, axis: task.axes[axis].name });
        }
        let shape = options.shapes.iter().find(|shape| shape.call == site.call);
        let tile = call.tile.as_ref().or(shape.and_then(|shape| shape.tile.as_ref()));
        let split = call.split.or(shape.and_then(|shape| shape.split));
        let parts = parts(site, call, split, options)?;
        let cost = Cost::new(call, options.workers);
        if let Some(tile) = tile {
            let choice = self.place(site, task, forced(site, task, tile)?)?;
            return Ok(self.split(&cost, choice, parts, split.is_some()).1);
        }
        let mut best: Option<(f64, Choice)> = None;
        let mut refused = None;
        // Larger variants first: of two that cost the same, the one with fewer tasks.
        for index in (0..task.tile_variants()).rev() {
            match self.place(site, task, digits(task, index)) {
                Err(error) => refused = Some(error),
                Ok(choice) => {
                    let (time, choice) = self.split(&cost, choice, parts, split.is_some());
                    if best.is_none_or(|(least, _)| time < least) {
                        best = Some((time, choice));
                    }
                }
            }
        }
        match (best, refused) {
            (Some((_, choice)), _) => {
                if split.is_none() {
                    self.partial += cost.partial_bytes(&choice);
                }
                Ok(choice)
            }
            (None, Some(error)) => Err(error),
            (None, None) => self.place(site, task, [0; AXES]),
        }
    }

    /// `choice` in `parts` parts if that is forced, else in as many up to that as are fastest; and its time.
    fn split(&self, cost: &Cost<'_>, choice: Choice, parts: u32, forced: bool) -> (f64, Choice) {
        let first = if forced { parts } else { 1 };
        let mut best = (cost.of(&Choice { parts: first, ..choice }), Choice { parts: first, ..choice });
        for parts in first + 1..=parts {
            let split = Choice { parts, ..choice };
            let bytes = cost.partial_bytes(&split);
            if bytes > CALL_BYTES || self.partial + bytes > ALL_BYTES {
                break;
            }
            let time = cost.of(&split);
            if time < best.0 {
                best = (time, split);
            }
        }
        best
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
        let mut choice = Choice { axes: task.axes.len(), variants, tile: [1; AXES], grid: [1; AXES], parts: 1 };
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

/// The forced number of parts, or the largest one to try. Every part has a step at least.
fn parts(site: Site, call: &Call, forced: Option<u32>, options: &Options) -> Result<u32, PlanError> {
    let most = if call.task.splits() { MOST_PARTS } else { 1 };
    let contracted = call.task.params.iter().filter_map(tensor_of).zip(&call.operands).filter(|(param, _)| param.staged);
    let extents = contracted.flat_map(|(param, view)| {
        let step = STEP_BYTES / u64::from(bytes(call, param));
        param.region.iter().zip(&view.axes).map(move |(index, axis)| (index, axis.extent.div_ceil(step)))
    });
    let steps = extents.filter(|(index, _)| **index == Index::All).map(|(_, steps)| steps.max(1)).min();
    let steps = steps.map_or(1, |steps| steps.min(u64::from(most)) as u32);
    match forced {
        Some(found) if !(1..=most).contains(&found) => Err(PlanError::Split { site, found, max: most }),
        Some(parts) => Ok(parts.min(steps)),
        None if options.splits => Ok(steps.min(TRIED)),
        None => Ok(1),
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
        let tiles: f64 = choice.grid.iter().map(|&tiles| f64::from(tiles)).product();
        let task = self.call.task;
        let (mut moved, mut result, mut rate) = (0.0, 0.0f64, PRODUCTS_PER_CYCLE);
        for (param, view) in task.params.iter().filter_map(tensor_of).zip(&self.call.operands) {
            let volume = volume(choice, param, view);
            let element = f64::from(bytes(self.call, param));
            moved += volume * element * if param.access == Access::Update { 2.0 } else { 1.0 };
            if param.access.writes() {
                result = result.max(volume);
            } else if param.staged {
                rate = PRODUCTS_PER_CYCLE * 2.0 / element;
            }
        }
        let products = contraction(self.call).map_or(0.0, |(depth, products)| result * depth as f64 * products as f64);
        let parts = f64::from(choice.parts);
        let mut time = TILE_CYCLES + (products / rate).max(moved / BYTES_PER_CYCLE) / parts;
        if choice.parts > 1 {
            // Every part writes its sum. Tasks that run at the same time share the adding up of all of them.
            let shared = if tiles * parts <= self.workers { parts.min(result / CHUNK).max(1.0) } else { 1.0 };
            time += PART_CYCLES + result * PARTIAL_BYTES * (1.0 + parts / shared) / BYTES_PER_CYCLE;
        }
        (tiles * parts / self.workers).ceil() * time
    }

    /// Bytes of all partial sums.
    fn partial_bytes(&self, choice: &Choice) -> f64 {
        if choice.parts == 1 {
            return 0.0;
        }
        let tiles: f64 = choice.grid.iter().map(|&tiles| f64::from(tiles)).product();
        let params = self.call.task.params.iter().filter_map(tensor_of).zip(&self.call.operands);
        let written = params.filter(|(param, _)| param.access.writes()).map(|(param, view)| volume(choice, param, view));
        tiles * f64::from(choice.parts) * written.sum::<f64>() * PARTIAL_BYTES
    }
}

/// Bytes of an element of a parameter.
fn bytes(call: &Call, param: &TensorParam) -> u32 {
    element(call, param).map_or(4, Element::bytes)
}

/// Elements of one tile of a parameter.
fn volume(choice: &Choice, param: &TensorParam, view: &View) -> f64 {
    let planes = param.region.len() == 3;
    let extent = |(n, (&index, axis)): (usize, (&Index, &ViewAxis))| match index {
        // One plane of several.
        Index::Data(_) if planes && n == 0 => 1.0,
        Index::All | Index::Data(_) => axis.extent as f64,
        Index::Tile(axis) | Index::TileOver(axis, _) => f64::from(choice.tile[usize::from(axis)]),
        Index::Halo { axis, before, after } => f64::from(choice.tile[usize::from(axis)]) + f64::from(before) + f64::from(after),
    };
    param.region.iter().zip(&view.axes).enumerate().map(extent).product()
}
