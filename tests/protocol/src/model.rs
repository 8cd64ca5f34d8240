//! Launches under `loom`: every shared word is one of its atomics, every task's output one of its cells.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicU64, fence};
use maco_abi::{BlackBox, LAUNCH, Launch, MAILBOX, OPERANDS, PUSH_END, Push, View};
use maco_device::protocol::{Machine, Outcome, attend, work};

use crate::memory::{Memory, Word};
use crate::order::Order;
use crate::plan::{Fault, Plan, Schedule, Tables};

/// Who executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs tasks.
    Worker,
    /// Pushes tasks.
    Scheduler,
}

/// One thing left out of the protocol. A model must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Acquire fences of a role do nothing.
    NoAcquire(Role),
    /// The first acquire fence of each executor does nothing.
    NoFirstAcquire,
    /// An acquire fence does nothing if the word loaded last was a push of a task that still waits.
    NoAcquireOfUntil,
    /// An acquire fence does nothing if the word loaded last was how many tasks a worker has ended.
    NoAcquireOfEnded,
    /// Release fences of a role do nothing.
    NoRelease(Role),
    /// A release fence does nothing if the word stored last was of what a task still waits for.
    NoReleaseOfUntil,
    /// Counters are not zeroed.
    KeepCounters,
    /// Tickets are not zeroed.
    KeepTicket,
    /// Places of inboxes are not emptied.
    KeepInbox,
    /// Places of mailboxes are not emptied.
    KeepMailbox,
    /// Executors do not add their share to this word: to [`Word::Begun`] or [`Word::Left`].
    Uncounted(Word),
    /// The first executor adds no more than the others.
    EqualShares,
    /// `add` is a load and a store.
    TornAdd,
    /// `claim` is a load and a store.
    TornClaim,
    /// `compare_exchange` is a load and a store.
    TornExchange,
    /// Nobody looks at the abort word.
    BlindToAbort,
    /// A worker looks at the last place only of half a mailbox.
    OnePlace,
}

/// When a deadline fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Not at all: the launch must complete.
    Never,
    /// After two vain polls, whether or not anything is wrong.
    Early,
}

/// A plan and what is done with it.
#[derive(Clone, Debug)]
pub struct Model {
    /// The plan.
    pub plan: Plan,
    /// How tasks reach the workers.
    pub schedule: Schedule,
    /// Launches before: with an odd number bank 0 is as a launch leaves it.
    pub before: u32,
    /// Launches one behind another.
    pub launches: u32,
    /// First place used of every ring, below 256.
    pub position: u32,
    /// What is wrong in the first launch.
    pub fault: Option<Fault>,
    /// When waits end by themselves.
    pub deadline: Deadline,
    /// After the launches: recover, and one launch without fault or deadline.
    pub recover: bool,
    /// What the protocol lacks.
    pub mutation: Option<Mutation>,
    /// Whether schedulers look ahead.
    pub ahead: bool,
    /// How often a thread may be interrupted.
    pub preemptions: usize,
    /// Stores that are made in one order only; interleavings are tried from there on.
    pub settled: usize,
}

impl Model {
    /// One launch without faults on fresh memory.
    pub fn new(plan: Plan, schedule: Schedule) -> Model {
        Model {
            plan,
            schedule,
            before: 0,
            launches: 1,
            position: 0,
            fault: None,
            deadline: Deadline::Never,
            recover: false,
            mutation: None,
            ahead: false,
            preemptions: 2,
            settled: 0,
        }
    }

