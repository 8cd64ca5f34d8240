//! From a call graph with sizes to tiles, counters and worker lists.
//!
//! Memory, streams and descriptors do not belong here. The steps, one file each:
//!
//! - `device_model` has what a device costs, by which the others choose;
//! - `ways` has what is asked of the way of each collective, by call, options and table;
//! - `tile_selection` chooses the tile and the split-K of every call, by a cost model;
//! - `region` turns signatures into boxes of tensor coordinates;
//! - `dependencies` finds which call must wait for which, and `phases` which the graph says;
//! - `counter_groups` cuts the tensors into groups of tiles that share a counter;
//! - `schedule` orders calls, `tile_order` the tiles of each;
//! - `own_share` has GEMMs begin at a share that depends on the rank;
//! - `events` writes the waits and signals of every task;
//! - `in_band_flags` finds the edges whose elements carry their own flags;
//! - `message_slots` bounds the memory of messages between ranks;
//! - `pushed_tiles` finds the GEMMs that send their tiles to other ranks themselves;
//! - `prologue_fusion` fuses RMSNorm and unary element-wise calls into the GEMVs that read their results;
//! - `temps` gives temps their memory, and adds edges where they share it;
//! - `worker_ranges` finds the workers that may run each call;
//! - `assignment` and `list_scheduling` assign tasks to workers, and `lists` says who runs what;
//! - `worker_edges` finds the edges between tasks of one worker;
//! - `scheduler_partition` divides the tasks among schedulers;
//! - `verify` checks the result with arithmetic of its own.

use maco_abi::{ExchangeTask, MAX_SCHEDULERS, MAX_WORKERS, Part};

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
mod filled;
pub mod in_band_flags;
mod json;
mod list_scheduling;
mod lists;
pub mod memory_bound_cost;
mod message_slots;
mod nccl_chunks;
mod options;
#[doc(hidden)]
pub mod oracle;
mod overlap_options;
mod overlaps;
mod own_share;
mod phases;
pub mod prologue_fusion;
mod pushed_tiles;
mod region;
mod relation;
mod schedule;
mod scheduler_partition;
mod split_k;
mod temps;
mod tile_order;
mod tile_selection;
mod verify;
mod waits;
mod ways;
mod worker_edges;
mod worker_ranges;
mod workload;

use std::ops::Range;

use crate::ir;
use candidate_plan::CandidatePlan;

pub use device_model::{DeviceModel, Origin};
pub use error::{PlanError, Site};
pub use events::TaskNode;
pub use list_scheduling::{Cost, Costs};
pub use lists::{Entry, Lists, Schedule};
pub use message_slots::{MESSAGE_LINE, MessageShape};
pub use options::{CallShape, Options};
pub use overlap_options::OverlapMode;
pub use relation::{Hazard, Relation};
pub use scheduler_partition::{Notification, SchedulerPartition, SchedulerTasks};
pub use temps::{ALIGN as TEMP_ALIGN, Memory, TempRange, Temps};
pub use tile_order::{Shares, TileOrder};
pub use verify::Defect;
pub use waits::{NamedWait, Wait};
pub use ways::{Way, WayLine, Why, uses_nccl};
pub use worker_edges::WorkerEdges;
pub use worker_ranges::{Role, TasksOf, WorkerRange};
pub use workload::Workload;

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
    /// By call: the workers that alone run it, where a rule says so ([`Options::ranges`]). Empty where none does.
    pub ranges: Vec<Option<Range<u32>>>,
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
    /// Of a collective: which way its tiles go, and who chose it. None of a user's own exchange.
    pub way: Option<Way>,
    /// The order of its tiles: that of its tasks. Of several ranks it may begin elsewhere on each.
    pub order: TileOrder,
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
    phases::check(&graph)?;
    let ranges = worker_ranges::Ranges::new(&graph, options)?;
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
        let own = ranges.confines(site.call).then(|| Options { workers: ranges.of(site.call).len() as u32, ..options.clone() });
        let mut choice = chooser.choose(site, &graph.calls[index], concurrency, own.as_ref().unwrap_or(options))?;
        choice.settle(&mut graph.calls[index]);
        let mut pushed_by = None;
        let slots = slots.get(index).copied().unwrap_or(0);
        if slots > 0 {
            message_slots::order(&mut choice, &graph.calls[index]);
        }
        // A GEMM would send before the phase may begin, and its store role does not wait for a slot.
        if options.push_tiles
            && slots == 0
            && phases::behind(&graph, index as u32).is_empty()
            && let Some((gemm, tasks)) = pushed_tiles::pushed_by(&graph, index, &choice, &calls)
        {
            (pushed_by, choice.split_k) = (Some(gemm), tasks);
        }
        let call = &graph.calls[index];
        tasks = check::count(site, tasks, &choice, options)?;
        regions.add(call, &choice);
        check::writes(site, &graph, call, &choice, &regions)?;
        let mut planned = PlannedCall { pushed_by, slots, ..choice.planned(call) };
        planned.dynamic =
            !ranges.confines(site.call) && dynamic_calls::is_dynamic(&graph, call, choice.split_k.tasks(choice.tiles()), options);
        graph.calls[index].drain |= planned.dynamic;
        calls.push(planned);
        choices.push(choice);
    }
    nccl_chunks::order_producers(&graph, &mut calls, &mut choices, &mut regions);
    let mut candidate = candidate_plan::choose(graph, calls, (&choices, regions), options, dropped)?;
    overlap_options::lower(&mut candidate.graph, &candidate.found.relations, options.overlap)?;
    overlaps::check(&candidate.graph, &candidate.found.relations)?;
    let temps = temps::assign(&mut candidate, options)?;
    let CandidatePlan { graph, mut calls, found, order, mut events, .. } = candidate;
    own_share::begin(&graph, &mut calls, &mut events, options);
    let drains = schedule::drains(&graph, &calls, &order, options.schedule);
    let lists = match &options.costs {
        Some(costs) if options.schedule == Schedule::Static && options.assignment.is_none() && slots.is_empty() => {
            list_scheduling::lists(&graph, &calls, &events, drains, (options, costs), &ranges)
        }
        _ => {
            let dealt = options.schedule == Schedule::Static && options.assignment.is_none() && drains.is_empty();
            ranges.check(&graph, options.assignment.as_deref(), &events)?;
            let assigned = if options.assignment.is_none() && (dealt || ranges.any()) {
                assignment::follow_producers(&graph, &calls, &order, &events, &ranges)
            } else {
                None
            };
            let lists = schedule::lists(events.tasks.len() as u32, drains, options, assigned.as_deref())?;
            let found = overlaps::Found { events: &events, relations: &found.relations };
            if dealt { collective_order::behind_producers(&graph, &calls, &found, &ranges, lists) } else { lists }
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
        ranges: ranges.into_calls(),
    };
    plan.worker_edges = WorkerEdges::new(&plan);
    plan.scheduler_partition = SchedulerPartition::new(&plan);
    plan.verify().map_err(PlanError::Unverified)?;
    Ok(plan)
}
