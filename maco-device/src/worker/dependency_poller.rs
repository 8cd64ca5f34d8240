//! The dependency poller (warp 1): publishes posted tasks whose counters have arrived. One look at the counters serves all tasks in flight.

use super::rest::Rest;
use super::watchdog::{Stall, TASK};
use super::{admitted, copy, place, polled, pushed, slot, stuck};
use crate::machine::{Lane, Warp};
use crate::protocol::{self, Layout, Look, Machine, Outcome, Patience, Run};
use crate::ptx::{mbarrier, memory, special, warp};
use crate::shared_memory::{ARRIVALS, SharedMemory, WAITS};
use crate::sync::ready_mailbox;
use crate::sync::waits::LONG;
use maco_abi::{Launch, NO_COUNTER, OP_END, SLOTS, SchedulerPartition, Wait};

/// Lanes that look after one slot: one per wait.
const LANES: u32 = 32 / SLOTS;
/// The first lane of every slot.
const LEADERS: u32 = 0x1111_1111;
const _: () = assert!(LANES == 4 && LANES == WAITS);

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
    /// What announces the task.
    message: u32,
}

impl Own {
    /// If `leads`, the task of this lane's slot may run.
    #[inline(always)]
    unsafe fn publish(&mut self, smem: SharedMemory, leads: bool, lane: u32) {
        if ARRIVALS > 1 {
            let leading = warp::ballot(leads);
            let mut at = 0;
            while at < SLOTS {
                if leading >> (at * LANES) & 1 != 0 {
                    // SAFETY: as below.
                    unsafe { mbarrier::arrive(smem.ready(at)) };
                }
                at += 1;
            }
        } else if leads && lane.is_multiple_of(LANES) {
            // SAFETY: an initialised barrier, to which this warp alone arrives.
            unsafe { mbarrier::arrive(smem.ready(lane / LANES)) };
        }
        if leads && lane.is_multiple_of(LANES) {
            // SAFETY: the slot holds the task, whose counters have been acquired.
            unsafe { ready_mailbox::give(smem, self.n, self.message) };
        }
        if leads {
            *self = Own { n: self.n + SLOTS, held: false, arrived: true, ..*self };
        }
    }
}

/// What is left to do for the warp then.
#[inline(always)]
pub(super) unsafe fn run(smem: SharedMemory, launch: *const Launch) -> Rest {
    let lane = special::thread() % 32;
    // SAFETY: the dependency poller warp of a live launch.
    unsafe {
        let worker = special::block();
        if pushed(launch) {
            return spare(&*launch, worker);
        }
        let run = Run::new(&Warp, &*launch, worker);
        if !admitted(&run) {
            return Rest::stop(0);
        }
        // Tasks before `n` are published.
        let mut n = 0;
        let mut end = u32::MAX;
        // First lanes of slots whose tasks are long.
        let mut longs = 0;
        let (at, sub) = (lane / LANES, lane % LANES);
        let mut own = Own { n: at, held: false, wait: Wait::NONE, arrived: true, message: 0 };
        let mut seen = 0;
        let (mut patience, mut stall) = (Patience::new(), Stall::new());
        loop {
            // Under way while posted tasks are read.
            let looks = !own.arrived && own.wait.counter != NO_COUNTER;
            let arrivals = if looks { run.look(&Lane, own.wait) } else { 0 };
            let posted = !own.held && mbarrier::test(smem.posted(at), place(own.n).1);
            let news = warp::ballot(posted);
            if news != 0 {
                let (mut long, mut ends) = (false, false);
                if posted {
                    let head = memory::read_shared2(smem.slot(at));
                    let Wait { counter, need } = Wait::decode(memory::read_shared2(smem.waits(at) + sub * 8));
                    (long, ends) = (counter == LONG, head[0] as u16 == OP_END);
                    // Of a long one nothing is looked at here, and it does not arrive.
                    let counter = if long { NO_COUNTER } else { counter };
                    let arrived = !long && counter == NO_COUNTER;
                    own = Own { held: true, wait: Wait { counter, need }, arrived, message: ready_mailbox::of(own.n, head), ..own };
                }
                longs = longs & !news | warp::ballot(long);
                let ends = warp::ballot(ends);
                if ends != 0 {
                    end = warp::broadcast(own.n, ends.trailing_zeros());
                }
            }
            let mut fresh = false;
            if looks {
                seen = arrivals;
                own.arrived = own.wait.has_arrived(seen);
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
            own.publish(smem, leads, lane);
            n += ready;
            if n > end {
                // Nothing is posted behind the end.
                return Rest::supervise(end);
            }
            if ready > 0 || news != 0 {
                patience = Patience::new();
                continue;
            }
            if longs >> first & 1 != 0 && warp::ballot(own.held) >> first & 1 != 0 {
                // More waits than its slot has lanes: this task alone, whatever the looks above have seen. Between two barriers that are
                // complete: by them the lint tells its acquires from the one above.
                let (at_head, parity) = place(n);
                smem.wait(smem.posted(at_head), parity);
                let task = slot(smem, at_head);
                if protocol::wait(&Warp, &run, &raw const (*task).descriptor, (&raw const (*task).views).cast()) == Outcome::Abort {
                    return Rest::stop(n);
                }
                own.publish(smem, at == at_head, lane);
                smem.wait(smem.ready(at_head), parity);
                n += 1;
                patience = Patience::new();
                continue;
            }
            stall.look(&Warp, smem, &mut patience);
            match patience.look(&Warp, &run) {
                Look::Again => {}
                Look::Abort => {
                    return Rest::stop(n);
                }
                Look::Late => {
                    let waits = warp::ballot(own.held) >> first & 1 != 0;
                    if !unended(smem, &run, &patience, n, waits) && own.held && own.n == n && !own.arrived {
                        protocol::late(&Lane, &run, &patience, memory::read_shared(smem.slot(at) + TASK), own.wait, seen);
                    }
                }
            }
        }
    }
}

/// Reports the oldest task before `n` that has not left its slot, if there is one. The prefetcher waits for it, if task `n` was not posted in
/// time; if that `waits`, only one that polls is to blame: what polls is before what waits. Whether there is one.
#[inline(always)]
unsafe fn unended(smem: SharedMemory, run: &Run, patience: &Patience, n: u32, waits: bool) -> bool {
    // Fewer than all slots may be in use: tickets are claimed late.
    let mut m = n.saturating_sub(SLOTS);
    while m < n {
        let (at, parity) = place(m);
        // SAFETY: an initialised barrier, a live launch; the slot holds the task.
        unsafe {
            if !Warp.all(mbarrier::test(smem.vacant(at), parity)) {
                let blamed = !waits || polled(smem, at).has_in_band_flags();
                if blamed {
                    stuck(smem, run, patience, at);
                }
                return blamed;
            }
        }
        m += 1;
    }
    false
}

/// The dependency poller of a worker whose tasks come ready may be a scheduler.
#[inline(always)]
unsafe fn spare(launch: &Launch, number: u32) -> Rest {
    if launch.spare == 0 || number >= launch.schedulers {
        return Rest::NONE;
    }
    // SAFETY: a live launch; one warp copies and reads.
    unsafe {
        let partition = (launch.partitions as *const SchedulerPartition).add(number as usize).read();
        let words = Layout::new(&partition, launch.workers, launch.schedulers, number).words;
        copy(&partition, partition.memory, words, special::thread() % 32, 32);
        warp::sync();
    }
    Rest::SCHEDULE
}
