//! What the tasks of a call have to do, whatever runs them: what a measured time is compared to.

use super::Plan;
use super::region::tensor_of;
use crate::spec::{Access, Index, TaskKind};

/// The work of all tasks of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Bytes read and written if each element travels once; none where only data knows.
    pub bytes: Option<u64>,
    /// Floating-point operations of a contraction, two per product; 0 for all that is not one.
    pub flops: u64,
}

impl Plan {
    /// The work of call `call`.
    ///
    /// # Panics
    /// If there is no such call.
    pub fn work(&self, call: u32) -> Work {
        let (planned, call) = (&self.calls[call as usize], &self.graph.calls[call as usize]);
        if planned.tasks.is_empty() {
            return Work { bytes: Some(0), flops: 0 };
        }
        let mut bytes = Some(0u64);
        // Elements of a tile, and of all tiles, of the largest result; elements of a tile of the two largest factors.
        let (mut result, mut results, mut factors) = (0.0f64, 0.0f64, [0.0f64; 2]);
        for (param, view) in call.task.params.iter().filter_map(tensor_of).zip(&call.operands) {
            let (mut tile, mut all) = (1.0, 1u64);
            let planes = param.region.len() == 3;
            for (n, (&index, axis)) in param.region.iter().zip(&view.axes).enumerate() {
                let extent = axis.extent as f64;
                let size = |axis: u8| f64::from(planned.tile[usize::from(axis)]).min(extent);
                all = all.saturating_mul(axis.extent);
                tile *= match index {
                    Index::All => extent,
                    Index::Data(_) => {
                        bytes = None;
                        if planes && n == 0 { 1.0 } else { extent }
                    }
                    Index::Tile(axis) | Index::TileOver(axis, _) => size(axis),
                    Index::Halo { axis, before, after } => (size(axis) + f64::from(before) + f64::from(after)).min(extent),
                };
            }
            let times = if param.access == Access::Update { 2 } else { 1 };
            let element = u64::from(self.graph.tensors[view.tensor as usize].element.bytes());
            bytes = bytes.map(|bytes| bytes.saturating_add(all.saturating_mul(element).saturating_mul(times)));
            if param.access.writes() {
                if tile > result {
                    (result, results) = (tile, all as f64);
                }
            } else if param.region.contains(&Index::All) {
                factors = [factors[0].max(tile), factors[1].max(tile.min(factors[0]))];
            }
        }
        // A tile of x (m × k), of w (n × k) and of y (m × n): the square root of the volumes' product is m × n × k.
        let contracts = matches!(call.task.kind, TaskKind::Staged { .. }) && result > 0.0;
        let products = if contracts { (factors[0] * factors[1] * result).sqrt() * (results / result) } else { 0.0 };
        Work { bytes, flops: (2.0 * products).round() as u64 }
    }
}
