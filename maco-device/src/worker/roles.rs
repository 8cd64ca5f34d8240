//! Loader, consumers, and store and signals: each takes every published task in turn.

use super::flight::{SIGNALS, WAYS, task};
use super::{place, pushed, slot};
use crate::abi::{
    EARLY, EXTRA_BYTES, LOST_ARRIVE, Launch, MAPPED, NARROW, NO_COUNTER, OP_END, PRELOADED, READ_BY_TMA, SLOTS, STAGED, STREAMED, WEIGHTED,
};
use crate::hardware::{barrier, fence, mbarrier, memory, special, warp};
use crate::profile;
use crate::profile::alone::Alone;
use crate::protocol::{self, Machine, Outcome, Run};
use crate::role::arena::{self, ARRIVALS, Arena, STOP};
use crate::role::consumer::Consumer;
use crate::role::gate::Gate;
use crate::role::loader::Loader;
use crate::role::mapping::{self, Mapping};
use crate::role::notice;
use crate::role::store::Store;
use crate::task::Task;

/// The code of tasks. Not a closure: those cannot be made to be inlined, and a role in memory is slow.
pub(super) trait Tasks<R> {
    /// Runs instance `op` as `role`.
    fn run(&mut self, role: &mut R, task: Task, op: u32);
}

/// The code of tasks of one warp.
pub(super) trait Warps {
    /// Whether there are any.
    const NARROW: bool;
    /// Goes through the slot of task `n`, and runs those of the tasks in it that are this thread's warps', see [`super::narrow`]. What comes behind it.
    /// `alone` is what the warp notes of the first one.
    ///
    /// # Safety
    /// A whole consumer warp of a live launch calls; the slot holds tasks of one warp, and is published.
    unsafe fn run_by_warps(&mut self, launch: *const Launch, n: u32, alone: Alone) -> u32;
}

/// The code of maps that products make of their factor.
pub(super) trait Maps {
    /// Whether there are any.
    const MAPS: bool;
    /// Makes that of task `n`, behind which `staged` chunks have been staged, if it is not there.
    ///
    /// # Safety
    /// As of [`map`].
    unsafe fn map(&mut self, launch: *const Launch, n: u32, staged: u32);
}

/// Makes the map of the factor of task `n` by `tasks`, if it is not there.
///
/// # Safety
/// All consumers of a live launch call, whole converged warps, as of [`mapping::receive`]; task `n` is published, and [`MAPPED`].
#[inline(always)]
pub(super) unsafe fn map(launch: *const Launch, n: u32, staged: u32, mut tasks: impl Tasks<Mapping>) {
    let (arena, thread) = (Arena(special::shared_base()), special::thread_again() - 128);
    // SAFETY: passed on from the caller.
    unsafe {
        if let Some((mut role, task, op)) = mapping::receive(arena, launch, task(arena, launch, place(n).0), staged, thread) {
            tasks.run(&mut role, task, op);
            barrier::sync_consumers();
        }
    }
}

/// A task as a role sees it.
#[derive(Clone, Copy)]
struct Posted {
    op: u16,
    flags: u16,
    after: u32,
}

/// The `n`-th task, which has been posted.
#[inline(always)]
unsafe fn read(arena: Arena, n: u32) -> Posted {
    // SAFETY: the slot is valid from `posted` to `vacant`.
    let [head, ways] = unsafe { memory::read_shared2(arena.slot(place(n).0)) };
    Posted { op: head as u16, flags: ways as u16, after: ways >> 16 }
}

/// Waits until the `n`-th task is posted; `None` at the end of the list, or when the CTA stops.
#[inline(always)]
unsafe fn posted(arena: Arena, n: u32) -> Option<Posted> {
    let (at, parity) = place(n);
    // SAFETY: an initialised barrier; passed on from the caller.
    let posted = unsafe { if arena.wait_unless_stopped(arena.posted(at), parity) { read(arena, n) } else { return None } };
    if posted.op == OP_END { None } else { Some(posted) }
}

/// Waits until the `n`-th task may run; `None` at the end of the list, or when no more are published.
#[inline(always)]
unsafe fn ready(arena: Arena, n: u32) -> Option<Posted> {
    let (at, parity) = place(n);
    // SAFETY: an initialised barrier; passed on from the caller.
    let posted = unsafe { if arena.wait_unless_stopped(arena.ready(at), parity) { read(arena, n) } else { return None } };
    if posted.op == OP_END { None } else { Some(posted) }
}

