//! Chooses GEMM or GEMV form, tile and split-K of every call: what `.tile(..)` and `.split_k(..)` say, else the fastest by a small cost model.
//!
//! The model counts waves of tasks over the workers, for the call and those that run concurrently with it. It is meant to rank the variants of one task,
//! not to predict times. Memory-bound tasks have a model of their own (`memory_bound_cost.rs`).
//!
//! The GEMV form of a task is considered only where it reads operand B once, since every further row of tiles would
//! read it again. The best variants of both forms are compared by time, and neither is faster than device memory delivers all operands.
//! Of equals the GEMV form is taken: the model does not see that it loads operand B before its inputs are ready.
//!
//! Of collectives, `exchanged` says which tiles go which way.

mod exchanged;

use maco_abi::{AXES, CHUNK, PARTIAL_BYTES, ROW_BYTES};

use super::memory_bound_cost::Tasks;
use super::region::tensor_of;
use super::split_k::SplitK;
use super::tile_order::TileOrder;
use super::ways::Way;
use super::workload::{bytes_moved, contraction, element, multiply_adds};
use super::{DeviceModel, Options, PlanError, PlannedCall, Site};
use crate::ir::{Call, Graph, View, ViewAxis};
use crate::spec::{Access, Element, Form, Index, TaskSpec, TensorParam, Text, Via};

/// Most parts that are tried: more cost more than the K steps that they save.
const MAX_TRIED_PARTS: u32 = 16;
/// Most bytes of partial sums of all calls that are split without being asked to: a plan of many calls should not need more memory than its weights.
const ALL_BYTES: f64 = (256 << 20) as f64;

/// About how long one of `tasks` tasks of `call` takes, in nanoseconds.
pub(super) fn task_nanoseconds(graph: &Graph, call: &Call, tasks: usize, model: &DeviceModel) -> u64 {
    let each = |work: u64| work as f64 / tasks.max(1) as f64;
    let multiplied = each(multiply_adds(call).unwrap_or(0)) * 2.0 / model.tensor;
    let moved = each(bytes_moved(graph, call).0) / model.copy;
    (multiplied.max(moved) + model.tile).clamp(1.0, (1u64 << 40) as f64) as u64
}

/// The form, tile, split-K and grid of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub form: Form,
    pub axes: usize,
    /// Which of the allowed sizes, per grid axis.
    pub variants: [u32; AXES],
    /// Tile size per grid axis; 1 beyond the last.
    pub tile: [u32; AXES],
    /// Tiles along each grid axis; 1 beyond the last.
    pub grid: [u32; AXES],
    /// Split-K. If only some tiles are split, those of full waves are not.
    pub split_k: SplitK,
    /// See [`PlannedCall::nccl`].
    pub nccl: bool,
    /// See [`PlannedCall::way`].
    pub way: Option<Way>,
    /// The order of its tiles.
    pub order: TileOrder,
}

impl Choice {
    /// Makes `call` a call of the chosen form: nothing after this sees the other one.
    pub fn settle(&self, call: &mut Call) {
        call.task = self.form.spec;
        call.slot = call.slot.saturating_add(self.form.first_instance);
    }

    /// How many tiles there are.
    pub fn tiles(&self) -> u64 {
        if self.grid.contains(&0) { 0 } else { self.grid.iter().fold(1, |tiles: u64, &along| tiles.saturating_mul(along.into())) }
    }

    /// Whether no two tiles read the same rows of operand B.
    fn reads_weights_once(&self) -> bool {
        let spec = self.form.spec;
        let gemv = spec.gemv_operand_b().and_then(|operand| spec.params.iter().filter_map(tensor_of).nth(operand));
        let cut = |axis: usize| gemv.is_some_and(|param| param.region.contains(&Index::Tile(axis as u8)));
        (0..self.axes).all(|axis| self.grid[axis] <= 1 || cut(axis))
    }

