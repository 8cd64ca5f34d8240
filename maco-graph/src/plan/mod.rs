//! From a call graph with sizes to tiles, counters and worker lists.
//!
//! Memory, streams and descriptors do not belong here. The steps, one file each:
//!
//! - `device_model` has what a device costs, by which the others choose;
//! - `tile_selection` chooses the tile and the split-K of every call, by a cost model;
//! - `region` turns signatures into boxes of tensor coordinates;
//! - `dependencies` finds which call must wait for which;
//! - `counter_groups` cuts the tensors into groups of tiles that share a counter;
//! - `schedule` orders calls and tiles;
//! - `events` writes the waits and signals of every task;
//! - `in_band_flags` finds the edges whose elements carry their own flags;
//! - `message_slots` bounds the memory of messages between ranks;
//! - `pushed_tiles` finds the GEMMs that send their tiles to other ranks themselves;
//! - `prologue_fusion` fuses RMSNorm and unary element-wise calls into the GEMVs that read their results;
//! - `temps` gives temps their memory, and adds edges where they share it;
//! - `assignment` and `list_scheduling` assign tasks to workers, and `lists` says who runs what;
//! - `worker_edges` finds the edges between tasks of one worker;
//! - `scheduler_partition` divides the tasks among schedulers;
//! - `verify` checks the result with arithmetic of its own.

use maco_abi::{AXES, ExchangeTask, MAX_SCHEDULERS, MAX_WORKERS, Part};

mod assignment;
mod candidate_plan;
mod check;
mod collective_order;
mod concurrency;
mod counter_groups;
mod counter_lookup;
mod dependencies;
mod device_model;
mod display;
#[doc(hidden)]
mod dynamic_calls;
mod error;
mod events;
pub mod in_band_flags;
mod json;
mod list_scheduling;
mod lists;
pub mod memory_bound_cost;
mod message_slots;
mod nccl_chunks;
#[doc(hidden)]
pub mod oracle;
mod overlaps;
pub mod prologue_fusion;
mod pushed_tiles;
mod region;
mod schedule;
mod scheduler_partition;
mod split_k;
mod temps;
mod tile_selection;
mod verify;
mod worker_edges;
mod workload;

use std::fmt;
use std::ops::Range;

use crate::ir;
use crate::spec::Via;
use candidate_plan::CandidatePlan;

pub use device_model::{DeviceModel, Origin};
pub use error::{PlanError, Site};
pub use list_scheduling::{Cost, Costs};
pub use lists::{Entry, Lists, Schedule};
pub use message_slots::{MESSAGE_LINE, MessageShape};
pub use scheduler_partition::{Notification, SchedulerPartition, SchedulerTasks};
pub use temps::{ALIGN as TEMP_ALIGN, Memory, TempRange, Temps};
pub use verify::Defect;
pub use worker_edges::WorkerEdges;
pub use workload::Workload;

/// What a plan is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// CTAs (or threads of the CPU device) that run tasks.
    pub workers: u32,
    /// What the device costs.
    pub model: DeviceModel,
    /// How tasks reach the workers.
    pub schedule: Schedule,
    /// Refuse graphs of more tasks than this.
    pub max_tasks: usize,
    /// The worker of every task, in global order. For static lists only; ignored for tasks of drained calls. `None`: round robin.
    pub assignment: Option<Vec<u32>>,
    /// What tasks cost, for static lists without an assignment: list scheduling by the longest path then assigns each task to the worker where it
    /// ends earliest.
    pub costs: Option<Costs>,
    /// Whether the planner may choose split-K for calls without `.split_k(..)`.
    pub split_k: bool,
    /// Tiles and split-K of calls, where the graph leaves them open.
    pub shapes: Vec<CallShape>,
    /// Whether small tensors between two GEMVs are passed with in-band flags: see [`Relation::in_band`].
    pub in_band_flags: bool,
    /// Whether an RMSNorm or a unary element-wise call is fused into the GEMVs that read its result: see [`PlannedCall::prologue`]. Only where the
    /// input comes with in-band flags.
    pub fuse_prologues: bool,
    /// Whether element-wise prologues are fused too, not RMSNorm alone: the device code must have been built with them.
    pub fuse_elementwise: bool,
    /// Whether temps share memory: see [`Plan::memory`].
    pub share_temps: bool,
    /// Whether a GEMM sends its tiles to the other ranks of an all-reduce as it stores them: see [`PlannedCall::pushed_by`]. Only for several ranks, and for workers with a
    /// store role.
    pub push_tiles: bool,
    /// How many ranks there are.
    pub ranks: u32,
    /// How large tiles of an all-reduce go that does not say it: automatic is in two steps where there are more than two ranks, since less is sent then. Small ones go as packets.
    pub via: Via,
    /// Whether NCCL can run beside the kernel: then calls that say so have chunks for it ([`PlannedCall::nccl`]).
    pub nccl: bool,
    /// Bytes that each rank has for messages: where they are not enough for all tiles of its collectives, tiles have slots in turn ([`PlannedCall::slots`]). Then costs are not
    /// looked at, since lists by them have another order than that in which slots come back. `None`: as many as are needed.
    pub message_bytes: Option<u64>,
}

