//! List scheduling by cost: an idle worker takes the ready task with the longest path to the end (Hu 1961, with the upward ranks of HEFT;
//! Topcuoglu, Hariri, Wu 2002).
//!
//! Where costs come from does not belong here. Without costs tasks are assigned round robin (`schedule`).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;

use super::events::Events;
use super::filled::Filled;
use super::temps::Timeline;
use super::worker_ranges::Ranges;
use super::{DeviceModel, Lists, NamedWait, Options, Plan, PlannedCall, TaskNode, Wait, tile_selection};
use crate::ir::Graph;

/// What tasks cost, measured or estimated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Nanoseconds from the end of a task to the begin of another one that waits for it on another worker; none where nobody measured it: then the device
    /// model says.
    pub hop: Option<u64>,
    /// By task and tile.
    pub entries: Vec<Cost>,
}

/// The cost of one task of some kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The task's name.
    pub task: String,
    /// Elements of its tile along each grid axis.
    pub tile: Vec<u32>,
    /// How long one takes, in nanoseconds.
    pub nanoseconds: u64,
}

impl Costs {
    fn hop_by(&self, model: &DeviceModel) -> u64 {
        self.hop.unwrap_or_else(|| model.hop_nanoseconds())
    }

    /// The cost of one task of each call, at least 1. A tile that is not listed costs as much as the mean of the task's other ones, a task
    /// that is not as the mean of all.
    fn of(&self, graph: &Graph, calls: &[PlannedCall]) -> Vec<u64> {
        let mean = |of: &dyn Fn(&&Cost) -> bool| {
            let (sum, count) =
                self.entries.iter().filter(of).fold((0u64, 0), |(sum, count), cost| (sum.saturating_add(cost.nanoseconds), count + 1));
            (count > 0).then(|| sum / count)
        };
        let one = |(call, planned): (&crate::ir::Call, &PlannedCall)| {
            let name = call.task.name;
            let exact = self.entries.iter().find(|cost| cost.task == name && cost.tile == planned.tile).map(|cost| cost.nanoseconds);
            exact.or_else(|| mean(&|cost| cost.task == name)).or_else(|| mean(&|_| true)).unwrap_or(1).clamp(1, 1 << 40)
        };
        graph.calls.iter().zip(calls).map(one).collect()
    }
}

/// What a list scheduler looks at: a plan before it has lists.
#[derive(Clone, Copy)]
struct Tasks<'a> {
    tasks: &'a [TaskNode],
    waits: &'a [Wait],
    signals: &'a [u32],
    named: &'a [NamedWait],
    calls: &'a [PlannedCall],
    counters: usize,
    costs: &'a [u64],
    hop: u64,
}

impl<'a> Tasks<'a> {
    fn of_events(events: &'a Events, calls: &'a [PlannedCall], costs: &'a [u64], hop: u64) -> Tasks<'a> {
        let Events { tasks, waits, signals, named, counters, .. } = events;
        Tasks { tasks, waits, signals, named, calls, counters: *counters as usize, costs, hop }
    }

    fn of_plan(plan: &'a Plan, costs: &'a [u64], hop: u64) -> Tasks<'a> {
        let Plan { tasks, waits, signals, named, calls, counters, .. } = plan;
        Tasks { tasks, waits, signals, named, calls, counters: *counters as usize, costs, hop }
    }

    fn waits_of(&self, task: usize) -> &[Wait] {
        let node = &self.tasks[task];
        &self.waits[node.first_wait as usize..][..usize::from(node.waits)]
    }

    fn signals_of(&self, task: usize) -> &[u32] {
        let node = &self.tasks[task];
        &self.signals[node.first_signal as usize..][..usize::from(node.signals)]
    }

    fn named_of(&self, call: u32) -> &[NamedWait] {
        let first = self.named.partition_point(|wait| wait.call < call);
        let count = self.named[first..].partition_point(|wait| wait.call == call);
        &self.named[first..first + count]
    }

