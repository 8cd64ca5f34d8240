//! A CTA of host threads: dependency poller, loader, two consumers and store over modelled shared memory, mbarriers and copies.
//!
//! Loader, consumers and store run the same loops and roles as on the GPU. Prefetcher and dependency poller, which work by the lanes of a warp there, are one thread
//! here, which publishes the same tasks into the same slots in the same order.

use core::sync::atomic::{AtomicU32, Ordering};

use super::watchdog::Stall;
use super::{place, roles, waits, warp_tasks, watchdog};
use crate::data::task::Task;
/// The clock that records have: what it shows, and for how many nanoseconds it shows the same.
pub use crate::model::special::{TICK, stamp};
pub use crate::model::{Delays, Surroundings, tensor_map};
use crate::model::{Modelled, Nobody, Shared, mbarrier, memory, special, tma};
use crate::profile;
use crate::profile::warp_task::WarpTaskTimer;
use crate::protocol::{self, Look, Machine, Outcome, Patience, Queue, Run, Until, faults};
use crate::roles::consumer::Consumer;
use crate::roles::cpu::Cpu;
use crate::roles::elementwise_prologue::ElementwisePrologue;
use crate::roles::loader::Loader;
use crate::roles::store::Store;
use crate::shared_memory::{FALL_THROUGH, SharedMemory};
use crate::sync::ready_mailbox;
use maco_abi::{Descriptor, EARLY_FREE, Launch, OP_END, OPERANDS, SLOTS, Slot, View, ViewEntry};

/// A CTA, from launch to launch.
pub struct Cta {
    shared: Shared,
    block: u32,
    seed: u32,
    /// Parts that have left this launch.
    left: AtomicU32,
}

/// What one thread plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CtaThread {
    /// Brings tasks into slots, waits for their counters, publishes them.
    Control,
    /// Copies operands into the ring.
    Load,
    /// Multiplies, and does all element-wise work; one of two warpgroups.
    Consume(u32),
    /// Copies results to memory, and signals.
    Store,
}

impl CtaThread {
    /// Every part of a CTA.
    pub const ALL: [CtaThread; 5] = [CtaThread::Control, CtaThread::Load, CtaThread::Consume(0), CtaThread::Consume(1), CtaThread::Store];

    /// Its first hardware thread, and its warps.
    fn warps(self) -> (u32, u32) {
        match self {
            CtaThread::Load => (0, 1),
            CtaThread::Control => (32, 1),
            CtaThread::Store => (64, 1),
            CtaThread::Consume(group) => (128 + 128 * group, 4),
        }
    }
}

/// Tasks that are compiled for a host thread, whatever it plays.
struct Played<D>(D);

impl<D: FnMut(&mut Cpu, Task, u32)> roles::Tasks<Loader> for Played<D> {
    fn run(&mut self, role: &mut Loader, task: Task, op: u32) {
        Cpu::loading(role, |cpu| (self.0)(cpu, task, op));
    }
}

/// The same of consumers, who wait for counters where one warp runs a task.
struct Consuming<'a, D, M> {
    dispatch: D,
    machine: &'a M,
}

impl<D: FnMut(&mut Cpu, Task, u32), M> roles::Tasks<Consumer> for Consuming<'_, D, M> {
    fn run(&mut self, role: &mut Consumer, task: Task, op: u32) {
        Cpu::consuming(role, |cpu| (self.dispatch)(cpu, task, op));
    }
}

impl<D: FnMut(&mut Cpu, Task, u32), M: Machine> roles::Warps for Consuming<'_, D, M> {
    const WARP_TASKS: bool = true;

    unsafe fn run_warp_tasks(&mut self, launch: *const Launch, n: u32, warp: u32, timer: WarpTaskTimer) -> u32 {
        // SAFETY: passed on from the caller.
        unsafe { warp_tasks::run(self.machine, smem(), launch, (n, warp), timer, |task, op| (self.dispatch)(&mut Cpu::new(), task, op)) }
    }
}

