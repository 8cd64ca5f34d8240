//! A scheduler: counts arrivals, pushes ready tasks. One warp on a GPU, one thread on a CPU.
//!
//! Its memory is its own: nobody else reads or writes it, so its lanes need no order but that of [`Machine::converge`]. Workers tell
//! it of ended tasks through mailboxes; it tells them of ready ones through inboxes, at most [`INBOX`] ahead, so it never waits for
//! a worker, and no message can find a ring full for ever. What it pushes before it is ready: see [`super::ahead`].

use super::faults;
use super::layout::{HELD_UP, Layout, over};
use super::mailbox::{clear, inbox, mailbox, peek, put};
use super::wait::Patience;
use super::{Machine, Run, late};
use crate::profile;
use crate::profile::served::Serving;
use maco_abi::{BlackBox, INBOX, LOST_PUSH, Launch, MAILBOX, NO_SIGNAL, PUSH_END, Push, REPORT_STUCK, Route, SchedulerPartition, Wait};

/// One scheduler at work.
pub(super) struct Scheduler<'a, M> {
    pub(super) machine: &'a M,
    pub(super) launch: &'a Launch,
    pub(super) run: &'a Run,
    pub(super) number: u32,
    /// Workers that it pushes to.
    pub(super) own: u32,
    pub(super) tasks: u32,
    pub(super) at: Layout,
    pub(super) memory: *mut u32,
    pub(super) serving: Serving<'a>,
}

/// Messages that a lane looks for at once.
pub(super) const BATCH: u32 = 5;