    /// The length of the longest path from each task to the end, itself and all hops included. It never grows from a task to one that waits for it.
    fn levels(&self) -> Vec<u64> {
        let mut behind = vec![0u64; self.counters];
        let mut levels = vec![0u64; self.tasks.len()];
        for task in (0..self.tasks.len()).rev() {
            let call = self.tasks[task].call;
            let longest = self.signals_of(task).iter().map(|&counter| behind[counter as usize]).max().unwrap_or(0);
            levels[task] = longest + self.costs[call as usize];
            for wait in self.waits_of(task) {
                let behind = &mut behind[wait.counter as usize];
                *behind = (*behind).max(levels[task] + self.hop);
            }
            let own = &self.calls[call as usize].tasks;
            if own.start as usize == task && !self.named_of(call).is_empty() {
                let most = levels[own.start as usize..own.end as usize].iter().copied().max().unwrap_or(0) + self.hop;
                for wait in self.named_of(call) {
                    for behind in &mut behind[wait.counters.start as usize..wait.counters.end as usize] {
                        *behind = (*behind).max(most);
                    }
                }
            }
        }
        levels
    }
}

/// A simulated launch.
struct Simulation<'a> {
    of: Tasks<'a>,
    filled: Vec<Filled>,
    /// By call: what its named waits came to, once known.
    names: Vec<Option<Filled>>,
    /// When each worker is free.
    free: Vec<u64>,
    /// The same, in order of time.
    order: BTreeSet<(u64, u32)>,
}

impl<'a> Simulation<'a> {
    fn new(of: Tasks<'a>, workers: u32) -> Simulation<'a> {
        let order = (0..workers).map(|worker| (0, worker)).collect();
        Simulation {
            filled: vec![Filled::default(); of.counters],
            names: vec![None; of.calls.len()],
            free: vec![0; workers as usize],
            order,
            of,
        }
    }

    /// When the inputs of `task` are complete; all tasks that it waits for have been executed.
    fn inputs(&mut self, task: usize) -> Filled {
        let call = self.of.tasks[task].call;
        let names = match self.names[call as usize] {
            Some(known) => known,
            None => {
                let ranges = self.of.named_of(call).iter().map(|wait| wait.counters.start as usize..wait.counters.end as usize);
                let known = ranges.flatten().map(|counter| self.filled[counter]).fold(Filled::default(), Filled::and);
                *self.names[call as usize].insert(known)
            }
        };
        self.of.waits_of(task).iter().map(|wait| self.filled[wait.counter as usize]).fold(names, Filled::and)
    }

    /// The worker on which a task with these inputs begins earliest; of several that are idle by then, the one that was idle for the shortest time.
    fn earliest(&self, inputs: Filled) -> u32 {
        let least = |worker: u32| self.free[worker as usize].max(inputs.ready(worker, self.of.hop));
        let at = |time: u64| self.order.range((time, 0)..).next().map(|&(_, worker)| worker);
        let ready = inputs.ready(u32::MAX, self.of.hop);
        let fitting = self.order.range(..=(ready, u32::MAX)).next_back().and_then(|&(time, _)| at(time));
        let first = self.order.first().map(|&(_, worker)| worker);
        let home = (inputs.last > 0).then_some(inputs.worker);
        // Of equals the first one.
        home.into_iter().chain(fitting).chain(first).min_by_key(|&worker| least(worker)).unwrap_or(0)
    }

    /// The worker of `range` on which a task with these inputs begins earliest; of equals the first one.
    fn earliest_of(&self, range: Range<u32>, inputs: Filled) -> u32 {
        range.min_by_key(|&worker| self.free[worker as usize].max(inputs.ready(worker, self.of.hop))).unwrap_or(0)
    }

    fn execute(&mut self, task: usize, worker: u32, inputs: Filled) {
        let free = &mut self.free[worker as usize];
        self.order.remove(&(*free, worker));
        *free = (*free).max(inputs.ready(worker, self.of.hop)) + self.of.costs[self.of.tasks[task].call as usize];
        self.order.insert((*free, worker));
        let end = *free;
        for &counter in self.of.signals_of(task) {
            self.filled[counter as usize].add(end, worker);
        }
    }
}

/// Tasks by level, of equals the first one in front.
type ByLevel = BinaryHeap<(u64, Reverse<u32>)>;

/// Greedy list scheduling. An idle worker takes the ready task with the longest path to the end. A task is ready on the worker of its last producer
/// as soon as that has ended, on other workers a hop later.
struct Greedy<'a> {
    simulation: Simulation<'a>,
    levels: Vec<u64>,
    /// By counter: signals that have not come, and the tasks that wait.
    signals: Vec<u32>,
    waiters: Vec<Vec<u32>>,
    /// By counter: calls that wait for it by name. By call: how many of those counters are not filled.
    named: Vec<Vec<u32>>,
    names: Vec<u32>,
    /// By task: counters that are not filled; what it waited for, and whether it has been taken.
    open: Vec<u32>,
    inputs: Vec<Filled>,
    taken: Vec<bool>,
    /// What happens, the next thing first.
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// Tasks that may begin anywhere, and those that may on one worker, by level.
    anywhere: ByLevel,
    /// Tasks that may begin on any worker of a range, by level.
    within: Vec<(Range<u32>, ByLevel)>,
    ranges: &'a Ranges,
    at_home: Vec<ByLevel>,
    idle: BTreeSet<u32>,
    placed: Vec<(u32, u32)>,
}

