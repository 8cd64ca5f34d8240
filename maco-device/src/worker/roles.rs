//! Loader, consumers, and store and signals: each takes every published task in turn.

use super::flight::{SIGNALS, WAYS, task};
use super::{place, pushed, slot};
use crate::abi::{EARLY, EXTRA_BYTES, LOST_ARRIVE, Launch, NO_COUNTER, OP_END, QUICK, READ_BY_TMA, SLOTS, SOLE, STAGED};
use crate::hardware::{barrier, fence, local, mbarrier, memory, special, warp};
use crate::profile;
use crate::protocol::{self, Machine, Outcome, Run};
use crate::role::consumer::Consumer;
use crate::role::gate::Gate;
use crate::role::loader::Loader;
use crate::role::ring::{self, ARRIVALS, Arena, STOP};
use crate::role::store::Store;
use crate::task::Task;

/// The code of tasks. Not a closure: those cannot be made to be inlined, and a role in memory is slow.
pub(super) trait Tasks<R> {
    /// Runs instance `op` as `role`.
    fn run(&mut self, role: &mut R, task: Task, op: u32);
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
        while let Some(published) = ready(arena, n) {
            if published.flags & STAGED != 0 {
                // The controller acquired the operands' counters; the copies go through another proxy.
                fence::proxy_async_global();
                role.exaggerate(published.flags & EXTRA_BYTES != 0);
                profile::load(arena);
                tasks.run(&mut role, task(arena, launch, n % SLOTS), published.op.into());
                profile::loaded(arena, n);
            }
            mbarrier::arrive(arena.vacant(n % SLOTS));
            n += 1;
        }
        role.drain();
    }
}

/// Flags of tasks that are more than a body to consumers.
const SPECIAL: u16 = STAGED | READ_BY_TMA | LOST_ARRIVE;

impl Posted {
    const NONE: Posted = Posted { op: OP_END, flags: 0, after: 0 };

    /// Whether the task is nothing but a body: nothing has to be settled, waited for or fenced before it or behind it.
    #[inline(always)]
    fn is_plain(self) -> bool {
        self.op != OP_END && self.flags & SPECIAL == 0
    }
}

/// What a lane of a consumer sees of task `n`, which follows the one that its warp ends; `None` unless it is published.
#[inline(always)]
unsafe fn look_ahead(arena: Arena, n: u32) -> Option<Posted> {
    let (at, parity) = place(n);
    // SAFETY: initialised barriers; a published task is in its slot.
    unsafe {
        // Consumers may be so far ahead of the controller that `ready` is still about the task before in this slot, whose parity tells
        // it from the next one only once it is complete: as it is when that task has left the slot, and the next one is posted.
        let posted = mbarrier::test(arena.posted(at), parity);
        let ready = mbarrier::test(arena.ready(at), parity);
        if posted && ready { Some(read(arena, n)) } else { None }
    }
}

#[inline(always)]
pub(super) unsafe fn consume(arena: Arena, launch: *const Launch, mut tasks: impl Tasks<Consumer>) {
    let thread = special::thread() - 128;
    // SAFETY: the 256 consumer threads.
    unsafe {
        let mut role = Consumer::new(arena, thread);
        let mut n = 0;
        let Some(mut posted) = prepare(arena, &mut role, n, None) else { return };
        loop {
            tasks.run(&mut role, task(arena, launch, place(n).0), posted.op.into());
            let ran = profile::ran(arena, n);
            // Under way together: who this is (read anew: a register across all tasks is worth more), and what comes next.
            let lane = warp::lane_again();
            let next = look_ahead(arena, n + 1);
            // From one plain task to the next that may run, there is one branch, and no lane can take it alone: a task that costs little is
            // bound by the branches between bodies.
            let plain = posted.is_plain() && !role.owes() && next.is_some_and(Posted::is_plain);
            if warp::all(plain) {
                warp::sync();
                ring::arrive(arena.done(place(n).0), lane);
                ran.note(arena);
                posted = next.unwrap_or(Posted::NONE);
                if posted.after != 0 {
                    // All warps have ended every task before this one.
                    barrier::sync_consumers();
                }
                role.begin(Gate::open(arena));
            } else {
                if role.stopped() {
                    break;
                }
                if posted.flags & READ_BY_TMA != 0 {
                    fence::proxy_async_global();
                }
                warp::sync();
                if ARRIVALS > 1 || lane == 0 {
                    end(arena, n, posted.flags, next.is_none());
                }
                ran.note(arena);
                posted = match prepare(arena, &mut role, n + 1, next) {
                    Some(posted) => posted,
                    None => break,
                };
            }
            n += 1;
        }
        role.settle();
    }
}

