//! Where a worker's next task comes from, and how a launch ends.

use super::mailbox::{clear, inbox, peek};
use super::wait::{Look, Patience};
use super::{Machine, Run};
use crate::abi::{INBOX, Launch, PUSH_END, PUSHED, State, TICKETS};

/// A worker's source of tasks: its static list, tickets claimed in topological order, or what schedulers push.
///
/// Claimed tasks run in the order of their tickets, so the least unfinished task of all is always at the head of some worker.
#[derive(Clone, Copy)]
pub struct Queue {
    next: u32,
    tasks: u32,
    schedule: u32,
    inbox: *mut u32,
}

impl Queue {
    /// # Safety
    /// `launch` describes live memory and `worker` is one of its workers.
    #[inline(always)]
    pub unsafe fn new(launch: &Launch, worker: u32) -> Queue {
        // SAFETY: the caller promises live memory.
        let (next, inbox) = unsafe { ((launch.starts as *const u32).add(worker as usize).read(), inbox(launch, worker)) };
        Queue { next, tasks: launch.tasks, schedule: launch.schedule, inbox }
    }

    /// Whether tasks come ready from schedulers.
    #[inline(always)]
    pub fn is_pushed(&self) -> bool {
        self.schedule == PUSHED
    }

    /// Whether tasks are claimed by ticket.
    #[inline(always)]
    pub fn is_claimed(&self) -> bool {
        self.schedule == TICKETS
    }

    /// Asks for the next task of a list or by ticket, whose value [`Queue::index`] reads. The caller stops at the end entry and has
    /// asked for at most [`crate::abi::AHEAD`] entries more by then. On a GPU one lane calls.
    ///
    /// # Safety
    /// `run` is a live launch.
    #[inline(always)]
    pub unsafe fn ask<M: Machine>(&mut self, machine: &M, run: &Run) -> u32 {
        if self.schedule == TICKETS {
            // Relaxed: the ticket orders nothing, counters do.
            // SAFETY: the caller promises a live launch.
            unsafe { machine.claim((&raw mut (*run.state).ticket).cast::<u32>().add(run.bank as usize), 1) }
        } else {
            self.next += 1;
            self.next - 1
        }
    }

    /// The descriptor that a ticket stands for.
    #[inline(always)]
    pub fn index(&self, ticket: u32) -> u32 {
        if self.schedule == TICKETS && ticket > self.tasks { self.tasks } else { ticket }
    }

    /// Waits for the next pushed task; its descriptor, which may be the end entry. `None` when the plan is aborted. All lanes call
    /// together. The task's inputs are acquired.
    ///
    /// # Safety
    /// `run` is a live launch with schedulers.
    #[inline(always)]
    pub unsafe fn pop<M: Machine>(&mut self, machine: &M, run: &Run) -> Option<u32> {
        // A scheduler notices when nothing moves, so a worker has no deadline here.
        let mut patience = Patience::new();
        // SAFETY: the caller promises a live launch; this executor alone empties the inbox.
        unsafe {
            let word = loop {
                let word = peek(machine, self.inbox, INBOX, self.next);
                if machine.all(word != 0) {
                    break word;
                }
                if patience.look(machine, run) == Look::Abort {
                    return None;
                }
            };
            machine.acquire();
            if machine.lane() == 0 {
                clear(machine, self.inbox, INBOX, self.next);
            }
            self.next = self.next.wrapping_add(1);
            Some(if word == PUSH_END { self.tasks } else { word - 1 })
        }
    }

    /// Index of the next descriptor, for an executor that does not look ahead; `None` when the plan is aborted.
    ///
    /// # Safety
    /// `run` is a live launch.
    #[inline(always)]
    pub unsafe fn next<M: Machine>(&mut self, machine: &M, run: &Run) -> Option<u32> {
        // SAFETY: passed on from the caller.
        unsafe {
            if self.is_pushed() {
                return self.pop(machine, run);
            }
            let ticket = self.ask(machine, run);
            Some(self.index(ticket))
        }
    }
}

/// The last of `executors` to leave closes the launch: the next one uses the other bank, unless this one was aborted.
///
/// # Safety
/// `state` is live; called once by each worker and scheduler CTA after its last access to the plan.
#[inline(always)]
pub unsafe fn leave<M: Machine>(machine: &M, state: *mut State, executors: u32) {
    // SAFETY: the caller promises live memory.
    unsafe {
        if machine.fetch_add(&raw mut (*state).exited, 1) == executors - 1 {
            machine.store(&raw mut (*state).exited, 0);
            if machine.load(&raw const (*state).abort) == 0 {
                machine.add(&raw mut (*state).launch, 1);
            }
            machine.store(&raw mut (*state).busy, 0);
        }
    }
}
