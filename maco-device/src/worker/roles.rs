//! Loader, consumers, and store and signals: each takes every published task in turn.

use super::flight::{SIGNALS, WAYS, task};
use super::{place, pushed, slot};
use crate::abi::{EXTRA_BYTES, LOST_ARRIVE, Launch, NO_COUNTER, OP_END, READ_BY_TMA, SLOTS, STAGED};
use crate::hardware::{fence, mbarrier, memory, special, warp};
use crate::protocol::{self, Machine, Outcome, Run};
use crate::role::consumer::Consumer;
use crate::role::loader::Loader;
use crate::role::ring::{Arena, STOP};
use crate::role::store::Store;
use crate::task::{Slot, Task};

/// The code of tasks. Not a closure: those cannot be made to be inlined, and a role in memory is slow.
pub(super) trait Tasks<R> {
    /// Runs instance `op` as `role`.
    fn run(&mut self, role: &mut R, task: Task, op: u32);
}

/// A published task as a role sees it.
struct Published {
    slot: *const Slot,
    task: Task,
    op: u32,
    flags: u16,
    after: u32,
}

/// Waits for the `n`-th task; `None` at the end of the list, or when no more are published.
#[inline(always)]
unsafe fn next(arena: Arena, launch: *const Launch, n: u32) -> Option<Published> {
    let (at, parity) = place(n);
    // SAFETY: an initialised barrier; the slot is valid from `ready` to `vacant`.
    unsafe {
        if !arena.wait_unless_stopped(arena.ready(at), parity) {
            return None;
        }
        let place = arena.slot(at);
        let op = memory::read_shared(place) as u16;
        let ways = memory::read_shared(place + WAYS);
        if op == OP_END {
            return None;
        }
        Some(Published { slot: slot(arena, at), task: task(arena, launch, at), op: op as u32, flags: ways as u16, after: ways >> 16 })
    }
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
        while let Some(published) = next(arena, launch, n) {
            if published.flags & STAGED != 0 {
                // The controller acquired the operands' counters; the copies go through another proxy.
                fence::proxy_async_global();
                role.exaggerate(published.flags & EXTRA_BYTES != 0);
                tasks.run(&mut role, published.task, published.op);
            }
            mbarrier::arrive(arena.vacant(n % SLOTS));
            n += 1;
        }
        role.drain();
    }
}

#[inline(always)]
pub(super) unsafe fn consume(arena: Arena, launch: *const Launch, mut tasks: impl Tasks<Consumer>) {
    let thread = special::thread() - 128;
    // SAFETY: the 256 consumer threads.
    unsafe {
        let mut role = Consumer::new(arena, thread);
        let mut n = 0;
        loop {
            // Finish the last tile behind the next one's multiplications; while there is none, now: others may wait for it. Warps may
            // see the next task at different times, so none waits for the store here: it waits for the chunks of all, and one that
            // has gone on stages them only as it gets loads, which come when all have given back what they read.
            let (at, parity) = place(n);
            while role.owes() && warp::all(!mbarrier::test(arena.ready(at), parity) && arena.halted() < STOP) {
                role.stage_if_free();
            }
            let Some(published) = next(arena, launch, n) else { break };
            if published.after != 0 {
                // An earlier task of this list: all eight warps must have ended it.
                let (at, parity) = place(n.wrapping_sub(published.after));
                arena.wait(arena.done(at), parity);
            }
            tasks.run(&mut role, published.task, published.op);
            if published.flags & READ_BY_TMA != 0 {
                fence::proxy_async_global();
            }
            warp::sync();
            // Read anew: a register across all tasks is worth more.
            let thread = special::thread_again() - 128;
            if thread.is_multiple_of(32) && (thread != 0 || published.flags & LOST_ARRIVE == 0) {
                mbarrier::arrive(arena.done(n % SLOTS));
            }
            n += 1;
        }
        role.settle();
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
        let mut role = Store::new(arena, (*launch).maps);
        let mut n = 0;
        while let Some(published) = next(arena, launch, n) {
            let mut ended = 0;
            if published.flags & STAGED != 0 {
                if lane == 0 {
                    tasks.run(&mut role, published.task, published.op);
                }
                warp::sync();
            } else if !pushed {
                // Behind other signals, several tasks may have ended meanwhile. Those before `n` have, so that parities are in step.
                let (at, parity) = place(n + lane);
                let done = lane < SLOTS && mbarrier::test(arena.done(at), parity);
                let direct = done && memory::read_shared(arena.slot(at) + WAYS) as u16 & STAGED == 0;
                ended = warp::ballot(direct).trailing_ones();
            }
            if ended == 0 {
                let (at, parity) = place(n);
                if !arena.wait(arena.done(at), parity) {
                    break;
                }
                ended = 1;
            }
            if published.flags & STAGED != 0 {
                // What the copies wrote comes before the signal.
                fence::proxy_async_global();
            }
            if pushed {
                if lane == 0 {
                    let tails = special::generic(arena.tails()) as *mut u8;
                    if protocol::notify(one, &whole, &run, &raw const (*published.slot).descriptor, tails) == Outcome::Abort {
                        // The message is lost with the launch; the slot is vacated all the same.
                    }
                }
                warp::sync();
            } else {
                let descriptor = &raw const (*slot(arena, (n + lane) % SLOTS)).descriptor;
                let signals = lane < ended && memory::read_shared(arena.slot((n + lane) % SLOTS) + SIGNALS) != NO_COUNTER;
                if warp::ballot(signals) != 0 {
                    one.release();
                    if signals {
                        protocol::bump(one, &run, descriptor);
                    }
                }
                warp::sync();
            }
            if lane < ended {
                mbarrier::arrive(arena.vacant((n + lane) % SLOTS));
            }
            n += ended;
        }
    }
}