/// Of events at the same time, ends come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The worker has ended the task.
    Ended { worker: u32, task: u32 },
    /// The task may begin on the worker.
    Home { worker: u32, task: u32 },
    /// The task may begin on any worker.
    Anywhere { task: u32 },
}

impl<'a> Greedy<'a> {
    fn new(of: Tasks<'a>, ranges: &'a Ranges) -> Greedy<'a> {
        let workers = ranges.workers();
        let tasks = of.tasks.len();
        let mut greedy = Greedy {
            levels: of.levels(),
            signals: vec![0; of.counters],
            waiters: vec![Vec::new(); of.counters],
            named: vec![Vec::new(); of.counters],
            names: vec![0; of.calls.len()],
            open: vec![0; tasks],
            inputs: vec![Filled::default(); tasks],
            taken: vec![false; tasks],
            events: BinaryHeap::new(),
            anywhere: BinaryHeap::new(),
            within: Vec::new(),
            ranges,
            at_home: vec![BinaryHeap::new(); workers as usize],
            idle: (0..workers).collect(),
            placed: Vec::with_capacity(tasks),
            simulation: Simulation::new(of, workers),
        };
        for wait in of.named {
            for counter in wait.counters.clone() {
                greedy.named[counter as usize].push(wait.call);
                greedy.names[wait.call as usize] += 1;
            }
        }
        for task in 0..tasks {
            of.signals_of(task).iter().for_each(|&counter| greedy.signals[counter as usize] += 1);
            of.waits_of(task).iter().for_each(|wait| greedy.waiters[wait.counter as usize].push(task as u32));
            greedy.open[task] = u32::from(of.tasks[task].waits) + u32::from(greedy.names[of.tasks[task].call as usize] > 0);
        }
        for task in 0..tasks as u32 {
            if greedy.open[task as usize] == 0 {
                greedy.allow(task);
            }
        }
        greedy
    }

    /// All that the task waits for has ended.
    fn allow(&mut self, task: u32) {
        let inputs = self.simulation.inputs(task as usize);
        self.inputs[task as usize] = inputs;
        let call = self.simulation.of.tasks[task as usize].call;
        if inputs.last > 0 && self.ranges.of(call).contains(&inputs.worker) {
            let at = inputs.ready(inputs.worker, self.simulation.of.hop);
            self.events.push(Reverse((at, Event::Home { worker: inputs.worker, task })));
        }
        self.events.push(Reverse((inputs.ready(u32::MAX, self.simulation.of.hop), Event::Anywhere { task })));
    }

    /// One counter of the task is filled.
    fn close(&mut self, task: u32) {
        let open = &mut self.open[task as usize];
        *open -= 1;
        if *open == 0 {
            self.allow(task);
        }
    }

    fn end(&mut self, task: u32) {
        let of = self.simulation.of;
        for &counter in of.signals_of(task as usize) {
            let left = &mut self.signals[counter as usize];
            *left -= 1;
            if *left > 0 {
                continue;
            }
            for waiter in std::mem::take(&mut self.waiters[counter as usize]) {
                self.close(waiter);
            }
            for call in std::mem::take(&mut self.named[counter as usize]) {
                let left = &mut self.names[call as usize];
                *left -= 1;
                if *left == 0 {
                    of.calls[call as usize].tasks.clone().for_each(|task| self.close(task));
                }
            }
        }
    }

    /// The task that an idle worker should take.
    fn best(&mut self, worker: u32) -> Option<u32> {
        let taken = &self.taken;
        let top = |heap: &mut ByLevel| {
            while heap.peek().is_some_and(|&(_, Reverse(task))| taken[task as usize]) {
                heap.pop();
            }
            heap.peek().copied()
        };
        let (own, any) = (top(&mut self.at_home[worker as usize]), top(&mut self.anywhere));
        let own_first = own.is_some_and(|(level, _)| any.is_none_or(|(other, _)| level >= other));
        let mut best = if own_first { own } else { any };
        for (_, heap) in self.within.iter_mut().filter(|(range, _)| range.contains(&worker)) {
            let other = top(heap);
            if other.is_some_and(|(level, _)| best.is_none_or(|(best, _)| level > best)) {
                best = other;
            }
        }
        best.map(|(_, Reverse(task))| task)
    }

    fn give(&mut self, worker: u32) -> bool {
        let Some(task) = self.best(worker) else { return false };
        self.taken[task as usize] = true;
        self.idle.remove(&worker);
        self.simulation.execute(task as usize, worker, self.inputs[task as usize]);
        self.events.push(Reverse((self.simulation.free[worker as usize], Event::Ended { worker, task })));
        self.placed.push((task, worker));
        true
    }

    /// Where a task stands that may begin on all of its workers.
    fn heap(&mut self, task: u32) -> &mut ByLevel {
        let call = self.simulation.of.tasks[task as usize].call;
        if !self.ranges.confines(call) {
            return &mut self.anywhere;
        }
        let range = self.ranges.of(call);
        let at = self.within.iter().position(|(known, _)| *known == range).unwrap_or_else(|| {
            self.within.push((range, BinaryHeap::new()));
            self.within.len() - 1
        });
        &mut self.within[at].1
    }

    fn schedule(mut self) -> Vec<(u32, u32)> {
        while let Some(&Reverse((now, _))) = self.events.peek() {
            let mut touched = BTreeSet::new();
            while let Some(&Reverse((time, event))) = self.events.peek()
                && time == now
            {
                self.events.pop();
                let level = |task: u32| (self.levels[task as usize], Reverse(task));
                match event {
                    Event::Ended { worker, task } => {
                        self.idle.insert(worker);
                        touched.insert(worker);
                        self.end(task);
                    }
                    Event::Home { worker, task } => {
                        self.at_home[worker as usize].push(level(task));
                        touched.insert(worker);
                    }
                    Event::Anywhere { task } => {
                        let level = level(task);
                        self.heap(task).push(level);
                    }
                }
            }
            // Those first that may have something of their own.
            for worker in touched {
                if self.idle.contains(&worker) {
                    self.give(worker);
                }
            }
            // Without ranges what one does not find no other one does.
            let mut next = self.idle.first().copied();
            while let Some(worker) = next {
                if !self.give(worker) && self.within.is_empty() {
                    break;
                }
                next = self.idle.range(worker + 1..).next().copied();
            }
        }
        self.placed
    }
}

