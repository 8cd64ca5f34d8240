//! Proves that some tasks end before others write.
//!
//! A task that waits for a counter comes after all tasks that signal it, and after all that these come after. In-band flags do not count: they
//! acquire nothing but elements. Nor do waits whose counters depend on data, nor the order of a list by itself: a worker begins a task before the one before
//! has ended. So this holds however tasks reach the workers.
//!
//! From the tasks of the earlier temp, sets of tasks go along counters to the tasks that write the later one. Tasks of one call that signal the same
//! counters are a *group*: whoever comes after one of them, by counters, comes after all. A set has a bit for each group. Only calls are looked at that the
//! later one's depend on.
//!
//! What a task must come after does not depend on groups: it is decided by the boxes of tasks ([`Overlaps`]), as are the waits of an edge. So an edge that
//! is added is a proof.

use std::ops::Range;

use super::super::{PlannedCall, Relation, TaskNode, Wait};
use super::accesses::Access;
use super::overlaps::Overlaps;
use crate::ir::Graph;

/// A plan's tasks and what they wait for.
#[derive(Clone, Copy)]
pub(super) struct Tasks<'a> {
    pub graph: &'a Graph,
    pub calls: &'a [PlannedCall],
    pub tasks: &'a [TaskNode],
    pub waits: &'a [Wait],
    pub signals: &'a [u32],
    pub counters: u32,
    /// Ordered by consumer.
    pub relations: &'a [Relation],
}

impl<'a> Tasks<'a> {
    fn waits_of(&self, task: u32) -> &'a [Wait] {
        let node = &self.tasks[task as usize];
        &self.waits[node.first_wait as usize..][..usize::from(node.waits)]
    }

    fn signals_of(&self, task: u32) -> &'a [u32] {
        let node = &self.tasks[task as usize];
        &self.signals[node.first_signal as usize..][..usize::from(node.signals)]
    }

    /// The relations by which `call` waits.
    pub fn relations_of(&self, call: u32) -> impl Iterator<Item = &'a Relation> {
        let first = self.relations.partition_point(|relation| relation.consumer < call);
        self.relations[first..].iter().take_while(move |relation| relation.consumer == call)
    }

    /// The counters of which `call` polls elements instead.
    fn in_band(&self, call: u32) -> Range<u32> {
        self.relations_of(call).find(|relation| relation.in_band).map_or(0..0, |relation| relation.counters.clone())
    }
}

/// A use of memory that later writes there must come after.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub tensor: u32,
    pub access: Access,
}

/// How much a proof may look at.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    /// Calls.
    pub calls: usize,
    /// Words of sets, and boxes of tasks.
    pub words: u64,
    /// Whether it looks at the elements of tasks that the writer does not depend on, which it may not overwrite.
    pub independent: bool,
}

impl Limit {
    pub const NONE: Limit = Limit { calls: usize::MAX, words: u64::MAX, independent: true };
}

/// The groups of the tasks of all of `before`.
#[derive(Default)]
pub(super) struct Groups {
    /// For each of `before`, the group of each of its tasks.
    of: Vec<u32>,
    /// Where those of each of `before` begin.
    first: Vec<usize>,
    /// A task of each group.
    members: Vec<u32>,
}

impl Groups {
    /// A group for each task of the only one of `before`.
    pub fn of_each(tasks: Range<u32>) -> Groups {
        Groups { of: (0..tasks.len() as u32).collect(), first: vec![0, tasks.len()], members: tasks.collect() }
    }

    /// The groups of the tasks of number `number` of `before`.
    pub fn of(&self, number: usize) -> &[u32] {
        &self.of[self.first[number]..self.first[number + 1]]
    }

    pub fn count(&self) -> usize {
        self.members.len()
    }

    fn words(&self) -> usize {
        self.count().div_ceil(64)
    }
}

