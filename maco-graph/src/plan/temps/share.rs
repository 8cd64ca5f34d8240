//! Gives every temp a buffer: that of an earlier temp, or one of its own.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::super::overlaps;
use super::accesses::{Access, Uses};
use super::order::{Before, Groups, Limit, Prover, Tasks, same_layout};
use super::overlaps::Overlaps;
use super::{TempRange, Temps, padded, shareable};
use crate::ir::{Graph, TensorKind};

/// Most calls that one proof looks at.
const CALLS: usize = 64;
/// Words of sets that all proofs together may look at, for each task and wait, and beyond that: planning stays linear.
const WORDS: u64 = 64;
const MORE_WORDS: u64 = 1 << 20;
/// Calls that are looked at for buffers of temps that the temp depends on, and most such buffers that are tried.
const NEAR_CALLS: usize = 32;
const NEAR: usize = 4;
/// Other buffers that are tried: the latest of the temp's own layout, the smallest that are large enough, the largest of those that are too small.
const LATEST: usize = 2;
const LARGER: usize = 2;
const SMALLER: usize = 1;
/// No edges are added while all buffers take at most so many halves of what the temps in use have taken: a buffer of its own is then better than waits.
const HALVES: u64 = 3;
/// Most accesses that a later temp in a buffer may have to wait for.
const BEFORE: usize = 16;

/// An edge that a shared buffer needs: tasks of `writer` come after those of `before`, element by element or, if `whole`, all after all.
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

/// A buffer while temps are assigned to it.
struct Buffer {
    bytes: u64,
    /// What the next temp must come after.
    before: Vec<Before>,
    /// Temps so far.
    temps: u32,
    free: bool,
}

/// Assigns all temps. `timeline` is `None` where no edges may be added.
pub(super) fn assign(of: &Tasks<'_>, in_band: &[bool], timeline: Option<&dyn Fn() -> Timeline>) -> (Temps, Vec<Edge>) {
    let uses = Uses::new(of.graph, of.calls);
    let mut assigning = Assigning {
        of,
        uses: &uses,
        prover: Prover::new(of),
        limit: Limit { calls: CALLS, words: MORE_WORDS + WORDS * (of.tasks.len() + of.waits.len()) as u64, independent: false },
        buffers: Vec::new(),
        buffer_of: vec![None; of.graph.tensors.len()],
        bytes: 0,
        in_use: 0,
        most: 0,
        seen: vec![u32::MAX; of.calls.len()],
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
    for (first, tensor) in temps {
        assigning.assign(first, tensor);
    }
    let buffers: Vec<u64> = assigning.buffers.iter().map(|buffer| buffer.bytes).collect();
    (layout(of, in_band, &assigning.buffer_of, &buffers, &own), assigning.edges)
}

/// Every temp in a buffer of its own.
pub(super) fn apart(of: &Tasks<'_>, in_band: &[bool]) -> Temps {
    let temp = |tensor: &u32| of.graph.tensors[*tensor as usize].kind == TensorKind::Temp && !in_band[*tensor as usize];
    let own: Vec<u32> = (0..of.graph.tensors.len() as u32).filter(temp).collect();
    layout(of, in_band, &vec![None; of.graph.tensors.len()], &[], &own)
}

/// Offsets: temps with in-band flags, then those of `own`, then buffers of so many bytes, then temps that no task uses, which need no memory.
fn layout(of: &Tasks<'_>, in_band: &[bool], buffer_of: &[Option<usize>], buffers: &[u64], own: &[u32]) -> Temps {
    let tensors = &of.graph.tensors;
    let bytes = |tensor: u32| tensors[tensor as usize].stored_bytes();
    let mut end = 0u64;
    let mut take = |bytes: u64| {
        let offset = end;
        end = end.saturating_add(padded(bytes));
        offset
    };
    let mut ranges = vec![None; tensors.len()];
    for tensor in (0..tensors.len() as u32).filter(|&tensor| in_band[tensor as usize]) {
        ranges[tensor as usize] = Some(TempRange { offset: take(bytes(tensor)), bytes: bytes(tensor) });
    }
    let in_band_bytes = take(0);
    for &tensor in own {
        ranges[tensor as usize] = Some(TempRange { offset: take(bytes(tensor)), bytes: bytes(tensor) });
    }
    let offsets: Vec<u64> = buffers.iter().map(|&bytes| take(bytes)).collect();
    for (tensor, buffer) in (0..).zip(buffer_of) {
        if let Some(buffer) = *buffer {
            ranges[tensor as usize] = Some(TempRange { offset: offsets[buffer], bytes: bytes(tensor) });
        }
    }
    let none = |(range, tensor): (Option<TempRange>, &crate::ir::Tensor)| {
        let unused = if tensor.kind == TensorKind::Temp { in_band_bytes } else { 0 };
        range.unwrap_or(TempRange { offset: unused, bytes: 0 })
    };
    Temps { ranges: ranges.into_iter().zip(tensors).map(none).collect(), in_band_bytes, bytes: take(0) }
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

fn layout_of(graph: &Graph, tensor: u32) -> LayoutKey<'_> {
    let tensor = &graph.tensors[tensor as usize];
    (&tensor.shape, tensor.element.bytes())
}

struct Assigning<'a> {
    of: &'a Tasks<'a>,
    uses: &'a Uses,
    prover: Prover,
    limit: Limit,
    buffers: Vec<Buffer>,
    /// By tensor.
    buffer_of: Vec<Option<usize>>,
    /// Bytes of all buffers; of temps that are in use now; and the most of those so far.
    bytes: u64,
    in_use: u64,
    most: u64,
    /// By call: the last temp for which a search came to it.
    seen: Vec<u32>,
    /// Slots in use, by the end of their temp.
    busy: BinaryHeap<Reverse<(u32, usize)>>,
    /// Free buffers by size; and by the layout of their last temp, the latest at the end, with how many temps it had then.
    by_size: BTreeSet<(u64, usize)>,
    by_layout: HashMap<LayoutKey<'a>, Vec<(usize, u32)>>,
    carries: Vec<bool>,
    make_timeline: Option<&'a dyn Fn() -> Timeline>,
    timeline: Option<Timeline>,
    edges: Vec<Edge>,
}

