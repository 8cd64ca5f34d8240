//! Loader, consumers, and store and signals: each takes every published task in turn.

use super::machine::Lane;
use super::{place, pushed, slot};
use crate::abi::{EXTRA_BYTES, LOST_ARRIVE, Launch, NO_COUNTER, OP_END, READ_BY_TMA, SLOTS, STAGED};
use crate::protocol::{self, Machine, Outcome, Run};
use crate::ptx::{fence, mbarrier, special, warp};
use crate::role::consumer::Consumer;
use crate::role::loader::Loader;
use crate::role::ring::Arena;
use crate::role::store::Store;
use crate::task::{Callable, Filter, Slot, Task, dispatch};

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
        let op = crate::ptx::memory::read_shared(place) & 0xFFFF;
        let ways = crate::ptx::memory::read_shared(place + 20);
        let task = Task::new(place, &raw const (*launch).scalars);
        if op == OP_END as u32 { None } else { Some(Published { slot: slot(arena, at), task, op, flags: ways as u16, after: ways >> 16 }) }
    }
}

#[inline(always)]
pub(super) unsafe fn load<C: Callable, F: Filter>(arena: Arena, launch: *const Launch) {
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
                role.excess = if published.flags & EXTRA_BYTES != 0 { 16 } else { 0 };
                dispatch::<C, Loader, F>(&mut role, published.task, published.op);
            }
            mbarrier::arrive(arena.vacant(n % SLOTS));
            n += 1;
        }
        role.drain();
    }
}

#[inline(always)]
pub(super) unsafe fn consume<C: Callable, F: Filter>(arena: Arena, launch: *const Launch) {
    let thread = special::thread() - 128;
    // SAFETY: the 256 consumer threads.
    unsafe {
        let mut role = Consumer::new(arena, thread);
        let mut n = 0;
        loop {
            // Finish the last tile behind the next one's multiplications; without a next one, now: others may wait for it.
            if role.owes() {
                let (at, parity) = place(n);
                if warp::ballot(mbarrier::test(arena.ready(at), parity)) != u32::MAX {
                    role.settle();
                }
            }
            let Some(published) = next(arena, launch, n) else { break };
            if published.after != 0 {
                // An earlier task of this list: all eight warps must have ended it.
                let (at, parity) = place(n.wrapping_sub(published.after));
                arena.wait(arena.done(at), parity);
            }
            dispatch::<C, Consumer, F>(&mut role, published.task, published.op);
            if published.flags & READ_BY_TMA != 0 {
                fence::proxy_async_global();
            }
            warp::sync();
            if thread % 32 == 0 && (thread != 0 || published.flags & LOST_ARRIVE == 0) {
                mbarrier::arrive(arena.done(n % SLOTS));
            }
            n += 1;
        }
        role.settle();
    }
}

/// Sends staged results and signals ended tasks: as many at once as have ended, since a release fence costs more than the rest.
#[inline(always)]
pub(super) unsafe fn store<C: Callable, F: Filter>(arena: Arena, launch: *const Launch) {
    let lane = special::thread() % 32;
    // SAFETY: the store warp.
    unsafe {
        let run = Run::new(&super::Warp, &*launch, special::block());
        run.clear_idle(&super::Warp, run.worker, (*launch).workers);
        let pushed = pushed(launch);
        let whole = *launch;
        let mut role = Store::new(arena, (*launch).maps);
        let mut n = 0;
        while let Some(published) = next(arena, launch, n) {
            let mut ended = 0;
            if published.flags & STAGED != 0 {
                if lane == 0 {
                    dispatch::<C, Store, F>(&mut role, published.task, published.op);
                }
                warp::sync();
            } else if !pushed {
                // Behind other signals, several tasks may have ended meanwhile. Those before `n` have, so that parities are in step.
                let (at, parity) = place(n + lane);
                let done = lane < SLOTS && mbarrier::test(arena.done(at), parity);
                let direct = done && crate::ptx::memory::read_shared(arena.slot(at) + 20) as u16 & STAGED == 0;
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
                    if protocol::notify(&Lane, &whole, &run, &raw const (*published.slot).descriptor, tails) == Outcome::Abort {
                        // The message is lost with the launch; the slot is vacated all the same.
                    }
                }
                warp::sync();
            } else {
                let descriptor = &raw const (*slot(arena, (n + lane) % SLOTS)).descriptor;
                let signals = lane < ended && crate::ptx::memory::read_shared(arena.slot((n + lane) % SLOTS) + 40) != NO_COUNTER;
                if warp::ballot(signals) != 0 {
                    Lane.release();
                    if signals {
                        protocol::bump(&Lane, &run, descriptor);
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