#[inline(always)]
pub(super) unsafe fn load(arena: Arena, launch: *const Launch, mut tasks: impl Tasks<Loader>) {
    if special::thread() != 0 {
        return;
    }
    // SAFETY: the loader thread.
    unsafe {
        let mut role = Loader::new(arena, (*launch).maps);
        let mut n = 0;
        'tasks: while let Some(posted) = posted(arena, n) {
            if posted.flags & (STAGED | STREAMED) != 0 {
                // What has weights is gone through twice.
                let mut before = posted.flags & WEIGHTED != 0;
                if before {
                    role.before();
                }
                loop {
                    let ahead = before || posted.flags & PRELOADED != 0;
                    if !ahead && ready(arena, n).is_none() {
                        break 'tasks;
                    }
                    // The controller acquired the operands' counters, if they are waited for; the copies go through another proxy.
                    fence::proxy_async_global();
                    role.exaggerate(posted.flags & EXTRA_BYTES != 0);
                    role.precede(n, ahead);
                    profile::load(arena);
                    tasks.run(&mut role, task(arena, launch, n % SLOTS), posted.op.into());
                    if !before {
                        break;
                    }
                    before = false;
                    role.rest();
                }
                profile::loaded(arena, n);
            }
            mbarrier::arrive(arena.vacant(n % SLOTS));
            n += 1;
        }
        role.drain();
    }
}

/// Whether task `n` is published, as this lane sees it.
#[inline(always)]
unsafe fn is_published(arena: Arena, n: u32) -> bool {
    let (at, parity) = place(n);
    // SAFETY: initialised barriers.
    unsafe {
        // Consumers may be so far ahead of the controller that `ready` is still about the task before in this slot, whose parity tells
        // it from the next one only once it is complete: as it is when that task has left the slot, and the next one is posted.
        let posted = mbarrier::test(arena.posted(at), parity);
        let ready = mbarrier::test(arena.ready(at), parity);
        posted && ready
    }
}

/// What [`prepare`] gives where there is no task.
const NO_TASK: u32 = OP_END as u32;

/// Everything that a consumer warp does before it runs task `next`, or, behind tasks of one warp, which it runs here, the next one, which `next` is then: its
/// instance; [`NO_TASK`] if there is none: the list ends, or the CTA stops. Not an option: ptxas keeps what is undefined then (docs/internals/gemm.md).
#[inline(always)]
unsafe fn prepare<T: Warps>(arena: Arena, launch: *const Launch, tasks: &mut T, role: &mut Consumer, next: &mut u32) -> u32 {
    loop {
        let n = *next;
        let (at, parity) = place(n);
        // SAFETY: a consumer warp, converged; passed on from the caller.
        unsafe {
            // Finish the last tile behind the next one's multiplications; while there is none, now: others may wait for it. Warps may
            // see the next task at different times, so none waits for the store here: it waits for the chunks of all, and one that
            // has gone on stages them only as it gets loads, which come when all have given back what they read.
            while role.owes() && warp::all(!mbarrier::test(arena.ready(at), parity) && arena.halted() < STOP) {
                role.stage_if_free();
            }
            profile::turn(arena);
            let mut alone = if T::NARROW { Alone::turn() } else { Alone::NEVER };
            // Lanes that see different things act as one: they meet at barriers.
            let published = warp::all(is_published(arena, n));
            if !published && !warp::all(arena.wait_unless_stopped(arena.posted(at), parity)) {
                return NO_TASK;
            }
            let Posted { op, flags, after } = read(arena, n);
            if op == OP_END {
                return NO_TASK;
            }
            if T::NARROW && flags & NARROW != 0 {
                // Here whatever it waits for is waited for by its warps, or has been.
                if !published && !arena.wait_unless_stopped(arena.ready(at), parity) {
                    return NO_TASK;
                }
                if !published {
                    alone.waited();
                }
                role.settle();
                *next = tasks.run_by_warps(launch, n, alone);
                continue;
            }
            role.gate = Gate::of(arena, n, flags, after, published);
            if flags & STAGED != 0 {
                // What it reads comes through the ring, which is filled when it is published; after a stop it never is.
                if !published && !arena.wait_unless_stopped(arena.ready(at), parity) {
                    return NO_TASK;
                }
                profile::waited_unless(arena, n, published);
            } else {
                role.settle();
                // One gate for all but bodies with a prologue: one in each would cost registers and room for instructions.
                if flags & EARLY == 0 && !role.gate.pass() {
                    return NO_TASK;
                }
            }
            return op.into();
        }
    }
}

#[inline(always)]
pub(super) unsafe fn consume<T: Tasks<Consumer> + Warps + Maps>(arena: Arena, launch: *const Launch, mut tasks: T) {
    let thread = special::thread() - 128;
    // SAFETY: the 256 consumer threads.
    unsafe {
        let mut role = Consumer::new(arena, thread);
        let mut n = 0;
        loop {
            let mut op = prepare(arena, launch, &mut tasks, &mut role, &mut n);
            if op == NO_TASK {
                break;
            }
            // No task that is nothing but a body.
            if T::MAPS && role.gate.has(MAPPED) {
                role.wait_sent();
                tasks.map(launch, n, role.staged());
            }
            loop {
                tasks.run(&mut role, task(arena, launch, place(n).0), op);
                let ran = profile::ran_unless(arena, n, role.gate.ends_first());
                // Read anew: a register across all tasks is worth more.
                let lane = warp::lane_again();
                // From one task that is nothing but a body to the next that may run, there is one branch, which no lane takes alone: a task that
                // costs little is bound by the branches between bodies.
                let next = notice::take(arena, n + 1);
                if warp::all(next.is_given() && role.gate.is_plain() && !role.owes()) {
                    warp::sync();
                    arena::arrive(arena.done(place(n).0), lane);
                    ran.note(arena);
                    op = next.op().into();
                    if next.after() != 0 {
                        // All warps have ended every task before this one.
                        barrier::sync_consumers();
                        profile::turn(arena);
                    }
                    role.gate = Gate::open(arena);
                    n += 1;
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
                    if !role.gate.has(LOST_ARRIVE) || warp::consumer() != 0 {
                        arena::arrive(arena.done(place(n).0), lane);
                    }
                }
                ran.note(arena);
                n += 1;
                break;
            }
        }
        role.settle();
    }
}