impl<D: FnMut(&mut Cpu, Task, u32), M> roles::Prologues for Consuming<'_, D, M> {
    const ELEMENTWISE_PROLOGUES: bool = true;

    unsafe fn map(&mut self, launch: *const Launch, n: u32) {
        // SAFETY: passed on from the caller.
        unsafe { roles::map(launch, n, Played(&mut self.dispatch)) }
    }
}

impl<D: FnMut(&mut Cpu, Task, u32)> roles::Tasks<ElementwisePrologue> for Played<D> {
    fn run(&mut self, role: &mut ElementwisePrologue, task: Task, op: u32) {
        Cpu::elementwise_prologue(role, |cpu| (self.0)(cpu, task, op));
    }
}

impl<D: FnMut(&mut Cpu, Task, u32)> roles::Tasks<Store<true>> for Played<D> {
    fn run(&mut self, role: &mut Store<true>, task: Task, op: u32) {
        Cpu::storing(role, |cpu| (self.0)(cpu, task, op));
    }
}

impl Cta {
    /// CTA `block` of a launch.
    pub fn new(block: u32) -> Cta {
        Cta { shared: Shared::new().with_halt(smem().halt_word(), FALL_THROUGH), block, seed: 0, left: AtomicU32::new(0) }
    }

    /// Makes it as new for a launch; `seed` chooses delays and the order of copies, 0 for none.
    pub fn begin(&mut self, seed: u32) {
        self.shared.clear();
        self.seed = seed;
        *self.left.get_mut() = 0;
        // SAFETY: nobody else has the CTA.
        Modelled::new(&self.shared, &Nobody, self.block, 0, 1, 0).enter(|| unsafe { smem().init(0, 1) });
    }

    /// Makes its notes ready for a launch.
    ///
    /// # Safety
    /// Behind [`Cta::begin`]; `launch` is live.
    pub unsafe fn note(&mut self, launch: &Launch) {
        // SAFETY: nobody else has the CTA.
        Modelled::new(&self.shared, &Nobody, self.block, 0, 1, 0).enter(|| unsafe { profile::init(smem(), launch, self.block) });
    }

    /// Plays one part of a launch. `dispatch` runs a task as the role it is given. Whatever happens, [`Cta::leave`] comes after it.
    ///
    /// # Safety
    /// `launch` names live memory that the plan filled for `dispatch`. Between two calls of [`Cta::begin`] each part is played once,
    /// all parts at the same time.
    pub unsafe fn play<M: Machine>(
        &self,
        part: CtaThread,
        machine: &M,
        surroundings: &dyn Surroundings,
        launch: &Launch,
        mut dispatch: impl FnMut(&mut Cpu, Task, u32),
    ) {
        let (number, warps) = part.warps();
        let thread = Modelled::new(&self.shared, surroundings, self.block, number, warps, self.seed);
        // SAFETY: the caller promises a live launch and one thread per part.
        thread.enter(|| unsafe {
            tma::forget();
            match part {
                CtaThread::Control => control(machine, launch, self.block),
                CtaThread::Load => roles::load(smem(), launch, Played(dispatch)),
                CtaThread::Consume(_) => roles::consume(smem(), launch, Consuming { dispatch, machine }),
                CtaThread::Store => {
                    let storing = |cpu: &mut Cpu, task: Task, op| {
                        tma::set_impatient(faults::hit(launch, EARLY_FREE, || task.index()));
                        dispatch(cpu, task, op);
                    };
                    roles::store(machine, machine, smem(), launch, Played(storing));
                }
            }
        });
    }

    /// Lets every wait of the CTA through: a part ended in the midst of a task.
    pub fn let_through(&self) {
        Modelled::new(&self.shared, &Nobody, self.block, 0, 1, 0).enter(|| smem().halt(FALL_THROUGH));
    }

    /// A part has ended; the last one of the CTA leaves the launch, as its thread 0 does on a GPU.
    ///
    /// # Safety
    /// `launch` is live; called once by each part, after its last access.
    pub unsafe fn leave<M: Machine>(&self, machine: &M, launch: &Launch) {
        // SAFETY: passed on from the caller.
        unsafe {
            if self.left.fetch_add(1, Ordering::AcqRel) == CtaThread::ALL.len() as u32 - 1 {
                Modelled::new(&self.shared, &Nobody, self.block, 0, 1, 0).enter(|| profile::finish(launch));
                protocol::leave(machine, launch.state as *mut _, self.block, launch.executors);
            }
        }
    }
}