    /// The [settled](Choice::settle) call as the plan lists it, without its tasks.
    pub fn planned(&self, call: &Call) -> PlannedCall {
        let op = call.slot.saturating_add(call.task.instance(call.element, &self.variants[..self.axes]));
        PlannedCall {
            tile: self.tile[..self.axes].to_vec(),
            grid: self.grid[..self.axes].to_vec(),
            parts: self.split_k.parts,
            whole: self.split_k.whole,
            op,
            tasks: 0..0,
            dynamic: false,
            prologue: None,
            pushed_by: None,
            nccl: self.nccl,
            slots: 0,
            way: self.way,
            order: self.order,
        }
    }
}

/// One use of a grid axis by a parameter: the extent that its tiles cover.
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
    /// Bytes of partial sums of the calls that the model has split.
    partial: f64,
    /// Of the current call: see [`super::concurrency`].
    concurrency: f64,
}

impl Chooser {
    /// The form, tile, split-K and grid of `call`, which has passed [`super::check::call`]. `concurrency`: see [`super::concurrency`].
    pub fn choose(&mut self, site: Site, call: &Call, concurrency: f64, options: &Options) -> Result<Choice, PlanError> {
        let task = call.task;
        self.concurrency = concurrency;
        self.collect_uses(call);
        if let Some(axis) = (0..task.axes.len()).find(|&axis| self.uses.iter().all(|u| u.axis != axis)) {
            return Err(PlanError::UnusedAxis { site, axis: task.axes[axis].name });
        }
        let asked = self.asked(site, call, options);
        if asked.via == Via::Nccl {
            let choice = self.chunks(site, call)?.ok_or(PlanError::Chunks { site })?;
            return Ok(Choice { way: Some(asked), ..choice });
        }
        let shape = options.shapes.iter().find(|shape| shape.call == site.call);
        let tile = call.tile.as_ref().or(shape.and_then(|shape| shape.tile.as_ref()));
        let split = call.split.or(shape.and_then(|shape| shape.split));
        // `.split_k(n)` in the source is for all tiles.
        let whole = if call.split.is_some() { 0 } else { shape.map_or(0, |shape| shape.whole) };
        if let Some(tile) = tile {
            let form = forced(site, call, tile)?;
            let parts = split_limit(site, call, form.spec, split, options)?;
            let variant = form.spec.variant(tile).unwrap_or(0);
            let choice = self.tile_grid(site, form, digits(form.spec, variant))?;
            if asked.why.is_demanded() && !choice.goes_via(call, asked.via) {
                return Err(PlanError::Via { site, via: asked.via.name() });
            }
            let cost = CostModel::new(call, form.spec, options, self.concurrency);
            return Ok(self.split(&cost, choice, parts, split.map(|_| whole)).1.apart(call, asked, options));
        }
        let of = |via| self.fastest(site, call, task.own_form(), via, (split, whole), options);
        let (time, mut best) = match of(asked.via) {
            Err(PlanError::Via { .. }) if !asked.why.is_demanded() => of(Via::Automatic)?,
            found => found?,
        };
        if let Some(gemv) = task.gemv_form(call.element)
            && split.is_none_or(|split| split <= gemv.spec.max_split_k())
            && let Ok((gemv, choice)) = self.fastest(site, call, gemv, Via::Automatic, (split, whole), options)
            && choice.reads_weights_once()
        {
            let memory = CostModel::new(call, task, options, self.concurrency).memory();
            if gemv.behind(memory) <= time.behind(memory) {
                best = choice;
            }
        }
        if split.is_none() {
            self.partial += CostModel::new(call, best.form.spec, options, self.concurrency).partial_bytes(&best);
        }
        Ok(best.apart(call, asked, options))
    }