/// Lists by cost. Without drains: greedy, the longest path first. With drains every list follows the tasks' numbers, since a drain has its position
/// among them, and each task goes to the worker where it begins earliest.
pub(super) fn lists(
    graph: &Graph,
    calls: &[PlannedCall],
    events: &Events,
    drains: Vec<Range<u32>>,
    (options, costs): (&Options, &Costs),
    ranges: &Ranges,
) -> Lists {
    let by_call = costs.of(graph, calls);
    let of = Tasks::of_events(events, calls, &by_call, costs.hop_by(&options.model));
    let mut own = vec![Vec::new(); options.workers as usize];
    let mut positions = Vec::new();
    if drains.is_empty() {
        positions.resize(of.tasks.len(), 0);
        for (position, (task, worker)) in (0..).zip(Greedy::new(of, ranges).schedule()) {
            positions[task as usize] = position;
            own[worker as usize].push(task);
        }
    } else {
        let mut simulation = Simulation::new(of, options.workers);
        for task in 0..of.tasks.len() {
            let inputs = simulation.inputs(task);
            let call = of.tasks[task].call;
            let worker = if ranges.confines(call) { simulation.earliest_of(ranges.of(call), inputs) } else { simulation.earliest(inputs) };
            simulation.execute(task, worker, inputs);
            if !graph.calls[of.tasks[task].call as usize].drain {
                own[worker as usize].push(task as u32);
            }
        }
    }
    Lists::of_workers(own, drains, positions)
}