impl Options {
    /// Static lists for `workers` workers of the default device model, and at most 2²⁰ tasks. Split-K and in-band flags are used where they are faster.
    pub const fn new(workers: u32) -> Options {
        let shapes = Vec::new();
        Options {
            workers,
            model: DeviceModel::DEFAULT,
            schedule: Schedule::Static,
            max_tasks: 1 << 20,
            assignment: None,
            costs: None,
            split_k: true,
            shapes,
            in_band_flags: true,
            fuse_prologues: true,
            fuse_elementwise: true,
            share_temps: true,
            push_tiles: false,
            ranks: 1,
            via: Via::Automatic,
            nccl: false,
            message_bytes: None,
        }
    }
}

/// The tile and the split-K of one call, for tuning. What the graph says has precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallShape {
    /// Position of the call in program order, from 0.
    pub call: u32,
    /// Tile size in elements, one per grid axis; `None`: the planner chooses.
    pub tile: Option<Vec<u32>>,
    /// Split-K: parts of each tile; `None`: the planner chooses.
    pub split: Option<u32>,
    /// With `split`: so many tiles, the first ones in task order, are not split.
    pub whole: u32,
}

/// A verified plan: every task, what it waits for and signals, and who runs it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What was planned. Where a task has a GEMM form and a GEMV form, each call has the one that was chosen.
    pub graph: ir::Graph,
    /// One per call of the graph, in program order.
    pub calls: Vec<PlannedCall>,
    /// In global order: a task depends on tasks of smaller index only.
    pub tasks: Vec<TaskNode>,
    /// Waits of all tasks, task after task.
    pub waits: Vec<Wait>,
    /// Counters signalled by all tasks, task after task.
    pub signals: Vec<u32>,
    /// Waits whose counters depend on indices in memory, in order of their calls.
    pub named: Vec<NamedWait>,
    /// Number of counters.
    pub counters: u32,
    /// Which call waits for which, by tensor; ordered by consumer.
    pub relations: Vec<Relation>,
    /// Who runs what.
    pub lists: Lists,
    /// Length of the longest chain of dependent tasks.
    pub waves: u32,
    /// Dependencies between tasks: the needs of all waits summed.
    pub edges: u64,
    /// Number of workers planned for.
    pub workers: u32,
    /// The costs that it was planned by.
    pub model: DeviceModel,
    /// How tasks reach the workers.
    pub schedule: Schedule,
    /// Edges between tasks of one worker, which need no counter; static lists only.
    pub worker_edges: WorkerEdges,
    /// The tasks of each scheduler; empty without schedulers.
    pub scheduler_partition: SchedulerPartition,
    /// Where the temps lie in their memory.
    pub temps: Temps,
}

impl Plan {
    /// The waits of task `task`.
    ///
    /// # Panics
    /// If `task` is not an index of [`Plan::tasks`].
    pub fn waits_of(&self, task: u32) -> &[Wait] {
        let node = &self.tasks[task as usize];
        &self.waits[node.first_wait as usize..][..node.waits as usize]
    }

    /// The counters that task `task` signals.
    ///
    /// # Panics
    /// If `task` is not an index of [`Plan::tasks`].
    pub fn signals_of(&self, task: u32) -> &[u32] {
        let node = &self.tasks[task as usize];
        &self.signals[node.first_signal as usize..][..node.signals as usize]
    }