    /// Tries all interleavings and panics at the first one that is wrong; how many there are, and in how many a launch was aborted.
    pub fn check(&self) -> (usize, usize) {
        let mut builder = Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(self.preemptions));
        // More than any of these models needs when it ends.
        builder.max_branches = 5_000;
        builder.expect_explicit_explore = self.settled > 0;
        let model = self.clone();
        let runs = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let counts = runs.clone();
        builder.check(move || {
            let aborted = match model.deadline {
                Deadline::Never => model.run::<64>(),
                Deadline::Early => model.run::<1>(),
            };
            counts[aborted as usize].fetch_add(1, Ordering::Relaxed);
        });
        let [completed, aborted] = [0, 1].map(|n: usize| runs[n].load(Ordering::Relaxed));
        (completed + aborted, aborted)
    }

    /// Whether a launch was aborted.
    fn run<const LOOK: u32>(&self) -> bool {
        let tables = Tables::new(&self.plan, self.schedule, self.position, self.ahead, self.fault);
        let world = Rc::new(World::new(self, &tables));
        let mut aborted = false;
        for n in 0..self.launches {
            world.launch::<LOOK>(&tables, self.position, self.deadline);
            aborted = world.value(Word::Abort) != 0;
            world.check(self.before + n, aborted);
            if aborted {
                break;
            }
            assert!(
                self.fault.is_none_or(|fault| matches!(fault, Fault::LostEdge { .. } | Fault::FalselySole(_))),
                "a fault went unnoticed"
            );
        }
        if self.recover {
            world.recover();
            let tables = Tables::new(&self.plan, self.schedule, self.position, self.ahead, None);
            // The schedulers' tables are new: so is the memory that names them.
            let world = Rc::new(world.again(&tables));
            world.launch::<64>(&tables, self.position, Deadline::Never);
            world.check(0, false);
        }
        aborted
    }
}

/// What all executors of a model share. `loom` runs its threads in turn on one.
struct World {
    plan: Plan,
    memory: Memory,
    /// By index; what no launch touches has none.
    words: Rc<Vec<Option<AtomicU64>>>,
    /// Output of each task: how many launches have written it.
    outputs: Rc<Vec<UnsafeCell<u32>>>,
    /// Where the data is that names a row.
    views: Vec<View>,
    /// The black box: how many reports it got.
    reports: Rc<UnsafeCell<u32>>,
    mutation: Option<Mutation>,
    /// How many stores there have been.
    stores: Cell<usize>,
    /// See [`Model::settled`].
    settled: usize,
    order: RefCell<Order>,
}

impl World {
    fn new(model: &Model, tables: &Tables) -> World {
        let Model { ref plan, before, mutation, settled, .. } = *model;
        let memory = Memory::new(tables);
        let mut words: Vec<Option<AtomicU64>> = (0..=memory.data()).map(|_| None).collect();
        for (index, word) in memory.all() {
            let value = match word {
                Word::Left | Word::Begun => before * LAUNCH,
                // The bank of the last launch.
                Word::Counter(bank, counter) if before > 0 && bank == (before - 1) & 1 => {
                    plan.counters[counter as usize].producers.len() as u32
                }
                Word::Ticket(bank) if before > 0 && bank == (before - 1) & 1 => plan.tasks + plan.workers,
                // More than any task waits for.
                Word::Ended(bank, _) if before > 0 && bank == (before - 1) & 1 => plan.tasks,
                Word::Drain(bank, drain) if before > 0 && bank == (before - 1) & 1 => {
                    plan.drains[drain as usize].len() as u32 + plan.workers
                }
                _ => 0,
            };
            words[index as usize] = Some(AtomicU64::new(value as u64));
        }
        let world = World {
            plan: plan.clone(),
            views: vec![View { base: memory.address(memory.data()) as u64, rows: 1, cols: 1, col_stride: 1, ..View::default() }; OPERANDS],
            memory,
            words: Rc::new(words),
            outputs: Rc::new((0..plan.tasks).map(|_| UnsafeCell::new(before)).collect()),
            reports: Rc::new(UnsafeCell::new(0)),
            mutation,
            stores: Cell::new(0),
            settled,
            order: RefCell::default(),
        };
        world.begun().store(before * LAUNCH, Ordering::Relaxed);
        world
    }

    /// The same words and outputs under other tables.
    fn again(&self, tables: &Tables) -> World {
        let memory = Memory::new(tables);
        let views = vec![View { base: memory.address(memory.data()) as u64, ..self.views[0] }; OPERANDS];
        let (words, outputs, reports) = (self.words.clone(), self.outputs.clone(), self.reports.clone());
        let world = World {
            plan: self.plan.clone(),
            memory,
            words,
            outputs,
            views,
            reports,
            mutation: self.mutation,
            stores: Cell::new(0),
            settled: 0,
            order: RefCell::default(),
        };
        world.begun().store(self.begun().load(Ordering::Relaxed), Ordering::Relaxed);
        world
    }

