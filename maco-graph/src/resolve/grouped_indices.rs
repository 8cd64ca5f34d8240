//! Checks grouped indices `h / G` that select a plane: the device does not clip planes, so every one must exist.

use super::ResolveError;
use crate::ir::{Call, Graph, View};
use crate::spec::{Index, Param, TensorParam};

/// Checks every call.
pub(super) fn check(graph: &Graph) -> Result<(), ResolveError> {
    for call in &graph.calls {
        for (param, view) in operands(call) {
            let ([Index::TileOver(axis, group), _, _], Some(planes)) = (param.region, view.axes.first()) else { continue };
            let Some(extent) = extent(call, *axis) else { continue };
            let last = extent.saturating_sub(1) / u64::from(*group);
            if extent > 0 && last >= planes.extent {
                return Err(ResolveError::Group {
                    task: call.task.name,
                    param: param.name,
                    axis: call.task.axes[usize::from(*axis)].name,
                    group: *group,
                    last,
                    tensor: graph.tensors[view.tensor as usize].name.clone(),
                    found: planes.extent,
                });
            }
        }
    }
    Ok(())
}

fn operands(call: &Call) -> impl Iterator<Item = (&'static TensorParam, &View)> {
    let params = call.task.params.iter().filter_map(|param| match param {
        Param::Tensor(tensor) => Some(tensor),
        Param::Scalar { .. } => None,
    });
    params.zip(&call.operands)
}

/// Elements that a grid axis runs over.
fn extent(call: &Call, axis: u8) -> Option<u64> {
    operands(call).find_map(|(param, view)| {
        let place = param.region.iter().position(|index| *index == Index::Tile(axis))?;
        view.axes.get(place).map(|part| part.extent)
    })
}
