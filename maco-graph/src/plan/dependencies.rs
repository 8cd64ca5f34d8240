//! Finds which call must wait for which: read after write, write after read, write after write, in program order; and what phases wait for.
//!
//! Tiles do not belong here: a relation says that the tiles of two regions are ordered wherever they meet.
//!
//! Per tensor the accesses that a later call may still have to wait for are *live*. Two rules keep them few; both rest on
//! one argument. Say T₁, T₂, T₃ are tiles of three calls in program order whose boxes all hold some element, and each
//! relation between neighbours is kept: then T₃ waits for T₂ and T₂ for T₁, and T₁ → T₃ needs no relation.
//!
//! * A write whose tiles touch every element of its box retires the live accesses within that box: whoever meets them
//!   later meets this write at the same element.
//! * A write or update needs no relation with an earlier write if one live read between them touches every element that
//!   the two share: it waits for that read, and the read for the earlier write.

use super::counter_groups::CounterSets;
use super::region::{Region, Regions, tensor_of};
use super::{Hazard, PlanError, PlannedCall, Relation, phases};
use crate::ir::Graph;
use crate::spec::{Index, TaskSpec};

/// What [`relate`] finds.
pub(super) struct Dependencies {
    /// Ordered by consumer. Counters are numbered as the sets were made; [`super::events`] renumbers them.
    pub relations: Vec<Relation>,
    /// The counter set of each relation.
    pub set_of: Vec<u32>,
    /// How the rows of each relation's wait are found, if indices in memory select them.
    pub named: Vec<Option<Naming>>,
    pub sets: CounterSets,
}

/// How a task finds the counters of the rows that indices in a tensor parameter select; see [`super::NamedWait`].
#[derive(Clone, Copy)]
pub(super) struct Naming {
    pub operand: u32,
    pub flat: bool,
    pub axis: Option<u8>,
    pub rows: u32,
    pub size: u32,
    pub limit: u32,
    pub need: u32,
    pub first: u32,
}

/// Regions (by number) of one tensor that a later call may have to wait for.
#[derive(Clone, Default)]
struct Live {
    writers: Vec<u32>,
    readers: Vec<u32>,
}

/// Relations between all calls; those of kind `dropped` are left out.
/// With `name_rows` a call may wait for the rows that indices in memory select, else for all rows.
pub(super) fn relate(
    graph: &Graph,
    tiles: &[PlannedCall],
    regions: &Regions,
    dropped: Option<Hazard>,
    name_rows: bool,
) -> Result<Dependencies, PlanError> {
    let mut written = vec![false; graph.tensors.len()];
    for region in regions.all() {
        written[region.tensor as usize] |= region.access.writes() && !region.empty;
    }
    let mut live = vec![Live::default(); graph.tensors.len()];
    let mut found = Builder {
        graph,
        regions,
        dropped,
        tiles,
        written: &written,
        name_rows,
        first: 0,
        result: Dependencies {
            relations: Vec::with_capacity(2 * graph.calls.len()),
            set_of: Vec::with_capacity(2 * graph.calls.len()),
            named: Vec::with_capacity(2 * graph.calls.len()),
            sets: CounterSets::new(graph.calls.len()),
        },
    };
    for call in 0..graph.calls.len() as u32 {
        let relevant = |&number: &u32| !regions.get(number).empty && written[regions.get(number).tensor as usize];
        found.first = found.result.relations.len();
        for number in regions.range(call).filter(relevant) {
            found.wait_for(&live[regions.get(number).tensor as usize], number)?;
        }
        for before in phases::behind(graph, call) {
            found.wait_for_all(before, call)?;
        }
        for number in regions.range(call).filter(relevant) {
            let region = regions.get(number);
            live[region.tensor as usize].retire(regions, region);
        }
        for number in regions.range(call).filter(relevant) {
            let region = regions.get(number);
            let live = &mut live[region.tensor as usize];
            if region.access.writes() { live.writers.push(number) } else { live.readers.push(number) }
        }
    }
    Ok(found.result)
}

impl Live {
    fn retire(&mut self, regions: &Regions, by: &Region) {
        if by.access.writes() && by.covers {
            self.writers.retain(|&number| !contains(by, regions.get(number)));
            self.readers.retain(|&number| !contains(by, regions.get(number)));
        }
    }

    /// Whether a read after `writer` touches every element that `writer` shares with `later`.
    fn read_between(&self, regions: &Regions, writer: &Region, later: &Region) -> bool {
        self.readers.iter().map(|&number| regions.get(number)).any(|reader| {
            reader.call > writer.call
                && reader.covers
                && (0..usize::from(reader.rank)).all(|axis| {
                    let (w, l, r) = (&writer.axes[axis], &later.axes[axis], &reader.axes[axis]);
                    r.lo <= w.lo.max(l.lo) && w.hi.min(l.hi) <= r.hi
                })
        })
    }
}

fn contains(outer: &Region, inner: &Region) -> bool {
    (0..usize::from(outer.rank)).all(|axis| outer.axes[axis].lo <= inner.axes[axis].lo && inner.axes[axis].hi <= outer.axes[axis].hi)
}

struct Builder<'a> {
    graph: &'a Graph,
    regions: &'a Regions,
    dropped: Option<Hazard>,
    /// Tiles of all calls.
    tiles: &'a [PlannedCall],
    /// Per tensor: whether some call writes it.
    written: &'a [bool],
    /// Whether a call may wait for the rows that indices in memory select.
    name_rows: bool,
    /// First relation of the current consumer.
    first: usize,
    result: Dependencies,
}

