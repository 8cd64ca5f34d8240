//! Small plans made by hand, and the tables that workers and schedulers read of them.
//!
//! Tensors do not belong here: a task is a number, and a counter says who must end before whom.

use std::ops::Range;

use maco_abi::{
    self as abi, CounterIndex, Descriptor, Indirect, InjectedFault, LOST_PUSH, Launch, NO_AXIS, NO_SIGNAL, OP_NONE, PUSHED, Route, STATIC,
    Signal, TICKETS, View, Wait,
};
use maco_device::protocol::{CLAIMED, Layout};

/// Everybody in `waiters` reads what everybody in `producers` writes. Tasks are numbered in an order in which they may run.
#[derive(Clone, Debug)]
pub struct Counter {
    /// Tasks that arrive.
    pub producers: Vec<u32>,
    /// Tasks that wait for all of them.
    pub waiters: Vec<u32>,
}

/// How tasks reach the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// By [`Plan::lists`].
    Static,
    /// By ticket, in the order of their numbers.
    Tickets,
    /// From so many schedulers.
    Pushed(u32),
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The task signals nobody.
    LostSignal(u32),
    /// The push of the task is lost.
    LostPush(u32),
    /// The task does not wait for the counter.
    LostEdge {
        /// Index of the counter.
        counter: u32,
        /// The task.
        waiter: u32,
    },
    /// The counter of several producers is stored to, not added to.
    FalselySole(u32),
}

/// Rows named by data: task `reader` reads one row of `rows`, whose number task `writer` writes.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Writes the number.
    pub writer: u32,
    /// Waits for the row's counter.
    pub reader: u32,
    /// Counter of row 0; the next ones follow.
    pub first: u32,
    /// Rows.
    pub rows: u32,
    /// What it writes.
    pub row: u32,
}

/// A plan.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// How many tasks.
    pub tasks: u32,
    /// Who waits for whom.
    pub counters: Vec<Counter>,
    /// Workers.
    pub workers: u32,
    /// Tasks of each worker, for static schedules.
    pub lists: Vec<Vec<u32>>,
    /// Runs of tasks that no list has, and every worker claims where its list comes to them.
    pub drains: Vec<Range<u32>>,
    /// A wait that data names.
    pub named: Option<Named>,
}

impl Plan {
    /// A plan of counters given as (producers, waiters), with a list per worker.
    pub fn new(counters: &[(&[u32], &[u32])], lists: &[&[u32]]) -> Plan {
        Plan {
            tasks: lists.iter().map(|list| list.len() as u32).sum(),
            counters: counters.iter().map(|&(from, to)| Counter { producers: from.to_vec(), waiters: to.to_vec() }).collect(),
            workers: lists.len() as u32,
            lists: lists.iter().map(|list| list.to_vec()).collect(),
            drains: Vec::new(),
            named: None,
        }
    }

    /// The same with one drain; `lists` have gaps for its tasks.
    pub fn with_drain(self, drain: Range<u32>) -> Plan {
        Plan { tasks: self.tasks + drain.end - drain.start, drains: vec![drain], ..self }
    }

    /// Tasks that `task` reads from.
    pub fn inputs(&self, task: u32) -> impl Iterator<Item = u32> + '_ {
        self.counters.iter().filter(move |counter| counter.waiters.contains(&task)).flat_map(|counter| counter.producers.iter().copied())
    }

    /// Whether the order of one list keeps the edge: then there is no wait.
    fn is_local(&self, counter: &Counter, waiter: u32) -> bool {
        let list = self.lists.iter().find(|list| list.contains(&waiter));
        list.is_some_and(|list| counter.producers.iter().all(|producer| list.contains(producer)))
    }

    /// Waits as (counter, waiter) that the schedule does not make superfluous.
    pub fn waits(&self, schedule: Schedule) -> Vec<(u32, u32)> {
        let mut waits = Vec::new();
        for (index, counter) in self.counters.iter().enumerate() {
            for &waiter in &counter.waiters {
                if schedule != Schedule::Static || !self.is_local(counter, waiter) {
                    waits.push((index as u32, waiter));
                }
            }
        }
        waits
    }
}

