//! The controller: publishes posted tasks whose counters have arrived. One look at the counters serves all tasks in flight.

use core::mem::offset_of;

use super::machine::{Lane, Warp};
use super::{admitted, copy, place, pushed, slot, stop, stuck, supervise};
use crate::abi::{Descriptor, Indirect, KNOWN, Launch, NO_COUNTER, OP_END, SLOTS, Share, View, Wait};
use crate::protocol::{self, Layout, Look, Machine, Names, Outcome, Patience, Run};
use crate::ptx::{mbarrier, memory, special, warp};
use crate::role::ring::{ARRIVALS, Arena};

/// Lanes that look after one slot: one per wait.
const LANES: u32 = 32 / SLOTS;
/// The first lane of every slot.
const LEADERS: u32 = 0x1111_1111;
const _: () = assert!(LANES == 4);

/// Bytes of a slot: what the controller looks at.
const WAITS: u32 = offset_of!(Descriptor, wait) as u32;
const OVERFLOW: u32 = offset_of!(Descriptor, overflow) as u32;
const EXTRA: u32 = offset_of!(Descriptor, extra_waits) as u32;
const TASK: u32 = offset_of!(Descriptor, task) as u32;
const INDIRECT: u32 = offset_of!(Descriptor, indirect) as u32;
const _: () = assert!(size_of::<Wait>() == 8 && EXTRA % 4 == 0 && INDIRECT % 4 == 0);
const _: () = assert!(offset_of!(Descriptor, extra_signals) as u32 == EXTRA + 2);

/// What a lane knows of the slot it looks after, from posting to publishing.
#[derive(Clone, Copy)]
struct Own {
    /// The task that the slot holds, or will hold next, by its place in the list.
    n: u32,
    /// The slot holds it: it has been posted.
    held: bool,
    /// This lane's wait.
    wait: Wait,
    /// It has arrived, or there is none.
    arrived: bool,
}

impl Own {
    /// If `leads`, the task of this lane's slot may run.
    #[inline(always)]
    unsafe fn publish(&mut self, arena: Arena, leads: bool, lane: u32) {
        if ARRIVALS > 1 {
            let leading = warp::ballot(leads);
            let mut at = 0;
            while at < SLOTS {
                if leading >> (at * LANES) & 1 != 0 {
                    // SAFETY: as below.
                    unsafe { mbarrier::arrive(arena.ready(at)) };
                }
                at += 1;
            }
        } else if leads && lane.is_multiple_of(LANES) {
            // SAFETY: an initialised barrier, to which this warp alone arrives.
            unsafe { mbarrier::arrive(arena.ready(lane / LANES)) };
        }
        if leads {
            *self = Own { n: self.n + SLOTS, held: false, arrived: true, ..*self };
        }
    }
}

/// What was read when a task was posted.
struct Read {
    wait: Wait,
    end: bool,
    /// It has more waits than the slot has lanes, or names that a task writes.
    long: bool,
}

