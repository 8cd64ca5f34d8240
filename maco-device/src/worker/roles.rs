//! The loops of loader, consumers and store warp: each takes every published task in turn.

use super::watchdog::{SIGNALS, TASK, WAYS, task};
use super::{place, pushed, slot};
use crate::data::task::Task;
use crate::hardware::{barrier, fence, mbarrier, memory, special, warp};
use crate::profile;
use crate::profile::warp_task::WarpTaskTimer;
use crate::protocol::{self, Machine, Outcome, Run, faults};
use crate::roles::consumer::Consumer;
use crate::roles::elementwise_prologue::{self, ElementwisePrologue};
use crate::roles::loader::Loader;
use crate::roles::store::Store;
use crate::shared_memory::{self, ARRIVALS, STOP, SharedMemory};
use crate::sync::gate::Gate;
use maco_abi::{
    BULK_ROWS, EARLY_START, ELEMENTWISE_PROLOGUE, EXTRA_BYTES, Flags, LOAD_BEFORE_WAIT, LOAD_CONSTANT_OPERAND_EARLY, LOST_ARRIVE, Launch,
    NO_SIGNAL, OP_END, READ_BY_TMA, SLOTS, STAGED, WARP_TASK,
};

/// The code of tasks. Not a closure: those cannot be made to be inlined, and a role in memory is slow.
pub(super) trait Tasks<R> {
    /// Runs instance `op` as `role`.
    fn run(&mut self, role: &mut R, task: Task, op: u32);
}

/// The code of tasks of one warp.
pub(super) trait Warps {
    /// Whether there are any.
    const WARP_TASKS: bool;
    /// Goes through the slot of task `n`, and runs those of the tasks in it that are this thread's warps', see [`super::warp_tasks`]. What comes behind it.
    /// `alone` is what the warp notes of the first one.
    ///
    /// # Safety
    /// A whole consumer warp of a live launch calls; the slot holds tasks of one warp, and is published.
    unsafe fn run_warp_tasks(&mut self, launch: *const Launch, n: u32, warp: u32, timer: WarpTaskTimer) -> u32;
}

/// The code of elementwise prologues of GEMVs.
pub(super) trait Prologues {
    /// Whether there are any.
    const ELEMENTWISE_PROLOGUES: bool;
    /// Runs that of task `n`.
    ///
    /// # Safety
    /// As of [`map`].
    unsafe fn map(&mut self, launch: *const Launch, n: u32);
}

/// Runs the elementwise prologue of task `n` by `tasks`.
///
/// # Safety
/// All consumers of a live launch call, whole converged warps, behind [`elementwise_prologue::receive`], which said that it is to be run.
#[inline(always)]
pub(super) unsafe fn map(launch: *const Launch, n: u32, mut tasks: impl Tasks<ElementwisePrologue>) {
    let smem = SharedMemory(special::shared_base());
    // SAFETY: passed on from the caller.
    let (mut role, task, op) = unsafe { ElementwisePrologue::of(task(smem, launch, place(n).0), smem, launch) };
    tasks.run(&mut role, task, op);
    barrier::sync_consumers();
}

/// A task as a role sees it.
#[derive(Clone, Copy)]
struct Posted {
    op: u16,
    flags: Flags,
    after: u32,
}

/// The `n`-th task, which has been posted.
#[inline(always)]
unsafe fn read(smem: SharedMemory, n: u32) -> Posted {
    // SAFETY: the slot is valid from `posted` to `vacant`.
    let [head, ways] = unsafe { memory::read_shared2(smem.slot(place(n).0)) };
    Posted { op: head as u16, flags: Flags::decode(ways as u16), after: ways >> 16 }
}

/// Index in the plan of the `n`-th task, which has been posted.
#[inline(always)]
unsafe fn index(smem: SharedMemory, n: u32) -> u32 {
    // SAFETY: as above.
    unsafe { memory::read_shared(smem.slot(place(n).0) + TASK) }
}

/// Waits until the `n`-th task is posted; `None` at the end of the list, or when the CTA stops.
#[inline(always)]
unsafe fn posted(smem: SharedMemory, n: u32) -> Option<Posted> {
    let (at, parity) = place(n);
    // SAFETY: an initialised barrier; passed on from the caller.
    let posted = unsafe { if smem.wait_unless_stopped(smem.posted(at), parity) { read(smem, n) } else { return None } };
    if posted.op == OP_END { None } else { Some(posted) }
}

