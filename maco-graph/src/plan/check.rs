//! Refuses graphs that contradict their specs, before anything uses them as indices.
//!
//! Most of this is proved at compile time for a megakernel; graphs made at run time, and sizes, are not.

use maco_abi::{AXES, OPERANDS, RANK};

use super::region::{Region, Regions, overlaps_itself, tensor_of};
use super::tile_selection::Choice;
use super::{Options, PlanError, Site};
use crate::ir::{Call, Graph, ScalarSource, TensorKind, View};
use crate::spec::{Access, Index, TaskSpec, TensorParam};

/// Device coordinates are `i32`.
const MAX_EXTENT: u64 = i32::MAX as u64;
/// Dispatch numbers are `u16`.
const MAX_INSTANCES: usize = u16::MAX as usize;

/// Ranks and extents of all tensors.
pub(super) fn tensors(graph: &Graph) -> Result<(), PlanError> {
    if u32::try_from(graph.calls.len()).is_err() || u32::try_from(graph.tensors.len()).is_err() {
        return Err(malformed("more than 2^32 calls or tensors".into()));
    }
    for tensor in &graph.tensors {
        if !(1..=RANK).contains(&tensor.shape.len()) {
            return Err(PlanError::TensorRank { tensor: tensor.name.as_str().into(), found: tensor.shape.len(), max: RANK });
        }
        if let Some(axis) = tensor.shape.iter().position(|&extent| extent > MAX_EXTENT) {
            let extent = tensor.shape[axis];
            return Err(PlanError::TooLarge { tensor: tensor.name.as_str().into(), axis, extent, max: MAX_EXTENT });
        }
    }
    Ok(())
}

/// Arguments of call `index`: arity, ranks, views within tensors, regions within the grid.
pub(super) fn call(graph: &Graph, index: usize) -> Result<Site, PlanError> {
    let call = &graph.calls[index];
    let site = Site { task: call.task.name, call: index as u32 };
    spec(site, call.task)?;
    if call.element as usize >= call.task.elements.len().max(1) {
        return Err(PlanError::ElementChoice { site, found: call.element, count: call.task.elements.len().max(1) });
    }
    let tensors = call.task.params.iter().filter_map(tensor_of).count();
    if call.operands.len() != tensors {
        return Err(PlanError::Arity { site, what: "tensors", expected: tensors, found: call.operands.len() });
    }
    let scalars = call.task.params.len() - tensors;
    if call.scalars.len() != scalars {
        return Err(PlanError::Arity { site, what: "scalars", expected: scalars, found: call.scalars.len() });
    }
    for source in &call.scalars {
        if let &ScalarSource::Parameter(scalar) = source
            && scalar as usize >= graph.scalars.len()
        {
            return Err(malformed(format!("{site} takes scalar {scalar} of {}", graph.scalars.len())));
        }
    }
    for (param, argument) in call.task.params.iter().filter_map(tensor_of).zip(&call.operands) {
        view(site, graph, param, argument)?;
    }
    Ok(site)
}

fn spec(site: Site, task: &'static TaskSpec) -> Result<(), PlanError> {
    if task.axes.len() > AXES {
        return Err(PlanError::TooManyParts { site, what: "grid axes", found: task.axes.len(), max: AXES });
    }
    if let Some(axis) = task.axes.iter().find(|axis| axis.tiles.is_empty() || axis.tiles.contains(&0)) {
        return Err(malformed(format!("axis `{}` of {site} has no tile size, or a zero", axis.name)));
    }
    if let Some(gemv) = task.gemv {
        // The macro has checked it: `spec::check_gemv_form`.
        if gemv.gemv.is_some() || gemv.gemv_operand_b().is_none() || !task.signature_of(gemv) {
            return Err(malformed(format!("{site} has a GEMV form that is another task")));
        }
        spec(site, gemv)?;
    }
    let instances = task.axes.iter().fold(task.elements.len().max(1), |product, axis| product.saturating_mul(axis.tiles.len()));
    if instances > MAX_INSTANCES {
        return Err(PlanError::TooManyParts { site, what: "instances", found: instances, max: MAX_INSTANCES });
    }
    let tensors = task.params.iter().filter_map(tensor_of).count();
    if tensors > OPERANDS {
        return Err(PlanError::TooManyParts { site, what: "tensor parameters", found: tensors, max: OPERANDS });
    }
    for param in task.params.iter().filter_map(tensor_of) {
        for &index in param.region {
            let axis = match index {
                Index::All | Index::Data(_) => continue,
                Index::Tile(axis) | Index::Halo { axis, .. } => axis,
                Index::TileOver(_, 0) => return Err(PlanError::Divisor { site, param: param.name }),
                Index::TileOver(axis, _) => axis,
            };
            if usize::from(axis) >= task.axes.len() {
                return Err(PlanError::UnknownAxis { site, param: param.name, axis, axes: task.axes.len() });
            }
        }
    }
    Ok(())
}

