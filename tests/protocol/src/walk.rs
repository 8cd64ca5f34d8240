//! One random interleaving of a large plan: executors are coroutines, and before any access to shared memory another may go on.
//!
//! Memory is what the last store left: what a load may return otherwise does not belong here.

use std::cell::{Cell, RefCell};

use generator::{Gn, LocalGenerator, Scope, done};
use maco_abi::{BlackBox, INBOX, LAUNCH, Launch, PUSH_END, Push, View};
use maco_device::protocol::{Machine, Outcome, Thread, attend, work};

use crate::memory::{Memory, Word};
use crate::plan::{Fault, Plan, Schedule, Tables};

/// Numbers from a seed (D. E. Knuth's MMIX generator).
#[derive(Debug)]
pub struct Dice(Cell<u64>);

impl Dice {
    /// The same seed, the same numbers.
    pub fn new(seed: u64) -> Dice {
        Dice(Cell::new(seed))
    }

    /// A number below `limit`.
    pub fn below(&self, limit: u32) -> u32 {
        self.0.set(self.0.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (((self.0.get() >> 32) * limit as u64) >> 32) as u32
    }
}

/// What executors do, as an observer of everything sees it.
struct Seen<'a> {
    memory: &'a Memory,
    dice: Dice,
    /// One access in so many lets others go on.
    every: u32,
    /// By task.
    inputs: Vec<Vec<u32>>,
    pushed: RefCell<Vec<bool>>,
    ended: RefCell<Vec<bool>>,
    /// By task: the worker that it was pushed to, and its number there, from 1.
    places: RefCell<Vec<(u32, u32)>>,
    /// By worker: its tasks in the order in which they were pushed, how many have ended, and whether its list was ended.
    tasks: RefCell<Vec<Vec<u32>>>,
    done: RefCell<Vec<u32>>,
    over: RefCell<Vec<bool>>,
    /// The task whose push is lost.
    lost: Option<u32>,
    /// Tasks pushed before they were ready.
    ahead: Cell<u32>,
}

impl Seen<'_> {
    fn is_ready(&self, task: u32) -> bool {
        self.inputs[task as usize].iter().all(|&input| self.ended.borrow()[input as usize])
    }

    /// A store to a ring: only the inboxes' say something of tasks.
    fn put(&self, word: Word, before: u32, value: u32) {
        match word {
            Word::Inbox(..) | Word::Mailbox(..) if value != 0 => assert_eq!(before, 0, "{word:?} is full"),
            Word::Inbox(..) | Word::Mailbox(..) => assert_ne!(before, 0, "{word:?} is empty"),
            _ => return,
        }
        let Word::Inbox(worker, place) = word else { return };
        if value == PUSH_END {
            assert!(!std::mem::replace(&mut self.over.borrow_mut()[worker as usize], true), "worker {worker} ends twice");
        } else if value != 0 {
            let Push { descriptor: task, until } = Push::decode(value);
            assert!(!std::mem::replace(&mut self.pushed.borrow_mut()[task as usize], true), "task {task} is pushed twice");
            assert!(!self.over.borrow()[worker as usize], "worker {worker} has ended");
            let (mut all, done) = (self.tasks.borrow_mut(), self.done.borrow()[worker as usize]);
            let tasks = &mut all[worker as usize];
            if let Some(&held) = tasks[done as usize..].first() {
                assert!(self.is_ready(held), "task {task} is pushed behind task {held}, which waits");
            }
            if !until {
                assert!(self.is_ready(task), "task {task} is pushed before its inputs are there");
            } else {
                self.ahead.set(self.ahead.get() + 1);
                assert_eq!(tasks.len() as u32, done, "task {task} waits behind others");
                self.check_ahead(task, worker, place);
            }
            tasks.push(task);
            self.places.borrow_mut()[task as usize] = (worker, tasks.len() as u32);
            let outstanding = tasks.len() as u32 - done;
            assert!(outstanding <= INBOX, "worker {worker} has {outstanding} tasks");
        }
    }

    /// A task that is pushed ahead lacks nothing but the task that it is told to wait for.
    fn check_ahead(&self, task: u32, worker: u32, place: u32) {
        let index = self.memory.until(worker, place);
        // SAFETY: one thread runs all executors.
        let until = unsafe { (self.memory.address(index).read(), self.memory.address(index + 1).read()) };
        for &input in &self.inputs[task as usize] {
            let at = self.places.borrow()[input as usize];
            // Nobody sees a push that is lost.
            let awaited = at == until || self.lost == Some(input);
            assert!(awaited || self.ended.borrow()[input as usize], "task {task} does not wait for task {input}");
        }
        assert!(until.0 != worker && until.1 > 0, "task {task} waits for its own worker");
    }

    fn run(&self, worker: u32, task: u32, pushed: bool) {
        assert!(self.is_ready(task), "task {task} runs before its inputs are there");
        assert!(!std::mem::replace(&mut self.ended.borrow_mut()[task as usize], true), "task {task} runs twice");
        if pushed {
            self.done.borrow_mut()[worker as usize] += 1;
        }
    }
}

/// A coroutine as a machine of one lane.
struct Walker<'a, 's, 'g> {
    thread: Thread,
    seen: &'a Seen<'a>,
    scope: RefCell<Scope<'s, 'g, (), ()>>,
}

impl Walker<'_, '_, '_> {
    fn switch(&self) {
        self.scope.borrow_mut().yield_with(());
    }

    fn step(&self) {
        if self.seen.dice.below(self.seen.every) == 0 {
            self.switch();
        }
    }
}

