//! Checks that no two temps are in use in the same memory.
//!
//! Buffers are found from the offsets alone. In each, of the temps in order of their first tasks, every task that writes one must come after all tasks that
//! used the one before there. That is enough for those before that: see [`super::accesses::Uses::covered`].

use super::super::{Defect, Plan};
use super::accesses::Uses;
use super::order::{Before, Limit, Prover, Tasks};
use super::{ALIGN, TempRange, in_band, shareable};
use crate::ir::TensorKind;

impl Plan {
    pub(in super::super) fn verify_temps(&self) -> Result<(), Defect> {
        let of = Tasks {
            graph: &self.graph,
            calls: &self.calls,
            tasks: &self.tasks,
            waits: &self.waits,
            signals: &self.signals,
            counters: self.counters,
            relations: &self.relations,
        };
        let tensors = &self.graph.tensors;
        if self.temps.ranges.len() != tensors.len() {
            return Err(Defect::TempOutside { tensor: self.temps.ranges.len().min(tensors.len()) as u32 });
        }
        // What is too large for any address space has no offsets, and is refused by whoever allocates it.
        if self.temps.bytes == u64::MAX {
            return Ok(());
        }
        let in_band = in_band(tensors.len(), &self.relations);
        let uses = Uses::new(&self.graph, &self.calls);
        let mut temps: Vec<(TempRange, u32, u32)> = Vec::new();
        for (tensor, range) in (0..).zip(&self.temps.ranges) {
            let index = tensor as usize;
            let first = uses.of(tensor).iter().map(|access| self.calls[access.call as usize].tasks.start).min();
            let (TensorKind::Temp, Some(first)) = (tensors[index].kind, first) else { continue };
            let end = range.offset.saturating_add(range.bytes);
            let fits = if in_band[index] { end <= self.temps.in_band_bytes } else { range.offset >= self.temps.in_band_bytes };
            let within = end <= self.temps.bytes && range.bytes >= tensors[index].stored_bytes() && range.offset.is_multiple_of(ALIGN);
            if !(within && fits) {
                return Err(Defect::TempOutside { tensor });
            }
            temps.push((*range, first, tensor));
        }
        temps.sort_unstable_by_key(|&(range, first, tensor)| (range.offset, first, tensor));
        let shareable = shareable(&self.graph, &in_band);
        let mut prover = Prover::new(&of);
        let (mut end, mut owner) = (0, 0);
        for temps in temps.chunk_by(|a, b| a.0.offset == b.0.offset) {
            let &[(range, _, first), ref later @ ..] = temps else { continue };
            if range.offset < end {
                return Err(Defect::TempOverlap { tensor: first, other: owner });
            }
            (end, owner) = (range.offset.saturating_add(range.bytes), first);
            let last = |tensor: u32| uses.last(tensor).map(move |access| Before { tensor, access });
            let mut before: Vec<Before> = last(first).collect();
            let mut other = first;
            for &(range, _, tensor) in later {
                let defect = Err(Defect::TempOverlap { tensor, other });
                let may = |tensor: u32| shareable[tensor as usize] && uses.written_first(tensor);
                if !may(tensor) || !may(other) {
                    return defect;
                }
                for writer in uses.of(tensor).iter().filter(|access| access.way.writes()) {
                    if !prover.ordered(&of, &before, tensor, *writer, Limit::NONE) {
                        return defect;
                    }
                }
                if uses.covered(&self.graph, tensor) {
                    before.clear();
                }
                before.extend(last(tensor));
                other = tensor;
                if range.offset.saturating_add(range.bytes) > end {
                    (end, owner) = (range.offset.saturating_add(range.bytes), tensor);
                }
            }
        }
        Ok(())
    }
}
