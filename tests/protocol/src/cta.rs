//! A CTA under `loom`: its controller, which is a warp of 32 lanes, and those who take the tasks that it publishes.
//!
//! Fetcher, consumers and store are no more here than what the controller sees of them. Gates, slots and what is said when a CTA stops are the files
//! that ship: see `lib.rs`.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::rc::Rc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use loom::thread::{self, JoinHandle};
use maco_abi::{
    CONSUMERS_POLL, CounterIndex, Descriptor, Flags, Launch, OP_NONE, REPORT_DEADLINE, REPORT_STUCK, SHARED_BYTES, Signal, State, Wait,
};
use maco_device::protocol::{Run, bump_one};

use crate::hardware::{ABORT, Cta, Executor, current, fence, gpu_scope, mbarrier, special};
pub use crate::hardware::{Kind, Lack};
use crate::lanes;
use crate::machine::Lane;
use crate::order::Order;
use crate::shared_memory::{FALL_THROUGH, SharedMemory, WAITS, place};
use crate::sync::gate::Gate;
use crate::sync::ready_mailbox;
use crate::worker;

/// Words of [`State`].
const STATE: usize = size_of::<State>() / 4;
/// Index of the first word of shared memory for [`Order`].
const SHARED: u32 = 1 << 10;
/// What tasks write that they have ended, for [`Order`].
const ENDS: u32 = 1 << 10;
/// First hardware threads.
const CONTROLLER: u32 = 32;
const CONSUMERS: u32 = 128;
const FETCHER: u32 = 96;
const SMEM: SharedMemory = SharedMemory(special::BASE);
/// The halt word: see `SharedMemory::halt`. Elsewhere, nobody would see that the CTA stops, and every model would fail.
const HALT: u32 = 16;

/// What the CTA does while it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// The controller runs the list.
    Controlled,
    /// It stops, having published so many tasks.
    Stopped(u32),
}

/// Who takes tasks, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumers {
    /// One, who waits for the task's mbarrier.
    Waiting,
    /// One, who looks at the word that announces the task.
    Noticing,
    /// Two warps, at its gate.
    Gated,
    /// One, who begins with a task and does not end it.
    Stuck,
}

/// A list of tasks, and what becomes of it.
#[derive(Clone, Debug)]
pub struct Model {
    /// Counters that each task waits for; of one arrival each.
    pub tasks: &'static [&'static [u32]],
    /// How many counters get theirs, from another CTA.
    pub signals: u32,
    /// What the CTA does.
    pub run: Course,
    /// Who takes tasks.
    pub consumers: Consumers,
    /// Whether tasks are posted while the controller runs.
    pub late: bool,
    /// Whether deadlines pass, at the second look.
    pub deadline: bool,
    /// Whether another CTA aborts the launch.
    pub abort: bool,
    /// How often a thread may be interrupted.
    pub preemptions: usize,
    /// What is left out.
    pub lack: Option<Lack>,
}

