//! Checks a finished plan, by counting what it says rather than by how it was made.
//!
//! A plan that passes cannot hang: every wait is for exactly the signals that its counter gets, all of them from tasks
//! earlier in one global order, and every list follows that order, with a drain in every list at its place in that order (see
//! [`super::Lists::entries`]). That the waits order all conflicting accesses is not
//! decided here: it costs all pairs of tasks, and [`super::oracle`] does it for tests. That no two temps are in use in the same memory is: see
//! [`super::temps`].

use super::region::tensor_of;
use super::{Hazard, Plan, Relation, Schedule, own_share};
use crate::ir::TensorKind;

/// What is wrong with a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// The tasks of a call are not the parts of the tiles of its grid, once each.
    #[error("the tasks of call #{call} are not the parts of the tiles of its grid, once each")]
    Grid {
        /// Index of the call.
        call: u32,
    },
    /// The tasks of a call are not in the order of its tiles that the plan says.
    #[error("task {task} is not the one of its tile in the order of tiles")]
    TileOrder {
        /// Index of the task.
        task: u32,
    },
    /// A task's waits or signals do not follow those of the task before.
    #[error("the waits and signals of task {task} do not follow those of the task before")]
    Layout {
        /// Index of the task.
        task: u32,
    },
    /// A counter that does not exist.
    #[error("task {task} uses counter {counter} of {counters}")]
    Counter {
        /// Index of the task.
        task: u32,
        /// The counter.
        counter: u32,
        /// Counters there are.
        counters: u32,
    },
    /// A wait for more or fewer signals than there are.
    #[error("task {task} waits for {need} signals of counter {counter}, which gets {signals}")]
    Need {
        /// Index of the task.
        task: u32,
        /// The counter.
        counter: u32,
        /// Signals waited for.
        need: u32,
        /// Signals sent.
        signals: u32,
    },
    /// A wait for a task that is not earlier in the global order.
    #[error("task {task} waits on counter {counter}, which task {by} signals, but that is not earlier in the global order")]
    Order {
        /// Index of the task.
        task: u32,
        /// The counter.
        counter: u32,
        /// The last task that signals it.
        by: u32,
    },
    /// The number of lists or their borders do not fit the schedule.
    #[error("the borders of the lists do not fit {lists} lists of {tasks} tasks")]
    Borders {
        /// Lists there should be.
        lists: u32,
        /// Tasks there are.
        tasks: u32,
    },
    /// A list that does not follow the global order, or names a task that does not exist.
    #[error("list {list} does not follow the global order at task {task}")]
    List {
        /// Which list.
        list: u32,
        /// The task that is out of place.
        task: u32,
    },
    /// [`super::Lists::positions`] is not a permutation of the tasks, puts a task before one that it waits for, or should be empty.
    #[error("the order that the lists follow is wrong at task {task}")]
    Position {
        /// Index of the task.
        task: u32,
    },
    /// A task in the list of a worker that does not run its call, or without a worker of its own although its call has workers.
    #[error("task {task} may run on worker {worker}, which is none of its call's")]
    Worker {
        /// Index of the task.
        task: u32,
        /// The worker.
        worker: u32,
    },
    /// A task in two lists, or in a list and a drain.
    #[error("task {task} is in two lists, or in a list and a drain")]
    Twice {
        /// Index of the task.
        task: u32,
    },
    /// A drain that is empty, does not follow the one before, lies beyond the tasks, or does not belong to the schedule.
    #[error("drain {drain} is not a range of tasks after the drain before it, or there should be none")]
    Drain {
        /// Which drain.
        drain: u32,
    },
    /// In-band flags on a tensor that is written more than once, that the call reads in another way too, or whose relation has no wait; or with
    /// schedulers, which push tasks only when their inputs are complete.
    #[error("call #{call} cannot read tensor #{tensor} with in-band flags")]
    InBand {
        /// Index of the reading call.
        call: u32,
        /// Index of the tensor.
        tensor: u32,
    },
    /// A fused prologue whose input has no in-band flags or is not operand A, that has tasks of its own, or an RMSNorm whose weights are written.
    #[error("call #{call} cannot have this prologue")]
    Prologue {
        /// Index of the call.
        call: u32,
    },
    /// An all-reduce whose tiles a call sends that does not make them, or makes others too.
    #[error("the tiles of call #{call} cannot be sent by the call that makes them")]
    PushedTiles {
        /// Index of the call.
        call: u32,
    },
    /// A call whose tiles have slots in turn, of which a task that sends does not stand behind all that read what is in its slot: it would wait for them. Or one whose tiles are
    /// sent by another call, or that has too few slots.
    #[error("call #{call} cannot have so few slots for messages: task {task} stands before one that empties its slot")]
    Slots {
        /// Index of the call.
        call: u32,
        /// The task.
        task: u32,
    },
    /// A task of a phase that does not wait for all tasks of a call that it depends on.
    #[error("call #{call} may begin before call #{before} has ended, which its phase depends on")]
    Phase {
        /// The call in the phase.
        call: u32,
        /// The call before.
        before: u32,
    },
    /// A temp that lies outside the memory of temps, or outside the part that in-band flags have of it.
    #[error("temp #{tensor} lies outside the memory that temps have")]
    TempOutside {
        /// Index of the tensor.
        tensor: u32,
    },
    /// Two temps in the same memory, of which one may be written while the other is in use.
    #[error("temp #{tensor} may be written while temp #{other} is in use in the same memory")]
    TempOverlap {
        /// Index of the tensor that is written.
        tensor: u32,
        /// Index of the other one.
        other: u32,
    },
    /// A task that is claimed though its call is not drained, or the other way round.
    #[error("task {task} is claimed, but its call is not drained, or the other way round")]
    Drained {
        /// Index of the task.
        task: u32,
    },
}

