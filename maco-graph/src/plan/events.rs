//! Writes the tasks with their waits and signals.
//!
//! Which counters there are is decided before. Waits are written first: a counter without a wait gets no signals
//! and no number. An example is a projection of which only one slice is read.

use std::ops::Range;

use maco_abi::AXES;

use super::counter_lookup::Tables;
use super::dependencies::{Dependencies, Naming};
use super::region::Regions;
use super::{Hazard, NamedWait, PlanError, PlannedCall, Relation, Site, Wait};
use crate::ir::Graph;

/// One task: one tile of one call, or one split-K part of the tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskNode {
    /// Index into [`super::Plan::calls`].
    pub call: u32,
    /// Tile coordinates, one per grid axis; 0 beyond them.
    pub coord: [u32; AXES],
    /// Which split-K part of the tile.
    pub part: u32,
    /// Longest chain of tasks before it.
    pub wave: u32,
    /// Its first entry in [`super::Plan::waits`].
    pub first_wait: u32,
    /// How many.
    pub waits: u16,
    /// Its first entry in [`super::Plan::signals`].
    pub first_signal: u32,
    /// How many.
    pub signals: u16,
}

/// What [`emit`] writes.
pub(super) struct Events {
    pub tasks: Vec<TaskNode>,
    pub waits: Vec<Wait>,
    pub signals: Vec<u32>,
    pub counters: u32,
    pub waves: u32,
    pub edges: u64,
    pub named: Vec<NamedWait>,
}

/// Tasks of all calls, which `order` lists in global order. Only counters with a wait are kept, numbered from 0.
pub(super) fn emit(
    graph: &Graph,
    calls: &[PlannedCall],
    order: &[u32],
    regions: &Regions,
    found: &mut Dependencies,
) -> Result<Events, PlanError> {
    let tasks = order.last().map_or(0, |&call| calls[call as usize].tasks.end);
    let mut emitter = Emitter {
        graph,
        regions,
        tables: Tables::default(),
        events: Events {
            tasks: Vec::with_capacity(tasks as usize),
            waits: Vec::with_capacity(2 * tasks as usize),
            signals: Vec::with_capacity(2 * tasks as usize),
            counters: 0,
            waves: 0,
            edges: 0,
            named: Vec::new(),
        },
        // Not 0 once the counter has a wait; then its new number.
        numbers: vec![0; found.sets.needs.len() + 1],
        levels: Vec::new(),
    };
    let mut relations_of = vec![0; graph.calls.len() + 1];
    for relation in &found.relations {
        relations_of[relation.consumer as usize + 1] += 1;
    }
    for call in 1..relations_of.len() {
        relations_of[call] += relations_of[call - 1];
    }
    for &call in order {
        emitter.waits(call, found, relations_of[call as usize]..relations_of[call as usize + 1])?;
    }
    emitter.number();
    for relation in &mut found.relations {
        relation.counters = emitter.numbers[relation.counters.start as usize]..emitter.numbers[relation.counters.end as usize];
    }
    for &call in order {
        emitter.signals(call, &calls[call as usize], found)?;
    }
    emitter.events.named.sort_by_key(|wait| wait.call);
    Ok(emitter.events)
}

struct Emitter<'a> {
    graph: &'a Graph,
    regions: &'a Regions,
    tables: Tables,
    events: Events,
    numbers: Vec<u32>,
    /// First wave that may follow each counter.
    levels: Vec<u32>,
}