fn smem() -> SharedMemory {
    SharedMemory(special::shared_base())
}

/// Prefetcher and dependency poller.
unsafe fn control<M: Machine>(machine: &M, launch: &Launch, worker: u32) {
    // SAFETY: the dependency poller of a live launch; a vacant slot is its own.
    unsafe {
        let run = Run::new(machine, launch, worker);
        protocol::enter(machine, &run);
        let mut queue = Queue::new(launch, &run);
        smem().set_counters(run.counters);
        smem().set_in_band(launch.in_band, launch.in_band_words, launch.in_band_bytes, run.epoch());
        // Tasks before `posted` are in slots, those before `n` published.
        let (mut n, mut posted, mut ended, mut until) = (0, 0, false, Until::NOW);
        'stop: loop {
            // As far ahead as it may be; by a seed, less.
            let ahead = if queue.is_pushed() { 1 } else { SLOTS - special::choose(SLOTS) };
            'post: while !ended && posted < n + ahead {
                // As late as the prefetcher claims: the task so many places before has left its slot.
                let late = queue.claims(&run).map(|ahead| posted + SLOTS - ahead);
                for m in late.into_iter().chain([posted]) {
                    let (at, parity) = place(m);
                    if posted > n && !mbarrier::test(smem().vacant(at), parity ^ 1) {
                        // Not now: there is something else to do.
                        break 'post;
                    }
                    if !vacant(machine, &run, m) {
                        break 'stop;
                    }
                }
                let Some(next) = queue.next(machine, &run) else { break 'stop };
                let index = next.0;
                until = next.1;
                let descriptor = (launch.descriptors as *const Descriptor).add(index as usize);
                let views = (launch.views as *const View).add((*descriptor).views as usize);
                let (at, _) = place(posted);
                let slot = Slot { descriptor: *descriptor, views: views.cast::<[ViewEntry; OPERANDS]>().read() };
                (special::generic(smem().slot(at)) as *mut Slot).write(slot);
                if !queue.is_pushed() {
                    waits::find(machine, smem(), launch, at);
                }
                mbarrier::arrive(smem().posted(at));
                ended = (*descriptor).op == OP_END;
                posted += 1;
            }
            let (at, _) = place(n);
            let slot = watchdog::slot(smem(), at);
            let (descriptor, views) = (&raw const (*slot).descriptor, (&raw const (*slot).views).cast::<View>());
            // What is pushed is the only task in a slot that is not published.
            let may_run = match queue.is_pushed() {
                true => until.wait(machine, &run),
                false => protocol::wait(machine, &run, descriptor, views),
            };
            if run.aborted(machine) || may_run == Outcome::Abort {
                break;
            }
            let announced = ready_mailbox::of(n, memory::read_shared2(smem().slot(at)));
            mbarrier::arrive(smem().ready(at));
            ready_mailbox::give(smem(), n, announced);
            if ended && n + 1 == posted {
                watchdog::supervise(machine, smem(), &run, n);
                return;
            }
            n += 1;
        }
        let begun = watchdog::stop(machine, smem(), n);
        watchdog::supervise(machine, smem(), &run, begun);
    }
}

/// Waits until the slot of the `n`-th task is vacant; false after an abort.
unsafe fn vacant<M: Machine>(machine: &M, run: &Run, n: u32) -> bool {
    let (at, parity) = place(n);
    let (mut patience, mut stall) = (Patience::new(), Stall::new());
    // SAFETY: an initialised barrier, a live launch.
    unsafe {
        while !mbarrier::try_wait(smem().vacant(at), parity ^ 1) {
            stall.look(machine, smem(), &mut patience);
            match patience.look(machine, run) {
                Look::Again => {}
                Look::Late => watchdog::stuck(machine, smem(), run, &patience, at),
                Look::Abort => return false,
            }
        }
    }
    true
}

const _: () = assert!(size_of::<Slot>() == 256 && SLOTS > 0);