    /// Why call `consumer` waits on `counter`, for error messages.
    pub fn relation(&self, counter: u32, consumer: u32) -> Option<&Relation> {
        self.relations.iter().find(|relation| relation.consumer == consumer && relation.counters.contains(&counter))
    }

    /// The relation by which call `consumer` gets its operand A with in-band flags, if it does.
    pub fn in_band_input(&self, consumer: u32) -> Option<&Relation> {
        let first = self.relations.partition_point(|relation| relation.consumer < consumer);
        self.relations[first..].iter().take_while(|relation| relation.consumer == consumer).find(|relation| relation.in_band)
    }
}

/// One call with its tile and grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// Tile size in elements, one per grid axis.
    pub tile: Vec<u32>,
    /// Tiles along each grid axis; a zero means that the call has no task.
    pub grid: Vec<u32>,
    /// Tasks per tile: each makes a part of the tile's sum, and the last one to end adds them up. 1 where a task makes all of it.
    pub parts: u32,
    /// Tiles that one task makes each although others are made in parts: the first ones in the order in which they are dealt. 0 where all
    /// tiles are made alike.
    pub whole: u32,
    /// Dispatch number of the instance: the call's slot plus the instance of its element and tile.
    pub op: u32,
    /// Its tasks.
    pub tasks: Range<u32>,
    /// Its tasks are claimed though the graph does not say so ([`Call::drain`]): memory bounds many of them, and multiprocessors do not get the same
    /// share of it.
    ///
    /// [`Call::drain`]: crate::ir::Call::drain
    pub dynamic: bool,
    /// Prologue fusion: the call, an RMSNorm or a unary element-wise one, that every task of this call applies to its operand A before it
    /// multiplies. That call has no tasks of its own.
    pub prologue: Option<u32>,
    /// Of an all-reduce: the GEMM whose tasks send its tiles to the other ranks as they store them. Its own tasks receive only. Of a GEMM that is split in part it is the first
    /// [`PlannedCall::whole`] tiles that are sent so.
    pub pushed_by: Option<u32>,
    /// A collective that NCCL does beside the kernel. Its tiles are chunks of whole rows, of all planes, and have two tasks each: one says that the chunk is there, one waits until it has
    /// been exchanged.
    pub nccl: bool,
    /// A collective that has room for so many messages of each rank, which are less than its tiles of one rank: tile n in task order has slot n mod `slots`, and its sender
    /// waits until the message before has been read. 0: each tile has its own.
    pub slots: u32,
}

impl PlannedCall {
    /// The tile, in task order, that the call's `n`-th task computes, or a split-K part of it; and how many parts that tile has.
    pub fn tile_of(&self, n: u32) -> (u32, u32) {
        self.split_k().tile_of(n)
    }

    /// Of a collective: whether the tile of its `n`-th task is sent by a GEMM.
    pub fn is_pushed(&self, n: u32) -> bool {
        self.pushed_by.is_some() && (self.whole == 0 || self.tile_of(n).0 < self.whole)
    }

    /// Of a collective whose tiles go with signals: which part of how many its `n`-th task is, which is part `part` of those that its tile has left: see
    /// [`ExchangeTask`].
    pub fn exchange_part(&self, n: u32, part: u32) -> Option<Part> {
        let sent = u32::from(self.is_pushed(n));
        let parts = if self.nccl { ExchangeTask::BY_NCCL } else { self.tile_of(n).1 + sent };
        (parts > 1).then_some(Part { part: part + sent, parts })
    }

    /// The same as what the task does.
    pub fn exchange_task(&self, n: u32, part: u32) -> Option<ExchangeTask> {
        self.exchange_part(n, part).map(|Part { part, parts }| ExchangeTask::of(part, parts))
    }

    fn split_k(&self) -> split_k::SplitK {
        split_k::SplitK { whole: self.whole, parts: self.parts }
    }
}

/// One task: one tile of one call, or one split-K part of the tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskNode {
    /// Index into [`Plan::calls`].
    pub call: u32,
    /// Tile coordinates, one per grid axis; 0 beyond them.
    pub coord: [u32; AXES],
    /// Which split-K part of the tile.
    pub part: u32,
    /// Longest chain of tasks before it.
    pub wave: u32,
    /// Its first entry in [`Plan::waits`].
    pub first_wait: u32,
    /// How many.
    pub waits: u16,
    /// Its first entry in [`Plan::signals`].
    pub first_signal: u32,
    /// How many.
    pub signals: u16,
}

