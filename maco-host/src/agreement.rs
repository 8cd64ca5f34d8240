//! What the plans of all ranks must have in common, and the vote on it. Planning does not belong here.

use std::hash::{DefaultHasher, Hash, Hasher};

use maco_graph::ir::{Call, Graph, ScalarSource, Tensor, View};
use maco_graph::plan::Schedule;
use maco_graph::spec::{Access, Channel, Collective, Param, Placement, Planes, Via};

use crate::communicator::Communicator;
use crate::device::Device;
use crate::error::Error;
use crate::peer_access;
use crate::plan_core::PlanCore;
use crate::program::Program;

/// Elements that a rank stores at once in another one's memory.
const BLOCK: u64 = 8;

/// Every rank makes its plan, or none has one. In three steps: graph, what `plan` makes of it, and what `load` makes of that, which may make calls of all ranks. `plan` is told
/// whether kernels of all ranks can exchange tiles.
pub(crate) fn together<P>(
    communicator: &Communicator,
    device: &Device,
    name: &str,
    program: Result<Program, Error>,
    plan: impl FnOnce(&Program, bool) -> Result<PlanCore, Error>,
    load: impl FnOnce(&Program, PlanCore) -> Result<P, Error>,
) -> Result<P, Error> {
    let group = communicator.group();
    let operation = format!("sizes of megakernel {name}");
    let program = program.and_then(|program| Ok((peer_access::told(device)?, program)));
    let text = program.as_ref().err().map(Error::to_string);
    let value = program.as_ref().map(|(told, _)| &told[..]).map_err(|_| text.as_deref().unwrap_or_default());
    let mut devices = Vec::new();
    // Who has no graph has nothing to compare.
    let voted = group.vote(&operation, value).map(|values| devices = values);
    let (_, program) = own_or_all(program, voted)?;
    let peers = communicator.peers().of(group, device, &devices)?;
    let mut lines = lines(&program);
    let core = plan(&program, peers);
    // A rank that has no plan says why, and others say no more than it can.
    lines.extend(core.as_ref().map(planned).unwrap_or_default());
    let text = core.as_ref().err().map(Error::to_string);
    let operation = format!("plan of megakernel {name}");
    let outcome = group.vote(&operation, text.as_deref().map_or(Ok(&[]), Err)).map(drop);
    let core = own_or_all(core, outcome)?;
    group.agree(&operation, &lines, Ok(()))?;
    let plan = load(&program, core);
    let text = plan.as_ref().err().map(Error::to_string);
    let operation = format!("load megakernel {name}");
    own_or_all(plan, group.vote(&operation, text.as_deref().map_or(Ok(&[]), Err)).map(drop))
}

/// An error that is the same on all ranks is this rank's own.
pub(crate) fn own_or_all<T>(own: Result<T, Error>, all: Result<(), maco_ranks::Error>) -> Result<T, Error> {
    match all {
        Ok(()) => own,
        Err(maco_ranks::Error::Refused { alike: true, .. }) if own.is_err() => own,
        Err(error) => Err(error.into()),
    }
}

/// Refuses tensors that are spread over ranks, and collectives, of a plan without ranks.
pub(crate) fn check_communicator(graph: &Graph, communicator: Option<&Communicator>) -> Result<(), Error> {
    if communicator.is_some() {
        return Ok(());
    }
    let none =
        |tensor: &str, placement| Err(Error::NoCommunicator { megakernel: graph.name.as_str().into(), tensor: tensor.into(), placement });
    if let Some(tensor) = graph.tensors.iter().find(|tensor| tensor.placement != Placement::Replicated) {
        return none(&tensor.name, tensor.placement.words());
    }
    let Some(call) = graph.calls.iter().find(|call| call.task.collective().is_some()) else { return Ok(()) };
    let tensor = call.operands.first().and_then(|view| graph.tensors.get(view.tensor as usize));
    none(tensor.map_or("", |tensor| &tensor.name), "exchanged between ranks")
}