    /// One launch of all executors; this thread is the first one.
    fn launch<const LOOK: u32>(self: &Rc<World>, tables: &Tables, position: u32, deadline: Deadline) {
        self.memory.load(tables);
        let mut launch = tables.launch(&self.views);
        self.memory.bind(&mut launch);
        if deadline == Deadline::Early {
            launch.deadline_ns = 0;
        }
        let executors = launch.workers + launch.schedulers;
        let start = |number: u32| {
            let world = self.clone();
            self.order().spawn(number as usize);
            loom::thread::spawn(move || world.execute::<LOOK>(&launch, number, position))
        };
        let others: Vec<_> = (1..executors).map(start).collect();
        self.execute::<LOOK>(&launch, 0, position);
        for (number, other) in (1..).zip(others) {
            other.join().expect("an executor panicked");
            self.order().join(number);
        }
    }

    /// A worker or scheduler of a launch.
    fn execute<const LOOK: u32>(self: &Rc<World>, launch: &Launch, number: u32, position: u32) {
        let role = if number < launch.workers { Role::Worker } else { Role::Scheduler };
        let machine = Loom::<LOOK> {
            world: self.clone(),
            number: number as usize,
            role,
            clock: Cell::new(0),
            acquired: Cell::new(false),
            loaded: Cell::new((Word::Data, 0)),
            stored: Cell::new(Word::Data),
            seen: Cell::new(0),
            vain: Cell::new(0),
        };
        // SAFETY: all words of the launch are of `memory`, which lives as long as this; each executor has its own number.
        unsafe {
            if let Some(scheduler) = number.checked_sub(launch.workers) {
                attend(&machine, launch, scheduler);
                return;
            }
            let mut tails = vec![position as u8; launch.schedulers as usize];
            work(&machine, launch, number, &mut tails, |_, descriptor| {
                self.body(number as usize, (*descriptor).task);
                Outcome::Ready
            });
        }
    }

    /// Reads the outputs of all inputs of a task, and writes its own.
    fn body(&self, executor: usize, task: u32) {
        let output = &self.outputs[task as usize];
        self.order().write(executor, task);
        // SAFETY: `loom` panics if another thread's access is not ordered with this one.
        let run = output.with_mut(|value| unsafe {
            *value += 1;
            *value
        });
        let read = |input: u32| {
            self.order().read(executor, input);
            // SAFETY: as above.
            let value = self.outputs[input as usize].with(|value| unsafe { *value });
            assert_eq!(value, run, "task {task} reads what task {input} has not written");
        };
        self.plan.inputs(task).for_each(read);
        if let Some(named) = self.plan.named {
            if named.writer == task {
                self.at(Word::Data).store(named.row as u64, Ordering::Relaxed);
            } else if named.reader == task {
                let row = self.at(Word::Data).load(Ordering::Relaxed) as u32;
                read(self.plan.counters[(named.first + row) as usize].producers[0]);
            }
        }
    }

    /// What must hold after launch number `number`.
    fn check(&self, number: u32, aborted: bool) {
        // SAFETY: all executors have been joined.
        let reports = self.reports.with(|value| unsafe { *value });
        assert_eq!(reports, aborted as u32, "reports in the black box");
        let next = number + 1;
        for (index, word) in self.memory.all() {
            let value = if word == Word::Begun { self.begun().load(Ordering::Relaxed) } else { self.peek(index) };
            match word {
                Word::Left | Word::Begun => assert_eq!(value, next * LAUNCH, "{word:?} after a launch"),
                Word::Counter(bank, _) | Word::Drain(bank, _) | Word::Ended(bank, _) | Word::Ticket(bank) if bank == next & 1 => {
                    assert!(aborted || value == 0, "{word:?} after a launch")
                }
                Word::Inbox(..) | Word::Mailbox(..) => assert!(aborted || value == 0, "{word:?} after a launch"),
                _ => {}
            }
        }
        if !aborted {
            // SAFETY: as above.
            let first = self.outputs[0].with(|value| unsafe { *value });
            for (task, output) in self.outputs.iter().enumerate() {
                // SAFETY: as above.
                assert_eq!(output.with(|value| unsafe { *value }), first, "runs of task {task}");
            }
        }
    }

    /// What the host does after an abort: everything is 0.
    fn recover(&self) {
        self.begun().store(0, Ordering::Relaxed);
        for (index, _) in self.memory.all() {
            self.words[index as usize].as_ref().expect("a word of the plan").store(0, Ordering::Relaxed);
        }
        // SAFETY: all executors have been joined.
        unsafe {
            self.reports.with_mut(|value| *value = 0);
            self.outputs.iter().for_each(|output| output.with_mut(|value| *value = 0));
        }
    }