    /// The fastest variant of a form and its time; of a GEMV form only variants that read operand B once, of a collective those that go this way. `split` and `whole`: the forced parts, if any,
    /// and how many tiles are not split.
    fn fastest(
        &self,
        site: Site,
        call: &Call,
        form: Form,
        via: Via,
        (split, whole): (Option<u32>, u32),
        options: &Options,
    ) -> Result<(Time, Choice), PlanError> {
        let parts = split_limit(site, call, form.spec, split, options)?;
        let cost = CostModel::new(call, form.spec, options, self.concurrency);
        let mut best: Option<(Time, Choice)> = None;
        let mut refused = None;
        // Larger variants first: of two that cost the same, the one with fewer tasks.
        for index in (0..form.spec.tile_variants()).rev() {
            match self.tile_grid(site, form, digits(form.spec, index)) {
                Err(error) => refused = Some(error),
                Ok(choice) if form.first_instance > 0 && !choice.reads_weights_once() => {}
                Ok(choice) if !choice.goes_via(call, via) => refused = Some(PlanError::Via { site, via: via.name() }),
                Ok(choice) => {
                    let (time, choice) = self.split(&cost, choice, parts, split.map(|_| whole));
                    if best.is_none_or(|(least, _)| time.whole() < least.whole()) {
                        best = Some((time, choice));
                    }
                }
            }
        }
        match (best, refused) {
            (Some(best), _) => Ok(best),
            (None, Some(error)) => Err(error),
            (None, None) => self.tile_grid(site, form, [0; AXES]).map(|choice| (cost.of(&choice), choice)),
        }
    }