// SAFETY: one thread runs all coroutines, so that memory is in order without fences.
unsafe impl Machine for Walker<'_, '_, '_> {
    unsafe fn load(&self, at: *const u32) -> u32 {
        self.step();
        // SAFETY: passed on from the caller.
        unsafe { self.thread.load(at) }
    }
    unsafe fn store(&self, at: *mut u32, value: u32) {
        self.step();
        // SAFETY: passed on from the caller.
        unsafe {
            self.seen.put(self.seen.memory.word(self.seen.memory.index(at)), self.thread.load(at), value);
            self.thread.store(at, value);
        }
    }
    unsafe fn add(&self, at: *mut u32, value: u32) {
        self.step();
        // SAFETY: passed on from the caller.
        unsafe { self.thread.add(at, value) }
    }
    unsafe fn claim(&self, at: *mut u32, value: u32) -> u32 {
        self.step();
        // SAFETY: passed on from the caller.
        unsafe { self.thread.claim(at, value) }
    }
    unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32 {
        self.step();
        // SAFETY: passed on from the caller.
        unsafe { self.thread.compare_exchange(at, expected, new) }
    }
    fn acquire(&self) {}
    fn release(&self) {}
    fn now(&self) -> u64 {
        1
    }
    /// A wait that others had this often a chance to end does not end.
    fn pause(&self, polls: u32) {
        assert!(polls < 1 << 20, "nobody gets on");
        self.switch();
    }
    fn multiprocessor(&self) -> u32 {
        0
    }
    unsafe fn report(&self, _: *mut BlackBox, report: BlackBox) {
        panic!("no deadline can pass: {report:?}");
    }
}

/// Words of a coroutine's stack.
const STACK: usize = 1 << 14;

/// Runs one launch of `plan` in an order that `seed` names; panics at what is wrong. How many tasks were pushed before they were ready:
/// none unless schedulers look `ahead`.
pub fn walk(plan: &Plan, schedule: Schedule, position: u32, ahead: bool, fault: Option<Fault>, seed: u64) -> u32 {
    let tables = Tables::new(plan, schedule, position, ahead, fault);
    let memory = Memory::new(&tables);
    memory.load(&tables);
    let views: Vec<View> = vec![View::default(); maco_abi::OPERANDS];
    let mut launch = tables.launch(&views);
    memory.bind(&mut launch);
    let mut inputs = vec![Vec::new(); plan.tasks as usize];
    for counter in &plan.counters {
        counter.waiters.iter().for_each(|&waiter| inputs[waiter as usize].extend(&counter.producers));
    }
    let dice = Dice::new(seed);
    let seen = Seen {
        memory: &memory,
        every: 1 + dice.below(40),
        dice,
        inputs,
        pushed: RefCell::new(vec![false; plan.tasks as usize]),
        ended: RefCell::new(vec![false; plan.tasks as usize]),
        places: RefCell::new(vec![(0, 0); plan.tasks as usize]),
        tasks: RefCell::new(vec![Vec::new(); plan.workers as usize]),
        done: RefCell::new(vec![0; plan.workers as usize]),
        lost: fault.and_then(|fault| if let Fault::LostPush(task) = fault { Some(task) } else { None }),
        ahead: Cell::new(0),
        over: RefCell::new(vec![false; plan.workers as usize]),
    };
    let executors = launch.workers + launch.schedulers;
    let mut running: Vec<LocalGenerator<'_, (), ()>> = (0..executors).map(|number| executor(&seen, &launch, number, position)).collect();
    while !running.is_empty() {
        let next = seen.dice.below(running.len() as u32) as usize;
        running[next].resume();
        if running[next].is_done() {
            drop(running.swap_remove(next));
        }
    }
    assert!(seen.ended.borrow().iter().all(|&ended| ended), "a task did not run");
    assert!(launch.schedulers == 0 || seen.pushed.borrow().iter().all(|&pushed| pushed), "a task was not pushed");
    assert!(launch.schedulers == 0 || seen.over.borrow().iter().all(|&over| over), "a worker's list has no end");
    for (index, word) in memory.all() {
        // SAFETY: nobody runs any more.
        let value = unsafe { memory.address(index).read() };
        match word {
            Word::Left | Word::Begun => assert_eq!(value, LAUNCH, "{word:?} after the launch"),
            Word::Ticket(0) | Word::Drain(0, _) | Word::Counter(0, _) | Word::Until(..) => {}
            Word::Ended(0, worker) => assert_eq!(value, seen.done.borrow()[worker as usize], "tasks of worker {worker}"),
            _ => assert_eq!(value, 0, "{word:?} after the launch"),
        }
    }
    seen.ahead.get()
}

fn executor<'a>(seen: &'a Seen<'a>, launch: &'a Launch, number: u32, position: u32) -> LocalGenerator<'a, (), ()> {
    Gn::new_scoped_opt_local(STACK, move |scope| {
        let machine = Walker { thread: Thread::new(), seen, scope: RefCell::new(scope) };
        // SAFETY: the launch is live until all coroutines have ended; each has its own number.
        unsafe {
            if let Some(scheduler) = number.checked_sub(launch.workers) {
                attend(&machine, launch, scheduler);
            } else {
                let mut tails = vec![position as u8; launch.schedulers as usize];
                work(&machine, launch, number, &mut tails, |_, descriptor| {
                    machine.switch();
                    seen.run(number, (*descriptor).task, launch.schedulers > 0);
                    Outcome::Ready
                });
            }
        }
        done!();
    })
}