impl Model {
    /// A list without anything wrong.
    pub const fn new(tasks: &'static [&'static [u32]], signals: u32) -> Model {
        Model {
            tasks,
            signals,
            run: Course::Controlled,
            consumers: Consumers::Waiting,
            late: false,
            deadline: false,
            abort: false,
            preemptions: 2,
            lack: None,
        }
    }

    /// Tries all interleavings and panics at the first one that is wrong; how many there are.
    pub fn check(&self) -> usize {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(self.preemptions);
        builder.max_branches = 5_000;
        let count = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (model, runs) = (self.clone(), count.clone());
        builder.check(move || {
            World::new(&model).run();
            runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        count.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn warps(&self) -> u32 {
        if self.consumers == Consumers::Gated { 2 } else { 1 }
    }
}

#[repr(C, align(128))]
struct Line([u32; 32]);

/// What all of a model's threads have.
struct World {
    model: Model,
    cta: Rc<Cta>,
    launch: Launch,
    /// What each counter says that is there.
    inputs: Vec<UnsafeCell<u32>>,
    _memory: Vec<Line>,
}

impl World {
    fn new(model: &Model) -> Rc<World> {
        let tasks = model.tasks.len() as u32;
        let counters = model.tasks.iter().flat_map(|waits| waits.iter()).max().map_or(0, |most| *most as usize + 1);
        let mut memory: Vec<Line> = (0..2 + counters.div_ceil(16)).map(|_| Line([0; 32])).collect();
        let base = memory.as_mut_ptr().cast::<u32>();
        let mut shared = HashMap::new();
        let mut index = SHARED;
        let mut add = |at, kind, value: u32, arrivals| {
            index += 1;
            shared.insert(at, (kind, AtomicU64::new(value.into()), index, arrivals));
        };
        add(SMEM.begun(0) - HALT, Kind::Halt, 0, 1);
        (0..model.warps()).filter(|_| model.consumers == Consumers::Gated).for_each(|warp| add(SMEM.begun(warp * 4), Kind::Begun, 0, 1));
        for n in 0..tasks + u32::from(model.run == Course::Controlled) {
            let (at, _) = place(n);
            if model.run == Course::Controlled {
                add(SMEM.posted(at), Kind::Posted, u32::from(!model.late), 1);
                add(SMEM.ready_mailbox(at), Kind::ReadyMailbox, 0, 1);
            }
            add(SMEM.ready(at), Kind::Ready, 0, 1);
            add(SMEM.vacant(at), Kind::Vacant, 0, model.warps().into());
        }
        let global = [ABORT].into_iter().chain(STATE..STATE + counters).map(|index| (index, AtomicU64::new(0))).collect();
        let cta = Rc::new(Cta {
            shared,
            global,
            base,
            tick: if model.consumers == Consumers::Stuck { 1_000_000 } else { 1 },
            plain: RefCell::new(vec![0; SHARED_BYTES as usize / 8]),
            order: RefCell::new(Order::default()),
            lack: model.lack,
            stores: Cell::new(0),
            reports: RefCell::default(),
        });
        // SAFETY: plain integers, valid when zero.
        let launch = Launch {
            state: base as u64,
            counters: counters as u32,
            workers: 1,
            executors: 1,
            deadline_ns: if model.deadline { 0 } else { u64::MAX },
            ..unsafe { MaybeUninit::zeroed().assume_init() }
        };
        let inputs = (0..counters).map(|_| UnsafeCell::new(0)).collect();
        let world = World { model: model.clone(), cta, launch, inputs, _memory: memory };
        (0..=tasks).for_each(|n| world.fill(n));
        Rc::new(world)
    }

    /// What the fetcher writes into a slot.
    fn fill(&self, n: u32) {
        let (at, _) = place(n);
        let waits = self.model.tasks.get(n as usize).copied();
        let wait = |n: usize| match waits.and_then(|waits| waits.get(n)) {
            Some(_) if self.cta.lacks(Lack::Edge) => Wait::NONE,
            Some(&counter) => Wait::new(CounterIndex(counter), 1),
            None => Wait::NONE,
        };
        let flags = if self.model.consumers == Consumers::Gated { CONSUMERS_POLL } else { Flags::NONE };
        let descriptor = Descriptor { op: if waits.is_some() { OP_NONE } else { Descriptor::END.op }, task: n, flags, ..Descriptor::END };
        // SAFETY: words of shared memory, which nobody else uses.
        unsafe {
            self.cta.pointer(SMEM.slot(at)).cast::<Descriptor>().write(descriptor);
            for n in 0..WAITS {
                let wait = wait(n as usize);
                self.cta.pointer(SMEM.waits(at) + n * 8).cast::<[u32; 2]>().write(wait.encode());
            }
        }
    }

    fn spawn<T: 'static>(self: &Rc<World>, number: usize, thread: u32, body: impl FnOnce(&World) -> T + 'static) -> JoinHandle<T> {
        let world = self.clone();
        self.cta.order.borrow_mut().spawn(number);
        thread::spawn(move || Executor::new(&world.cta, number, thread).enter(|| body(&world)))
    }

    fn run(self: &Rc<World>) {
        let model = &self.model;
        let controller = || Executor::new(&self.cta, 0, CONTROLLER);
        controller().enter(|| SMEM.set_counters(self.cta.base.wrapping_add(STATE)));
        let consumers: Vec<_> = (0..model.warps())
            .map(|warp| self.spawn(1 + warp as usize, CONSUMERS + 128 * warp, move |world| world.consume(warp)))
            .collect();
        let others: Vec<_> = [
            (model.signals > 0).then(|| self.spawn(3, 0, World::produce)),
            model.late.then(|| self.spawn(4, FETCHER, World::post)),
            model.abort.then(|| self.spawn(4, 0, World::abort)),
        ]
        .into_iter()
        .flatten()
        .collect();
        controller().enter(|| match model.run {
            // SAFETY: the launch is live while this runs.
            Course::Controlled => lanes::run(&|| unsafe { worker::control(SMEM, &self.launch) }),
            // SAFETY: as above; initialised mbarriers.
            Course::Stopped(published) => unsafe {
                (0..published).for_each(|n| mbarrier::arrive(SMEM.ready(place(n).0)));
                worker::stop(&self.launch, published);
            },
        });
        // Whatever comes next in the CTA: all that were published have ended, or the CTA was let through.
        let halted = controller().enter(|| SMEM.halted());
        let published = controller().enter(|| (0..model.tasks.len() as u32).take_while(|&n| is_published(n)).count() as u32);
        if halted < FALL_THROUGH {
            (0..published).for_each(|n| (0..model.warps()).for_each(|warp| self.cta.order.borrow_mut().read(0, ENDS + 2 * n + warp)));
        }
        let ran: Vec<u32> = consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        self.check(published, &ran);
    }

    fn check(&self, published: u32, ran: &[u32]) {
        let (model, reports) = (&self.model, self.cta.reports.borrow());
        assert!(ran.iter().all(|&ran| ran == published), "tasks run: {ran:?}, and published: {published}");
        if let Course::Stopped(_) = model.run {
            return;
        }
        // SAFETY: all threads have been joined.
        let aborted = unsafe { self.cta.global[&ABORT].unsync_load() } as u32;
        let allowed: &[u32] = match (model.consumers, aborted) {
            (_, 0 | ABORTED) => &[],
            (Consumers::Stuck, _) => &[REPORT_STUCK],
            // What is published and has not ended, if a deadline is so short.
            _ if model.signals > 0 => &[REPORT_DEADLINE, REPORT_STUCK],
            _ => &[REPORT_DEADLINE],
        };
        assert_eq!(reports.len(), usize::from(!allowed.is_empty()), "reports");
        assert!(reports.iter().all(|report| allowed.contains(report)), "report {reports:?}");
        assert!(aborted != 0 || published == model.tasks.len() as u32, "{published} tasks have run");
        let lost = model.tasks.iter().flat_map(|waits| waits.iter()).any(|&counter| counter >= model.signals);
        assert!(aborted != 0 || !lost && model.consumers != Consumers::Stuck, "nobody has seen what does not come");
        assert!(aborted == 0 || model.deadline || model.abort, "aborted");
    }

    /// A consumer; how many tasks it has run.
    fn consume(&self, warp: u32) -> u32 {
        let tasks = self.model.tasks.len() as u32;
        for n in 0..tasks {
            // SAFETY: initialised words; the slot holds a task.
            let runs = unsafe {
                let (at, parity) = place(n);
                match self.model.consumers {
                    Consumers::Gated => Gate::of(SMEM, n, CONSUMERS_POLL, 0, false).pass(crate::hardware::warp::consumer()),
                    Consumers::Noticing => loop {
                        if ready_mailbox::take(SMEM, n).is_given() {
                            break true;
                        }
                        if SMEM.halted() >= crate::shared_memory::STOP {
                            break ready_mailbox::take(SMEM, n).is_given();
                        }
                        current().pause();
                    },
                    _ => SMEM.wait_unless_stopped(SMEM.ready(at), parity),
                }
            };
            if !runs {
                return n;
            }
            self.body(n, warp);
            if self.model.consumers == Consumers::Stuck {
                while SMEM.halted() < FALL_THROUGH {
                    current().pause();
                }
                return n + 1;
            }
            // SAFETY: an initialised mbarrier.
            unsafe { mbarrier::arrive(SMEM.vacant(place(n).0)) };
        }
        tasks
    }

    /// Reads what a task waits for, and notes its end.
    fn body(&self, n: u32, warp: u32) {
        let number = 1 + warp as usize;
        for &counter in self.model.tasks[n as usize] {
            self.cta.order.borrow_mut().read(number, counter);
            // SAFETY: `loom` panics if another thread's access is not ordered with this one.
            self.inputs[counter as usize].with(|input| assert_eq!(unsafe { *input }, 1, "task {n} reads what is not written"));
        }
        self.cta.order.borrow_mut().write(number, ENDS + 2 * n + warp);
    }

    /// Another CTA writes what tasks read.
    fn produce(&self) {
        // SAFETY: the launch is live.
        let run = unsafe { Run::new(&Lane, &self.launch, 0) };
        for counter in 0..self.model.signals {
            self.cta.order.borrow_mut().write(3, counter);
            // SAFETY: as in `body`.
            self.inputs[counter as usize].with_mut(|input| unsafe { *input = 1 });
            fence::release_gpu();
            // SAFETY: the counter is inside the bank.
            unsafe { bump_one(&Lane, &run, Signal { counter: CounterIndex(counter), single_producer: true }.encode()) };
        }
    }

    /// The fetcher, as far as it comes; the slots are filled.
    fn post(&self) {
        for n in 0..=self.model.tasks.len() as u32 {
            // SAFETY: an initialised mbarrier.
            unsafe { mbarrier::arrive(SMEM.posted(place(n).0)) };
        }
    }

    /// Another CTA aborts the launch.
    fn abort(&self) {
        // SAFETY: a word of the model.
        unsafe { gpu_scope::compare_exchange(self.cta.base.wrapping_add(ABORT), 0, ABORTED) };
    }
}

/// What another CTA sets the abort word to.
const ABORTED: u32 = 99;

/// Whether task `n` is published.
fn is_published(n: u32) -> bool {
    let (at, parity) = place(n);
    // SAFETY: an initialised mbarrier.
    unsafe { mbarrier::test(SMEM.ready(at), parity) }
}
