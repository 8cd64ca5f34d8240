//! Where temps lie in the one allocation that a plan has for them, and which temps share memory.
//!
//! A *buffer* is a part of the allocation that one temp has after another. A temp may take the buffer of an earlier one if all tasks that use the earlier
//! one have ended before the first task writes the later one there: element by element if both have the same layout, else as a whole. Mostly the
//! order that the plan has anyhow proves it (`order`). If not, write-after-read edges are added, but only where the planner's cost model says that they
//! make no task begin later. Otherwise the temp gets a buffer of its own.
//!
//! Temps with in-band flags have memory of their own: a flag tells launches apart, not two temps of one launch. So have temps that are spread over
//! ranks, since peers may read them.

mod accesses;
mod boxes;
mod edges;
mod order;
mod overlaps;
mod share;
mod verify;

use std::fmt;

use super::Plan;
use crate::ir::{Graph, TensorKind};
use crate::spec::Placement;

pub(super) use edges::assign;
pub(super) use share::Timeline;

/// Buffers begin at multiples of so many bytes.
pub const ALIGN: u64 = 256;

/// Where one temp lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TempRange {
    /// Bytes from the begin of the allocation, a multiple of [`ALIGN`].
    pub offset: u64,
    /// Bytes of the temp, rows padded as [`crate::ir::Tensor::stored_bytes`] says. 0 if no task uses it.
    pub bytes: u64,
}

/// The memory of all temps of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Temps {
    /// By tensor; of those that are no temps nothing.
    pub ranges: Vec<TempRange>,
    /// Bytes of the temps with in-band flags, which come first.
    pub in_band_bytes: u64,
    /// Bytes of all; `u64::MAX` if that is too much for any address space.
    pub bytes: u64,
}

/// The memory of a plan, in bytes: [`Plan::memory`]. Printed as one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Arguments that no task writes: weights, and other inputs. The caller's.
    pub weights: u64,
    /// What the plan has for its temps.
    pub temps: u64,
    /// Most bytes of temps that are in use at the same time, if calls run one after another. No placement needs less.
    pub peak: u64,
    /// What temps would take more if each had memory of its own.
    pub saved: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Memory { weights, temps, peak, saved } = *self;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (weights, temps, peak, saved) = (mib(weights), mib(temps), mib(peak), mib(saved));
        write!(f, "weights {weights:.1} MiB, temps {temps:.1} MiB (at most {peak:.1} MiB in use, {saved:.1} MiB saved by sharing)")
    }
}

impl Plan {
    /// What the plan needs for weights and temps, how much of the temps is in use at the same time, and what it saves that temps share memory
    /// ([`super::Options::share_temps`]).
    pub fn memory(&self) -> Memory {
        let written = self.graph.written();
        let weights = self.graph.tensors.iter().zip(written).filter(|(tensor, written)| tensor.kind != TensorKind::Temp && !written);
        let weights = weights.map(|(tensor, _)| tensor.stored_bytes()).fold(0, u64::saturating_add);
        let apart = self.temps.ranges.iter().map(|range| padded(range.bytes)).fold(0, u64::saturating_add);
        let temps = self.temps.bytes;
        Memory { weights, temps, peak: self.peak(), saved: apart.saturating_sub(temps) }
    }

    fn peak(&self) -> u64 {
        let uses = accesses::Uses::new(&self.graph, &self.calls);
        // At one position ends come first; a temp that a call reads and one that it writes overlap, since a call ends behind its begin.
        let mut changes: Vec<(u32, bool, u64)> = Vec::new();
        for (tensor, range) in self.temps.ranges.iter().enumerate() {
            let calls = || uses.of(tensor as u32).iter().map(|access| &self.calls[access.call as usize].tasks);
            if let (Some(first), Some(last)) = (calls().map(|tasks| tasks.start).min(), calls().map(|tasks| tasks.end).max()) {
                changes.extend([(first, true, padded(range.bytes)), (last, false, padded(range.bytes))]);
            }
        }
        changes.sort_unstable();
        let (mut now, mut most) = (0u64, 0);
        for (_, begins, bytes) in changes {
            now = if begins { now.saturating_add(bytes) } else { now.saturating_sub(bytes) };
            most = most.max(now);
        }
        most
    }
}

fn padded(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGN).unwrap_or(u64::MAX)
}

/// Whether each tensor is a temp that may share memory, as far as its kind says.
fn shareable(graph: &Graph, in_band: &[bool]) -> Vec<bool> {
    let plain = |(n, (tensor, in_band)): (usize, (&crate::ir::Tensor, &bool))| {
        // Other ranks store what is symmetric, elsewhere.
        let symmetric = graph.symmetric.contains(&(n as u32));
        tensor.kind == TensorKind::Temp && tensor.placement == Placement::Replicated && !in_band && !symmetric
    };
    graph.tensors.iter().zip(in_band).enumerate().map(plain).collect()
}

/// Whether each tensor has in-band flags.
fn in_band(tensors: usize, relations: &[super::Relation]) -> Vec<bool> {
    let mut in_band = vec![false; tensors];
    for relation in relations.iter().filter(|relation| relation.in_band) {
        in_band[relation.tensor as usize] = true;
    }
    in_band
}