    fn index(&self, word: Word) -> u32 {
        self.memory.all().find(|&(_, found)| found == word).expect("a word of the plan").0
    }

    fn at(&self, word: Word) -> &AtomicU64 {
        self.words[self.index(word) as usize].as_ref().expect("a word of the plan")
    }

    /// See [`Loom::begun`].
    fn begun(&self) -> &AtomicU32 {
        // SAFETY: a word of this world's memory, which is accessed by atomics alone.
        unsafe { AtomicU32::from_ptr(self.memory.address(self.index(Word::Begun))) }
    }

    fn value(&self, word: Word) -> u32 {
        self.peek(self.index(word))
    }

    /// Not to be held over an access of `loom`'s: there another thread may go on.
    fn order(&self) -> RefMut<'_, Order> {
        self.order.borrow_mut()
    }

    fn peek(&self, index: u32) -> u32 {
        // SAFETY: all executors have been joined.
        unsafe { self.words[index as usize].as_ref().expect("a word of the plan").unsync_load() as u32 }
    }
}

/// A thread of a model as a machine of one lane, which looks at the abort word every `LOOK` polls.
struct Loom<const LOOK: u32> {
    world: Rc<World>,
    number: usize,
    role: Role,
    clock: Cell<u64>,
    acquired: Cell<bool>,
    /// The word loaded last that was not 0, and the one stored last.
    loaded: Cell<(Word, u32)>,
    stored: Cell<Word>,
    /// Stores of all threads at the last vain poll, and vain polls since.
    seen: Cell<usize>,
    vain: Cell<u32>,
}

/// Vain polls in a row, with no store by anybody, before an interleaving is followed to its end without trying others from there:
/// they differ from ones that are tried only by more vain polls. Without this bound two threads that poll could keep a third one out
/// for ever.
const VAIN: u32 = 1;

impl<const LOOK: u32> Loom<LOOK> {
    fn at(&self, at: *const u32) -> &AtomicU64 {
        self.world.words[self.world.memory.index(at) as usize].as_ref().expect("a word of the plan")
    }

    fn word(&self, at: *const u32) -> Word {
        self.world.memory.word(self.world.memory.index(at))
    }

    fn lacks(&self, mutation: Mutation) -> bool {
        self.world.mutation == Some(mutation)
    }

    /// Whether a store of 0 is left out.
    fn keeps(&self, at: *const u32) -> bool {
        let Some(mutation) = self.world.mutation else { return false };
        let word = self.word(at);
        match mutation {
            Mutation::KeepCounters => matches!(word, Word::Counter(..) | Word::Ended(..)),
            Mutation::KeepTicket => matches!(word, Word::Ticket(_) | Word::Drain(..)),
            Mutation::KeepInbox => matches!(word, Word::Inbox(..)),
            Mutation::KeepMailbox => matches!(word, Word::Mailbox(..)),
            _ => false,
        }
    }

    /// The count of those that have entered, if `at` is that: no place where another thread may go on. It orders nothing, and whoever
    /// enters does it first, so that other threads find it before and after in any case; with `loom`'s atomics there were many times
    /// more interleavings.
    fn begun(&self, at: *const u32) -> Option<&AtomicU32> {
        (self.word(at) == Word::Begun).then(|| self.world.begun())
    }

    fn get(&self, at: *const u32) -> u32 {
        if let Some(begun) = self.begun(at) {
            return begun.load(Ordering::Relaxed);
        }
        let content = self.at(at).load(Ordering::Relaxed);
        self.world.order().load(self.number, self.world.memory.index(at), content);
        if content as u32 != 0 {
            self.loaded.set((self.word(at), content as u32));
        }
        content as u32
    }

    fn set(&self, at: *const u32, value: u32) {
        self.change();
        if let Some(begun) = self.begun(at) {
            return begun.store(value, Ordering::Relaxed);
        }
        let content = self.world.order().store(self.number, self.world.memory.index(at), value);
        self.stored.set(self.word(at));
        self.at(at).store(content, Ordering::Relaxed);
    }

    fn change(&self) {
        self.world.stores.set(self.world.stores.get() + 1);
        if self.world.stores.get() == self.world.settled {
            loom::explore();
        }
    }

