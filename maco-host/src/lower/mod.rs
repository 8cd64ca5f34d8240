//! Lowers a plan to the tables that the device reads: descriptors, views, scalars, tensor maps. Device memory does not belong here.

use std::ops::Range;

mod arena;
mod descriptor;
mod initial_tasks;
mod messages;
mod partials;
mod plane;
mod scheduler_image;
mod view;

use maco_abi::{self as abi, InjectedFault, NO_FAULT, Route};
use maco_graph::ir::{self, ScalarSource, TensorKind};
use maco_graph::plan::{Plan, Schedule};
use maco_graph::spec::{Param, TensorParam};

pub(crate) use arena::Arena;
pub(crate) use messages::{MessagePlaces, NcclCall, PlanMessages};
pub(crate) use plane::{BoxShape, TensorMapRequest};
pub(crate) use scheduler_image::Image;
pub(crate) use view::Tables;

use crate::arguments::{Placed, ScalarArgument};
use crate::error::Error;
use crate::tensor::{BASE_ALIGN, Layout, Shape};
use partials::Partials;
use view::{Bound, Views};

/// Counter banks and the state before them start at multiples of a line.
const BANK_WORDS: u32 = 32;

/// Everything of a plan that does not depend on arguments.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// Lists of tasks, each with an end entry, then claimed tasks and more end entries.
    pub(crate) descriptors: Vec<abi::Descriptor>,
    /// First descriptor of each list, and the end; all 0 when there is one list in task order.
    pub(crate) starts: Vec<u32>,
    /// Waits and signals that do not fit a descriptor.
    pub(crate) overflow: Vec<u32>,
    /// Words of one counter bank: see [`abi::Launch::counters`].
    pub(crate) counters: u32,
    /// Workers.
    pub(crate) workers: u32,
    /// Tasks.
    pub(crate) tasks: u32,
    /// How tasks reach the workers.
    pub(crate) schedule: Schedule,
    /// The memory image of each scheduler.
    pub(crate) images: Vec<Image>,
    /// Memory of the temps.
    pub(crate) arena: Arena,
    /// Chunks of split-K partial sums.
    chunks: u32,
    views: Views,
    scalars: Vec<ScalarSource>,
    /// Descriptor of each task.
    descriptor_of: Vec<u32>,
    /// Tasks that write results with in-band flags.
    in_band_producers: Vec<Range<u32>>,
    /// A counter that no task waits for.
    unused_counter: u32,
    /// What ranks send each other.
    pub(crate) messages: PlanMessages,
}

impl Lowered {
    /// For `ranks` ranks. `look_ahead`: see [`crate::PlanOptions::look_ahead`].
    pub(crate) fn new(plan: &Plan, ranks: u32, look_ahead: bool) -> Result<Lowered, Error> {
        let arena = Arena::new(plan)?;
        let (scalars, first_scalar) = scalars(&plan.graph)?;
        let (views, first_view) = view::collect(&plan.graph, &plan.calls, &first_scalar);
        // One counter more than the plan has: tests redirect lost signals to it. Then the tickets, zeroed like counters.
        let unused_counter = plan.counters;
        let partials = Partials::new(plan)?;
        let lists = descriptor::lists(plan, &first_view, &first_scalar, &partials, unused_counter.saturating_add(1))?;
        let used = match plan.schedule.schedulers() {
            0 => unused_counter.checked_add(1 + plan.lists.drains.len() as u32),
            // Schedulers have counters of their own: a word per worker, of tasks ended.
            _ => Some(plan.workers),
        };
        let counters = used
            .and_then(|counters| counters.checked_next_multiple_of(BANK_WORDS))
            .ok_or_else(|| too_many(&plan.graph, "counters", unused_counter as u64, u32::MAX as u64 - BANK_WORDS as u64))?;
        Ok(Lowered {
            descriptors: lists.descriptors,
            starts: lists.starts,
            overflow: lists.overflow,
            counters,
            workers: plan.workers,
            tasks: plan.tasks.len() as u32,
            schedule: plan.schedule,
            images: scheduler_image::images(plan, &lists.descriptor_of, look_ahead),
            arena,
            chunks: partials.chunks,
            views,
            scalars,
            descriptor_of: lists.descriptor_of,
            in_band_producers: plan
                .relations
                .iter()
                .filter(|relation| relation.in_band)
                .map(|from| plan.calls[from.producer as usize].tasks.clone())
                .collect(),
            unused_counter,
            messages: PlanMessages::new(plan, &first_view, &first_scalar, ranks)?,
        })
    }