impl<'a> Assigning<'a> {
    fn assign(&mut self, first: u32, tensor: u32) {
        self.release(first);
        let bytes = self.of.graph.tensors[tensor as usize].stored_bytes();
        self.in_use = self.in_use.saturating_add(bytes);
        self.most = self.most.max(self.in_use);
        let mut tried = Vec::with_capacity(NEAR + LATEST + LARGER + SMALLER);
        let mut found = self.nearest(tensor, &mut tried);
        if found.is_none() {
            let others = tried.len();
            self.others(tensor, bytes, &mut tried);
            found = tried[others..].iter().copied().find(|&buffer| self.is_ordered(buffer, tensor));
        }
        if found.is_none() && self.bytes.saturating_add(bytes).saturating_mul(2) > self.most.saturating_mul(HALVES) {
            let edges = |buffer: &usize| Some((*buffer, self.edges_for(*buffer, tensor)?));
            if let Some((buffer, edges)) = tried.iter().find_map(edges) {
                self.edges.extend(edges);
                found = Some(buffer);
            }
        }
        let buffer = found.unwrap_or_else(|| {
            self.buffers.push(Buffer { bytes: 0, before: Vec::new(), temps: 0, free: true });
            self.buffers.len() - 1
        });
        self.take(buffer, tensor, bytes);
    }

    /// Frees the buffers whose tasks come before task `first`.
    fn release(&mut self, first: u32) {
        while let Some(&Reverse((end, buffer))) = self.busy.peek()
            && end <= first
        {
            self.busy.pop();
            let Some(last) = self.buffers[buffer].before.last().map(|last| last.tensor) else { continue };
            self.in_use -= self.of.graph.tensors[last as usize].stored_bytes().min(self.in_use);
            // A buffer where too much would have to end first stays as it is.
            if self.buffers[buffer].before.len() <= BEFORE {
                let key = layout_of(self.of.graph, last);
                let of = &mut self.buffers[buffer];
                of.free = true;
                self.by_size.insert((of.bytes, buffer));
                self.by_layout.entry(key).or_default().push((buffer, of.temps));
            }
        }
    }

    /// A buffer of a temp of the same layout that calls use on which the first writer of `tensor` depends, the nearest first: it may come after all of
    /// their tasks. Adds what it tries to `tried`.
    fn nearest(&mut self, tensor: u32, tried: &mut Vec<usize>) -> Option<usize> {
        let of = self.of;
        let mut calls: Vec<u32> = self.writers(tensor).take(1).map(|access| access.call).collect();
        let mut next = 0;
        while let Some(&from) = calls.get(next).filter(|_| next < NEAR_CALLS && tried.len() < NEAR) {
            next += 1;
            for view in &of.graph.calls[from as usize].operands {
                let Some(buffer) = self.buffer_of[view.tensor as usize] else { continue };
                let last = self.buffers[buffer].before.last().is_some_and(|last| last.tensor == view.tensor);
                if self.buffers[buffer].free && last && same_layout(of.graph, view.tensor, tensor) && !tried.contains(&buffer) {
                    tried.push(buffer);
                    if self.is_ordered(buffer, tensor) {
                        return Some(buffer);
                    }
                }
            }
            for relation in of.relations_of(from).filter(|relation| !relation.in_band) {
                let seen = &mut self.seen[relation.producer as usize];
                if *seen != tensor {
                    *seen = tensor;
                    calls.push(relation.producer);
                }
            }
        }
        None
    }