impl Emitter<'_> {
    fn site(&self, call: u32) -> Site {
        Site { task: self.graph.calls[call as usize].task.name, call }
    }

    /// Appends the tasks of `call` with their waits, on counters as the sets number them.
    fn waits(&mut self, call: u32, found: &mut Dependencies, relations: Range<usize>) -> Result<(), PlanError> {
        self.tables.clear();
        let mut own = Vec::with_capacity(relations.len());
        for index in relations.clone() {
            let set = found.set_of[index];
            if let Some(naming) = found.named[index] {
                self.name(call, index, naming, found, &relations);
                continue;
            }
            own.push(index - relations.start);
            // Two boxes of one call may touch the same counter of a set: one wait will do.
            let shared = relations.start..index;
            let shared = shared.into_iter().any(|earlier| found.set_of[earlier] == set);
            let operand = self.regions.range(call).start + found.relations[index].consumer_operand;
            match found.sets.get(set) {
                set if set.all => self.tables.add_all(set, shared),
                set => self.tables.add(self.regions, self.regions.get(operand), set, shared),
            }
        }
        let relations = &mut found.relations[relations];
        let needs = &found.sets.needs;
        let (events, tables, used) = (&mut self.events, &self.tables, &mut self.numbers);
        let mut most = 0;
        let mut add = |coord, part| {
            let first = events.waits.len();
            for (lookup, &own) in tables.lookups.iter().zip(&own) {
                let relation = &mut relations[own];
                tables.counters(lookup, coord, |counter| {
                    let need = needs[counter as usize];
                    if need == 0 || lookup.shared && events.waits[first..].iter().any(|wait| wait.counter == counter) {
                        return;
                    }
                    used[counter as usize] = 1;
                    relation.waits += 1;
                    relation.edges += u64::from(need);
                    events.waits.push(Wait { counter, need });
                });
            }
            let waits = events.waits.len() - first;
            most = most.max(waits);
            events.tasks.push(TaskNode {
                call,
                coord,
                part,
                wave: 0,
                first_wait: first as u32,
                waits: waits as u16,
                first_signal: 0,
                signals: 0,
            });
        };
        // Parts of one tile end at about the same time if they begin so.
        let (parts, mut tile) = (self.regions.split_k(call), 0);
        self.regions.for_each_tile(call, |coord| {
            (0..parts.of(tile)).for_each(|part| add(coord, part));
            tile += 1;
        });
        self.events.edges += relations.iter().map(|relation| relation.edges).sum::<u64>();
        let site = self.site(call);
        fits(site, "waits of one task", most, u64::from(u16::MAX))?;
        fits(site, "waits", self.events.waits.len(), u64::from(u32::MAX))
    }

    /// Marks the counters of rows that indices in memory select: a task of `call` may wait for any of them.
    fn name(&mut self, call: u32, index: usize, naming: Naming, found: &mut Dependencies, relations: &Range<usize>) {
        let counters = found.sets.get(found.set_of[index]);
        let range = counters.base..counters.base + counters.count;
        self.numbers[range.start as usize..range.end as usize].fill(1);
        let tiles = self.regions.grid(call).iter().product::<u32>();
        // No more than the plan may have.
        let tasks = self.regions.split_k(call).tasks(tiles.into()) as u32;
        let written = |relation: &Relation| relation.consumer_operand == naming.operand && relation.hazard == Hazard::Raw;
        let known = !found.relations[relations.clone()].iter().any(written);
        let relation = &mut found.relations[index];
        relation.waits += tasks;
        relation.edges += u64::from(tasks) * u64::from(naming.need);
        let Naming { operand, flat, axis, rows, size, limit, need, first } = naming;
        self.events.named.push(NamedWait { call, operand, known, flat, axis, rows, counters: range, size, limit, need, first });
    }

    /// Turns the marks of used counters into their new numbers: how many used ones come before.
    fn number(&mut self) {
        let mut next = 0;
        for number in &mut self.numbers {
            let used = *number;
            *number = next;
            next += used;
        }
        self.events.counters = next;
        self.levels.resize(next as usize, 0);
        let numbers = &self.numbers;
        for wait in &mut self.events.named {
            wait.counters = numbers[wait.counters.start as usize]..numbers[wait.counters.end as usize];
        }
    }

    /// Completes the tasks of `call`: signals, wave, and waits on the new numbers.
    fn signals(&mut self, call: u32, planned: &PlannedCall, found: &Dependencies) -> Result<(), PlanError> {
        self.tables.clear();
        for set in found.sets.of(call) {
            self.tables.add(self.regions, self.regions.get(set.region), set, false);
        }
        let (tables, numbers, levels) = (&self.tables, &self.numbers, &mut self.levels);
        let Events { tasks, waits, signals, waves, named, .. } = &mut self.events;
        let named = named.iter().filter(|wait| wait.call == call);
        let level = named.flat_map(|wait| &levels[wait.counters.start as usize..wait.counters.end as usize]).copied().max().unwrap_or(0);
        let mut most = 0;
        for task in &mut tasks[planned.tasks.start as usize..planned.tasks.end as usize] {
            task.wave = level;
            for wait in &mut waits[task.first_wait as usize..][..usize::from(task.waits)] {
                wait.counter = numbers[wait.counter as usize];
                task.wave = task.wave.max(levels[wait.counter as usize]);
            }
            *waves = (*waves).max(task.wave + 1);
            let first = signals.len();
            for lookup in &tables.lookups {
                tables.counters(lookup, task.coord, |counter| {
                    let number = numbers[counter as usize];
                    if number != numbers[counter as usize + 1] {
                        signals.push(number);
                        levels[number as usize] = levels[number as usize].max(task.wave + 1);
                    }
                });
            }
            most = most.max(signals.len() - first);
            task.first_signal = first as u32;
            task.signals = (signals.len() - first) as u16;
        }
        let site = self.site(call);
        fits(site, "signals of one task", most, u64::from(u16::MAX))?;
        fits(site, "signals", self.events.signals.len(), u64::from(u32::MAX))
    }
}

fn fits(site: Site, what: &'static str, found: usize, max: u64) -> Result<(), PlanError> {
    if found as u64 > max { Err(PlanError::TooManyEvents { site, what, found: found as u64, max }) } else { Ok(()) }
}
