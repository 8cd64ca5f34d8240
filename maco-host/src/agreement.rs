//! What the plans of all ranks must have in common, and the vote on it. Planning does not belong here.

use maco_graph::ir::{Call, Graph, ScalarSource, Tensor, View};
use maco_graph::spec::{Collective, Placement};

use crate::communicator::Communicator;
use crate::error::Error;
use crate::program::Program;

/// Every rank makes its plan, or none has one.
pub(crate) fn together<P>(
    communicator: &Communicator,
    name: &str,
    program: Result<Program, Error>,
    plan: impl FnOnce(Program) -> Result<P, Error>,
) -> Result<P, Error> {
    let group = communicator.group();
    let operation = format!("sizes of megakernel {name}");
    let text = program.as_ref().err().map(Error::to_string);
    // Who has no graph has nothing to compare.
    let program = own_or_all(program, group.vote(&operation, text.as_deref().map_or(Ok(&[]), Err)).map(drop))?;
    let lines = lines(&program);
    let plan = plan(program);
    let text = plan.as_ref().err().map(Error::to_string);
    let operation = format!("plan of megakernel {name}");
    own_or_all(plan, group.agree(&operation, &lines, text.as_deref().map_or(Ok(()), Err)))
}

/// An error that is the same on all ranks is this rank's own.
pub(crate) fn own_or_all<T>(own: Result<T, Error>, all: Result<(), maco_ranks::Error>) -> Result<T, Error> {
    match all {
        Ok(()) => own,
        Err(maco_ranks::Error::Refused { alike: true, .. }) if own.is_err() => own,
        Err(error) => Err(error.into()),
    }
}

/// Refuses what needs data of other ranks.
pub(crate) fn check_several(graph: &Graph, ranks: u32) -> Result<(), Error> {
    let error = |what: String| Err(Error::NoCollectives { megakernel: graph.name.as_str().into(), what: what.into(), ranks });
    if let Some(tensor) = graph.tensors.iter().find(|tensor| tensor.placement != Placement::Replicated) {
        return error(format!("`{}` is {}", tensor.name, tensor.placement.words()));
    }
    match graph.calls.iter().position(|call| Collective::named(call.task.name).is_some()) {
        Some(call) => error(format!("call #{call} is `{}`", graph.calls[call].task.name)),
        None => Ok(()),
    }
}

/// A line for everything that ranks must have in common, in the user's names and in program order.
fn lines(program: &Program) -> Vec<String> {
    let graph = &program.graph;
    let own = format!("MACO {}", env!("CARGO_PKG_VERSION"));
    let code = program.embedded.modules.iter().map(|module| format!("device code for {}: {:016x}", module.target, module.hash));
    let tensors = graph.tensors.iter().map(tensor);
    let scalars = graph.scalars.iter().map(|scalar| format!("scalar {}", scalar.name));
    let calls = graph.calls.iter().enumerate().map(|(number, call)| format!("call #{number}: {}", called(graph, call)));
    [own].into_iter().chain(tensors).chain(scalars).chain(calls).chain(code).collect()
}

fn tensor(tensor: &Tensor) -> String {
    let placement = match tensor.placement {
        Placement::Replicated => String::new(),
        Placement::Sharded(axis) => format!(", sharded along axis {axis}"),
        Placement::Partial => ", a partial sum".into(),
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