impl<M: Machine> Scheduler<'_, M> {
    /// Read from the launch.
    #[inline(always)]
    unsafe fn partition(&self) -> SchedulerPartition {
        // SAFETY: the caller promises a live launch.
        unsafe { (self.launch.partitions as *const SchedulerPartition).add(self.number as usize).read() }
    }

    /// [`Scheduler::at`] of what the launch says now.
    #[inline(always)]
    unsafe fn layout(&self) -> Layout {
        // SAFETY: passed on from the caller.
        let partition = unsafe { self.partition() };
        Layout::new(&partition, self.launch.workers, self.launch.schedulers, self.number)
    }

    #[inline(always)]
    pub(super) unsafe fn load(&self, at: u32) -> u32 {
        // SAFETY: all offsets come from the layout.
        unsafe { self.machine.own_load(self.memory.add(at as usize)) }
    }
    #[inline(always)]
    pub(super) unsafe fn store(&self, at: u32, value: u32) {
        // SAFETY: as above.
        unsafe { self.machine.own_store(self.memory.add(at as usize), value) }
    }
    /// The old value.
    #[inline(always)]
    pub(super) unsafe fn add(&self, at: u32, value: u32) -> u32 {
        // SAFETY: as above.
        unsafe { self.machine.own_add(self.memory.add(at as usize), value) }
    }

    /// What the mailboxes of this lane's workers from `base` on hold: all loads before the first use, they take as long as one.
    #[inline(always)]
    pub(super) unsafe fn listen(&self, base: u32) -> [u32; BATCH as usize] {
        let worker = |n: u32| base.wrapping_add(n * self.machine.lanes());
        // SAFETY: passed on from the caller; each worker's mailbox is read by one lane.
        unsafe { [self.look(worker(0)), self.look(worker(1)), self.look(worker(2)), self.look(worker(3)), self.look(worker(4))] }
    }

    /// Notes what has come in; whether anything has.
    #[inline(always)]
    pub(super) unsafe fn hear(&self, base: u32, words: [u32; BATCH as usize]) -> bool {
        let machine = self.machine;
        let ([mut now, mut w1, mut w2, mut w3, mut w4], mut worker, mut heard) = (words, base, false);
        // A rolled loop over registers: the code is long.
        while machine.vote(now | w1 | w2 | w3 | w4 != 0) != 0 {
            if !heard {
                if profile::ON {
                    // SAFETY: passed on from the caller.
                    unsafe { self.serving.found() };
                }
                machine.acquire();
                heard = true;
            }
            // SAFETY: passed on from the caller.
            unsafe { self.take(worker, now) };
            (now, w1, w2, w3, w4) = (w1, w2, w3, w4, 0);
            worker = worker.wrapping_add(machine.lanes());
        }
        heard
    }

    #[inline(always)]
    unsafe fn look(&self, worker: u32) -> u32 {
        if worker >= self.launch.workers {
            return 0;
        }
        // SAFETY: passed on from the caller.
        unsafe {
            let ring = mailbox(self.launch, worker, self.number);
            peek(self.machine, ring, MAILBOX, self.load(self.at.heads + worker))
        }
    }

    /// Notes one message per lane; 0 is none.
    #[inline(always)]
    unsafe fn take(&self, worker: u32, word: u32) {
        let machine = self.machine;
        if machine.vote(word != 0) == 0 {
            return;
        }
        // SAFETY: passed on from the caller.
        unsafe {
            let mut full = false;
            let mut counter = 0;
            if word != 0 {
                let ring = mailbox(self.launch, worker, self.number);
                let head = self.load(self.at.heads + worker);
                clear(machine, ring, MAILBOX, head);
                self.store(self.at.heads + worker, head.wrapping_add(1));
                let message = Route::decode(word);
                if message.credit {
                    self.add(self.at.outstanding(over(worker - self.number, self.launch.schedulers)), u32::MAX);
                    self.add(self.at.ended, 1);
                }
                if let Some(known) = message.counter {
                    counter = known;
                    full = self.add(self.at.remaining + counter, u32::MAX) == 1;
                }
            }
            // A counter may have very many waiters: all lanes share them.
            loop {
                let lanes = machine.vote(full);
                if lanes == 0 {
                    break;
                }
                let leader = lanes.trailing_zeros();
                let counter = machine.broadcast(counter, leader);
                full &= machine.lane() != leader;
                let end = self.load(self.at.starts + counter + 1);
                let mut entry = self.load(self.at.starts + counter) + machine.lane();
                while entry < end {
                    let task = self.load(self.at.waiters + entry);
                    let pending = self.add(self.at.pending + task, u32::MAX);
                    if pending & HELD_UP != 0 {
                        self.let_go(pending);
                    } else if pending == 1 {
                        machine.own_or(self.memory.add((self.at.ready + task / 32) as usize), 1 << (task % 32));
                        machine.own_or(
                            self.memory.add((self.at.ready + self.tasks.div_ceil(32) + task / 1024) as usize),
                            1 << (task / 32 % 32),
                        );
                        self.add(self.at.count, 1);
                    }
                    entry += machine.lanes();
                }
            }
        }
    }

    /// Pushes ready tasks to one group of lanes' workers: to those of the first group from `turn` on that have nothing to do, or if
    /// all have something, to those of one group with room; whether there were any. One group at a time, so that a task which
    /// comes ready meanwhile and matters more waits for one group, not for all.
    #[inline(always)]
    pub(super) unsafe fn push(&self, turn: &mut u32) -> bool {
        let machine = self.machine;
        // SAFETY: passed on from the caller.
        unsafe {
            let mut ready = self.load(self.at.count);
            if ready == 0 {
                return false;
            }
            let groups = self.own.div_ceil(machine.lanes());
            let mut looked = 0;
            while looked < INBOX * groups {
                let most = if looked < groups { 0 } else { INBOX - 1 };
                let own = *turn + machine.lane();
                *turn = if *turn + machine.lanes() < self.own { *turn + machine.lanes() } else { 0 };
                looked += 1;
                let outstanding = if own < self.own { self.load(self.at.outstanding(own)) } else { INBOX };
                let mut room = machine.vote(outstanding <= most);
                if room == 0 {
                    continue;
                }
                if profile::ON {
                    self.serving.found();
                }
                // What `hear` acquired becomes visible to whoever reads a place that is filled from here on.
                machine.release();
                while ready > 0 && room != 0 {
                    // As many as one word of ready bits has: the workers with room take them in turn.
                    let (word, bits) = self.first();
                    let before = (room & ((1 << machine.lane()) - 1)).count_ones();
                    let given = room.count_ones().min(bits.count_ones());
                    let (mut mine, mut left, mut rest, mut taken) = (bits, bits, room, 0);
                    while taken < given {
                        if taken < before {
                            mine &= mine - 1;
                        }
                        left &= left - 1;
                        rest &= rest - 1;
                        taken += 1;
                    }
                    if room >> machine.lane() & 1 != 0 && before < given {
                        self.note(own, outstanding + 1, word * 32 + mine.trailing_zeros());
                        self.send(own, false);
                    }
                    machine.converge();
                    if machine.lane() == 0 {
                        self.store(self.at.ready + word, left);
                        if left == 0 {
                            let at = self.at.ready + self.tasks.div_ceil(32) + word / 32;
                            self.store(at, self.load(at) & !(1 << (word % 32)));
                        }
                        self.store(self.at.count, ready - given);
                    }
                    ready -= given;
                    room = rest;
                    machine.converge();
                }
                return true;
            }
            false
        }
    }

    /// Notes that own worker `own` gets task `number`, so that it has `outstanding`. One lane per worker calls, and then [`Scheduler::send`].
    #[inline(always)]
    pub(super) unsafe fn note(&self, own: u32, outstanding: u32, number: u32) {
        // SAFETY: passed on from the caller; the worker has room.
        unsafe {
            let tail = self.load(self.at.tail(own));
            self.store(self.at.held(own, tail), number);
            self.store(self.at.tail(own), tail.wrapping_add(1));
            self.store(self.at.outstanding(own), outstanding);
        }
    }

    /// Gives own worker `own` the task that was noted last, which is not ready if there is something to wait `until`. One lane per worker calls, behind a release fence.
    #[inline(always)]
    pub(super) unsafe fn send(&self, own: u32, until: bool) {
        // SAFETY: passed on from the caller; the worker has room.
        unsafe {
            let tail = self.load(self.at.tail(own)).wrapping_sub(1);
            let descriptor = self.load(self.at.tasks + self.load(self.at.held(own, tail)));
            if !faults::hit(self.launch, LOST_PUSH, || descriptor) {
                put(self.machine, inbox(self.launch, self.worker(own)), INBOX, tail, Push { descriptor, until }.encode());
            }
        }
    }

    #[inline(always)]
    pub(super) fn worker(&self, own: u32) -> u32 {
        self.number + own * self.launch.schedulers
    }

    /// The first word of ready bits that is not 0, and its bits; there is one.
    #[inline(always)]
    pub(super) unsafe fn first(&self) -> (u32, u32) {
        let machine = self.machine;
        let words = self.tasks.div_ceil(1024);
        let mut base = 0;
        // SAFETY: passed on from the caller.
        unsafe {
            loop {
                let at = base + machine.lane();
                let summary = if at < words { self.load(self.at.ready + self.tasks.div_ceil(32) + at) } else { 0 };
                let lanes = machine.vote(summary != 0);
                if lanes != 0 {
                    let lane = lanes.trailing_zeros();
                    let word = (base + lane) * 32 + machine.broadcast(summary, lane).trailing_zeros();
                    return (word, self.load(self.at.ready + word));
                }
                base += machine.lanes();
            }
        }
    }

    /// Ends the lists of the own workers. All their tasks have ended, so their inboxes are empty.
    #[inline(always)]
    pub(super) unsafe fn finish(&self) {
        // SAFETY: passed on from the caller.
        unsafe {
            // Read anew: places for these loads would be reckoned ahead of all that comes before, and kept in registers.
            let at = self.layout();
            let mut own = self.machine.lane();
            while own < self.own {
                let tail = self.load(at.tail(own));
                put(self.machine, inbox(self.launch, self.worker(own)), INBOX, tail, PUSH_END);
                own += self.machine.lanes();
            }
        }
    }

    /// Says which pushed task has not ended, or else which task waits for what. One lane calls.
    #[inline(always)]
    pub(super) unsafe fn complain(&self, patience: &Patience) {
        // SAFETY: passed on from the caller.
        unsafe {
            let descriptor = |number: u32| self.load(self.at.tasks + number);
            let mut own = 0;
            while own < self.own {
                let outstanding = self.load(self.at.outstanding(own));
                // A worker with a task that was pushed ahead has no other, and is not to blame while what that waits for has not ended.
                if outstanding > 0 && outstanding & HELD_UP == 0 {
                    let oldest = self.load(self.at.tail(own)).wrapping_sub(outstanding);
                    let task = descriptor(self.load(self.at.held(own, oldest)));
                    let report = BlackBox { report: REPORT_STUCK, task, ..BlackBox::EMPTY };
                    let run = Run { worker: self.worker(own), ..*self.run };
                    patience.report(self.machine, &run, report);
                    return;
                }
                own += 1;
            }
            // Read anew: nobody complains in a loop that matters.
            let partition = self.partition();
            let mut counter = 0;
            while counter < partition.counters {
                let remaining = self.load(self.at.remaining + counter);
                if remaining > 0 {
                    let waiter = self.load(self.at.waiters + self.load(self.at.starts + counter));
                    let name = (partition.names as *const Wait).add(counter as usize).read();
                    late(self.machine, self.run, patience, descriptor(waiter), name, name.need - remaining);
                    return;
                }
                counter += 1;
            }
        }
    }
}