/// A scheduler's memory at the start of a launch.
#[derive(Clone, Debug)]
pub struct Image {
    /// Counts; the addresses are 0.
    pub partition: abi::SchedulerPartition,
    /// Where everything lies.
    pub at: Layout,
    /// The memory.
    pub words: Vec<u32>,
    /// Counters and what they need.
    pub names: Vec<Wait>,
}

/// What executors read.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Tasks, with end entries.
    pub descriptors: Vec<Descriptor>,
    /// Waits and signals beyond two.
    pub overflow: Vec<u32>,
    /// First descriptor of each worker's list, or place of its inbox.
    pub starts: Vec<u32>,
    /// One per scheduler.
    pub images: Vec<Image>,
    /// The fault that a launch reads, if there is one.
    fault: Vec<InjectedFault>,
    /// Counters of a bank.
    pub counters: u32,
    /// Tickets of a bank, behind its counters.
    pub tickets: u32,
    /// Workers.
    pub workers: u32,
    tasks: u32,
    schedule: Schedule,
}

impl Tables {
    /// The tables of `plan`; mailboxes are used from place `position` on. Inboxes are from the first one in every launch: their places are
    /// the numbers of pushes. With `ahead` schedulers look ahead.
    pub fn new(plan: &Plan, schedule: Schedule, position: u32, ahead: bool, fault: Option<Fault>) -> Tables {
        let mut tables = Tables {
            descriptors: Vec::new(),
            overflow: Vec::new(),
            starts: vec![0; plan.workers as usize + 1],
            images: Vec::new(),
            fault: Vec::new(),
            counters: if let Schedule::Pushed(_) = schedule { 0 } else { plan.counters.len() as u32 },
            tickets: if schedule == Schedule::Static { plan.drains.len() as u32 } else { 0 },
            workers: plan.workers,
            tasks: plan.tasks,
            schedule,
        };
        let mut waits = plan.waits(schedule);
        if let Some(Fault::LostEdge { counter, waiter }) = fault {
            waits.retain(|&wait| wait != (counter, waiter));
        }
        match schedule {
            Schedule::Pushed(schedulers) => tables.push(plan, &waits, schedulers, position, ahead),
            Schedule::Static => {
                let listed: usize = plan.lists.iter().map(Vec::len).sum();
                let mut first = (listed + plan.lists.len() * (1 + plan.drains.len())) as u32;
                let drain = |(ticket, drain): (u32, &Range<u32>)| {
                    let tasks = drain.end - drain.start;
                    first += tasks;
                    (drain.start, Descriptor::dynamic(tables.counters + ticket, tasks, first - tasks, CLAIMED as u16))
                };
                let drains: Vec<(u32, Descriptor)> = (0..).zip(&plan.drains).map(drain).collect();
                for (worker, list) in plan.lists.iter().enumerate() {
                    tables.starts[worker] = tables.descriptors.len() as u32;
                    let mut coming = drains.iter().peekable();
                    for &task in list {
                        while let Some((_, entry)) = coming.next_if(|(start, _)| *start < task) {
                            tables.descriptors.push(*entry);
                        }
                        tables.poll(plan, &waits, task, fault);
                    }
                    tables.descriptors.extend(coming.map(|(_, entry)| entry));
                    tables.descriptors.push(Descriptor::END);
                }
                plan.drains.iter().cloned().flatten().for_each(|task| tables.poll(plan, &waits, task, fault));
            }
            Schedule::Tickets => (0..plan.tasks).for_each(|task| tables.poll(plan, &waits, task, fault)),
        }
        tables.descriptors.extend([Descriptor::END; 2]);
        if let Some(Fault::LostPush(task)) = fault {
            // A list of descriptors in task order.
            tables.fault.push(InjectedFault { kind: LOST_PUSH, of: task });
        }
        if let Some(Fault::LostSignal(task)) = fault {
            let lost = tables.descriptors.iter_mut().find(|descriptor| descriptor.task == task).expect("the task exists");
            lost.signal = [NO_SIGNAL; 2];
            lost.extra_signals = 0;
        }
        tables
    }

