//! In-band flags: edges between GEMVs whose small tensors are stored with a flag beside each element, as in the LL protocol of NCCL.
//!
//! How a flag is encoded does not belong here. The reader polls the elements themselves. That saves a release, a signal, an acquire and a load after
//! the last store, but it moves twice the bytes, so only small tensors are worth it. The reader acquires nothing but the elements. That is
//! enough: a plan relies on chains of relations only where a tensor is written more than once (`dependencies.rs`), and such a tensor has no in-band flags.

use maco_abi::{ELEMENTWISE_SLOT_BYTES, IN_BAND_BYTES, IN_BAND_VECTOR, in_band_stride, rmsnorm_bytes};

use super::dependencies::Dependencies;
use super::region::tensor_of;
use super::{Hazard, PlannedCall, Relation, Schedule};
use crate::ir::{Call, Graph, TensorKind, View};
use crate::spec::{Access, Index};

/// Most bytes of the elements of a tensor.
const BYTES: u64 = 64 * 1024;
/// Elements per vector load.
const VECTOR: u64 = IN_BAND_VECTOR as u64;

/// Marks the relations of `found` that use in-band flags.
pub(super) fn mark(graph: &Graph, calls: &[PlannedCall], schedule: Schedule, found: &mut Dependencies) {
    if schedule.schedulers() > 0 {
        // A scheduler pushes a task only when its inputs are complete.
        return;
    }
    let writers = writers(graph);
    let fits = |relation: &Relation| is_eligible(graph, calls, relation) && writers[relation.tensor as usize] == [relation.producer];
    let mut in_band = vec![false; graph.tensors.len()];
    for (relation, naming) in found.relations.iter_mut().zip(&found.named) {
        relation.in_band = naming.is_none() && fits(relation);
        in_band[relation.tensor as usize] |= relation.in_band;
    }
    // The device tells such a tensor by its address, so all GEMVs that read it must read it so, and each must have room for its tile.
    for (number, call) in graph.calls.iter().enumerate() {
        for view in &call.operands {
            in_band[view.tensor as usize] &= call.task.gemv_operand_b().is_none() || has_room(graph, call, &calls[number], view.tensor);
        }
    }
    found.relations.iter_mut().for_each(|relation| relation.in_band &= in_band[relation.tensor as usize]);
}

/// The calls that write each tensor, once per write.
pub(super) fn writers(graph: &Graph) -> Vec<Vec<u32>> {
    let mut writers = vec![Vec::new(); graph.tensors.len()];
    for (number, call) in (0..).zip(&graph.calls) {
        for (view, param) in call.operands.iter().zip(call.task.params.iter().filter_map(tensor_of)) {
            if param.access.writes() {
                writers[view.tensor as usize].push(number);
            }
        }
    }
    writers
}

/// Whether `relation` may use in-band flags, if only its producer writes the tensor.
pub(super) fn is_eligible(graph: &Graph, calls: &[PlannedCall], relation: &Relation) -> bool {
    let tensor = &graph.tensors[relation.tensor as usize];
    let (producer, consumer) = (&graph.calls[relation.producer as usize], &graph.calls[relation.consumer as usize]);
    let [rows, cols] = tensor.shape[..] else { return false };
    let small = rows.saturating_mul(cols.next_multiple_of(VECTOR)).saturating_mul(2) <= BYTES;
    if relation.hazard != Hazard::Raw || tensor.kind != TensorKind::Temp || tensor.element.bytes() != 2 || !small {
        return false;
    }
    // The producer is a GEMV that writes the whole tensor and nothing else.
    let written = producer.operands.get(relation.producer_operand as usize);
    let params = producer.task.params.iter().filter_map(tensor_of);
    let mut results = params.filter(|param| param.access != Access::Read);
    let result =
        results.next().is_some_and(|param| param.access == Access::Write && matches!(param.region, [Index::Tile(_), Index::Tile(_)]));
    let made =
        producer.task.gemv_operand_a().is_some() && calls[relation.producer as usize].parts == 1 && result && results.next().is_none();
    if !made || written != Some(&View::whole(relation.tensor, tensor)) {
        return false;
    }
    // The consumer is a GEMV that reads it as operand A only.
    let reads = consumer.operands.iter().filter(|view| view.tensor == relation.tensor).count();
    reads == 1 && consumer.task.gemv_operand_a() == Some(relation.consumer_operand as usize) && calls[relation.consumer as usize].parts == 1
}

/// Whether each tile of `tensor` that a task of `call`, a GEMV, reads as operand A fits [`IN_BAND_BYTES`] and can be read by vector loads.
fn has_room(graph: &Graph, call: &Call, planned: &PlannedCall, tensor: u32) -> bool {
    let behind = |rows, cols| match planned.prologue.map(|made| graph.calls[made as usize].task.unary_operands()) {
        None => 0,
        Some(None) => rmsnorm_bytes(rows, cols),
        Some(Some(_)) => ELEMENTWISE_SLOT_BYTES,
    };
    let params = call.task.params.iter().filter_map(tensor_of);
    let mut operands = call.operands.iter().zip(params).enumerate().filter(|(operand, (view, param))| {
        let other =
            call.task.gemv_operand_b() != Some(*operand) && param.access == Access::Read && param.region.last() == Some(&Index::All);
        view.tensor == tensor && other
    });
    operands.all(|(_, (view, param))| {
        let ([Index::Tile(axis), Index::All], [down, across]) = (param.region, &view.axes[..]) else { return false };
        let plain = (down.axis, down.step, across.axis, across.step) == (0, 1, 1, 1);
        let together = view.offset[1].is_multiple_of(VECTOR) && across.extent.is_multiple_of(VECTOR) && across.extent > 0;
        let rows = down.extent.min(planned.tile[usize::from(*axis)].into());
        // What has more rows or columns than there are bytes does not fit, and the sum of the others fits 32 bits.
        let [Some(rows), Some(cols)] = [rows, across.extent].map(|n| u32::try_from(n).ok().filter(|&n| n <= IN_BAND_BYTES)) else {
            return false;
        };
        plain && together && rows * in_band_stride(rows, cols) * 2 + behind(rows, cols) <= IN_BAND_BYTES
    })
}