impl Plan {
    /// Checks the plan; [`super::plan`] has done so already.
    ///
    /// # Errors
    /// The first [`Defect`] found.
    pub fn verify(&self) -> Result<(), Defect> {
        self.verify_grids()?;
        self.verify_events()?;
        self.relations.iter().filter(|relation| relation.in_band).try_for_each(|relation| self.verify_in_band(relation))?;
        if let Some(call) = (0..self.calls.len() as u32).find(|&call| !self.prologue_holds(call)) {
            return Err(Defect::Prologue { call });
        }
        if let Some(call) = (0..self.calls.len() as u32).find(|&call| !self.pushed_tiles_hold(call)) {
            return Err(Defect::PushedTiles { call });
        }
        self.verify_phases()?;
        self.verify_lists()?;
        self.verify_workers()?;
        (0..self.calls.len() as u32).try_for_each(|call| self.verify_slots(call))?;
        self.verify_temps()
    }

    /// A relation with in-band flags. No task polls the counters of its waits. They give the order, and in a hang they name the producer
    /// whose elements a task polls.
    fn verify_in_band(&self, relation: &Relation) -> Result<(), Defect> {
        let &Relation { tensor, producer, consumer, .. } = relation;
        let defect = Err(Defect::InBand { call: consumer, tensor });
        let uses = |call: usize| {
            let call = &self.graph.calls[call];
            let params = call.task.params.iter().filter_map(tensor_of);
            call.operands.iter().zip(params).enumerate().filter(|(_, (view, _))| view.tensor == tensor)
        };
        let writers: Vec<usize> = (0..self.graph.calls.len())
            .flat_map(|call| uses(call).filter(|(_, (_, param))| param.access.writes()).map(move |_| call))
            .collect();
        let reads: Vec<usize> = uses(consumer as usize).map(|(operand, _)| operand).collect();
        let operand_a = self.graph.calls[consumer as usize].task.gemv_operand_a();
        let temp = self.graph.tensors[tensor as usize].kind == TensorKind::Temp && relation.hazard == Hazard::Raw;
        if self.schedule.schedulers() > 0
            || !temp
            || writers != [producer as usize]
            || operand_a != Some(relation.consumer_operand as usize)
        {
            return defect;
        }
        if reads.as_slice() != operand_a.as_slice() {
            return defect;
        }
        let from = &self.calls[producer as usize].tasks;
        let stray = |task: u32| !from.contains(&task) && self.signals_of(task).iter().any(|counter| relation.counters.contains(counter));
        if (0..self.tasks.len() as u32).any(stray) {
            return defect;
        }
        let mut tasks = self.calls[consumer as usize].tasks.clone();
        if tasks.any(|task| !self.waits_of(task).iter().any(|wait| relation.counters.contains(&wait.counter))) { defect } else { Ok(()) }
    }

