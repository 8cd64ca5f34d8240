//! Gives every temp a place: that of an earlier temp, or one of its own.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::accesses::{Access, Uses};
use super::order::{Before, Groups, Limit, Prover, Tasks, same_layout};
use super::overlaps::Overlaps;
use super::{Place, Temps, padded, shareable};
use crate::ir::TensorKind;

/// Most calls that one proof looks at.
const CALLS: usize = 64;
/// Words of sets that all proofs together may look at, for each task and wait, and beyond that: planning stays linear.
const WORDS: u64 = 64;
const MORE_WORDS: u64 = 1 << 20;
/// Places that are tried for a temp: the latest of its own layout, the smallest that are large enough, the largest of those that are too small.
const LATEST: usize = 3;
const LARGER: usize = 2;
const SMALLER: usize = 1;
/// Most accesses that a later temp in a place may have to wait for.
const BEFORE: usize = 16;

/// An edge that a shared place needs: tasks of `writer` come after those of `before`, element by element or, if `whole`, all after all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub before: Before,
    pub writer: Access,
    pub whole: bool,
}

/// Begin and end of each task by the cost model, and what it takes from one task to the next.
pub(in super::super) struct Timeline {
    pub times: Vec<(u64, u64)>,
    pub hop: u64,
}

/// A place while temps are assigned to it.
struct Slot {
    bytes: u64,
    /// What the next temp must come after.
    before: Vec<Before>,
    /// End of the tasks that use the last temp.
    end: u32,
    /// Temps so far.
    temps: u32,
}

/// Assigns all temps. `timeline` is `None` where no edges may be added.
pub(super) fn assign(
    of: &Tasks<'_>,
    in_band: &[bool],
    timeline: Option<&dyn Fn() -> Timeline>,
) -> (Temps, Vec<Edge>) {
    let uses = Uses::new(of.graph, of.calls);
    let mut assigning = Assigning {
        of,
        uses: &uses,
        prover: Prover::new(of),
        limit: Limit { calls: CALLS, words: MORE_WORDS + WORDS * (of.tasks.len() + of.waits.len()) as u64 },
        slots: Vec::new(),
        busy: BinaryHeap::new(),
        by_size: BTreeSet::new(),
        by_layout: HashMap::new(),
        carries: carries(of),
        make_timeline: timeline,
        timeline: None,
        edges: Vec::new(),
    };
    let shareable = shareable(of.graph, in_band);
    let start = |call: u32| of.calls[call as usize].tasks.start;
    let mut temps: Vec<(u32, u32)> = Vec::new();
    let mut own = Vec::new();
    for tensor in 0..of.graph.tensors.len() as u32 {
        let first = uses.of(tensor).iter().map(|access| start(access.call)).min();
        match first {
            Some(first) if shareable[tensor as usize] && uses.written_first(tensor) => temps.push((first, tensor)),
            Some(_) if of.graph.tensors[tensor as usize].kind == TensorKind::Temp && !in_band[tensor as usize] => own.push(tensor),
            _ => {}
        }
    }
    temps.sort_unstable();
    let mut slot_of = vec![None; of.graph.tensors.len()];
    for (first, tensor) in temps {
        slot_of[tensor as usize] = Some(assigning.assign(first, tensor));
    }
    let slots: Vec<u64> = assigning.slots.iter().map(|slot| slot.bytes).collect();
    (layout(of, in_band, &slot_of, &slots, &own), assigning.edges)
}

/// Every temp in a place of its own.
pub(super) fn apart(of: &Tasks<'_>, in_band: &[bool]) -> Temps {
    let temp = |tensor: &u32| of.graph.tensors[*tensor as usize].kind == TensorKind::Temp && !in_band[*tensor as usize];
    let own: Vec<u32> = (0..of.graph.tensors.len() as u32).filter(temp).collect();
    layout(of, in_band, &vec![None; of.graph.tensors.len()], &[], &own)
}