    /// Messages and arrivals beyond two go to the overflow.
    fn add(&mut self, task: u32, waits: &[Wait], signals: &[u32], indirect: Option<Indirect>) {
        let mut descriptor = Descriptor { op: OP_NONE, task, overflow: self.overflow.len() as u32, ..Descriptor::END };
        for (n, &wait) in waits.iter().enumerate() {
            match descriptor.wait.get_mut(n) {
                Some(place) => *place = wait,
                None => self.overflow.extend(wait.encode()),
            }
        }
        for (n, &signal) in signals.iter().enumerate() {
            match descriptor.signal.get_mut(n) {
                Some(place) => *place = signal,
                None => self.overflow.push(signal),
            }
        }
        if let Some(named) = indirect {
            self.overflow.extend(named.encode());
            descriptor.indirect = 1;
        }
        descriptor.extra_waits = waits.len().saturating_sub(2) as u16;
        descriptor.extra_signals = signals.len().saturating_sub(2) as u16;
        self.descriptors.push(descriptor);
    }

    /// A task that polls counters.
    fn poll(&mut self, plan: &Plan, all: &[(u32, u32)], task: u32, fault: Option<Fault>) {
        let need = |counter: u32| plan.counters[counter as usize].producers.len() as u32;
        let own = all.iter().filter(|&&(_, waiter)| waiter == task);
        let waits: Vec<Wait> = own.map(|&(counter, _)| Wait::new(CounterIndex(counter), need(counter))).collect();
        let heard = |counter: &u32| {
            // A counter that data names has no other waiter.
            plan.counters[*counter as usize].waiters.is_empty() || all.iter().any(|(waited, _)| waited == counter)
        };
        let sole = |counter: u32| need(counter) == 1 || fault == Some(Fault::FalselySole(counter));
        let produces = (0..plan.counters.len() as u32).filter(|&counter| plan.counters[counter as usize].producers.contains(&task));
        let signals: Vec<u32> = produces
            .filter(heard)
            .map(|counter| Signal { counter: CounterIndex(counter), single_producer: sole(counter) }.encode())
            .collect();
        let named = plan.named.filter(|named| named.reader == task);
        let indirect = named.map(|named| Indirect {
            axis: NO_AXIS,
            base: CounterIndex(named.first),
            size: 1,
            limit: named.rows,
            need: 1,
            ..Indirect::default()
        });
        self.add(task, &waits, &signals, indirect);
    }

