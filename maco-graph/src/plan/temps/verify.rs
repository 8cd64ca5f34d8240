//! Checks that no two temps are in use in the same memory.
//!
//! Places are found from the offsets alone. In each, of the temps in order of their first tasks, every task that writes one must come after all tasks that
//! used the one before there. That is enough for those before that: see [`super::accesses::Uses::covered`].

use super::super::{Defect, Plan};
use super::accesses::Uses;
use super::order::{Before, Limit, Prover, Tasks};
use super::{ALIGN, Place, in_band, shareable};
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
        if self.temps.places.len() != tensors.len() {
            return Err(Defect::TempPlace { tensor: self.temps.places.len().min(tensors.len()) as u32 });
        }
        // What is too large for any address space has no offsets, and is refused by whoever allocates it.
        if self.temps.bytes == u64::MAX {
            return Ok(());
        }
        let in_band = in_band(tensors.len(), &self.relations);
        let uses = Uses::new(&self.graph, &self.calls);
        let mut temps: Vec<(Place, u32, u32)> = Vec::new();
        for (tensor, place) in (0..).zip(&self.temps.places) {
            let index = tensor as usize;
            let first = uses.of(tensor).iter().map(|access| self.calls[access.call as usize].tasks.start).min();
            let (TensorKind::Temp, Some(first)) = (tensors[index].kind, first) else { continue };
            let end = place.offset.saturating_add(place.bytes);
            let fits = if in_band[index] { end <= self.temps.in_band_bytes } else { place.offset >= self.temps.in_band_bytes };
            let within = end <= self.temps.bytes && place.bytes >= tensors[index].stored_bytes() && place.offset.is_multiple_of(ALIGN);
            if !(within && fits) {
                return Err(Defect::TempPlace { tensor });
            }
            temps.push((*place, first, tensor));
        }
        temps.sort_unstable_by_key(|&(place, first, tensor)| (place.offset, first, tensor));
        let shareable = shareable(&self.graph, &in_band);
        let mut prover = Prover::new(&of);
        let (mut end, mut owner) = (0, 0);
        for temps in temps.chunk_by(|a, b| a.0.offset == b.0.offset) {
            let &[(place, _, first), ref later @ ..] = temps else { continue };
            if place.offset < end {
                return Err(Defect::TempOverlap { tensor: first, other: owner });
            }
            (end, owner) = (place.offset.saturating_add(place.bytes), first);
            let last = |tensor: u32| uses.last(tensor).map(move |access| Before { tensor, access });
            let mut before: Vec<Before> = last(first).collect();
            let mut other = first;
            for &(place, _, tensor) in later {
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
                if place.offset.saturating_add(place.bytes) > end {
                    (end, owner) = (place.offset.saturating_add(place.bytes), tensor);
                }
            }
        }
        Ok(())
    }
}
