//! Waiting for counters: relaxed polls, one acquire fence, a deadline.

use super::{Machine, Run};
use crate::abi::{BlackBox, Descriptor, NO_COUNTER, REPORT_DEADLINE};

/// What a wait came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every counter has what the task needs.
    Ready,
    /// The plan is aborted, by this wait or by another worker.
    Abort,
}

/// Polls between two looks at clock and abort word.
const LOOK: u32 = 64;

/// Waits until every counter of `descriptor` has arrived. All lanes call together; each polls its share.
///
/// # Safety
/// `run` is a live launch, `descriptor` valid and unchanged during the call.
#[inline(always)]
pub unsafe fn wait<M: Machine>(machine: &M, run: &Run, descriptor: *const Descriptor) -> Outcome {
    // SAFETY: the caller promises a valid descriptor.
    let total = unsafe {
        if (*descriptor).wait[0].counter == NO_COUNTER {
            // Inline waits come first: there is none, and nothing to acquire.
            return Outcome::Ready;
        }
        2 + (*descriptor).extra_waits as u32
    };
    let mut first = 0;
    while first < total {
        let n = first + machine.lane();
        // SAFETY: as above.
        let (counter, need) = unsafe {
            if n < 2 {
                let wait = (&raw const (*descriptor).wait).cast::<crate::abi::Wait>().add(n as usize).read();
                (wait.counter, wait.need)
            } else if n < total {
                let at = run.overflow.add((*descriptor).overflow as usize + 2 * (n as usize - 2));
                (at.read(), at.add(1).read())
            } else {
                (NO_COUNTER, 0)
            }
        };
        // SAFETY: as above.
        if unsafe { poll(machine, run, descriptor, counter, need) } == Outcome::Abort {
            return Outcome::Abort;
        }
        first += machine.lanes();
    }
    machine.acquire();
    Outcome::Ready
}

#[inline(always)]
unsafe fn poll<M: Machine>(machine: &M, run: &Run, descriptor: *const Descriptor, counter: u32, need: u32) -> Outcome {
    let mut polls = 0u32;
    let mut began = 0;
    loop {
        let seen = if counter == NO_COUNTER {
            need
        } else {
            // SAFETY: the plan's verifier keeps every counter inside the bank.
            unsafe { machine.load(run.counters.add(counter as usize)) }
        };
        let arrived = seen >= need;
        if machine.all(arrived) {
            return Outcome::Ready;
        }
        polls = polls.wrapping_add(1);
        machine.pause(polls);
        if !polls.is_multiple_of(LOOK) {
            continue;
        }
        // SAFETY: the caller promises a live launch.
        if !machine.all(!unsafe { run.aborted(machine) }) {
            return Outcome::Abort;
        }
        let now = machine.now();
        if began == 0 {
            began = now;
        }
        let late = now.wrapping_sub(began) > run.deadline_ns && polls >= run.deadline_polls;
        if late && !arrived {
            // SAFETY: as above; only the lane that changed the word from 0 writes the report.
            unsafe {
                if machine.compare_exchange(&raw mut (*run.state).abort, 0, REPORT_DEADLINE) == 0 {
                    let report = BlackBox {
                        report: REPORT_DEADLINE,
                        worker: run.worker,
                        sm: machine.place(),
                        task: (*descriptor).task,
                        counter,
                        expected: need,
                        seen,
                        polls,
                        elapsed_ns: now - began,
                        reserved: [0; 6],
                    };
                    machine.report(run.black_box, report);
                }
            }
        }
    }
}