/// Which groups come before each counter's end.
struct Sets {
    /// By counter: which set, from 1.
    of: Vec<u32>,
    touched: Vec<u32>,
    bits: Vec<u64>,
    /// Words of each.
    words: usize,
    /// The groups that the task at hand comes after.
    current: Vec<u64>,
}

impl Sets {
    /// Forgets all sets. New ones have so many words.
    fn clear(&mut self, words: usize) {
        for counter in self.touched.drain(..) {
            self.of[counter as usize] = 0;
        }
        self.bits.clear();
        self.words = words;
    }

    /// Fills `current` with the groups that `task` comes after.
    fn collect(&mut self, of: &Tasks<'_>, task: u32, in_band: &Range<u32>) {
        self.current.clear();
        self.current.resize(self.words, 0);
        for wait in of.waits_of(task).iter().filter(|wait| !in_band.contains(&wait.counter)) {
            let set = self.of[wait.counter as usize] as usize;
            if set > 0 {
                let set = &self.bits[(set - 1) * self.words..set * self.words];
                self.current.iter_mut().zip(set).for_each(|(word, &other)| *word |= other);
            }
        }
    }

    /// Adds `current` to the set of `counter`.
    fn add(&mut self, counter: u32) {
        let set = &mut self.of[counter as usize];
        if *set == 0 {
            self.touched.push(counter);
            *set = self.touched.len() as u32;
            self.bits.resize(self.touched.len() * self.words, 0);
        }
        let at = (*set as usize - 1) * self.words;
        self.bits[at..at + self.words].iter_mut().zip(&self.current).for_each(|(word, &other)| *word |= other);
    }
}

/// Memory that proofs use again.
pub(super) struct Prover {
    sets: Sets,
    /// By call: the last proof that saw it.
    seen: Vec<u32>,
    proof: u32,
    calls: Vec<u32>,
    groups: Groups,
    /// By counter: the last group whose tasks signal it first, from 1.
    latest: Vec<u32>,
    /// Words of sets, and boxes of tasks, that proofs have looked at.
    pub words: u64,
}

impl Prover {
    pub fn new(tasks: &Tasks<'_>) -> Prover {
        Prover {
            sets: Sets { of: vec![0; tasks.counters as usize], touched: Vec::new(), bits: Vec::new(), words: 0, current: Vec::new() },
            seen: vec![0; tasks.calls.len()],
            proof: 0,
            calls: Vec::new(),
            groups: Groups::default(),
            latest: vec![0; tasks.counters as usize],
            words: 0,
        }
    }

    /// Whether each task of `writer`, which writes tensor `tensor`, comes after those of `before` that it must come after: those whose elements it
    /// overwrites, if both tensors have the same layout, else all.
    pub fn ordered(&mut self, of: &Tasks<'_>, before: &[Before], tensor: u32, writer: Access, limit: Limit) -> bool {
        if !self.depends(of, before, tensor, writer.call, limit) {
            return false;
        }
        self.group(of, before);
        self.sets.clear(self.groups.words());
        let calls = std::mem::take(&mut self.calls);
        let visited = calls.iter().map(|&call| of.calls[call as usize].tasks.len() as u64).sum::<u64>();
        self.words = self.words.saturating_add(visited * (self.groups.words() as u64 + 1));
        let proved = self.words <= limit.words && {
            for &call in calls.iter().filter(|&&call| call != writer.call) {
                self.follow(of, before, call);
            }
            self.meets(of, before, tensor, writer, limit)
        };
        self.calls = calls;
        proved
    }