/// When each task begins and ends if workers take the tasks in their order, each the one that is free first: by the options' costs, else by the device
/// model.
pub(super) fn timeline(graph: &Graph, calls: &[PlannedCall], events: &Events, options: &Options) -> Timeline {
    let model = &options.model;
    let estimated =
        |(call, planned): (&crate::ir::Call, &PlannedCall)| tile_selection::task_nanoseconds(graph, call, planned.tasks.len(), model);
    let (by_call, hop) = match &options.costs {
        Some(costs) => (costs.of(graph, calls), costs.hop_by(model)),
        None => (graph.calls.iter().zip(calls).map(estimated).collect(), model.hop_nanoseconds()),
    };
    let of = Tasks::of_events(events, calls, &by_call, hop);
    let mut simulation = Simulation::new(of, options.workers);
    let one = |task: usize| {
        let inputs = simulation.inputs(task);
        let worker = simulation.earliest(inputs);
        simulation.execute(task, worker, inputs);
        let end = simulation.free[worker as usize];
        (end - by_call[of.tasks[task].call as usize], end)
    };
    Timeline { times: (0..of.tasks.len()).map(one).collect(), hop }
}

impl Plan {
    /// The simulated duration of a launch by these costs, in nanoseconds: workers do nothing but tasks, and a hop takes [`Costs::hop`].
    /// Tasks of drained calls, and all tasks where there are no lists, go to the worker that is free first.
    pub fn makespan(&self, costs: &Costs) -> u64 {
        let by_call = costs.of(&self.graph, &self.calls);
        let of = Tasks::of_plan(self, &by_call, costs.hop_by(&self.model));
        let mut home = vec![None; self.tasks.len()];
        if self.schedule == super::Schedule::Static {
            for worker in 0..self.workers {
                self.lists.of(worker as usize).iter().for_each(|&task| home[task as usize] = Some(worker));
            }
        }
        let mut order: Vec<usize> = (0..self.tasks.len()).collect();
        if !self.lists.positions.is_empty() {
            order.sort_unstable_by_key(|&task| self.lists.positions[task]);
        }
        let mut simulation = Simulation::new(of, self.workers);
        for task in order {
            let inputs = simulation.inputs(task);
            let worker = home[task].unwrap_or_else(|| simulation.earliest(inputs));
            simulation.execute(task, worker, inputs);
        }
        simulation.free.into_iter().max().unwrap_or(0)
    }
}