/// Refuses what these ranks cannot run together.
pub(crate) fn check(graph: &Graph, ranks: u32) -> Result<(), Error> {
    for (number, call) in graph.calls.iter().enumerate() {
        if call.task.collective() == Some(Collective::Channel(Channel::Symmetric)) {
            check_symmetric(graph, number, call, ranks)?;
        }
        let Some(planes) = call.task.collective().and_then(Collective::planes) else { continue };
        let tensors = call.task.params.iter().filter_map(|param| if let Param::Tensor(tensor) = param { Some(tensor) } else { None });
        for (view, param) in call.operands.iter().zip(tensors) {
            let has_planes = match param.access {
                Access::Read => planes != Planes::Result,
                _ => planes != Planes::Input,
            };
            let found = view.axes.first().map_or(1, |axis| axis.extent);
            if has_planes && found != u64::from(ranks) {
                let tensor = graph.tensors.get(view.tensor as usize).map_or("", |tensor| &tensor.name);
                let what =
                    format!("`{}` (call #{number}) has a plane of `{tensor}` for each rank, and there are {found} planes", call.task.name);
                let help = "give the first axis of the tensor as many elements as there are ranks: `communicator.ranks()`";
                return Err(refused(graph, ranks, what, help));
            }
        }
    }
    Ok(())
}

/// Refuses results that other ranks cannot store.
fn check_symmetric(graph: &Graph, number: usize, call: &Call, ranks: u32) -> Result<(), Error> {
    let tensors = call.task.params.iter().filter_map(|param| if let Param::Tensor(tensor) = param { Some(tensor) } else { None });
    let written = call.operands.iter().zip(tensors).filter(|(_, param)| param.access.writes());
    for (view, _) in written {
        let Some(tensor) = graph.tensors.get(view.tensor as usize) else { continue };
        let task = call.task.name;
        if !graph.symmetric.contains(&view.tensor) {
            let what = format!("`{task}` (call #{number}) has other ranks store `{}`, which is not symmetric", tensor.name);
            let help = "mark it: `#[symmetric]` before a parameter, `temp::<..>().symmetric()`, or `graph.symmetric(node)`";
            return Err(refused(graph, ranks, what, help));
        }
        let last = tensor.shape.len().saturating_sub(1) as u8;
        let whole = view.axes.last().is_some_and(|axis| axis.axis == last && axis.step == 1 && axis.extent.is_multiple_of(BLOCK))
            && view.offset.last().is_some_and(|offset| offset.is_multiple_of(BLOCK))
            && view.axes.iter().filter(|axis| axis.axis == last).count() == 1;
        if !whole {
            let what = format!("`{task}` (call #{number}) has other ranks store `{}`, whose columns are no blocks of {BLOCK}", tensor.name);
            let help = "give it columns in multiples of 8, along its last axis: ranks store so many elements at once";
            return Err(refused(graph, ranks, what, help));
        }
    }
    Ok(())
}

/// Refuses schedules in which tasks of all ranks might not come to the same collectives at the same time.
pub(crate) fn check_schedule(graph: &Graph, schedule: Schedule, ranks: u32) -> Result<(), Error> {
    let Some(call) = graph.calls.iter().position(|call| call.task.collective().is_some()) else { return Ok(()) };
    match schedule {
        Schedule::Static | Schedule::Tickets => Ok(()),
        Schedule::Schedulers(_) | Schedule::SpareWarps(_) => {
            let what = format!(
                "`{}` (call #{call}) has tasks that wait for other ranks, and {schedule} push tasks in no fixed order",
                graph.calls[call].task.name
            );
            Err(refused(graph, ranks, what, "plan it with `PlanOptions::schedule(Schedule::Static)` or `Schedule::Tickets`"))
        }
    }
}

fn refused(graph: &Graph, ranks: u32, what: String, help: &'static str) -> Error {
    Error::Collectives { megakernel: graph.name.as_str().into(), what: what.into(), ranks, help }
}