    /// The tables that depend on arguments. `arena` is the address of the temps, and `messages` says where those between ranks are; tensor maps
    /// are made where tiles are copied by TMA or its model (`staging`).
    pub(crate) fn bind(
        &self,
        graph: &ir::Graph,
        arena: u64,
        messages: MessagePlaces<'_>,
        tensors: &[Placed],
        scalars: &[ScalarArgument],
        staging: bool,
    ) -> Result<Tables, Error> {
        let mut parameters = tensors.iter();
        let mut temps = self.arena.temps.iter();
        let bound: Vec<Bound> = graph
            .tensors
            .iter()
            .enumerate()
            .map(|(n, tensor)| {
                if tensor.kind == TensorKind::Temp {
                    let temp = temps.next().expect("one per temp of the graph");
                    let address = self.messages.temp(n, &messages).unwrap_or(arena + temp.offset);
                    Bound { address, layout: temp.layout }
                } else {
                    let placed = parameters.next().expect("arguments are counted by `Signature::check`");
                    Bound { address: placed.address, layout: placed.layout }
                }
            })
            .collect();
        let scalar = |source: &ScalarSource| match *source {
            ScalarSource::Literal(bits) => bits,
            ScalarSource::Parameter(index) => scalars.get(index as usize).map_or(0, |scalar| scalar.bits),
        };
        let mut tables = self.views.resolve(graph, &bound, staging, scalar)?;
        tables.scalars = self.scalars.iter().map(scalar).collect();
        self.messages.write(&mut tables, messages);
        Ok(tables)
    }

    /// Refuses views that no arguments fit: of tensors as the device makes them.
    pub(crate) fn check(&self, graph: &ir::Graph) -> Result<(), Error> {
        let made = |tensor: &ir::Tensor| {
            let layout = Layout::padded(Shape::new(&tensor.shape)?, tensor.element.bytes() as u64)?;
            Ok(Placed { address: BASE_ALIGN, layout, element: tensor.element, writable: true })
        };
        let parameters = graph.tensors.iter().filter(|tensor| tensor.kind != TensorKind::Temp).map(made);
        self.bind(graph, BASE_ALIGN, MessagePlaces::default(), &parameters.collect::<Result<Vec<_>, Error>>()?, &[], true).map(drop)
    }

    /// How many views, tensor maps and scalars [`Lowered::bind`] makes.
    pub(crate) fn table_sizes(&self) -> (usize, usize, usize) {
        (self.views.len(), self.views.tensor_maps() + self.messages.tensor_maps(), self.scalars.len())
    }

    /// CTAs of a launch: workers, and schedulers that are no spare warps.
    pub(crate) fn grid(&self) -> u32 {
        match self.schedule {
            Schedule::Schedulers(n) => self.workers + n,
            _ => self.workers,
        }
    }

    /// [`abi::Launch::schedule`].
    pub(crate) fn mode(&self) -> u32 {
        match self.schedule {
            Schedule::Static => abi::STATIC,
            Schedule::Tickets => abi::TICKETS,
            Schedule::Schedulers(_) | Schedule::SpareWarps(_) => abi::PUSHED,
        }
    }

    /// Bytes of partial sums.
    pub(crate) fn partial_bytes(&self) -> u64 {
        self.chunks as u64 * abi::CHUNK_BYTES as u64
    }

    /// Words of arrival counts of split-K parts.
    pub(crate) fn arrival_words(&self) -> u64 {
        self.chunks as u64
    }

    /// Words of inboxes and mailboxes.
    pub(crate) fn ring_words(&self) -> u64 {
        match self.schedule.schedulers() as u64 {
            0 => 0,
            schedulers => self.workers as u64 * (abi::INBOX_WORDS as u64 + schedulers * abi::MAILBOX as u64),
        }
    }