    fn verify_grids(&self) -> Result<(), Defect> {
        let mut total = 0u64;
        for (index, call) in self.calls.iter().enumerate() {
            let defect = Defect::Grid { call: index as u32 };
            let tasks = self.tasks.get(call.tasks.start as usize..call.tasks.end as usize).ok_or(defect)?;
            let tiles = if call.grid.contains(&0) { 0 } else { call.grid.iter().map(|&tiles| u64::from(tiles)).product() };
            if u64::from(call.whole) > tiles || call.parts == 0 {
                return Err(defect);
            }
            let expected = call.split_k().tasks(tiles);
            total += expected;
            if tasks.len() as u64 != expected {
                return Err(defect);
            }
            // Every part of every tile: the task of an unsplit tile counts as all its parts.
            let (mut seen, grid) = (Bits::new((tiles * u64::from(call.parts)) as usize), own_share::grid(call));
            for (n, task) in (0..).zip(tasks) {
                let mut position = 0u64;
                for (&tiles, &coord) in call.grid.iter().zip(&task.coord) {
                    if coord >= tiles {
                        return Err(defect);
                    }
                    position = position * u64::from(tiles) + u64::from(coord);
                }
                let (place, parts) = call.tile_of(n);
                let beyond = task.part >= parts || task.coord[call.grid.len()..].iter().any(|&coord| coord != 0);
                let first = position * u64::from(call.parts) + u64::from(task.part);
                let made = if parts == call.parts { 1 } else { u64::from(call.parts) };
                if task.call != index as u32 || beyond || !(first..first + made).all(|part| seen.insert(part as usize)) {
                    return Err(defect);
                }
                if call.order.tile(grid, place) != task.coord {
                    return Err(Defect::TileOrder { task: call.tasks.start + n });
                }
            }
        }
        if total != self.tasks.len() as u64 {
            return Err(Defect::Grid { call: self.calls.len() as u32 });
        }
        Ok(())
    }

    fn verify_events(&self) -> Result<(), Defect> {
        let counters = self.counters;
        // Signals of each counter, and the last task that sends one.
        let mut signals = vec![(0u32, 0u32); counters as usize];
        let mut next = 0;
        for (index, task) in self.tasks.iter().enumerate() {
            let index = index as u32;
            let range = task.first_signal as usize..task.first_signal as usize + usize::from(task.signals);
            let own = self.signals.get(range).filter(|_| task.first_signal == next).ok_or(Defect::Layout { task: index })?;
            next += u32::from(task.signals);
            for &counter in own {
                let entry = signals.get_mut(counter as usize).ok_or(Defect::Counter { task: index, counter, counters })?;
                *entry = (entry.0 + 1, index);
            }
        }
        if next as usize != self.signals.len() {
            return Err(Defect::Layout { task: self.tasks.len() as u32 });
        }
        let mut next = 0;
        for (index, task) in self.tasks.iter().enumerate() {
            let index = index as u32;
            let range = task.first_wait as usize..task.first_wait as usize + usize::from(task.waits);
            let own = self.waits.get(range).filter(|_| task.first_wait == next).ok_or(Defect::Layout { task: index })?;
            next += u32::from(task.waits);
            for wait in own {
                let (counter, need) = (wait.counter, wait.need);
                let &(sent, by) = signals.get(counter as usize).ok_or(Defect::Counter { task: index, counter, counters })?;
                if need != sent || need == 0 {
                    return Err(Defect::Need { task: index, counter, need, signals: sent });
                }
                if by >= index {
                    return Err(Defect::Order { task: index, counter, by });
                }
            }
        }
        for wait in &self.named {
            let first = self.calls.get(wait.call as usize).map_or(0, |call| call.tasks.start);
            let reach = (u64::from(wait.first) + u64::from(wait.limit)).div_ceil(u64::from(wait.size).max(1));
            let counter = wait.counters.end;
            if counter > counters || wait.size == 0 || reach > wait.counters.len() as u64 {
                return Err(Defect::Counter { task: first, counter, counters });
            }
            for counter in wait.counters.clone() {
                let (sent, by) = signals[counter as usize];
                if wait.need != sent || sent == 0 {
                    return Err(Defect::Need { task: first, counter, need: wait.need, signals: sent });
                }
                if by >= first {
                    return Err(Defect::Order { task: first, counter, by });
                }
            }
        }
        if next as usize != self.waits.len() { Err(Defect::Layout { task: self.tasks.len() as u32 }) } else { Ok(()) }
    }