/// What the end of a task, the `ended`-th of this worker, says to whoever waits for it, and sends to schedulers; `tails` counts the messages
/// of this worker by scheduler, one byte each.
///
/// # Safety
/// `run` is a live launch with schedulers, `descriptor` one of its tasks, and this executor the only one that sends for the worker.
/// Everything the task wrote has been observed by it. `tails` has a byte per scheduler, all 0 at the start of the launch.
#[inline(always)]
pub unsafe fn notify<M: Machine>(
    machine: &M,
    launch: &Launch,
    run: &Run,
    descriptor: *const maco_abi::Descriptor,
    ended: u32,
    tails: *mut u8,
) -> super::Outcome {
    // SAFETY: passed on from the caller; routes name schedulers of the plan.
    unsafe {
        machine.release();
        // First: a task that was pushed ahead waits for nothing else.
        machine.store(run.counters.add(run.worker as usize), ended);
        let [first, second] = (*descriptor).signal;
        let extra = run.overflow.add((*descriptor).overflow as usize + 2 * (*descriptor).extra_waits as usize);
        let routes = if second == NO_SIGNAL { 1 } else { 2 + (*descriptor).extra_signals as usize };
        let mut n = 0;
        while n < routes {
            let route = match n {
                0 => first,
                1 => second,
                _ => extra.add(n - 2).read(),
            };
            if route == NO_SIGNAL {
                break;
            }
            let to = Route::decode(route).to;
            let ring = mailbox(launch, run.worker, to);
            let tail = tails.add(to as usize);
            let at = tail.read();
            if super::mailbox::room(machine, run, ring, at as u32) == super::Outcome::Abort {
                return super::Outcome::Abort;
            }
            put(machine, ring, MAILBOX, at as u32, route & Route::MESSAGE);
            tail.write(at.wrapping_add(1));
            n += 1;
        }
        super::Outcome::Ready
    }
}