/// Everything that a consumer warp does before it runs task `n`, of which it has `seen` that it is published; `None` if it does not: the
/// list ends, or the CTA stops.
#[inline(always)]
unsafe fn prepare(arena: Arena, role: &mut Consumer, n: u32, seen: Option<Posted>) -> Option<Posted> {
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
        // Lanes that have seen different things act as one: they meet at barriers.
        let published = warp::all(seen.is_some());
        if !published && !warp::all(arena.wait_unless_stopped(arena.posted(at), parity)) {
            return None;
        }
        let posted = read(arena, n);
        if posted.op == OP_END {
            return None;
        }
        if posted.flags & STAGED != 0 {
            // What it reads comes through the ring, which is filled when it is published; after a stop it never is.
            if !published && !arena.wait_unless_stopped(arena.ready(at), parity) {
                return None;
            }
            profile::waited_unless(arena, n, published);
            role.begin(Gate::open(arena));
        } else {
            role.settle();
            role.begin(Gate::of(arena, n, posted.after, !published));
            // One gate for all but SIMT tasks: one in each would cost registers and room for instructions.
            if posted.flags & EARLY == 0 && !role.pass() {
                return None;
            }
        }
        Some(posted)
    }
}

/// Each of [`ARRIVALS`] lanes of a consumer warp: the warp has ended task `n`, and is `idle` unless it may begin with the next one.
#[inline(always)]
unsafe fn end(arena: Arena, n: u32, flags: u16, idle: bool) {
    let (at, parity) = place(n);
    let done = arena.done(at);
    // SAFETY: initialised barriers; the slot stays until all warps have ended the task.
    unsafe {
        if flags & LOST_ARRIVE != 0 && warp::consumer() == 0 {
            return;
        }
        if !idle || flags & QUICK == 0 {
            mbarrier::arrive(done);
            return;
        }
        let signal = memory::read_shared(arena.slot(at) + SIGNALS);
        mbarrier::arrive(done);
        // The last warp signals: the store warp will too, but it takes a while to hear of the end.
        if mbarrier::test(done, parity) {
            fence::release_gpu();
            local::store_relaxed(arena.counters().add((signal & !SOLE) as usize), 1);
        }
    }
}

/// Sends staged results and signals ended tasks: as many at once as have ended, since a release fence costs more than the rest.
#[inline(always)]
pub(super) unsafe fn store<W: Machine, L: Machine>(
    machine: &W,
    one: &L,
    arena: Arena,
    launch: *const Launch,
    mut tasks: impl Tasks<Store>,
) {
    let lane = warp::lane();
    // SAFETY: the store warp.
    unsafe {
        let run = Run::new(machine, &*launch, special::block());
        run.clear_idle(machine, run.worker, (*launch).workers);
        let pushed = pushed(launch);
        let whole = *launch;
        profile::stamp(arena);
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
                // Behind other signals, several tasks may have ended meanwhile. Those before `n` have, so that parities are in step.
                let (at, parity) = place(n + lane);
                let done = lane < SLOTS && mbarrier::test(arena.done(at), parity);
                let direct = done && memory::read_shared(arena.slot(at) + WAYS) as u16 & STAGED == 0;
                ended = warp::ballot(direct).trailing_ones().max(1);
            }
            // Somebody may wait for this one: what it signals is known before it ends.
            let signal = if lane < ended { memory::read_shared(arena.slot(place(n + lane).0) + SIGNALS) } else { NO_COUNTER };
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
            if pushed {
                if lane == 0 {
                    let tails = special::generic(arena.tails()) as *mut u8;
                    if protocol::notify(one, &whole, &run, &raw const (*slot(arena, n % SLOTS)).descriptor, tails) == Outcome::Abort {
                        // The message is lost with the launch; the slot is vacated all the same.
                    }
                }
                warp::sync();
            } else {
                if any != 0 {
                    one.release();
                    if signal != NO_COUNTER {
                        protocol::bump(one, &run, signal, &raw const (*slot(arena, (n + lane) % SLOTS)).descriptor);
                    }
                }
                warp::sync();
            }
            profile::signalled(arena, n, ended);
            if ARRIVALS > 1 {
                let mut at = 0;
                while at < ended {
                    mbarrier::arrive(arena.vacant((n + at) % SLOTS));
                    at += 1;
                }
            } else if lane < ended {
                mbarrier::arrive(arena.vacant((n + lane) % SLOTS));
            }
            n += ended;
        }
    }
}