/// Offsets: temps with in-band flags, then those of `own`, then places of so many bytes, then temps that no task uses, which need no memory.
fn layout(of: &Tasks<'_>, in_band: &[bool], slot_of: &[Option<usize>], slots: &[u64], own: &[u32]) -> Temps {
    let tensors = &of.graph.tensors;
    let bytes = |tensor: u32| tensors[tensor as usize].stored_bytes();
    let mut end = 0u64;
    let mut take = |bytes: u64| {
        let offset = end;
        end = end.checked_add(padded(bytes)).unwrap_or(u64::MAX);
        offset
    };
    let mut places = vec![None; tensors.len()];
    for tensor in (0..tensors.len() as u32).filter(|&tensor| in_band[tensor as usize]) {
        places[tensor as usize] = Some(Place { offset: take(bytes(tensor)), bytes: bytes(tensor) });
    }
    let in_band_bytes = take(0);
    for &tensor in own {
        places[tensor as usize] = Some(Place { offset: take(bytes(tensor)), bytes: bytes(tensor) });
    }
    let offsets: Vec<u64> = slots.iter().map(|&bytes| take(bytes)).collect();
    for (tensor, slot) in (0..).zip(slot_of) {
        if let Some(slot) = *slot {
            places[tensor as usize] = Some(Place { offset: offsets[slot], bytes: bytes(tensor) });
        }
    }
    let none = |(place, tensor): (Option<Place>, &crate::ir::Tensor)| {
        let unused = if tensor.kind == TensorKind::Temp { in_band_bytes } else { 0 };
        place.unwrap_or(Place { offset: unused, bytes: 0 })
    };
    Temps { places: places.into_iter().zip(tensors).map(none).collect(), in_band_bytes, bytes: take(0) }
}

/// The calls that read or write elements with in-band flags: they wait for no counter of theirs, and no edge should make them.
fn carries(of: &Tasks<'_>) -> Vec<bool> {
    let mut carries = vec![false; of.calls.len()];
    for relation in of.relations.iter().filter(|relation| relation.in_band) {
        carries[relation.producer as usize] = true;
        carries[relation.consumer as usize] = true;
    }
    carries
}

/// Extents and bytes of an element: temps of one layout.
type LayoutKey<'a> = (&'a [u64], u32);

struct Assigning<'a> {
    of: &'a Tasks<'a>,
    uses: &'a Uses,
    prover: Prover,
    limit: Limit,
    slots: Vec<Slot>,
    /// Slots in use, by the end of their temp.
    busy: BinaryHeap<Reverse<(u32, usize)>>,
    /// Free slots by size; and by the layout of their last temp, the latest at the end, with how many temps it had then.
    by_size: BTreeSet<(u64, usize)>,
    by_layout: HashMap<LayoutKey<'a>, Vec<(usize, u32)>>,
    carries: Vec<bool>,
    make_timeline: Option<&'a dyn Fn() -> Timeline>,
    timeline: Option<Timeline>,
    edges: Vec<Edge>,
}

