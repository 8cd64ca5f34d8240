//! Bytes and floating-point operations of a call, for comparing a measured time with the device's peak.

use super::Plan;
use super::region::tensor_of;
use crate::ir::{Call, Graph, View};
use crate::spec::{Access, Element, ElementSpec, Index, TaskKind, TaskSpec, TensorParam};

/// The workload of all tasks of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Bytes read and written if each element is transferred once; none where indices in memory decide.
    pub bytes: Option<u64>,
    /// Floating-point operations of a GEMM or GEMV, two per multiply-add; 0 for other calls.
    pub flops: u64,
}

impl Plan {
    /// The workload of call `call`.
    ///
    /// # Panics
    /// If there is no such call.
    pub fn workload(&self, call: u32) -> Workload {
        let (planned, call) = (&self.calls[call as usize], &self.graph.calls[call as usize]);
        if planned.tasks.is_empty() {
            return Workload { bytes: Some(0), flops: 0 };
        }
        let (known, all) = bytes_moved(&self.graph, call);
        let bytes = all.then_some(known);
        let gemv = call.task.gemv_operand_b().and_then(|operand| {
            let param = call.task.params.iter().filter_map(tensor_of).nth(operand)?;
            contracted_extent(param, &call.operands[operand]).map(|depth| result_elements(call).saturating_mul(depth))
        });
        Workload { bytes, flops: multiply_adds(call).or(gemv).unwrap_or(0).saturating_mul(2) }
    }
}

/// Bytes that a call reads and writes if each element is transferred once, and whether these are all: operands that indices in memory select are not
/// counted.
pub(super) fn bytes_moved(graph: &Graph, call: &Call) -> (u64, bool) {
    let (mut bytes, mut all) = (0u64, true);
    for (param, view) in call.task.params.iter().filter_map(tensor_of).zip(&call.operands) {
        if param.region.iter().any(|index| matches!(index, Index::Data(_))) {
            all = false;
            continue;
        }
        let times = if param.access == Access::Update { 2 } else { 1 };
        let element = u64::from(graph.tensors[view.tensor as usize].element.bytes());
        bytes = bytes.saturating_add(elements(view).saturating_mul(element).saturating_mul(times));
    }
    (bytes, all)
}

/// Multiply-adds of a GEMM; none for other calls.
pub(super) fn multiply_adds(call: &Call) -> Option<u64> {
    let (depth, gemms) = contraction(call.task, &call.operands)?;
    Some(result_elements(call).saturating_mul(depth).saturating_mul(gemms))
}

/// Elements of the largest result of a call.
fn result_elements(call: &Call) -> u64 {
    let params = call.task.params.iter().filter_map(tensor_of).zip(&call.operands);
    params.filter(|(param, _)| param.access.writes()).map(|(_, view)| elements(view)).max().unwrap_or(0)
}

fn elements(view: &View) -> u64 {
    view.axes.iter().fold(1, |all, axis| all.saturating_mul(axis.extent))
}

/// Whether a call multiplies `f32` on the tensor cores, as tf32 with 10 bits of fraction.
pub(super) fn rounds_to_tf32(call: &Call) -> bool {
    let params = call.task.params.iter().filter_map(tensor_of);
    let mut operands = params.filter(|param| param.staged && !param.access.writes());
    operands.any(|param| element(call, param) == Some(Element::F32))
}

/// The element type of a parameter in this call; none if the call does not say.
pub(super) fn element(call: &Call, param: &TensorParam) -> Option<Element> {
    match param.element {
        ElementSpec::Fixed(element) => Some(element),
        ElementSpec::Generic | ElementSpec::Result => call.task.elements.get(call.element as usize).copied(),
    }
}

/// The extent of the axis that a task reads as a whole: K.
fn contracted_extent(param: &TensorParam, view: &View) -> Option<u64> {
    param.region.iter().zip(&view.axes).find(|(index, _)| **index == Index::All).map(|(_, axis)| axis.extent)
}

/// K, and the number of contractions per element of the result: one with `mma` and `gemv`, two with `mma_pair`. None for other calls.
pub(super) fn contraction(task: &TaskSpec, operands: &[View]) -> Option<(u64, u64)> {
    let mut params = task.params.iter().filter_map(tensor_of).zip(operands);
    if let TaskKind::Gemv { operand_b, .. } = task.kind {
        return params.nth(operand_b.into()).and_then(|(param, view)| contracted_extent(param, view)).map(|depth| (depth, 1));
    }
    let TaskKind::Gemm { .. } = task.kind else { return None };
    let depths =
        params.filter(|(param, _)| param.staged && !param.access.writes()).filter_map(|(param, view)| contracted_extent(param, view));
    let (count, depth) = depths.fold((0, u64::MAX), |(count, least), depth| (count + 1, least.min(depth)));
    (count > 1).then(|| (depth, count - 1))
}