    /// Tasks that schedulers push: descriptors in task order, dealt round robin.
    fn push(&mut self, plan: &Plan, waits: &[(u32, u32)], schedulers: u32, position: u32, ahead: bool) {
        // Scheduler and number of each counter that it counts.
        let mut known: Vec<Vec<(u32, u32)>> = vec![Vec::new(); plan.counters.len()];
        for number in 0..schedulers {
            let tasks: Vec<u32> = (number..plan.tasks).step_by(schedulers as usize).collect();
            let mut pending = vec![0; tasks.len()];
            let (mut names, mut remaining, mut waiters, mut starts) = (Vec::new(), Vec::new(), Vec::new(), vec![0]);
            for counter in 0..plan.counters.len() as u32 {
                let own = waits.iter().filter(|&&(waited, waiter)| waited == counter && waiter % schedulers == number);
                let first = waiters.len();
                waiters.extend(own.map(|&(_, waiter)| waiter / schedulers));
                if waiters.len() == first {
                    continue;
                }
                waiters[first..].iter().for_each(|&waiter| pending[waiter as usize] += 1);
                let need = plan.counters[counter as usize].producers.len() as u32;
                known[counter as usize].push((number, names.len() as u32));
                names.push(Wait::new(CounterIndex(counter), need));
                remaining.push(need);
                starts.push(waiters.len() as u32);
            }
            let partition = abi::SchedulerPartition {
                tasks: tasks.len() as u32,
                counters: names.len() as u32,
                waiters: waiters.len() as u32,
                ..abi::SchedulerPartition::default()
            };
            let at = Layout::new(&partition, plan.workers, schedulers, number);
            let mut words = vec![0; at.words as usize];
            let mut put = |first: u32, values: &[u32]| words[first as usize..][..values.len()].copy_from_slice(values);
            put(at.remaining, &remaining);
            put(at.pending, &pending);
            put(at.starts, &starts);
            put(at.waiters, &waiters);
            put(at.tasks, &tasks);
            put(at.heads, &vec![position; plan.workers as usize]);
            // Each task's counter with the first of the waiters: they are in the order in which they are pushed.
            let signalled = |&task: &u32| {
                let own = (0..names.len()).filter(|&n| plan.counters[names[n].counter.0 as usize].producers.contains(&task));
                own.min_by_key(|&n| waiters[starts[n] as usize]).map_or(0, |n| n as u32 + 1)
            };
            if ahead {
                put(at.signals, &tasks.iter().map(signalled).collect::<Vec<_>>());
            }
            for (task, _) in pending.iter().enumerate().filter(|&(_, &pending)| pending == 0) {
                words[at.ready as usize + task / 32] |= 1 << (task % 32);
                words[at.summary as usize + task / 1024] |= 1 << (task / 32 % 32);
                words[at.count as usize] += 1;
            }
            self.images.push(Image { partition, at, words, names });
        }
        for task in 0..plan.tasks {
            let owner = task % schedulers;
            let mut routes = Vec::new();
            let mut credited = false;
            for (counter, heard) in plan.counters.iter().zip(&known) {
                if !counter.producers.contains(&task) {
                    continue;
                }
                for &(to, number) in heard {
                    let credit = to == owner && !credited;
                    credited |= credit;
                    routes.push(Route { credit, to, counter: Some(number) }.encode());
                }
            }
            if !credited {
                routes.push(Route { credit: true, to: owner, counter: None }.encode());
            }
            self.add(task, &[], &routes, None);
        }
    }

    /// Schedulers.
    pub fn schedulers(&self) -> u32 {
        self.images.len() as u32
    }

    /// Words of the rings.
    pub fn ring_words(&self) -> u32 {
        self.workers * (abi::INBOX_WORDS + self.schedulers() * abi::MAILBOX)
    }

    /// Words of a bank: counters and tickets, or of workers that schedulers push to.
    pub fn bank(&self) -> u32 {
        if self.images.is_empty() { self.counters + self.tickets } else { self.workers }
    }

    /// A launch over memory whose addresses the caller fills in.
    pub fn launch(&self, views: &[View]) -> Launch {
        Launch {
            descriptors: self.descriptors.as_ptr() as u64,
            starts: self.starts.as_ptr() as u64,
            views: views.as_ptr() as u64,
            tensor_maps: 0,
            scalars: 0,
            overflow: self.overflow.as_ptr() as u64,
            state: 0,
            black_box: 0,
            partitions: 0,
            rings: 0,
            counters: self.bank(),
            workers: self.workers,
            tasks: self.tasks,
            schedule: match self.schedule {
                Schedule::Static => STATIC,
                Schedule::Tickets => TICKETS,
                Schedule::Pushed(_) => PUSHED,
            },
            schedulers: self.schedulers(),
            spare: 0,
            deadline_ns: u64::MAX,
            deadline_polls: 0,
            delays: 0,
            profile: 0,
            records: 0,
            executors: self.workers + self.schedulers(),
            partials: 0,
            arrived: 0,
            in_band: 0,
            in_band_words: 0,
            in_band_bytes: 0,
            reserved: 0,
            ranks: 0,
            fault: self.fault.first().map_or(0, |fault| std::ptr::from_ref(fault) as u64),
        }
    }
}
