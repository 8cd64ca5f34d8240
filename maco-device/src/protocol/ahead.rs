//! Tasks that are pushed before they are ready: a scheduler with nothing more urgent to push looks ahead.
//!
//! A task that lacks only the end of another one, which has been pushed and has not ended, goes to a worker that has nothing. That
//! worker waits for one word: how many tasks the other's worker has ended in this launch. So descriptor and views are in place when
//! the other task ends, and between the two are a release, the word, and an acquire; no scheduler.
//!
//! Nobody waits for ever: what is waited for was pushed before, by the same scheduler, and each worker runs its tasks in the order in
//! which they were pushed. So of all tasks pushed and not ended the first one waits for nothing.

use super::layout::{FRESH_WORDS, HELD_UP, MOST};
use super::mailbox;
use super::scheduler::Scheduler;
use super::wait::{Outcome, poll};
use super::{Machine, Run};
use maco_abi::{CounterIndex, NO_COUNTER, Wait};

/// Waiters of a counter that are looked at: the most urgent.
const WAITERS: u32 = 4;

/// What a pushed task still waits for.
#[derive(Clone, Copy)]
pub struct Until {
    worker: CounterIndex,
    ended: u32,
}

impl Until {
    /// It is ready.
    pub const NOW: Until = Until { worker: NO_COUNTER, ended: 0 };

    /// From the two words of a push.
    #[inline(always)]
    pub fn of(worker: CounterIndex, ended: u32) -> Until {
        Until { worker, ended }
    }

    /// Waits until the worker has ended so many tasks of this launch. All lanes call together. What those have written is acquired.
    ///
    /// # Safety
    /// `run` is a live launch with schedulers, one of which has pushed this.
    #[inline(always)]
    pub unsafe fn wait<M: Machine>(self, machine: &M, run: &Run) -> Outcome {
        // SAFETY: passed on from the caller.
        if self.worker == NO_COUNTER { Outcome::Ready } else { unsafe { self.wait_for_end(machine, run) } }
    }

    /// [`Until::wait`] of what is not ready.
    ///
    /// # Safety
    /// As there; it waits for a worker.
    #[inline(always)]
    pub unsafe fn wait_for_end<M: Machine>(self, machine: &M, run: &Run) -> Outcome {
        // Counts of a launch begin at 0 and do not wrap. Others may have ended since. As for a push, there is no deadline: the scheduler knows whose end does not come.
        // SAFETY: the caller promises a live launch; the scheduler named a worker of it.
        let outcome = unsafe { poll(machine, run, Wait::new(self.worker, self.ended), |_, _| {}) };
        if outcome == Outcome::Ready {
            machine.acquire();
        }
        outcome
    }
}

/// How far a scheduler has looked.
#[derive(Clone, Copy, Default)]
pub(super) struct Ahead {
    /// Own worker from which on the next group is looked at: at first the group that got the last task pushed ahead, which in a chain is the one that the
    /// next task waits for.
    base: u32,
    /// Groups to look at.
    left: u32,
}

impl Ahead {
    /// Something has changed: all groups are to be looked at.
    #[inline(always)]
    pub(super) fn begin<M: Machine>(&mut self, scheduler: &Scheduler<'_, M>) {
        self.left = scheduler.own.div_ceil(scheduler.machine.lanes());
    }

    /// Pushes tasks that wait only for one of the next group of workers, if they are more urgent than all that are ready; whether there was
    /// one. One group that has none ends it: what has come in meanwhile may be more urgent. In a chain each has the next one behind it, so all
    /// that have room go behind one release: a turn for each would be the time of a hop.
    ///
    /// # Safety
    /// As [`super::schedule()`]; behind what acquires the messages.
    #[inline(always)]
    pub(super) unsafe fn look<M: Machine>(&mut self, scheduler: &Scheduler<'_, M>) -> bool {
        let machine = scheduler.machine;
        let mut pushes = 0;
        // SAFETY: passed on from the caller.
        unsafe {
            while self.left != 0 && scheduler.load(scheduler.at.ahead) < MOST {
                let first = self.base;
                self.left -= 1;
                self.base = if first + machine.lanes() < scheduler.own { first + machine.lanes() } else { 0 };
                let (task, ended) = scheduler.successor(first + machine.lane());
                let mut found = machine.vote(ended != 0);
                if found != 0 && scheduler.load(scheduler.at.count) != 0 {
                    // Numbers are in the order of urgency.
                    let (word, bits) = scheduler.first();
                    found = machine.vote(ended != 0 && task < word * 32 + bits.trailing_zeros());
                }
                if found == 0 {
                    break;
                }
                let Some(idle) = scheduler.idle() else { break };
                if crate::profile::ON {
                    scheduler.serving.found();
                }
                let lane = found.trailing_zeros();
                let (task, ended) = (machine.broadcast(task, lane), machine.broadcast(ended, lane));
                // All lanes have read what one writes: a vote orders no accesses.
                machine.converge();
                scheduler.prepare(pushes, idle, task, scheduler.worker(first + lane), ended);
                pushes += 1;
                self.base = idle - idle % machine.lanes();
                self.begin(scheduler);
            }
            if pushes != 0 {
                scheduler.push_ahead(pushes);
            }
        }
        pushes != 0
    }
}