/// Wait until a counter holds at least `need` signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Which counter.
    pub counter: u32,
    /// Signals it gets in one launch.
    pub need: u32,
}

/// Every task of a call waits for the rows of a tensor that indices in another tensor select.
///
/// An element `e` names row `e` of the view if that is below `limit`, and the wait is for counter
/// `counters.start + (first + e) / size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedWait {
    /// The call.
    pub call: u32,
    /// Which tensor parameter holds the row indices.
    pub operand: u32,
    /// Whether no task writes the indices.
    pub known: bool,
    /// Whether the index tensor has rank 1: a tile is then a range of its elements, else of its rows.
    pub flat: bool,
    /// Grid axis along which its tiles lie; none when every task reads all of it.
    pub axis: Option<u8>,
    /// Size of a tile along that axis.
    pub rows: u32,
    /// Counters of all rows.
    pub counters: Range<u32>,
    /// Rows per counter.
    pub size: u32,
    /// Rows of the view.
    pub limit: u32,
    /// Signals that every one of the counters gets.
    pub need: u32,
    /// Row of the first counter's first row at which the view begins.
    pub first: u32,
}

/// Why a later access waits for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hazard {
    /// Read after write.
    Raw,
    /// Write after read.
    War,
    /// Write after write.
    Waw,
}

