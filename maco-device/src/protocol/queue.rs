//! Where a worker's next task comes from, and how a launch ends.

use super::{Machine, Run};
use crate::abi::{Launch, State};

/// A worker's source of tasks: its static list, or tickets claimed in topological order.
///
/// Claimed tasks run in the order of their tickets, so the least unfinished task of all is always at the head of some worker.
#[derive(Clone, Copy)]
pub struct Queue {
    next: u32,
    tasks: u32,
    dynamic: bool,
}

impl Queue {
    /// # Safety
    /// `launch` describes live memory and `worker` is one of its workers.
    #[inline(always)]
    pub unsafe fn new(launch: &Launch, worker: u32) -> Queue {
        // SAFETY: the caller promises live memory.
        let next = unsafe { (launch.starts as *const u32).add(worker as usize).read() };
        Queue { next, tasks: launch.tasks, dynamic: launch.dynamic != 0 }
    }

    /// Asks for the next task: a ticket, whose value [`Queue::index`] reads. The caller stops at the end entry and has asked for at most
    /// three entries more by then. On a GPU one lane calls.
    ///
    /// # Safety
    /// `run` is a live launch.
    #[inline(always)]
    pub unsafe fn ask<M: Machine>(&mut self, machine: &M, run: &Run) -> u32 {
        if self.dynamic {
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
        if self.dynamic && ticket > self.tasks { self.tasks } else { ticket }
    }

    /// Index of the next descriptor, for an executor that does not look ahead.
    ///
    /// # Safety
    /// `run` is a live launch.
    #[inline(always)]
    pub unsafe fn next<M: Machine>(&mut self, machine: &M, run: &Run) -> u32 {
        // SAFETY: passed on from the caller.
        let ticket = unsafe { self.ask(machine, run) };
        self.index(ticket)
    }
}

/// The last of `workers` to leave closes the launch: the next one uses the other bank, unless this one was aborted.
///
/// # Safety
/// `state` is live; called once by each worker after its last access to the plan.
#[inline(always)]
pub unsafe fn leave<M: Machine>(machine: &M, state: *mut State, workers: u32) {
    // SAFETY: the caller promises live memory.
    unsafe {
        if machine.fetch_add(&raw mut (*state).exited, 1) == workers - 1 {
            machine.store(&raw mut (*state).exited, 0);
            if machine.load(&raw const (*state).abort) == 0 {
                machine.add(&raw mut (*state).launch, 1);
            }
            machine.store(&raw mut (*state).busy, 0);
        }
    }
}
