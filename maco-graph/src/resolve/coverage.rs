//! Which elements have been written when a call reads them, once sizes are known.
//!
//! Const evaluation has seen that *something* wrote each tensor that is read; with slices, that may not have been all of it. Views whose
//! elements are not one box are left alone: nothing is refused that might be right.

use std::ops::Range;

use super::ResolveError;
use crate::ir::{Call, Graph, TensorKind, View};
use crate::spec::{Index, Param, TaskSpec};

/// A range along each axis of a tensor.
type Region = Vec<Range<u64>>;

/// What has been written of one tensor.
enum Written {
    /// All of it, or nobody knows.
    All,
    /// These boxes.
    Boxes(Vec<Region>),
}

/// Checks every read against the writes before it, and every output at the end.
pub(super) fn check(graph: &Graph) -> Result<(), ResolveError> {
    let mut written: Vec<Written> = graph
        .tensors
        .iter()
        .map(|tensor| match tensor.kind {
            TensorKind::Out | TensorKind::Temp => Written::Boxes(Vec::new()),
            TensorKind::In | TensorKind::InOut | TensorKind::State => Written::All,
        })
        .collect();
    for call in &graph.calls {
        for (param, view) in operands(call) {
            if param.access.reads()
                && let Written::Boxes(boxes) = &written[view.tensor as usize]
                && let Some(region) = region(view)
                && let Some(missing) = missing(region, boxes)
            {
                let tensor = graph.tensors[view.tensor as usize].name.clone();
                return Err(ResolveError::Unwritten { task: call.task.name, tensor, missing: text(&missing) });
            }
        }
        for (param, view) in operands(call).filter(|(param, _)| param.access.writes()) {
            let written = &mut written[view.tensor as usize];
            let known = !param.region.iter().any(|index| matches!(index, Index::Data(_)));
            match (region(view), &mut *written) {
                (Some(region), Written::Boxes(boxes)) if known => boxes.push(region),
                _ => *written = Written::All,
            }
        }
    }
    for (tensor, written) in graph.tensors.iter().zip(&written).filter(|(tensor, _)| tensor.kind == TensorKind::Out) {
        if let Written::Boxes(boxes) = written
            && let Some(missing) = missing(tensor.shape.iter().map(|&extent| 0..extent).collect(), boxes)
        {
            return Err(ResolveError::OutUnwritten { tensor: tensor.name.clone(), missing: text(&missing) });
        }
    }
    Ok(())
}

fn operands(call: &Call) -> impl Iterator<Item = (&'static crate::spec::TensorParam, &View)> {
    let spec: &'static TaskSpec = call.task;
    let params = spec.params.iter().filter_map(|param| match param {
        Param::Tensor(tensor) => Some(tensor),
        Param::Scalar { .. } => None,
    });
    params.zip(&call.operands)
}

/// The elements of a view, where they are one box of its tensor.
fn region(view: &View) -> Option<Region> {
    let axes = 0..view.offset.len();
    axes.map(|axis| {
        let mut parts: Vec<(u64, u64)> = view
            .axes
            .iter()
            .filter(|part| usize::from(part.axis) == axis && part.extent != 1)
            .map(|part| (part.step, part.extent))
            .collect();
        parts.sort_unstable();
        // Each part must go on where the smaller ones end: the two halves of a split do.
        let mut length = 1;
        for (step, extent) in parts {
            if step != length {
                return None;
            }
            length *= extent;
        }
        Some(view.offset[axis]..view.offset[axis] + length)
    })
    .collect()
}

/// Some part of `region` that no box covers.
fn missing(region: Region, boxes: &[Region]) -> Option<Region> {
    let mut rest = vec![region];
    for known in boxes {
        rest = rest.into_iter().flat_map(|part| subtract(part, known)).collect();
    }
    rest.into_iter().find(|part| part.iter().all(|range| !range.is_empty()))
}

/// `part` without `known`, as disjoint boxes.
fn subtract(mut part: Region, known: &Region) -> Vec<Region> {
    let apart = part.iter().zip(known).any(|(a, b)| a.end <= b.start || b.end <= a.start);
    if apart {
        return vec![part];
    }
    let mut out = Vec::new();
    for axis in 0..part.len() {
        let (range, cut) = (part[axis].clone(), &known[axis]);
        for piece in [range.start..cut.start, cut.end..range.end] {
            if !piece.is_empty() {
                let mut rest = part.clone();
                rest[axis] = piece;
                out.push(rest);
            }
        }
        part[axis] = range.start.max(cut.start)..range.end.min(cut.end);
    }
    out
}

/// `[0..4, 8..16]`
fn text(region: &Region) -> String {
    let ranges: Vec<String> = region.iter().map(|range| format!("{}..{}", range.start, range.end)).collect();
    format!("[{}]", ranges.join(", "))
}