impl<M: Machine> Scheduler<'_, M> {
    /// An own worker that has nothing.
    #[inline(always)]
    unsafe fn idle(&self) -> Option<u32> {
        let machine = self.machine;
        let mut base = 0;
        while base < self.own {
            let own = base + machine.lane();
            // SAFETY: passed on from the caller.
            let idle = machine.vote(own < self.own && unsafe { self.load(self.at.outstanding(own)) } == 0);
            if idle != 0 {
                return Some(base + idle.trailing_zeros());
            }
            base += machine.lanes();
        }
        None
    }

    /// A task that lacks only the end of the last one of own worker `own`, and which one of its tasks that is, counted from 1; 0 if
    /// there is none. A lane calls for each.
    ///
    /// As long as no credit for a task has come, none of its arrivals has: that is in the first of its messages. So if a counter that it
    /// signals lacks one arrival, it is this task's.
    #[inline(always)]
    unsafe fn successor(&self, own: u32) -> (u32, u32) {
        if own >= self.own {
            return (0, 0);
        }
        // SAFETY: passed on from the caller.
        unsafe {
            if self.load(self.at.outstanding(own)) & !HELD_UP == 0 {
                return (0, 0);
            }
            let tail = self.load(self.at.tail(own));
            let last = self.load(self.at.held(own, tail.wrapping_sub(1)));
            let counter = self.load(self.at.pending + self.tasks + last);
            if counter == 0 || self.load(self.at.remaining + counter - 1) != 1 {
                return (0, 0);
            }
            let end = self.load(self.at.starts + counter);
            let mut entry = self.load(self.at.starts + counter - 1);
            let last = end.min(entry + WAITERS);
            while entry < last {
                let waiter = self.load(self.at.waiters + entry);
                if self.load(self.at.pending + waiter) == 1 {
                    return (waiter, tail);
                }
                entry += 1;
            }
        }
        (0, 0)
    }

    /// Notes the `n`-th push ahead of this turn: to the idle own worker `own` the task `number`, which waits until `worker` has ended `ended` tasks. All lanes
    /// call together.
    #[inline(always)]
    unsafe fn prepare(&self, n: u32, own: u32, number: u32, worker: u32, ended: u32) {
        let machine = self.machine;
        // SAFETY: passed on from the caller.
        unsafe {
            if machine.lane() == 0 {
                let fresh = self.at.fresh + n * FRESH_WORDS;
                self.store(fresh, own);
                self.store(fresh + 1, worker);
                self.store(fresh + 2, ended);
                self.store(self.at.pending + number, HELD_UP | own);
                self.add(self.at.ahead, 1);
                self.note(own, HELD_UP | 1, number);
            }
            machine.converge();
        }
    }

    /// Sends the first `pushes` that were prepared in this turn. All lanes call together.
    #[inline(always)]
    unsafe fn push_ahead(&self, pushes: u32) {
        let machine = self.machine;
        // SAFETY: passed on from the caller; each worker has read what was there before it ended the task that this was for.
        unsafe {
            let mut n = machine.lane();
            while n < pushes {
                let fresh = self.at.fresh + n * FRESH_WORDS;
                let own = self.load(fresh);
                let tail = self.load(self.at.tail(own)).wrapping_sub(1);
                let until = mailbox::until(mailbox::inbox(self.launch, self.worker(own)), tail);
                machine.store(until, self.load(fresh + 1));
                machine.store(until.add(1), self.load(fresh + 2));
                n += machine.lanes();
            }
            // These, and what `hear` acquired: of the tasks' other inputs.
            machine.release();
            let mut n = machine.lane();
            while n < pushes {
                self.send(self.load(self.at.fresh + n * FRESH_WORDS), true);
                n += machine.lanes();
            }
            machine.converge();
        }
    }

    /// All is heard that a task which was pushed ahead waits for: its worker is like others. `pending` is what was kept of the task.
    #[inline(always)]
    pub(super) unsafe fn let_go(&self, pending: u32) {
        // SAFETY: passed on from the caller.
        unsafe {
            // Takes the bit away. The task may have ended already: not all workers are heard at once.
            self.add(self.at.outstanding(pending & !HELD_UP), HELD_UP);
            self.add(self.at.ahead, u32::MAX);
        }
    }
}

/// A push.
#[derive(Clone, Copy)]
pub struct Push {
    /// The task's descriptor, which may be the end entry.
    pub index: u32,
    /// The two words of what it waits for, or null: it is ready.
    pub until: *const u32,
}

impl Push {
    /// What the task waits for.
    ///
    /// # Safety
    /// The push has been taken and its task has not been ended.
    #[inline(always)]
    pub unsafe fn until<M: Machine>(&self, machine: &M) -> Until {
        if self.until.is_null() {
            return Until::NOW;
        }
        // SAFETY: words of the launch, acquired with the push.
        unsafe { Until { worker: CounterIndex(machine.load(self.until)), ended: machine.load(self.until.add(1)) } }
    }
}