    /// `choice` with split-K, and its time. If `forced` (that many tiles are not split), in exactly `parts` parts; else in as many up to that as are
    /// fastest. Either all tiles are split, or only those of the last wave, which would leave workers idle.
    fn split(&self, cost: &CostModel<'_>, choice: Choice, parts: u32, forced: Option<u32>) -> (Time, Choice) {
        let tiles = choice.tiles();
        if let Some(whole) = forced {
            // If no tile is split, there is one part.
            let whole = if parts > 1 && u64::from(whole) < tiles { whole } else { 0 };
            let choice = Choice { split_k: SplitK { whole, parts }, ..choice };
            return (cost.of(&choice), choice);
        }
        let full = tiles - tiles % cost.workers as u64;
        let tail = u32::try_from(full).ok().filter(|&full| full > 0 && u64::from(full) < tiles);
        let mut best = (cost.of(&choice), choice);
        for parts in 2..=parts {
            for whole in std::iter::once(0).chain(tail) {
                let split = Choice { split_k: SplitK { whole, parts }, ..choice };
                let bytes = cost.partial_bytes(&split);
                if bytes > cost.model.partial_sums as f64 || self.partial + bytes > ALL_BYTES {
                    continue;
                }
                let time = cost.of(&split);
                if time.whole() < best.0.whole() {
                    best = (time, split);
                }
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
    fn tile_grid(&self, site: Site, form: Form, variants: [u32; AXES]) -> Result<Choice, PlanError> {
        let task = form.spec;
        let mut choice = Choice {
            form,
            axes: task.axes.len(),
            variants,
            tile: [1; AXES],
            grid: [1; AXES],
            split_k: SplitK::ONE,
            nccl: false,
            way: None,
            order: TileOrder::GROUPS,
        };
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

/// The forced number of split-K parts, or the largest one to try. Every part has at least one K step.
fn split_limit(site: Site, call: &Call, form: &TaskSpec, forced: Option<u32>, options: &Options) -> Result<u32, PlanError> {
    let most = form.max_split_k();
    let contracted = form.params.iter().filter_map(tensor_of).zip(&call.operands).filter(|(param, _)| param.staged);
    let extents = contracted.flat_map(|(param, view)| {
        let step = u64::from(ROW_BYTES / bytes(call, param));
        param.region.iter().zip(&view.axes).map(move |(index, axis)| (index, axis.extent.div_ceil(step)))
    });
    let steps = extents.filter(|(index, _)| **index == Index::All).map(|(_, steps)| steps.max(1)).min();
    let steps = steps.map_or(1, |steps| steps.min(u64::from(most)) as u32);
    match forced {
        Some(found) if !(1..=most).contains(&found) => Err(PlanError::Split { site, found, max: most }),
        Some(parts) => Ok(parts.min(steps)),
        None if options.split_k => Ok(steps.min(MAX_TRIED_PARTS)),
        None => Ok(1),
    }
}

/// The form that has the forced tile.
fn forced(site: Site, call: &Call, tile: &[u32]) -> Result<Form, PlanError> {
    let task = call.task;
    if tile.len() != task.axes.len() {
        return Err(PlanError::TileCount { site, expected: task.axes.len(), found: tile.len() });
    }
    if let Some(form) = task.form(tile, call.element) {
        return Ok(form);
    }
    if let Some(Form { spec: gemv, .. }) = task.gemv_form(call.element) {
        let (mut found, mut allowed) = (Text::new(), Text::new());
        found.push_tile(tile, tile.len());
        allowed.push_tiles(task);
        allowed.push(", and as a GEMV ");
        allowed.push_tiles(gemv);
        return Err(PlanError::TileOfForms { site, found: found.as_str().into(), allowed: allowed.as_str().into() });
    }
    let wrong = task.axes.iter().zip(tile).find(|(axis, found)| !axis.tiles.contains(found));
    let (axis, &found) = wrong.unwrap_or((&task.axes[0], &tile[0]));
    Err(PlanError::TileVariant { site, axis: axis.name, found, allowed: axis.tiles })
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

/// How long a call takes, in nanoseconds.
#[derive(Clone, Copy)]
struct Time {
    /// Loads and multiply-adds, which overlap.
    load: f64,
    /// Everything else: fixed costs, stores, the fix-up.
    rest: f64,
}

impl Time {
    fn whole(self) -> f64 {
        self.load + self.rest
    }

    /// The whole, if the loads take at least `memory`.
    fn behind(self, memory: f64) -> f64 {
        self.load.max(memory) + self.rest
    }
}

/// Estimates the time of a call in one form of its task.
struct CostModel<'a> {
    call: &'a Call,
    form: &'a TaskSpec,
    model: &'a DeviceModel,
    workers: f64,
    /// The work of all concurrent calls, this one included, divided by its own.
    concurrency: f64,
}

impl<'a> CostModel<'a> {
    fn new(call: &'a Call, form: &'a TaskSpec, options: &'a Options, concurrency: f64) -> CostModel<'a> {
        CostModel { call, form, model: &options.model, workers: f64::from(options.workers), concurrency }
    }

    /// Waves of so many tasks over the workers. The last wave is not full, unless concurrent calls fill it: then this call pays its share only.
    fn waves(&self, tasks: f64) -> f64 {
        (tasks * self.concurrency / self.workers).ceil() / self.concurrency
    }

    fn operands(&self) -> impl Iterator<Item = (&'a TensorParam, &'a View)> {
        self.form.params.iter().filter_map(tensor_of).zip(&self.call.operands)
    }

    fn of(&self, choice: &Choice) -> Time {
        let model = self.model;
        if self.form.collective().is_some() {
            return self.exchange(choice);
        }
        if self.form.reads_in_bulk() {
            let (load, rest) = self.tasks(choice).nanoseconds(self.workers, model);
            return Time { load, rest };
        }
        let (mut stepped, mut other, mut result) = (0.0, 0.0, 0.0f64);
        // Multiply-adds per nanosecond, and elements of K of a step.
        let (mut rate, mut step) = (model.tensor / 2.0, f64::from(ROW_BYTES));
        let gemv = self.form.gemv_operand_b().is_some();
        for (param, view) in self.operands() {
            let volume = volume(choice, param, view);
            let element = f64::from(bytes(self.call, param));
            if param.access.writes() {
                result = result.max(volume);
                other += volume * element * if param.access == Access::Update { 2.0 } else { 1.0 };
            } else if param.staged {
                rate = model.tensor / element;
                step = f64::from(ROW_BYTES) / element;
                stepped += volume * element;
            } else {
                other += volume * element;
            }
        }
        let (depth, gemms) = contraction(self.form, &self.call.operands).map_or((0.0, 0.0), |(depth, gemms)| (depth as f64, gemms as f64));
        if gemv {
            rate = model.gemv / 2.0;
        }
        let loads = if gemv { stepped / model.l2 } else { depth / step * model.step + stepped / model.step_rate };
        let (parts, whole) = (f64::from(choice.split_k.parts), f64::from(choice.split_k.whole));
        let split = (choice.tiles() as f64 - whole) * parts;
        let (before, waves) = (self.waves(whole), self.waves(split));
        let load = (before + waves / parts) * (result * depth * gemms / rate).max(loads + other / model.l2);
        // Loads of operand B continue from one task to the next, of this call or of a concurrent one.
        let mut rest = if gemv {
            waves.min(1.0 / self.concurrency) * model.tile
        } else {
            (before + waves) * (model.gemm_tile + model.gemm_element * result)
        };
        if choice.split_k.parts > 1 {
            // Every part writes its partial sums. Tasks that run at the same time share the fix-up.
            let shared = if split * self.concurrency <= self.workers { parts.min(result / f64::from(CHUNK)).max(1.0) } else { 1.0 };
            rest += waves * (model.part + result * f64::from(PARTIAL_BYTES) * (1.0 + parts / shared) / model.part_rate);
        }
        Time { load, rest }
    }

    /// The tasks of `choice`; tiles at the borders are smaller.
    fn tasks(&self, choice: &Choice) -> Tasks {
        let mut tasks = Tasks { count: choice.tiles() as f64, read: 0.0, written: 0.0 };
        let elements = |region: &[Index], view: &View, named: &dyn Fn(u8) -> f64| -> f64 {
            let extent = |(index, axis): (&Index, &ViewAxis)| match *index {
                Index::Tile(tiled) => axis.extent as f64 / f64::from(choice.grid[usize::from(tiled)].max(1)),
                Index::TileOver(tiled, _) | Index::Halo { axis: tiled, .. } => {
                    (axis.extent as f64).min(choice.tile[usize::from(tiled)].into())
                }
                Index::All => axis.extent as f64,
                Index::Data(by) => named(by),
            };
            region.iter().zip(&view.axes).map(extent).product()
        };
        // One per index.
        let named = |by: u8| {
            let indices = self.operands().nth(by.into());
            indices.map_or(1.0, |(param, view)| elements(param.region, view, &|_| 1.0))
        };
        for (param, view) in self.operands() {
            let bytes = elements(param.region, view, &named) * f64::from(bytes(self.call, param));
            tasks.read += if param.access.reads() { bytes } else { 0.0 };
            tasks.written += if param.access.writes() { bytes } else { 0.0 };
        }
        tasks
    }

    /// Nanoseconds in which device memory transfers every element once.
    fn memory(&self) -> f64 {
        let elements = |view: &View| view.axes.iter().map(|axis| axis.extent as f64).product::<f64>();
        let bytes: f64 = self.operands().map(|(param, view)| elements(view) * f64::from(bytes(self.call, param))).sum();
        bytes / (self.model.copy * self.workers)
    }

    /// Bytes of all partial sums.
    fn partial_bytes(&self, choice: &Choice) -> f64 {
        if choice.split_k.parts == 1 {
            return 0.0;
        }
        let tiles = choice.tiles() as f64 - f64::from(choice.split_k.whole);
        let written = self.operands().filter(|(param, _)| param.access.writes()).map(|(param, view)| volume(choice, param, view));
        tiles * f64::from(choice.split_k.parts) * written.sum::<f64>() * f64::from(PARTIAL_BYTES)
    }
}

/// Bytes of an element of a parameter.
pub(super) fn bytes(call: &Call, param: &TensorParam) -> u32 {
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
