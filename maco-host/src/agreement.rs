//! What the plans of all ranks must have in common, and the vote on it. Planning does not belong here.

use std::hash::{DefaultHasher, Hash, Hasher};

use maco_graph::ir::{Call, Graph, ScalarSource, Tensor, View};
use maco_graph::plan::Schedule;
use maco_graph::spec::{Access, Collective, Param, Placement, Planes, Via};

use crate::communicator::Communicator;
use crate::error::Error;
use crate::plan_core::PlanCore;
use crate::program::Program;

/// Every rank makes its plan, or none has one. In three steps: graph, what `plan` makes of it, and what `load` makes of that, which may make calls of all ranks.
pub(crate) fn together<P>(
    communicator: &Communicator,
    name: &str,
    program: Result<Program, Error>,
    plan: impl FnOnce(&Program) -> Result<PlanCore, Error>,
    load: impl FnOnce(&Program, PlanCore) -> Result<P, Error>,
) -> Result<P, Error> {
    let group = communicator.group();
    let operation = format!("sizes of megakernel {name}");
    let text = program.as_ref().err().map(Error::to_string);
    // Who has no graph has nothing to compare.
    let program = own_or_all(program, group.vote(&operation, text.as_deref().map_or(Ok(&[]), Err)).map(drop))?;
    let mut lines = lines(&program);
    let core = plan(&program);
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

/// Refuses what these ranks cannot run together.
pub(crate) fn check(graph: &Graph, ranks: u32) -> Result<(), Error> {
    for (number, call) in graph.calls.iter().enumerate() {
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

/// Of a plan with collectives: the order of all tasks, since a task that waits for other ranks holds its worker.
fn planned(core: &PlanCore) -> Vec<String> {
    let plan = &core.plan;
    if core.lowered.messages.is_empty() && core.lowered.messages.nccl.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("workers: {}, {}", plan.workers, plan.schedule)];
    lines.extend(
        plan.calls.iter().enumerate().map(|(number, call)| format!("call #{number}: tiles of {:?}, {:?} of them", call.tile, call.grid)),
    );
    let slots = plan.calls.iter().enumerate().filter(|(_, call)| call.slots > 0);
    lines.extend(slots.map(|(number, call)| format!("call #{number}: {} slots for messages", call.slots)));
    // Lists are long, and what differs in them is nothing that somebody wrote.
    let mut hash = DefaultHasher::new();
    (&plan.lists.order, &plan.lists.starts, &plan.lists.drains).hash(&mut hash);
    lines.push(format!("lists of tasks: {:016x}", hash.finish()));
    lines
}

/// A line for everything that ranks must have in common, in the user's names and in program order.
fn lines(program: &Program) -> Vec<String> {
    let graph = &program.graph;
    let own = format!("MACO {}", env!("CARGO_PKG_VERSION"));
    let code = program.embedded.modules.iter().map(|module| format!("device code for {}: {:016x}", module.target, module.hash));
    let tensors = graph.tensors.iter().map(tensor);
    let scalars = graph.scalars.iter().map(|scalar| format!("scalar {}", scalar.name));
    let calls = graph.calls.iter().enumerate().map(|(number, call)| format!("call #{number}: {}", called(graph, call)));
    let overlaps = graph.overlaps.iter().map(|overlap| format!("overlap: {overlap:?}"));
    [own].into_iter().chain(tensors).chain(scalars).chain(calls).chain(overlaps).chain(code).collect()
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
