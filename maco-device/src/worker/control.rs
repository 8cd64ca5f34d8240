//! The controller: publishes posted tasks whose counters have arrived. One look at the counters serves all tasks in flight.

use core::mem::offset_of;

use super::machine::{Lane, Warp};
use super::{admitted, copy, place, pushed, slot, stop, stuck, supervise};
use crate::abi::{Descriptor, Launch, NO_COUNTER, OP_END, SLOTS, Share, Wait};
use crate::protocol::{self, Layout, Look, Machine, Outcome, Patience, Run};
use crate::ptx::{mbarrier, memory, special, warp};
use crate::role::ring::Arena;

/// Lanes that look after one task: one per inline wait, the others idle.
const LANES: u32 = 32 / SLOTS;
/// The first lane of every task.
const LEADERS: u32 = 0x1111_1111;
const _: () = assert!(LANES == 4);

/// Bytes of a slot: what the controller looks at.
const WAITS: u32 = offset_of!(Descriptor, wait) as u32;
const EXTRA: u32 = offset_of!(Descriptor, extra_waits) as u32;
const TASK: u32 = offset_of!(Descriptor, task) as u32;
const INDIRECT: u32 = offset_of!(Descriptor, indirect) as u32;
const _: () = assert!(size_of::<Wait>() == 8 && EXTRA % 4 == 0 && INDIRECT % 4 == 0);

/// The first `n` tasks of the window whose four lanes all hold.
#[inline(always)]
fn leading(lanes: u32) -> u32 {
    let whole = lanes & (lanes >> 1) & (lanes >> 2) & (lanes >> 3) & LEADERS;
    (!(whole | !LEADERS)).trailing_zeros() / LANES
}

#[inline(always)]
pub(super) unsafe fn control(arena: Arena, launch: *const Launch) {
    let lane = special::thread() % 32;
    // SAFETY: the controller warp of a live launch.
    unsafe {
        let worker = special::block();
        if pushed(launch) {
            spare(&*launch, worker);
            return;
        }
        let run = Run::new(&Warp, &*launch, worker);
        if !admitted(&run) {
            stop(arena, &run, 0);
            return;
        }
        // Tasks before `n` are published.
        let mut n = 0;
        loop {
            // The window: tasks that the fetcher has posted. All before `n` have been, so that parities are in step.
            let (at, parity) = place(n + lane / LANES);
            let posted = leading(warp::ballot(mbarrier::test(arena.posted(at), parity)));
            if posted == 0 {
                if !await_post(arena, &run, n) {
                    stop(arena, &run, n);
                    return;
                }
                continue;
            }
            let place = arena.slot(at);
            let mut wait = Wait { counter: NO_COUNTER, need: 0 };
            let (mut end, mut long) = (false, false);
            if lane / LANES < posted {
                end = memory::read_shared(place) as u16 == OP_END;
                long = memory::read_shared(place + EXTRA) as u16 != 0 || memory::read_shared(place + INDIRECT) as u16 != 0;
                if lane % LANES < 2 {
                    let at = place + WAITS + lane % LANES * 8;
                    wait = Wait { counter: memory::read_shared(at), need: memory::read_shared(at + 4) };
                }
            }
            let (ends, longs, waits) = (warp::ballot(end), warp::ballot(long), warp::ballot(wait.counter != NO_COUNTER));
            if longs & 1 != 0 {
                // More waits than the window has lanes for: this task alone.
                let first = slot(arena, n % SLOTS);
                if protocol::wait(&Warp, &run, &raw const (*first).descriptor, (&raw const (*first).views).cast()) == Outcome::Abort {
                    stop(arena, &run, n);
                    return;
                }
                publish(arena, lane, n, 1);
                n += 1;
                continue;
            }
            let mut patience = Patience::new();
            let ready = loop {
                let (arrived, seen) = protocol::arrived(&Warp, &run, wait);
                let ready = leading(warp::ballot(arrived && !long)).min(posted);
                if ready > 0 {
                    break ready;
                }
                match patience.look(&Warp, &run) {
                    Look::Again => {}
                    Look::Abort => break 0,
                    Look::Late => {
                        if lane < 2 && !arrived {
                            protocol::late(&Lane, &run, &patience, memory::read_shared(place + TASK), wait, seen);
                        }
                    }
                }
            };
            if ready == 0 {
                stop(arena, &run, n);
                return;
            }
            // Lanes of the published tasks; a shift by 32 would be none.
            let lanes = u32::MAX >> (32 - ready * LANES);
            if waits & lanes != 0 {
                Warp.acquire();
            }
            publish(arena, lane, n, ready);
            if ends & lanes != 0 {
                // Nothing is posted behind the end.
                supervise(arena, &run, n + (ends & lanes).trailing_zeros() / LANES);
                return;
            }
            n += ready;
        }
    }
}

#[inline(always)]
unsafe fn publish(arena: Arena, lane: u32, n: u32, tasks: u32) {
    if lane < tasks {
        // SAFETY: an initialised barrier, to which this warp alone arrives.
        unsafe { mbarrier::arrive(arena.ready((n + lane) % SLOTS)) };
    }
}

/// Waits for the fetcher, which waits for a slot: for the end of a task. False after an abort.
#[inline(always)]
unsafe fn await_post(arena: Arena, run: &Run, n: u32) -> bool {
    let (at, parity) = place(n);
    let mut patience = Patience::new();
    // SAFETY: an initialised barrier, a live launch.
    unsafe {
        // Not `try_wait`: the deadline counts polls, and that one may sleep for long.
        while !Warp.all(mbarrier::test(arena.posted(at), parity)) {
            match patience.look(&Warp, run) {
                Look::Again => {}
                Look::Abort => return false,
                Look::Late => {
                    // The oldest task that has not left its slot. Fewer than all slots may be in use: tickets are claimed late.
                    let mut m = n.saturating_sub(SLOTS);
                    while m < n {
                        let (at, parity) = place(m);
                        if !Warp.all(mbarrier::test(arena.vacant(at), parity)) {
                            stuck(arena, run, &patience, at);
                            break;
                        }
                        m += 1;
                    }
                }
            }
        }
    }
    true
}

/// The controller of a worker whose tasks come ready may be a scheduler.
#[inline(always)]
unsafe fn spare(launch: &Launch, number: u32) {
    if launch.spare == 0 || number >= launch.schedulers {
        return;
    }
    // SAFETY: a live launch; one warp copies and reads.
    unsafe {
        let share = (launch.shares as *const Share).add(number as usize).read();
        let words = Layout::new(&share, launch.workers, launch.schedulers, number).words;
        copy(&share, share.memory, words, special::thread() % 32, 32);
        warp::sync();
        let run = Run::new(&Warp, launch, number);
        protocol::schedule(&Warp, launch, &run, number, share.memory as *mut u32);
    }
}