    /// What a launch reads of an injected fault that is none of its tables.
    pub(crate) fn injected(&self, fault: Option<Fault>) -> InjectedFault {
        let broken = |task: u32| self.descriptor_of.get(task as usize).copied();
        let (kind, of) = match fault {
            Some(Fault::LostArrive(task)) => (abi::LOST_ARRIVE, broken(task).map(|_| task)),
            Some(Fault::ExtraBytes(task)) => (abi::EXTRA_BYTES, broken(task).map(|_| task)),
            Some(Fault::LostPush(task)) => (abi::LOST_PUSH, broken(task)),
            Some(Fault::EarlyFree(task)) => (abi::EARLY_FREE, broken(task).map(|_| task)),
            None | Some(Fault::LostSignal(_)) => (NO_FAULT, None),
        };
        of.map_or(InjectedFault::default(), |of| InjectedFault { kind, of })
    }

    /// Descriptors and overflow with a fault, of the same lengths as without.
    pub(crate) fn with(&self, fault: Option<Fault>) -> (Vec<abi::Descriptor>, Vec<u32>) {
        let (mut descriptors, mut overflow) = (self.descriptors.clone(), self.overflow.clone());
        if let Some(Fault::LostSignal(task)) = fault
            && let Some(&broken) = self.descriptor_of.get(task as usize)
        {
            let descriptor = &mut descriptors[broken as usize];
            if descriptor.signal[0] != abi::NO_SIGNAL && self.in_band_producers.iter().any(|tasks| tasks.contains(&task)) {
                // Each element with an in-band flag is a signal too: a tile beyond all tensors writes none.
                descriptor.coord = [BEYOND; 3];
            }
            let first = descriptor.overflow as usize + 2 * descriptor.extra_waits as usize;
            let extra = &mut overflow[first..first + descriptor.extra_signals as usize];
            let used = |signal: &&mut u32| **signal != abi::NO_SIGNAL;
            if self.mode() == abi::PUSHED {
                // The credit is returned all the same, so that the task counts as ended. No message may be empty.
                let credit =
                    descriptor.signal.iter_mut().chain(extra).filter(used).map(|route| Route::decode(*route)).find(|route| route.credit);
                let credit = credit.map_or(abi::NO_SIGNAL, |route| Route { counter: None, ..route }.encode());
                descriptor.signal = [credit, abi::NO_SIGNAL];
            } else {
                descriptor.signal.iter_mut().chain(extra).filter(used).for_each(|signal| *signal = self.unused_counter);
            }
        }
        (descriptors, overflow)
    }
}

/// A tile coordinate that no tensor reaches, also if its elements are numbered in 31 bits.
const BEYOND: u32 = 1 << 22;

/// What a test may break in a plan: the argument is a task of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The task's signals are lost.
    LostSignal(u32),
    /// One warp does not arrive at the end of the task.
    LostArrive(u32),
    /// The task's loader announces more bytes than it copies.
    ExtraBytes(u32),
    /// The scheduler believes that it has pushed the task.
    LostPush(u32),
    /// Shared memory is used again while the task's stores of it are in flight. On the pipelined CPU executor alone, whose copies are a model; elsewhere nothing
    /// is broken.
    EarlyFree(u32),
}

/// Scalar sources of all calls, equal sequences stored once, and where each call's sequence starts.
fn scalars(graph: &ir::Graph) -> Result<(Vec<ScalarSource>, Vec<u16>), Error> {
    let mut table: Vec<ScalarSource> = Vec::new();
    let first = graph
        .calls
        .iter()
        .map(|call| {
            let own = &call.scalars;
            let found = if own.is_empty() { Some(0) } else { table.windows(own.len()).position(|window| window == own) };
            let start = found.unwrap_or_else(|| {
                table.extend(own);
                table.len() - own.len()
            });
            u16::try_from(start).map_err(|_| too_many(graph, "scalars", table.len() as u64, 1 << 16))
        })
        .collect::<Result<_, _>>()?;
    Ok((table, first))
}

fn too_many(graph: &ir::Graph, what: &str, found: u64, max: u64) -> Error {
    let help = "split the megakernel in two";
    Error::TooMany { megakernel: graph.name.as_str().into(), what: what.into(), found, max, help }
}

/// The tensor parameters of a task, in order.
fn tensor_params(call: &ir::Call) -> impl Iterator<Item = &'static TensorParam> {
    call.task.params.iter().filter_map(|param| match param {
        Param::Tensor(tensor) => Some(tensor),
        Param::Scalar { .. } => None,
    })
}

#[cfg(test)]
mod tests;