    fn verify_lists(&self) -> Result<(), Defect> {
        let tasks = self.tasks.len() as u32;
        let lists = if self.schedule == Schedule::Static { self.workers } else { 1 };
        self.verify_positions(tasks)?;
        let place = |task: u32| self.lists.positions.get(task as usize).copied().unwrap_or(task);
        let mut seen = Bits::new(tasks as usize);
        let claimed = self.verify_drains(tasks, &mut seen)?;
        let starts = &self.lists.starts;
        let listed = tasks - claimed;
        let borders = starts.len() as u64 == u64::from(lists) + 1 && starts.first() == Some(&0) && starts.last() == Some(&listed);
        if !borders || !starts.is_sorted() || self.lists.order.len() != listed as usize {
            return Err(Defect::Borders { lists, tasks });
        }
        for list in 0..lists {
            let own = self.lists.of(list as usize);
            for (position, &task) in own.iter().enumerate() {
                if task >= tasks || position > 0 && place(own[position - 1]) >= place(task) {
                    return Err(Defect::List { list, task });
                }
                if !seen.insert(task as usize) {
                    return Err(Defect::Twice { task });
                }
            }
        }
        // As many entries as tasks, none twice: none is missing.
        Ok(())
    }

    /// Calls with workers of their own run on no other.
    fn verify_workers(&self) -> Result<(), Defect> {
        let own = |task: u32| self.ranges.get(self.tasks[task as usize].call as usize).and_then(Option::as_ref);
        // The worker of each task: tasks that have none may run on any.
        let mut runs = vec![None; self.tasks.len()];
        if self.schedule == Schedule::Static && !self.ranges.is_empty() {
            for worker in 0..self.workers {
                self.lists.of(worker as usize).iter().for_each(|&task| runs[task as usize] = Some(worker));
            }
        }
        for (task, worker) in (0..).zip(runs) {
            if own(task).is_some_and(|range| !worker.is_some_and(|worker| range.contains(&worker))) {
                return Err(Defect::Worker { task, worker: worker.unwrap_or(self.workers) });
            }
        }
        Ok(())
    }

    /// If the lists have an order of their own: a permutation in which every task comes after all that it waits for.
    fn verify_positions(&self, tasks: u32) -> Result<(), Defect> {
        let positions = &self.lists.positions;
        if positions.is_empty() {
            return Ok(());
        }
        let wrong = |task: usize| Err(Defect::Position { task: task as u32 });
        if positions.len() != tasks as usize || self.schedule != Schedule::Static || !self.lists.drains.is_empty() {
            return wrong(0);
        }
        let mut seen = Bits::new(positions.len());
        if let Some(task) = positions.iter().position(|&place| place >= tasks || !seen.insert(place as usize)) {
            return wrong(task);
        }
        // Of each counter, the position of the last task that signals it.
        let mut last = vec![0u32; self.counters as usize];
        for (task, &place) in positions.iter().enumerate() {
            for &counter in self.signals_of(task as u32) {
                last[counter as usize] = last[counter as usize].max(place);
            }
        }
        for (task, &place) in positions.iter().enumerate() {
            let mut waits = self.waits_of(task as u32).iter();
            if waits.any(|wait| last[wait.counter as usize] >= place) {
                return wrong(task);
            }
        }
        for wait in &self.named {
            let last = wait.counters.clone().map(|counter| last[counter as usize]).max().unwrap_or(0);
            let mut tasks = self.calls[wait.call as usize].tasks.clone();
            if let Some(task) = tasks.find(|&task| !wait.counters.is_empty() && positions[task as usize] <= last) {
                return wrong(task as usize);
            }
        }
        Ok(())
    }

    /// How many tasks are claimed from drains; they are `seen`.
    fn verify_drains(&self, tasks: u32, seen: &mut Bits) -> Result<u32, Defect> {
        let (mut end, mut claimed) = (0, 0);
        for (index, drain) in self.lists.drains.iter().enumerate() {
            let follows = end <= drain.start && drain.start < drain.end && drain.end <= tasks;
            if !follows || self.schedule != Schedule::Static {
                return Err(Defect::Drain { drain: index as u32 });
            }
            for task in drain.clone() {
                seen.insert(task as usize);
            }
            end = drain.end;
            claimed += drain.end - drain.start;
        }
        for (index, task) in self.tasks.iter().enumerate() {
            let drained = self.schedule == Schedule::Static && self.graph.calls[task.call as usize].drain;
            if drained != seen.has(index) {
                return Err(Defect::Drained { task: index as u32 });
            }
        }
        Ok(claimed)
    }
}

/// A set of small numbers.
struct Bits(Vec<u64>);

impl Bits {
    fn new(len: usize) -> Bits {
        Bits(vec![0; len.div_ceil(64)])
    }

    /// Whether `index` was new.
    fn insert(&mut self, index: usize) -> bool {
        let (word, bit) = (&mut self.0[index / 64], 1 << (index % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] & 1 << (index % 64) != 0
    }
}