/// Of a plan with collectives: the order of the tasks that exchange tiles, since a task that waits for other ranks holds its worker. Other tasks may come in another order on each
/// rank.
fn planned(core: &PlanCore) -> Vec<String> {
    let plan = &core.plan;
    if core.lowered.messages.is_empty() && core.lowered.messages.nccl.is_empty() {
        return Vec::new();
    }
    // By the table all else is chosen.
    let mut lines = core.ways.clone();
    lines.push(format!("workers: {}, {}", plan.workers, plan.schedule));
    lines.extend((0..).zip(&plan.calls).map(|(number, call)| {
        let way = plan.exchange(number).map_or_else(String::new, |way| format!(", {way}"));
        format!("call #{number}: tiles of {:?}, {:?} of them{way}", call.tile, call.grid)
    }));
    // They are many, and what differs in them is nothing that somebody wrote.
    let mut hash = DefaultHasher::new();
    plan.exchanges().for_each(|task| task.hash(&mut hash));
    plan.lists.drains.hash(&mut hash);
    lines.push(format!("order of exchanges: {:016x}", hash.finish()));
    lines
}

/// A line for everything that ranks must have in common, in the user's names and in program order.
fn lines(program: &Program) -> Vec<String> {
    let graph = &program.graph;
    let own = format!("MACO {}", env!("CARGO_PKG_VERSION"));
    let code = program.embedded.modules.iter().map(|module| format!("device code for {}: {:016x}", module.target, module.hash));
    let symmetric = |n: usize| if graph.symmetric.contains(&(n as u32)) { ", symmetric" } else { "" };
    let tensors = graph.tensors.iter().enumerate().map(|(n, of)| tensor(of) + symmetric(n));
    let scalars = graph.scalars.iter().map(|scalar| format!("scalar {}", scalar.name));
    let calls = graph.calls.iter().enumerate().map(|(number, call)| format!("call #{number}: {}", called(graph, call)));
    let overlaps = graph.overlaps.iter().map(|overlap| format!("overlap: {overlap:?}"));
    let phases = graph.phases.iter().map(|phase| format!("phase: {phase:?}"));
    [own].into_iter().chain(tensors).chain(scalars).chain(calls).chain(overlaps).chain(phases).chain(code).collect()
}

fn tensor(tensor: &Tensor) -> String {
    let placement = match tensor.placement {
        Placement::Replicated => String::new(),
        Placement::Sharded(axis) => format!(", sharded along axis {axis}"),
        Placement::Partial(_) => format!(", {}", tensor.placement.words()),
    };
    format!("tensor {}: {:?} {} {:?}{placement}", tensor.name, tensor.shape, tensor.element.name(), tensor.kind)
}

fn called(graph: &Graph, call: &Call) -> String {
    let operands = call.operands.iter().map(|operand| view(graph, operand));
    let scalars = call.scalars.iter().map(|scalar| match *scalar {
        ScalarSource::Parameter(index) => graph.scalars.get(index as usize).map_or(String::new(), |scalar| scalar.name.clone()),
        ScalarSource::Literal(bits) => format!("{bits:#x}"),
    });
    let arguments: Vec<String> = operands.chain(scalars).collect();
    let mut text = format!("{}({})", call.task.name, arguments.join(", "));
    if let Some(Collective::Channel(channel)) = call.task.collective() {
        text += &format!(" over {}", channel.words());
    }
    if let Some(element) = call.task.elements.get(call.element as usize) {
        text += &format!(" on {}", element.name());
    }
    for fused in &call.fused {
        text += &format!(", with {fused}");
    }
    if let Some(tile) = &call.tile {
        text += &format!(", tile {tile:?}");
    }
    if let Some(parts) = call.split {
        text += &format!(", split-K {parts}");
    }
    if call.priority != 0 {
        text += &format!(", priority {}", call.priority);
    }
    if call.drain {
        text += ", drained";
    }
    if call.via != Via::Automatic {
        text += &format!(", via {}", call.via.name());
    }
    // Two tasks may have one name.
    text + &format!(", instance {}", call.slot)
}

fn view(graph: &Graph, view: &View) -> String {
    let Some(tensor) = graph.tensors.get(view.tensor as usize) else { return String::new() };
    if *view == View::whole(view.tensor, tensor) {
        return tensor.name.clone();
    }
    let axes: Vec<String> = view.axes.iter().map(|axis| format!("{}·{} of axis {}", axis.extent, axis.step, axis.axis)).collect();
    format!("{}[from {:?}: {}]", tensor.name, view.offset, axes.join(", "))
}