    /// Groups the tasks of `before`.
    fn group(&mut self, of: &Tasks<'_>, before: &[Before]) {
        let Groups { of: groups, first, members } = &mut self.groups;
        groups.clear();
        first.clear();
        members.clear();
        for before in before {
            first.push(groups.len());
            let own = members.len();
            for task in of.calls[before.access.call as usize].tasks.clone() {
                let signals = of.signals_of(task);
                let latest = signals.first().map(|&counter| &mut self.latest[counter as usize]);
                let known = latest.as_ref().map(|latest| **latest as usize).filter(|&known| known > own && known <= members.len());
                let known = known.filter(|&known| of.signals_of(members[known - 1]) == signals);
                groups.push(known.map_or(members.len(), |known| known - 1) as u32);
                if known.is_none() {
                    members.push(task);
                    if let Some(latest) = latest {
                        *latest = members.len() as u32;
                    }
                }
            }
        }
        first.push(groups.len());
    }

    /// Collects the calls that `call` depends on, back to the first of `before`. Whether those of `before` are among them that it must depend on: of those
    /// with the layout of `tensor`, it may be that no elements are overwritten.
    fn depends(&mut self, of: &Tasks<'_>, before: &[Before], tensor: u32, call: u32, limit: Limit) -> bool {
        let start = |call: u32| of.calls[call as usize].tasks.start;
        let first = before.iter().map(|before| start(before.access.call)).min().unwrap_or(u32::MAX);
        self.proof += 1;
        self.calls.clear();
        self.calls.push(call);
        let mut next = 0;
        while let Some(&call) = self.calls.get(next) {
            next += 1;
            for relation in of.relations_of(call).filter(|relation| !relation.in_band && relation.waits > 0) {
                let seen = &mut self.seen[relation.producer as usize];
                if *seen != self.proof && start(relation.producer) >= first {
                    *seen = self.proof;
                    self.calls.push(relation.producer);
                }
            }
            if self.calls.len() > limit.calls {
                return false;
            }
        }
        self.calls.sort_unstable_by_key(|&call| start(call));
        let found = |before: &Before| self.seen[before.access.call as usize] == self.proof;
        before.iter().all(|before| found(before) || limit.independent && same_layout(of.graph, before.tensor, tensor))
    }

    /// Takes the sets through the tasks of `call`.
    fn follow(&mut self, of: &Tasks<'_>, before: &[Before], call: u32) {
        let (tasks, in_band, sets) = (of.calls[call as usize].tasks.clone(), of.in_band(call), &mut self.sets);
        for task in tasks.clone() {
            sets.collect(of, task, &in_band);
            for (number, _) in before.iter().enumerate().filter(|(_, before)| before.access.call == call) {
                let own = self.groups.of(number)[(task - tasks.start) as usize] as usize;
                sets.current[own / 64] |= 1 << (own % 64);
            }
            if sets.current.iter().any(|&word| word != 0) {
                of.signals_of(task).iter().for_each(|&counter| sets.add(counter));
            }
        }
    }

    /// Whether the sets that reach the tasks of `writer` hold what they must.
    fn meets(&mut self, of: &Tasks<'_>, before: &[Before], tensor: u32, writer: Access, limit: Limit) -> bool {
        let in_band = of.in_band(writer.call);
        // Where each task comes after all groups, boxes are not needed.
        let mut overlaps = None;
        for task in of.calls[writer.call as usize].tasks.clone() {
            self.sets.collect(of, task, &in_band);
            let count = self.sets.current.iter().map(|word| word.count_ones() as usize).sum::<usize>();
            if count == self.groups.count() {
                continue;
            }
            let overlaps = overlaps.get_or_insert_with(|| Overlaps::new(of, before, &self.groups, tensor, writer));
            let looked = overlaps.looked;
            let within = overlaps.within(of.tasks[task as usize].coord, &self.sets.current);
            self.words = self.words.saturating_add(overlaps.looked - looked);
            if !within || self.words > limit.words {
                return false;
            }
        }
        true
    }
}

/// Whether the elements of two tensors at equal coordinates lie at equal offsets.
pub(super) fn same_layout(graph: &Graph, a: u32, b: u32) -> bool {
    let (a, b) = (&graph.tensors[a as usize], &graph.tensors[b as usize]);
    a.shape == b.shape && a.element.bytes() == b.element.bytes()
}