    /// Adds to the lower half of the word; the upper one stays that of the last store.
    fn increase(&self, at: *const u32, value: u32) -> u32 {
        if let Some(begun) = self.begun(at) {
            return begun.fetch_add(value, Ordering::Relaxed);
        }
        self.change();
        let old = self.at(at).fetch_add(value as u64, Ordering::Relaxed);
        let index = self.world.memory.index(at);
        self.world.order().add(self.number, index, old, old + value as u64);
        old as u32
    }

    fn torn(&self, at: *const u32, value: u32) -> u32 {
        let old = self.get(at);
        self.set(at, old.wrapping_add(value));
        old
    }
}

// SAFETY: `loom` orders its atomics by fences as Rust does; with a mutation it does not, and the model must notice.
unsafe impl<const POLLS: u32> Machine for Loom<POLLS> {
    const LOOK: u32 = POLLS;
    unsafe fn load(&self, at: *const u32) -> u32 {
        if self.lacks(Mutation::BlindToAbort) && self.word(at) == Word::Abort {
            return 0;
        }
        if self.lacks(Mutation::OnePlace)
            && self.role == Role::Worker
            && matches!(self.word(at), Word::Mailbox(_, _, place) if place % (MAILBOX / 2) != MAILBOX / 2 - 1)
        {
            return 0;
        }
        self.get(at)
    }
    unsafe fn store(&self, at: *mut u32, value: u32) {
        if value != 0 || !self.keeps(at) {
            self.set(at, value);
        }
    }
    unsafe fn add(&self, at: *mut u32, value: u32) {
        if self.lacks(Mutation::TornAdd) {
            self.torn(at, value);
        } else {
            self.increase(at, value);
        }
    }
    unsafe fn claim(&self, at: *mut u32, value: u32) -> u32 {
        let word = self.word(at);
        if self.lacks(Mutation::Uncounted(word)) {
            return self.get(at);
        }
        let value = if matches!(word, Word::Begun | Word::Left) && self.lacks(Mutation::EqualShares) { 1 } else { value };
        if self.lacks(Mutation::TornClaim) { self.torn(at, value) } else { self.increase(at, value) }
    }
    unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
        if self.lacks(Mutation::TornExchange) {
            let old = self.get(at);
            if old == expected {
                self.set(at, new);
            }
            return old;
        }
        self.change();
        let content = self.world.order().store(self.number, self.world.memory.index(at), new);
        // What is expected has not been stored yet: it has no number.
        match self.at(at).compare_exchange(expected as u64, content, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(old) | Err(old) => old as u32,
        }
    }
    fn acquire(&self) {
        let first = !self.acquired.replace(true);
        let lost = self.lacks(Mutation::NoAcquire(self.role))
            || first && self.lacks(Mutation::NoFirstAcquire)
            || match self.loaded.get() {
                (Word::Inbox(..), push) => {
                    push != 0 && push != PUSH_END && Push::decode(push).until && self.lacks(Mutation::NoAcquireOfUntil)
                }
                (Word::Ended(..), _) => self.lacks(Mutation::NoAcquireOfEnded),
                _ => false,
            };
        if !lost {
            fence(Ordering::Acquire);
            self.world.order().acquire(self.number);
        }
    }
    fn release(&self) {
        let until = matches!(self.stored.get(), Word::Until(..)) && self.lacks(Mutation::NoReleaseOfUntil);
        if !until && !self.lacks(Mutation::NoRelease(self.role)) {
            fence(Ordering::Release);
            self.world.order().release(self.number);
        }
    }
    /// Counts looks: a deadline of 0 has passed at the second.
    fn now(&self) -> u64 {
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }
    fn pause(&self, polls: u32) {
        if POLLS == 1 && polls == 1 && self.role == Role::Worker {
            // Straight on to the second look, at which a deadline fires: `loom` lets another thread go on after a yield, so that it
            // would never fire just before what it waits for.
            return;
        }
        let stores = self.world.stores.get();
        let vain = if self.seen.replace(stores) == stores { self.vain.get() + 1 } else { 0 };
        self.vain.set(vain);
        if vain > VAIN {
            loom::skip_branch();
        }
        loom::thread::yield_now();
    }
    fn multiprocessor(&self) -> u32 {
        0
    }
    unsafe fn report(&self, _: *mut BlackBox, _: BlackBox) {
        // SAFETY: `loom` panics if two executors write it unordered.
        self.world.reports.with_mut(|value| unsafe { *value += 1 });
    }
}