/// Waits until the `n`-th task may run; `None` at the end of the list, or when no more are published.
#[inline(always)]
unsafe fn ready(smem: SharedMemory, n: u32) -> Option<Posted> {
    let (at, parity) = place(n);
    // SAFETY: an initialised barrier; passed on from the caller.
    let posted = unsafe { if smem.wait_unless_stopped(smem.ready(at), parity) { read(smem, n) } else { return None } };
    if posted.op == OP_END { None } else { Some(posted) }
}

#[inline(always)]
pub(super) unsafe fn load(smem: SharedMemory, launch: *const Launch, mut tasks: impl Tasks<Loader>) {
    if special::thread() != 0 {
        return;
    }
    // SAFETY: the loader thread.
    unsafe {
        let mut role = Loader::new(smem, (*launch).tensor_maps);
        let mut n = 0;
        'tasks: while let Some(Posted { flags, .. }) = posted(smem, n) {
            if flags.has(STAGED | BULK_ROWS) {
                // What has weights is gone through twice.
                let mut before = flags.has(LOAD_CONSTANT_OPERAND_EARLY);
                if before {
                    role.before();
                }
                loop {
                    // Read anew in each turn: registers through a whole task are worth more.
                    let Posted { op, flags, .. } = read(smem, n);
                    let ahead = before || flags.has(LOAD_BEFORE_WAIT);
                    if !ahead && ready(smem, n).is_none() {
                        break 'tasks;
                    }
                    // The dependency poller acquired the operands' counters, if they are waited for; the copies go through another proxy.
                    fence::proxy_async_global();
                    role.exaggerate(faults::hit(launch, EXTRA_BYTES, || index(smem, n)));
                    role.precede(n, ahead);
                    profile::load(smem);
                    tasks.run(&mut role, task(smem, launch, n % SLOTS), op.into());
                    if !before {
                        break;
                    }
                    before = false;
                    role.rest();
                }
                profile::loaded(smem, n);
            }
            mbarrier::arrive(smem.vacant(n % SLOTS));
            n += 1;
        }
        role.drain();
    }
}

/// Whether task `n` is published, as this lane sees it.
#[inline(always)]
unsafe fn is_published(smem: SharedMemory, n: u32) -> bool {
    let (at, parity) = place(n);
    // SAFETY: initialised barriers.
    unsafe {
        // Consumers may be so far ahead of the dependency poller that `ready` is still about the task before in this slot, whose parity tells
        // it from the next one only once it is complete: as it is when that task has left the slot, and the next one is posted.
        let posted = mbarrier::test(smem.posted(at), parity);
        let ready = mbarrier::test(smem.ready(at), parity);
        posted && ready
    }
}

/// What [`prepare`] gives where there is no task.
const NO_TASK: u32 = OP_END as u32;