fn view(site: Site, graph: &Graph, param: &TensorParam, view: &View) -> Result<(), PlanError> {
    let Some(tensor) = graph.tensors.get(view.tensor as usize) else {
        return Err(malformed(format!("{site} takes tensor {} of {} as `{}`", view.tensor, graph.tensors.len(), param.name)));
    };
    let expected = param.region.len();
    if view.axes.len() != expected {
        return Err(PlanError::ArgumentRank {
            site,
            param: param.name,
            tensor: tensor.name.as_str().into(),
            expected,
            found: view.axes.len(),
        });
    }
    let rank = tensor.shape.len();
    if view.offset.len() != rank || view.axes.iter().any(|axis| usize::from(axis.axis) >= rank) {
        return Err(malformed(format!("the view of `{}` passed to {site} as `{}` is not of rank {rank}", tensor.name, param.name)));
    }
    // An empty view holds no element, so it may lie at the very end.
    let empty = view.axes.iter().any(|axis| axis.extent == 0);
    for (axis, (&offset, &extent)) in view.offset.iter().zip(&tensor.shape).enumerate() {
        let along = view.axes.iter().filter(|view_axis| usize::from(view_axis.axis) == axis);
        let start = if empty { offset } else { offset.saturating_add(1) };
        let end = along.fold(start, |end, axis| end.saturating_add(axis.extent.saturating_sub(1).saturating_mul(axis.step)));
        let oversized = view.axes.iter().any(|axis| axis.extent > MAX_EXTENT || axis.step > MAX_EXTENT);
        if end > extent || oversized {
            let end = if oversized { u64::MAX } else { end };
            return Err(PlanError::ViewRange { site, param: param.name, tensor: tensor.name.as_str().into(), axis, end, extent });
        }
    }
    Ok(())
}

/// What one call writes: never an `In`, no element by two tiles, nothing that it also takes through another parameter.
pub(super) fn writes(site: Site, graph: &Graph, call: &Call, choice: &Choice, regions: &Regions) -> Result<(), PlanError> {
    let own = regions.of(site.call);
    for (region, param) in own.iter().zip(call.task.params.iter().filter_map(tensor_of)) {
        if !param.access.writes() {
            continue;
        }
        let tensor = &graph.tensors[region.tensor as usize];
        let name = || tensor.name.as_str().into();
        if tensor.kind == TensorKind::In {
            return Err(PlanError::WritesIn { site, param: param.name, tensor: name() });
        }
        if region.empty {
            continue;
        }
        if overlaps_itself(&call.operands[region.operand as usize]) {
            return Err(PlanError::WriteThroughOverlap { site, param: param.name, tensor: name() });
        }
        if let Some(axis) = shared_axis(call.task, param, choice) {
            let axis = call.task.axes[axis].name;
            return Err(match param.access {
                Access::Reduce => PlanError::ReduceOverlap { site, param: param.name, tensor: name(), axis },
                _ => PlanError::WriteOverlap { site, param: param.name, tensor: name(), axis },
            });
        }
        if let Some(other) = own.iter().find(|other| aliases(regions, region, other)) {
            return Err(PlanError::Alias { site, tensor: name(), written: param.name, other: operand_name(call.task, other.operand) });
        }
    }
    Ok(())
}

/// The grid axis along which two tiles may write the same elements.
fn shared_axis(task: &TaskSpec, param: &TensorParam, choice: &Choice) -> Option<usize> {
    if param.region.iter().any(|index| matches!(index, Index::Data(_))) {
        return None; // the author of the `unsafe` write promised that tiles are disjoint
    }
    let separates = |axis: u8| {
        param.region.iter().any(|&index| match index {
            Index::Tile(a) | Index::TileOver(a, 1) | Index::Halo { axis: a, before: 0, after: 0 } => a == axis,
            _ => false,
        })
    };
    (0..task.axes.len()).find(|&axis| choice.grid[axis] > 1 && !separates(axis as u8))
}

fn aliases(regions: &Regions, written: &Region, other: &Region) -> bool {
    written.operand != other.operand && !regions.disjoint(written, other)
}

/// Name of tensor parameter number `operand`.
pub(super) fn operand_name(task: &'static TaskSpec, operand: u32) -> &'static str {
    task.params.iter().filter_map(tensor_of).nth(operand as usize).map_or("?", |param| param.name)
}

pub(super) fn malformed(what: String) -> PlanError {
    PlanError::Malformed { what: what.into() }
}

/// Tasks up to and with a call, while they are within the limit.
pub(super) fn count(site: Site, before: u64, choice: &Choice, options: &Options) -> Result<u64, PlanError> {
    let max = (options.max_tasks as u64).min(u64::from(u32::MAX >> 1));
    let found = before.saturating_add(choice.split_k.tasks(choice.tiles()));
    if found > max { Err(PlanError::TooManyTasks { site, found, max }) } else { Ok(found) }
}