impl Hazard {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Hazard::Raw => "read after write",
            Hazard::War => "write after read",
            Hazard::Waw => "write after write",
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One call's access to a tensor waits for an earlier call's, tile by tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relation {
    /// Index into the graph's tensors.
    pub tensor: u32,
    /// Earlier call.
    pub producer: u32,
    /// Which of its tensor parameters.
    pub producer_operand: u32,
    /// Later call.
    pub consumer: u32,
    /// Which of its tensor parameters.
    pub consumer_operand: u32,
    /// Why.
    pub hazard: Hazard,
    /// Counters the producer's tiles fill; shared by all relations that cut the producer's region alike.
    pub counters: Range<u32>,
    /// Waits of the consumer's tasks that come from it.
    pub waits: u32,
    /// Pairs of tasks it orders directly: the needs of those waits summed.
    pub edges: u64,
    /// In-band flags: each element is stored together with a flag, which the consumer's tasks poll. They do not wait for these counters before
    /// they begin. Such an edge acquires nothing but the elements, so no other ordering follows from it.
    pub in_band: bool,
}

/// Plans `graph`: tiles, dependencies, counters, order and lists, verified.
///
/// # Errors
/// A coded [`PlanError`] that names the call, parameter and tensor.
pub fn plan(graph: ir::Graph, options: &Options) -> Result<Plan, PlanError> {
    bounded(graph, options, None)
}

/// [`plan`], but without one kind of hazard: tests use it to show that they detect the missing waits.
#[doc(hidden)]
pub fn plan_without(graph: ir::Graph, options: &Options, dropped: Hazard) -> Result<Plan, PlanError> {
    bounded(graph, options, Some(dropped))
}

/// With slots in turn where messages have not enough room without.
fn bounded(graph: ir::Graph, options: &Options, dropped: Option<Hazard>) -> Result<Plan, PlanError> {
    if options.message_bytes.is_none() || options.ranks == 1 || graph.calls.iter().all(|call| call.task.collective().is_none()) {
        return build(graph, options, &[], dropped);
    }
    let plan = build(graph.clone(), options, &[], dropped)?;
    let slots = message_slots::choose(&plan, options);
    if slots.is_empty() { Ok(plan) } else { build(graph, options, &slots, dropped) }
}

/// `slots`: [`PlannedCall::slots`], or none.
fn build(mut graph: ir::Graph, options: &Options, slots: &[u32], dropped: Option<Hazard>) -> Result<Plan, PlanError> {
    if !(1..=MAX_WORKERS).contains(&options.workers) {
        return Err(PlanError::Workers { found: options.workers, max: MAX_WORKERS });
    }
    let schedulers = options.schedule.schedulers();
    if matches!(options.schedule, Schedule::Schedulers(_) | Schedule::SpareWarps(_)) {
        let max = MAX_SCHEDULERS.min(options.workers);
        if !(1..=max).contains(&schedulers) {
            return Err(PlanError::Schedulers { found: schedulers, max, workers: options.workers });
        }
    }
    check::tensors(&graph)?;
    let mut calls = Vec::with_capacity(graph.calls.len());
    let mut regions = region::Regions::with_capacity(graph.calls.len());
    let mut choices = Vec::with_capacity(graph.calls.len());
    let mut tasks = 0;
    let mut chooser = tile_selection::Chooser::default();
    if let Some(shape) = options.shapes.iter().find(|shape| shape.call as usize >= graph.calls.len()) {
        return Err(PlanError::ShapeCall { call: shape.call, calls: graph.calls.len() });
    }
    for (index, concurrency) in concurrency::concurrency(&graph).into_iter().enumerate() {
        let site = check::call(&graph, index)?;
        let mut choice = chooser.choose(site, &graph.calls[index], concurrency, options)?;
        choice.settle(&mut graph.calls[index]);
        let mut pushed_by = None;
        let slots = slots.get(index).copied().unwrap_or(0);
        if slots > 0 {
            message_slots::order(&mut choice, &graph.calls[index]);
        }
        // The store role of a GEMM does not wait for a slot.
        if options.push_tiles
            && slots == 0
            && let Some((gemm, tasks)) = pushed_tiles::pushed_by(&graph, index, &choice, &calls)
        {
            (pushed_by, choice.split_k) = (Some(gemm), tasks);
        }
        let call = &graph.calls[index];
        tasks = count(site, tasks, &choice, options)?;
        regions.add(call, &choice);
        check::writes(site, &graph, call, &choice, &regions)?;
        let mut planned = PlannedCall { pushed_by, slots, ..choice.planned(call) };
        planned.dynamic = dynamic_calls::is_dynamic(&graph, call, choice.split_k.tasks(choice.tiles()), options);
        graph.calls[index].drain |= planned.dynamic;
        calls.push(planned);
        choices.push(choice);
    }
    nccl_chunks::order_producers(&graph, &calls, &mut choices, &mut regions);
    let mut candidate = candidate_plan::choose(graph, calls, (&choices, regions), options, dropped)?;
    overlaps::check(&candidate.graph, &candidate.found.relations)?;
    let temps = temps::assign(&mut candidate, options)?;
    let CandidatePlan { graph, calls, found, order, events, .. } = candidate;
    let drains = schedule::drains(&graph, &calls, &order, options.schedule);
    let lists = match &options.costs {
        Some(costs) if options.schedule == Schedule::Static && options.assignment.is_none() && slots.is_empty() => {
            list_scheduling::lists(&graph, &calls, &events, drains, options, costs)
        }
        _ => {
            let dealt = options.schedule == Schedule::Static && options.assignment.is_none() && drains.is_empty();
            let assigned = if dealt { assignment::follow_producers(&graph, &calls, &order, &events, options.workers) } else { None };
            let lists = schedule::lists(events.tasks.len() as u32, drains, options, assigned.as_deref())?;
            let found = overlaps::Found { events: &events, relations: &found.relations };
            if dealt { collective_order::behind_producers(&graph, &calls, &found, options, lists) } else { lists }
        }
    };
    let mut plan = Plan {
        graph,
        calls,
        tasks: events.tasks,
        waits: events.waits,
        signals: events.signals,
        named: events.named,
        counters: events.counters,
        relations: found.relations,
        lists,
        waves: events.waves,
        edges: events.edges,
        workers: options.workers,
        model: options.model.clone(),
        schedule: options.schedule,
        worker_edges: WorkerEdges::default(),
        scheduler_partition: SchedulerPartition::default(),
        temps,
    };
    plan.worker_edges = WorkerEdges::new(&plan);
    plan.scheduler_partition = SchedulerPartition::new(&plan);
    plan.verify().map_err(PlanError::Unverified)?;
    Ok(plan)
}

/// Tasks up to and with a call, while they are within the limit.
fn count(site: Site, before: u64, choice: &tile_selection::Choice, options: &Options) -> Result<u64, PlanError> {
    let max = (options.max_tasks as u64).min(u64::from(u32::MAX >> 1));
    let found = before.saturating_add(choice.split_k.tasks(choice.tiles()));
    if found > max { Err(PlanError::TooManyTasks { site, found, max }) } else { Ok(found) }
}