/// Everything that a consumer warp does before it runs the task of its gate, or, behind tasks of one warp, which it runs here, the next one:
/// its instance; [`NO_TASK`] if there is none: the list ends, or the CTA stops. Not an option: ptxas keeps what is undefined then (docs/internals/gemm.md).
#[inline(always)]
unsafe fn prepare<T: Warps>(smem: SharedMemory, launch: *const Launch, tasks: &mut T, role: &mut Consumer) -> u32 {
    loop {
        let n = role.gate.number();
        let (at, parity) = place(n);
        // SAFETY: a consumer warp, converged; passed on from the caller.
        unsafe {
            // Finish the last tile behind the next one's multiplications; while there is none, now: others may wait for it. Warps may
            // see the next task at different times, so none waits for the store here: it waits for the chunks of all, and one that
            // has gone on stages them only as it gets loads, which come when all have given back what they read.
            while role.owes() && warp::all(!mbarrier::test(smem.ready(at), parity) && smem.halted() < STOP) {
                role.stage_if_free();
            }
            profile::turn(smem);
            let mut timer = if T::WARP_TASKS { WarpTaskTimer::turn() } else { WarpTaskTimer::NEVER };
            // Lanes that see different things act as one: they meet at barriers.
            let published = warp::all(is_published(smem, n));
            if !published && !warp::all(smem.wait_unless_stopped(smem.posted(at), parity)) {
                return NO_TASK;
            }
            let Posted { op, flags, after } = read(smem, n);
            if op == OP_END {
                return NO_TASK;
            }
            if T::WARP_TASKS && flags.has(WARP_TASK) {
                // Here whatever it waits for is waited for by its warps, or has been.
                if !published && !smem.wait_unless_stopped(smem.ready(at), parity) {
                    return NO_TASK;
                }
                if !published {
                    timer.waited();
                }
                role.settle();
                role.gate = Gate::open(smem, tasks.run_warp_tasks(launch, n, role.warp(), timer));
                continue;
            }
            role.gate = Gate::of(smem, n, flags, after, published);
            if faults::hit(launch, LOST_ARRIVE, || index(smem, n)) {
                role.gate.end_last();
            }
            if flags.has(STAGED) {
                // What it reads comes through the ring, which is filled when it is published; after a stop it never is.
                if !published && !smem.wait_unless_stopped(smem.ready(at), parity) {
                    return NO_TASK;
                }
                profile::waited_unless(smem, n, published);
            } else {
                role.settle();
                // One gate for all but bodies with a prologue: one in each would cost registers and room for instructions.
                if !flags.has(EARLY_START) && !role.gate.pass(role.warp()) {
                    return NO_TASK;
                }
            }
            return op.into();
        }
    }
}

#[inline(always)]
pub(super) unsafe fn consume<T: Tasks<Consumer> + Warps + Prologues>(smem: SharedMemory, launch: *const Launch, mut tasks: T) {
    // SAFETY: the 256 consumer threads.
    unsafe {
        let mut role = Consumer::new(smem);
        loop {
            let mut op = prepare(smem, launch, &mut tasks, &mut role);
            if op == NO_TASK {
                break;
            }
            // No task that is nothing but a body.
            if T::ELEMENTWISE_PROLOGUES && role.gate.has(ELEMENTWISE_PROLOGUE) {
                role.wait_sent();
                let n = role.gate.number();
                if elementwise_prologue::receive(task(smem, launch, place(n).0), smem.0, role.staged()) != 0 {
                    tasks.map(launch, n);
                }
            }
            loop {
                let task = task(smem, launch, place(role.gate.number()).0);
                tasks.run(&mut role, task, op);
                // The gate has the number of the task: a second one, even if it is the same, would take a register through all that bodies call.
                role.gate.again();
                let ran = profile::ran_unless(smem, role.gate.number(), role.gate.ends_first());
                // Read anew: a register across all tasks is worth more.
                let lane = warp::lane_again();
                // From one task that is nothing but a body to the next that may run, there is one branch, which no lane takes alone: a task that
                // costs little is bound by the branches between bodies.
                let next = role.gate.take_next();
                if warp::all(
                    next.is_given()
                        && role.gate.is_plain()
                        && !role.owes()
                        && !faults::hit(launch, LOST_ARRIVE, || index(smem, role.gate.next().number())),
                ) {
                    warp::sync();
                    shared_memory::arrive(smem.done(role.gate.slot()), lane);
                    ran.note(smem);
                    op = next.op().into();
                    if next.after() != 0 {
                        // All warps have ended every task before this one.
                        barrier::sync_consumers();
                        profile::turn(smem);
                    }
                    role.gate = role.gate.next();
                    continue;
                }
                if role.gate.stopped() {
                    role.settle();
                    return;
                }
                if role.gate.has(READ_BY_TMA) {
                    fence::proxy_async_global();
                }
                if !role.gate.end_first() {
                    warp::sync();
                    if role.warp() != 0 || !faults::hit(launch, LOST_ARRIVE, || index(smem, role.gate.number())) {
                        shared_memory::arrive(smem.done(role.gate.slot()), lane);
                    }
                }
                ran.note(smem);
                role.gate = role.gate.next();
                break;
            }
        }
        role.settle();
    }
}