/// Sends staged results and signals ended tasks: as many at once as have ended, since a release fence costs more than the rest.
#[inline(always)]
pub(super) unsafe fn store<W: Machine, L: Machine, T: Tasks<Store>>(
    machine: &W,
    one: &L,
    arena: Arena,
    launch: *const Launch,
    mut tasks: T,
) {
    let lane = warp::lane();
    // SAFETY: the store warp.
    unsafe {
        let run = Run::new(machine, &*launch, special::block());
        run.clear_idle(machine, run.worker, (*launch).workers);
        let pushed = pushed(launch);
        let whole = *launch;
        profile::stamp(launch);
        let mut role = Store::new(arena, (*launch).maps);
        let mut n = 0;
        while let Some(published) = ready(arena, n) {
            let (at, parity) = place(n);
            profile::store(arena);
            let staged = published.flags & STAGED != 0;
            let mut ended = 1;
            if staged {
                if lane == 0 {
                    tasks.run(&mut role, task(arena, launch, at), published.op.into());
                }
                warp::sync();
            } else if !pushed && !warp::all(!mbarrier::test(arena.done(at), parity)) {
                // Behind other signals, several tasks may have ended meanwhile. Those before `n` have, so that parities are in step. Consumers that
                // look at counters themselves may have ended one that the controller has still to read in its slot.
                let (at, parity) = place(n + lane);
                let done = lane < SLOTS && mbarrier::test(arena.done(at), parity) && mbarrier::test(arena.ready(at), parity);
                let direct = done && memory::read_shared(arena.slot(at) + WAYS) as u16 & STAGED == 0;
                ended = warp::ballot(direct).trailing_ones().max(1);
            }
            // Somebody may wait for this one: what it signals is known before it ends.
            let [signal, second] =
                if lane < ended { memory::read_shared2(arena.slot(place(n + lane).0) + SIGNALS) } else { [NO_COUNTER; 2] };
            // Nothing else of its slot is needed if there is only one.
            let brief = !pushed && warp::all(second == NO_COUNTER);
            let any = warp::ballot(signal != NO_COUNTER);
            if !arena.wait(arena.done(at), parity) {
                break;
            }
            warp::sync();
            profile::stored(arena, staged);
            if staged {
                // What the copies wrote comes before the signal.
                fence::proxy_async_global();
            }
            let ending = profile::ending(arena, n, ended);
            if brief {
                vacate(arena, n, ended, lane);
            }
            if pushed {
                if lane == 0 {
                    let tails = special::generic(arena.tails()) as *mut u8;
                    if protocol::notify(one, &whole, &run, &raw const (*slot(arena, n % SLOTS)).descriptor, n + 1, tails) == Outcome::Abort
                    {
                        // The message is lost with the launch; the slot is vacated all the same.
                    }
                }
                warp::sync();
            } else {
                if any != 0 {
                    one.release();
                    if brief {
                        if signal != NO_COUNTER {
                            protocol::bump_one(one, &run, signal);
                        }
                    } else if signal != NO_COUNTER {
                        protocol::bump(one, &run, signal, &raw const (*slot(arena, (n + lane) % SLOTS)).descriptor);
                    }
                }
                warp::sync();
            }
            if !brief {
                vacate(arena, n, ended, lane);
            }
            ending.note(arena);
            n += ended;
        }
    }
}

/// The store warp needs the slots of the `ended` tasks from `n` on no more.
#[inline(always)]
unsafe fn vacate(arena: Arena, n: u32, ended: u32, lane: u32) {
    // SAFETY: initialised barriers; called by the whole warp, once for each task.
    unsafe {
        if ARRIVALS > 1 {
            let mut at = 0;
            while at < ended {
                // Racecheck follows a wait only to the lane that made it, and not one whose answer nobody uses. Each has ended already.
                let (done, parity) = place(n + at);
                arena.wait(arena.done(done), parity);
                mbarrier::arrive(arena.vacant((n + at) % SLOTS));
                at += 1;
            }
        } else if lane < ended {
            mbarrier::arrive(arena.vacant((n + lane) % SLOTS));
        }
    }
}
