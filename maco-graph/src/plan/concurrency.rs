//! How much work can run concurrently with a call: calls on the same level of the call graph, whose tasks fill the workers that it leaves idle.
//!
//! Which tasks wait for which does not belong here: this is known before tiles are, and only tensors as a whole are looked at.

use super::region::tensor_of;
use super::workload::multiply_adds;
use crate::ir::{Graph, View};
use crate::spec::{Access, TensorParam};

/// For each call, the multiply-adds of all calls of its level divided by its own; 1 for a call that is alone on its level, or has none. The calls need
/// not have been checked.
pub(super) fn concurrency(graph: &Graph) -> Vec<f64> {
    let levels = levels(graph);
    let products: Vec<f64> = graph.calls.iter().map(|call| multiply_adds(call).unwrap_or(0) as f64).collect();
    let mut whole = vec![0.0; levels.iter().max().map_or(0, |&last| last as usize + 1)];
    for (&level, products) in levels.iter().zip(&products) {
        whole[level as usize] += products;
    }
    levels.iter().zip(products).map(|(&level, own)| if own > 0.0 { whole[level as usize] / own } else { 1.0 }).collect()
}

/// The level of each call: the length of the longest chain of calls before it.
fn levels(graph: &Graph) -> Vec<u32> {
    // Per tensor: the first level behind its writes, and behind its reads.
    let mut behind = vec![(0, 0); graph.tensors.len()];
    let mut levels = Vec::with_capacity(graph.calls.len());
    for call in &graph.calls {
        let operands = || call.operands.iter().zip(call.task.params.iter().filter_map(tensor_of));
        let after = |(writes, reads): (u32, u32), access: Access| if access.writes() { writes.max(reads) } else { writes };
        let known = |(view, param): (&View, &TensorParam)| Some(after(*behind.get(view.tensor as usize)?, param.access));
        let level = operands().filter_map(known).max().unwrap_or(0);
        for (view, param) in operands() {
            let Some((writes, reads)) = behind.get_mut(view.tensor as usize) else { continue };
            let last = if param.access.writes() { writes } else { reads };
            *last = level + 1;
        }
        levels.push(level);
    }
    levels
}