    /// Adds other free buffers to try, the best first.
    fn others(&mut self, tensor: u32, bytes: u64, found: &mut Vec<usize>) {
        let buffers = &self.buffers;
        let mut add = |buffer: usize| {
            let new = !found.contains(&buffer);
            if new {
                found.push(buffer);
            }
            new
        };
        let key = layout_of(self.of.graph, tensor);
        if let Some(latest) = self.by_layout.get_mut(&key) {
            // Slots that other temps have taken since.
            while latest.last().is_some_and(|&(buffer, temps)| buffers[buffer].temps != temps) {
                latest.pop();
            }
            let free = latest.iter().rev().take(2 * LATEST).filter(|&&(buffer, temps)| buffers[buffer].temps == temps);
            free.take(LATEST).for_each(|&(buffer, _)| {
                add(buffer);
            });
        }
        let larger = self.by_size.range((bytes, 0)..).take(LARGER + NEAR + LATEST).map(|&(_, buffer)| buffer);
        larger.filter(|&buffer| add(buffer)).take(LARGER).for_each(drop);
        self.by_size.range(..(bytes, 0)).rev().take(SMALLER).for_each(|&(_, buffer)| {
            add(buffer);
        });
    }

    fn writers(&self, tensor: u32) -> impl Iterator<Item = Access> + use<'a> {
        let uses: &'a Uses = self.uses;
        uses.of(tensor).iter().copied().filter(|access| access.way.writes())
    }

    /// Whether the plan's order proves that `tensor` may take the buffer.
    fn is_ordered(&mut self, buffer: usize, tensor: u32) -> bool {
        let writers = self.writers(tensor);
        for writer in writers {
            let before = &self.buffers[buffer].before;
            if !self.prover.ordered(self.of, before, tensor, writer, self.limit) {
                return false;
            }
        }
        true
    }

    /// The edges by which `tensor` may take the buffer, if by the cost model no task begins later for them.
    fn edges_for(&mut self, buffer: usize, tensor: u32) -> Option<Vec<Edge>> {
        let make = self.make_timeline?;
        let mut edges = Vec::new();
        for writer in self.writers(tensor) {
            for number in 0..self.buffers[buffer].before.len() {
                let before = self.buffers[buffer].before[number];
                let whole = !same_layout(self.of.graph, before.tensor, tensor);
                // One edge is enough where all tasks come after all of a call, however many tensors it uses.
                let same = |edge: &Edge| edge.whole && (edge.before.access.call, edge.writer.call) == (before.access.call, writer.call);
                if whole && edges.iter().any(same) {
                    continue;
                }
                let limit = Limit { independent: true, ..self.limit };
                if self.prover.ordered(self.of, &[before], tensor, writer, limit) {
                    continue;
                }
                let timeline = self.timeline.get_or_insert_with(make);
                let carries = self.carries[before.access.call as usize] || self.carries[writer.call as usize];
                let edge = (before.access.call, writer.call);
                if carries || !is_harmless(self.of, timeline, before, tensor, writer) || self.separates(&edges, edge) {
                    return None;
                }
                edges.push(Edge { before, writer, whole });
            }
        }
        Some(edges)
    }

    /// Whether one edge more than those that were added, and `more`, would keep calls from computing beside a collective that they overlap with.
    fn separates(&self, more: &[Edge], edge: (u32, u32)) -> bool {
        if self.of.graph.overlaps.is_empty() {
            return false;
        }
        let mut pairs = overlaps::pairs(self.of.relations);
        pairs.extend(self.edges.iter().chain(more).map(|edge| (edge.before.access.call, edge.writer.call)));
        overlaps::separates(self.of.graph, &mut pairs, edge)
    }

    fn take(&mut self, buffer: usize, tensor: u32, bytes: u64) {
        let last = self.uses.last(tensor).map(|access| Before { tensor, access });
        let end = self.uses.of(tensor).iter().map(|access| self.of.calls[access.call as usize].tasks.end).max().unwrap_or(0);
        let covered = self.uses.covered(self.of.graph, tensor);
        self.buffer_of[tensor as usize] = Some(buffer);
        let taken = &mut self.buffers[buffer];
        self.by_size.remove(&(taken.bytes, buffer));
        self.bytes = self.bytes.saturating_add(bytes.saturating_sub(taken.bytes));
        taken.bytes = taken.bytes.max(bytes);
        if covered {
            taken.before.clear();
        }
        taken.before.extend(last);
        (taken.temps, taken.free) = (taken.temps + 1, false);
        self.busy.push(Reverse((end, buffer)));
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
