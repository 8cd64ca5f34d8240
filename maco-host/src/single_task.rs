//! `on_cpu` of a task: runs it as a graph of one call on the CPU.

use maco_graph::spec::{Access, Argument, CallOptions, Element, Kind, Owned, Param, Placement, TaskSpec, Value};

use crate::arguments::Arguments;
use crate::device::Device;
use crate::error::Error;
use crate::options::PlanOptions;
use crate::plan::Plan;
use crate::program::{Dispatch, Embedded, Program};

/// Runs `task` over its whole grid on the CPU device of its arguments. The accumulator is rounded to `result`, if that is not what the signature says.
///
/// # Errors
/// MACO0030 for a wrong number of arguments, those of the graph for shapes or elements that do not fit the task (MACO0004 to
/// MACO0006), and those of [`Plan::run`].
pub fn on_cpu(task: &'static TaskSpec, dispatch: Dispatch, result: Option<Element>, arguments: Arguments<'_>) -> Result<(), Error> {
    let device = arguments.tensors.first().map_or_else(Device::cpu, |tensor| tensor.device().clone());
    if device.is_gpu() {
        let first = task.params.iter().find_map(|param| if let Param::Tensor(tensor) = param { Some(tensor.name) } else { None });
        return Err(Device::cpu().wrong(first.unwrap_or("the first tensor"), &device));
    }
    let mut graph = Owned::new();
    let (mut tensors, mut scalars) = (arguments.tensors.iter(), arguments.scalars.iter());
    let mut call = Vec::new();
    for param in task.params {
        match param {
            Param::Tensor(param) => {
                let Some(tensor) = tensors.next() else { return Err(count(task, "tensors", &arguments)) };
                let kind = match param.access {
                    Access::Read => Kind::In,
                    Access::Write => Kind::Out,
                    Access::Update | Access::Reduce => Kind::InOut,
                };
                let placed = &tensor.placed;
                let view = graph.tensor(param.name, kind, placed.element, &placed.layout.shape, Placement::Replicated)?;
                call.push(Argument::Tensor(view));
            }
            Param::Scalar { name, ty } => {
                if scalars.next().is_none() {
                    return Err(count(task, "scalars", &arguments));
                }
                let value: Value = graph.scalar(name, *ty);
                call.push(Argument::Scalar(value));
            }
        }
    }
    graph.call(task, 0, &call, CallOptions { result, ..CallOptions::default() })?;
    let program = Program {
        name: task.name,
        graph: graph.finish()?.resolve(task.name, &[])?,
        entry: "",
        embedded: Embedded::NONE,
        cpu: dispatch,
        fuse_elementwise: false,
        workers: None,
        schedulers: None,
    };
    Plan::build(&device, program, &PlanOptions::new())?.run(arguments)?;
    Ok(())
}

fn count(task: &TaskSpec, what: &'static str, arguments: &Arguments<'_>) -> Error {
    let tensors = task.params.iter().filter(|param| matches!(param, Param::Tensor(_))).count();
    let (expected, found) = match what {
        "tensors" => (tensors, arguments.tensors.len()),
        _ => (task.params.len() - tensors, arguments.scalars.len()),
    };
    Error::ArgumentCount { megakernel: task.name.into(), what, expected, found }
}