/// Sends staged results and signals ended tasks: as many at once as have ended, since a release fence costs more than the rest.
#[inline(always)]
pub(super) unsafe fn store<W: Machine, L: Machine, T: Tasks<Store<PUSHES>>, const PUSHES: bool>(
    machine: &W,
    one: &L,
    smem: SharedMemory,
    launch: *const Launch,
    mut tasks: T,
) {
    let lane = warp::lane();
    // SAFETY: the store warp.
    unsafe {
        let run = Run::new(machine, &*launch, special::block());
        run.clear_idle(machine, run.worker, (*launch).workers);
        // Asked anew each time, as what is posted is: kept as predicates, these would share a register with those of consumers, which have others.
        let pushed = pushed(launch) as u32;
        let pushed = || special::opaque(pushed) != 0;
        let whole = *launch;
        profile::stamp(launch);
        let mut role = Store::new(smem, (*launch).tensor_maps);
        let mut n = 0;
        while let Some(published) = ready(smem, n) {
            let (at, parity) = place(n);
            profile::store(smem);
            let staged = || special::opaque(published.flags.mask()) & STAGED.mask() != 0;
            let mut ended = 1;
            if staged() {
                if lane == 0 {
                    tasks.run(&mut role, task(smem, launch, at), published.op.into());
                }
                warp::sync();
            } else if !pushed() && !warp::all(!mbarrier::test(smem.done(at), parity)) {
                // Behind other signals, several tasks may have ended meanwhile. Those before `n` have, so that parities are in step. Consumers that
                // look at counters themselves may have ended one that the dependency poller has still to read in its slot.
                let (at, parity) = place(n + lane);
                let done = lane < SLOTS && mbarrier::test(smem.done(at), parity) && mbarrier::test(smem.ready(at), parity);
                let direct = done && memory::read_shared(smem.slot(at) + WAYS) & STAGED.mask() == 0;
                ended = warp::ballot(direct).trailing_ones().max(1);
            }
            // Somebody may wait for this one: what it signals is known before it ends.
            let [signal, second] = if lane < ended { memory::read_shared2(smem.slot(place(n + lane).0) + SIGNALS) } else { [NO_SIGNAL; 2] };
            // Nothing else of its slot is needed if there is only one.
            let brief = !pushed() && warp::all(second == NO_SIGNAL);
            let any = warp::ballot(signal != NO_SIGNAL);
            if !smem.wait(smem.done(at), parity) {
                break;
            }
            warp::sync();
            profile::stored(smem, staged());
            if staged() {
                // What the copies wrote comes before the signal.
                fence::proxy_async_global();
            }
            let ending = profile::ending(smem, n, ended);
            if brief {
                vacate(smem, n, ended, lane);
            }
            if pushed() {
                if lane == 0 {
                    let tails = special::generic(smem.tails()) as *mut u8;
                    if protocol::notify(one, &whole, &run, &raw const (*slot(smem, n % SLOTS)).descriptor, n + 1, tails) == Outcome::Abort {
                        // The message is lost with the launch; the slot is vacated all the same.
                    }
                }
                warp::sync();
            } else {
                if any != 0 {
                    one.release();
                    if brief {
                        if signal != NO_SIGNAL {
                            protocol::bump_one(one, &run, signal);
                        }
                    } else if signal != NO_SIGNAL {
                        protocol::bump(one, &run, signal, &raw const (*slot(smem, (n + lane) % SLOTS)).descriptor);
                    }
                }
                warp::sync();
            }
            if !brief {
                vacate(smem, n, ended, lane);
            }
            ending.note(smem);
            n += ended;
        }
    }
}

/// The store warp needs the slots of the `ended` tasks from `n` on no more.
#[inline(always)]
unsafe fn vacate(smem: SharedMemory, n: u32, ended: u32, lane: u32) {
    // SAFETY: initialised barriers; called by the whole warp, once for each task.
    unsafe {
        if ARRIVALS > 1 {
            let mut at = 0;
            while at < ended {
                // Racecheck follows a wait only to the lane that made it, and not one whose answer nobody uses. Each has ended already.
                let (done, parity) = place(n + at);
                smem.wait(smem.done(done), parity);
                mbarrier::arrive(smem.vacant((n + at) % SLOTS));
                at += 1;
            }
        } else if lane < ended {
            mbarrier::arrive(smem.vacant((n + lane) % SLOTS));
        }
    }
}