impl<'a> Assigning<'a> {
    fn key(&self, tensor: u32) -> LayoutKey<'a> {
        let tensor = &self.of.graph.tensors[tensor as usize];
        (&tensor.shape, tensor.element.bytes() as u32)
    }

    fn assign(&mut self, first: u32, tensor: u32) -> usize {
        self.release(first);
        let bytes = self.of.graph.tensors[tensor as usize].stored_bytes();
        let candidates = self.candidates(tensor, bytes);
        let ordered = candidates.iter().copied().find(|&slot| self.is_ordered(slot, tensor));
        let found = ordered.or_else(|| {
            let edges = |slot: &usize| Some((*slot, self.edges_for(*slot, tensor)?));
            let (slot, edges) = candidates.iter().find_map(edges)?;
            self.edges.extend(edges);
            Some(slot)
        });
        let slot = found.unwrap_or_else(|| {
            self.slots.push(Slot { bytes, before: Vec::new(), end: 0, temps: 0 });
            self.slots.len() - 1
        });
        self.take(slot, tensor, bytes);
        slot
    }

    /// Frees the slots whose tasks come before task `first`.
    fn release(&mut self, first: u32) {
        while let Some(&Reverse((end, slot))) = self.busy.peek()
            && end <= first
        {
            self.busy.pop();
            let of = &self.slots[slot];
            self.by_size.insert((of.bytes, slot));
            if let Some(last) = of.before.last() {
                let key = self.key(last.tensor);
                let temps = self.slots[slot].temps;
                self.by_layout.entry(key).or_default().push((slot, temps));
            }
        }
    }

    /// The free slots to try for a temp, the best first.
    fn candidates(&mut self, tensor: u32, bytes: u64) -> Vec<usize> {
        let key = self.key(tensor);
        let mut found = Vec::with_capacity(LATEST + LARGER + SMALLER);
        if let Some(latest) = self.by_layout.get_mut(&key) {
            // Slots that other temps have taken since.
            while latest.last().is_some_and(|&(slot, temps)| self.slots[slot].temps != temps) {
                latest.pop();
            }
            let free = latest.iter().rev().take(2 * LATEST).filter(|&&(slot, temps)| self.slots[slot].temps == temps);
            found.extend(free.take(LATEST).map(|&(slot, _)| slot));
        }
        let larger = self.by_size.range((bytes, 0)..).take(LARGER + LATEST).map(|&(_, slot)| slot);
        let larger: Vec<usize> = larger.filter(|slot| !found.contains(slot)).take(LARGER).collect();
        found.extend(larger);
        let smaller = self.by_size.range(..(bytes, 0)).rev().take(SMALLER).map(|&(_, slot)| slot);
        found.extend(smaller);
        found
    }

    fn writers(&self, tensor: u32) -> impl Iterator<Item = Access> + use<'a> {
        let uses: &'a Uses = self.uses;
        uses.of(tensor).iter().copied().filter(|access| access.way.writes())
    }

    /// Whether the plan's order proves that `tensor` may take the slot.
    fn is_ordered(&mut self, slot: usize, tensor: u32) -> bool {
        let writers = self.writers(tensor);
        for writer in writers {
            let before = &self.slots[slot].before;
            if !self.prover.ordered(self.of, before, tensor, writer, self.limit) {
                return false;
            }
        }
        true
    }

    /// The edges by which `tensor` may take the slot, if by the cost model no task begins later for them.
    fn edges_for(&mut self, slot: usize, tensor: u32) -> Option<Vec<Edge>> {
        let make = self.make_timeline?;
        let mut edges = Vec::new();
        for writer in self.writers(tensor) {
            for number in 0..self.slots[slot].before.len() {
                let before = self.slots[slot].before[number];
                if self.prover.ordered(self.of, &[before], tensor, writer, self.limit) {
                    continue;
                }
                let timeline = self.timeline.get_or_insert_with(make);
                let carries = self.carries[before.access.call as usize] || self.carries[writer.call as usize];
                if carries || !is_harmless(self.of, timeline, before, tensor, writer) {
                    return None;
                }
                edges.push(Edge { before, writer, whole: !same_layout(self.of.graph, before.tensor, tensor) });
            }
        }
        Some(edges)
    }

    fn take(&mut self, slot: usize, tensor: u32, bytes: u64) {
        let last = self.uses.last(tensor).map(|access| Before { tensor, access });
        let end = self.uses.of(tensor).iter().map(|access| self.of.calls[access.call as usize].tasks.end).max().unwrap_or(0);
        let covered = self.uses.covered(self.of.graph, tensor);
        let taken = &mut self.slots[slot];
        self.by_size.remove(&(taken.bytes, slot));
        taken.bytes = taken.bytes.max(bytes);
        if covered {
            taken.before.clear();
        }
        taken.before.extend(last);
        (taken.end, taken.temps) = (end, taken.temps + 1);
        if taken.before.len() <= BEFORE {
            self.busy.push(Reverse((end, slot)));
        }
    }
}

/// Whether each task of `writer` begins so late anyhow that those of `before` that it must come after have ended.
fn is_harmless(of: &Tasks<'_>, timeline: &Timeline, before: Before, tensor: u32, writer: Access) -> bool {
    let (first, then) = (of.calls[before.access.call as usize].tasks.clone(), of.calls[writer.call as usize].tasks.clone());
    let end = |task: u32| timeline.times[task as usize].1.saturating_add(timeline.hop);
    let begin = |task: u32| timeline.times[task as usize].0;
    if first.clone().map(end).max() <= then.clone().map(begin).min() {
        return true;
    }
    if !same_layout(of.graph, before.tensor, tensor) {
        return false;
    }
    // A group for each task.
    let before = [before];
    let groups = Groups::of_each(first.clone());
    let mut overlaps = Overlaps::new(of, &before, &groups, tensor, writer);
    then.into_iter().all(|task| {
        let coord = of.tasks[task as usize].coord;
        (0..).zip(first.clone()).all(|(group, earlier)| end(earlier) <= begin(task) || !overlaps.meets(coord, group))
    })
}