impl Builder<'_> {
    fn wait_for(&mut self, live: &Live, consumer: u32) -> Result<(), PlanError> {
        let (regions, region) = (self.regions, self.regions.get(consumer));
        let meets = |earlier: &&u32| !regions.disjoint(regions.get(**earlier), region);
        for &writer in live.writers.iter().filter(meets) {
            if !region.access.writes() || !live.read_between(regions, regions.get(writer), region) {
                // An update waits for the earlier write as a reader; that orders the two writes as well.
                self.relate(writer, consumer, if region.access.reads() { Hazard::Raw } else { Hazard::Waw })?;
            }
        }
        for &reader in live.readers.iter().filter(meets).filter(|_| region.access.writes()) {
            self.relate(reader, consumer, Hazard::War)?;
        }
        Ok(())
    }

    /// Has every task of `call` wait for all tasks of `before`, which is earlier.
    fn wait_for_all(&mut self, before: u32, call: u32) -> Result<(), PlanError> {
        let (regions, consumer) = (self.regions, self.regions.range(call).start);
        let written = |number: &u32| regions.get(*number).access.writes() && !regions.get(*number).empty;
        let Some(producer) = regions.range(before).find(written).filter(|_| self.dropped != Some(Hazard::Phase)) else { return Ok(()) };
        let set = self.result.sets.intern_all(self.graph, regions, producer)?;
        self.add(producer, consumer, Hazard::Phase, set, None);
        Ok(())
    }

    fn relate(&mut self, producer: u32, consumer: u32, hazard: Hazard) -> Result<(), PlanError> {
        if self.dropped == Some(hazard) {
            return Ok(());
        }
        let to = self.regions.get(consumer);
        let (set, named) = match self.named(producer, consumer)? {
            Some((set, named)) => (set, Some(named)),
            None => (self.result.sets.intern(self.graph, self.regions, producer, consumer, false)?, None),
        };
        // One tensor passed twice in the same way: the waits are there already.
        let call = &self.graph.calls[to.call as usize];
        let same_box = |other: &Relation| {
            let (a, b) = (other.consumer_operand as usize, to.operand as usize);
            call.operands[a] == call.operands[b] && region_of(call.task, a) == region_of(call.task, b)
        };
        let mut earlier = self.first..self.result.relations.len();
        if earlier.any(|index| named.is_none() && self.result.set_of[index] == set && same_box(&self.result.relations[index])) {
            return Ok(());
        }
        self.add(producer, consumer, hazard, set, named);
        Ok(())
    }

    fn add(&mut self, producer: u32, consumer: u32, hazard: Hazard, set: u32, named: Option<Naming>) {
        let (from, to) = (self.regions.get(producer), self.regions.get(consumer));
        let counters = self.result.sets.get(set);
        self.result.relations.push(Relation {
            tensor: from.tensor,
            producer: from.call,
            producer_operand: from.operand,
            consumer: to.call,
            consumer_operand: to.operand,
            hazard,
            counters: counters.base..counters.base + counters.count,
            waits: 0,
            edges: 0,
            in_band: false,
        });
        self.result.set_of.push(set);
        self.result.named.push(named);
    }

    /// The counters of a read whose rows are selected by indices in memory, one per row of the producer's tiles, and how a row's counter is found. `None`
    /// where the plan waits for all rows: they are written by tiles of other shapes, or the indices are themselves computed.
    fn named(&mut self, producer: u32, consumer: u32) -> Result<Option<(u32, Naming)>, PlanError> {
        let (from, to) = (self.regions.get(producer), self.regions.get(consumer));
        let Some(operand) = to.named.filter(|_| self.name_rows) else { return Ok(None) };
        let call = &self.graph.calls[to.call as usize];
        let (naming, rows_of) = (&call.operands[operand as usize], &call.operands[to.operand as usize]);
        let Some(param) = call.task.params.iter().filter_map(tensor_of).nth(operand as usize) else { return Ok(None) };
        let offset = rows_of.offset[0] as u32;
        let inside = from.axes[0].lo <= offset && to.axes[0].hi <= from.axes[0].hi;
        if self.written[naming.tensor as usize] || !inside || from.axes[0].span != from.axes[0].pitch {
            return Ok(None);
        }
        let set = self.result.sets.intern(self.graph, self.regions, producer, consumer, true)?;
        let counters = self.result.sets.get(set);
        let needs = &self.result.sets.needs[counters.base as usize..][..counters.count as usize];
        let Some((size, lo)) = counters.groups[0].even() else { return Ok(None) };
        if counters.count != counters.groups[0].count || needs[0] == 0 || needs.iter().any(|need| *need != needs[0]) {
            return Ok(None);
        }
        let axis = match param.region[0] {
            Index::Tile(axis) => Some(axis),
            _ => None,
        };
        let rows = axis.map_or(u32::MAX, |axis| self.tiles[to.call as usize].tile[usize::from(axis)]);
        let limit = rows_of.axes[0].extent as u32;
        let flat = naming.axes.len() == 1;
        Ok(Some((set, Naming { operand, flat, axis, rows, size, limit, need: needs[0], first: offset - lo })))
    }
}

fn region_of(task: &'static TaskSpec, operand: usize) -> Option<&'static [Index]> {
    task.params.iter().filter_map(tensor_of).nth(operand).map(|param| param.region)
}
