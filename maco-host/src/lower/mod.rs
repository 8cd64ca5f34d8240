//! From a plan to what the device reads: descriptors, views, scalars, tensor maps. Device memory does not belong here.

mod arena;
mod descriptor;
mod plane;
mod view;

use maco_device::abi::{self, OPERANDS};
use maco_graph::ir::{self, ScalarSource, TensorKind};
use maco_graph::plan::{Plan, Schedule};
use maco_graph::spec::{Param, TensorParam};

pub(crate) use arena::Arena;
pub(crate) use plane::MapRequest;
pub(crate) use view::Tables;

use crate::arguments::{Placed, ScalarArgument};
use crate::error::Error;
use view::{Bound, Views};

/// Counter banks and the state before them start at multiples of a line.
const BANK_WORDS: u32 = 32;

/// Everything of a plan that does not depend on arguments.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// Lists of tasks; each ends with an end entry, and two more follow the last.
    pub(crate) descriptors: Vec<abi::Descriptor>,
    /// First descriptor of each list, and the end; all 0 when tickets index the descriptors.
    pub(crate) starts: Vec<u32>,
    /// Waits and signals that do not fit a descriptor.
    pub(crate) overflow: Vec<u32>,
    /// Words of one counter bank.
    pub(crate) counters: u32,
    /// Workers.
    pub(crate) workers: u32,
    /// Tasks.
    pub(crate) tasks: u32,
    /// Whether workers draw tickets.
    pub(crate) dynamic: bool,
    /// Memory of the temps.
    pub(crate) arena: Arena,
    views: Views,
    scalars: Vec<ScalarSource>,
    /// Descriptor of each task.
    place: Vec<u32>,
    /// A counter that no task waits for.
    spare: u32,
}

impl Lowered {
    pub(crate) fn new(plan: &Plan) -> Result<Lowered, Error> {
        let arena = Arena::new(&plan.graph)?;
        let (views, operands) = view::collect(&plan.graph)?;
        let (scalars, first_scalar) = scalars(&plan.graph)?;
        let lists = descriptor::lists(plan, &operands, &first_scalar)?;
        // One counter more than the plan has: signals are lost there when a test asks for it.
        let spare = plan.counters;
        let counters = spare
            .checked_add(1)
            .and_then(|counters| counters.checked_next_multiple_of(BANK_WORDS))
            .ok_or_else(|| too_many(&plan.graph, "counters", spare as u64, u32::MAX as u64 - BANK_WORDS as u64))?;
        Ok(Lowered {
            descriptors: lists.descriptors,
            starts: lists.starts,
            overflow: lists.overflow,
            counters,
            workers: plan.workers,
            tasks: plan.tasks.len() as u32,
            dynamic: plan.schedule == Schedule::Dynamic,
            arena,
            views,
            scalars,
            place: lists.place,
            spare,
        })
    }

    /// The tables that depend on arguments. `arena` is the address of the temps; tensor maps are made for a GPU (`staging`) only.
    pub(crate) fn bind(
        &self,
        graph: &ir::Graph,
        arena: u64,
        tensors: &[Placed],
        scalars: &[ScalarArgument],
        staging: bool,
    ) -> Result<Tables, Error> {
        let mut parameters = tensors.iter();
        let mut temps = self.arena.temps.iter();
        let bound: Vec<Bound> = graph
            .tensors
            .iter()
            .map(|tensor| {
                if tensor.kind == TensorKind::Temp {
                    let temp = temps.next().expect("one per temp of the graph");
                    Bound { address: arena + temp.offset, layout: temp.layout }
                } else {
                    let placed = parameters.next().expect("arguments are counted by `Signature::check`");
                    Bound { address: placed.address, layout: placed.layout }
                }
            })
            .collect();
        let mut tables = self.views.resolve(graph, &bound, staging)?;
        tables.scalars = self
            .scalars
            .iter()
            .map(|source| match *source {
                ScalarSource::Literal(bits) => bits,
                ScalarSource::Parameter(index) => scalars.get(index as usize).map_or(0, |scalar| scalar.bits),
            })
            .collect();
        Ok(tables)
    }

    /// How many views, tensor maps and scalars [`Lowered::bind`] makes.
    pub(crate) fn table_sizes(&self) -> (usize, usize, usize) {
        (self.views.len(), self.views.maps(), self.scalars.len())
    }

    /// Descriptors and overflow in which task `task` signals a counter that nobody waits for: a lost signal.
    pub(crate) fn losing_signals(&self, task: u32) -> (Vec<abi::Descriptor>, Vec<u32>) {
        let (mut descriptors, mut overflow) = (self.descriptors.clone(), self.overflow.clone());
        if let Some(&place) = self.place.get(task as usize) {
            let descriptor = &mut descriptors[place as usize];
            for signal in descriptor.signal.iter_mut().filter(|signal| **signal != abi::NO_COUNTER) {
                *signal = self.spare;
            }
            let first = descriptor.overflow as usize + 2 * descriptor.extra_waits as usize;
            overflow[first..first + descriptor.extra_signals as usize].fill(self.spare);
        }
        (descriptors, overflow)
    }
}

/// Scalar sources of all calls, equal runs stored once, and where each call's run starts.
fn scalars(graph: &ir::Graph) -> Result<(Vec<ScalarSource>, Vec<u16>), Error> {
    let mut table: Vec<ScalarSource> = Vec::new();
    let first = graph
        .calls
        .iter()
        .map(|call| {
            let run = &call.scalars;
            let found = if run.is_empty() { Some(0) } else { table.windows(run.len()).position(|window| window == run) };
            let start = found.unwrap_or_else(|| {
                table.extend(run);
                table.len() - run.len()
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

/// Indices of a call's views, one per tensor parameter; unused ones name view 0.
type Operands = [u16; OPERANDS];

#[cfg(test)]
mod tests;