/// This lane's part of a task that was just posted.
#[inline(always)]
unsafe fn read(arena: Arena, run: &Run, at: u32, lane: u32) -> Read {
    let place = arena.slot(at);
    let mut wait = Wait { counter: NO_COUNTER, need: 0 };
    // SAFETY: the slot is valid from `posted` to `vacant`; the plan wrote the overflow.
    unsafe {
        let end = memory::read_shared(place) as u16 == OP_END;
        let (extras, indirect) = (memory::read_shared(place + EXTRA), memory::read_shared(place + INDIRECT) as u16);
        let extra_waits = extras & 0xffff;
        if extra_waits == 0 && indirect == 0 {
            if lane < 2 {
                let at = place + WAITS + lane * 8;
                wait = Wait { counter: memory::read_shared(at), need: memory::read_shared(at + 4) };
            }
            return Read { wait, end, long: false };
        }
        // Inline waits that there are, then the others, then names.
        let inline = if memory::read_shared(place + WAITS) == NO_COUNTER {
            0
        } else if memory::read_shared(place + WAITS + 8) == NO_COUNTER {
            1
        } else {
            2 + extra_waits
        };
        let overflow = run.overflow.add(memory::read_shared(place + OVERFLOW) as usize);
        if lane < inline {
            if lane < 2 {
                let at = place + WAITS + lane * 8;
                wait = Wait { counter: memory::read_shared(at), need: memory::read_shared(at + 4) };
            } else {
                let at = overflow.add(2 * (lane as usize - 2));
                wait = Wait { counter: memory::load(at), need: memory::load(at.add(1)) };
            }
        }
        if indirect == 0 {
            return Read { wait, end, long: inline > LANES };
        }
        let record = overflow.add(2 * extra_waits as usize + (extras >> 16) as usize).cast::<Indirect>().read_unaligned();
        let names = Names::of(record, &raw const (*slot(arena, at)).descriptor, (&raw const (*slot(arena, at)).views).cast::<View>());
        let long = indirect > 1 || record.operand & KNOWN == 0 || inline + names.count() > LANES;
        if !long && lane >= inline {
            // No task writes them.
            wait = names.wait(lane - inline, |at| memory::load(at));
        }
        Read { wait, end, long }
    }
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
        let mut end = u32::MAX;
        // First lanes of slots whose tasks are long.
        let mut longs = 0;
        let (at, sub) = (lane / LANES, lane % LANES);
        let mut own = Own { n: at, held: false, wait: Wait { counter: NO_COUNTER, need: 0 }, arrived: true };
        let mut seen = 0;
        let mut patience = Patience::new();
        loop {
            let mut fresh = false;
            if !own.arrived && own.wait.counter != NO_COUNTER {
                seen = run.arrivals(&Lane, own.wait.counter);
                own.arrived = seen >= own.wait.need;
                fresh = own.arrived;
            }
            if warp::ballot(fresh) != 0 {
                Warp.acquire();
            }
            let whole = warp::ballot(own.held && own.arrived);
            let whole = whole & (whole >> 1) & (whole >> 2) & (whole >> 3) & LEADERS;
            // From the next task on, as many as follow one another.
            let first = n % SLOTS * LANES;
            let ready = (!(whole.rotate_right(first) | !LEADERS)).trailing_zeros() / LANES;
            // A slot of the leading ones: its distance from the first.
            let leads = (at + SLOTS - n % SLOTS) % SLOTS < ready;
            own.publish(arena, leads, lane);
            n += ready;
            if n > end {
                // Nothing is posted behind the end.
                supervise(arena, &run, end);
                return;
            }
            let posted = !own.held && mbarrier::test(arena.posted(at), place(own.n).1);
            let news = warp::ballot(posted);
            if news != 0 {
                let (mut long, mut ends) = (false, false);
                if posted {
                    let read = read(arena, &run, at, sub);
                    (long, ends) = (read.long, read.end);
                    // Of a long one nothing is looked at here, and it does not arrive.
                    let wait = if long { Wait { counter: NO_COUNTER, need: 0 } } else { read.wait };
                    own = Own { held: true, wait, arrived: !long && wait.counter == NO_COUNTER, ..own };
                }
                longs = longs & !news | warp::ballot(long);
                let ends = warp::ballot(ends);
                if ends != 0 {
                    end = warp::broadcast(own.n, ends.trailing_zeros());
                }
            }
            if ready > 0 || news != 0 {
                patience = Patience::new();
                continue;
            }
            if longs >> first & 1 != 0 && warp::ballot(own.held) >> first & 1 != 0 {
                // More waits than its slot has lanes: this task alone, whatever the looks above have seen. Between two barriers that are
                // complete: by them the lint tells its acquires from the one above.
                let (at_head, parity) = place(n);
                arena.wait(arena.posted(at_head), parity);
                let task = slot(arena, at_head);
                if protocol::wait(&Warp, &run, &raw const (*task).descriptor, (&raw const (*task).views).cast()) == Outcome::Abort {
                    stop(arena, &run, n);
                    return;
                }
                own.publish(arena, at == at_head, lane);
                arena.wait(arena.ready(at_head), parity);
                n += 1;
                patience = Patience::new();
                continue;
            }
            match patience.look(&Warp, &run) {
                Look::Again => {}
                Look::Abort => {
                    stop(arena, &run, n);
                    return;
                }
                Look::Late => {
                    if warp::ballot(own.held) >> first & 1 == 0 {
                        unended(arena, &run, &patience, n);
                    } else if own.held && own.n == n && !own.arrived {
                        protocol::late(&Lane, &run, &patience, memory::read_shared(arena.slot(at) + TASK), own.wait, seen);
                    }
                }
            }
        }
    }
}

/// The next task was not posted in time: the fetcher waits for a slot, which is for the end of a task.
#[inline(always)]
unsafe fn unended(arena: Arena, run: &Run, patience: &Patience, n: u32) {
    // The oldest task that has not left its slot. Fewer than all slots may be in use: tickets are claimed late.
    let mut m = n.saturating_sub(SLOTS);
    while m < n {
        let (at, parity) = place(m);
        // SAFETY: an initialised barrier, a live launch.
        unsafe {
            if !Warp.all(mbarrier::test(arena.vacant(at), parity)) {
                stuck(arena, run, patience, at);
                return;
            }
        }
        m += 1;
    }
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
