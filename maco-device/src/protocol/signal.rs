//! Signals: one release fence, then relaxed additions without result.

use super::{Machine, Run};
use crate::abi::{Descriptor, NO_COUNTER};

/// Releases what the task wrote, then bumps every counter it signals; without a signal, nothing.
///
/// # Safety
/// `run` is a live launch and `descriptor` valid. Everything the task wrote has been observed by this executor.
#[inline(always)]
pub unsafe fn signal<M: Machine>(machine: &M, run: &Run, descriptor: *const Descriptor) {
    // SAFETY: the caller promises a valid descriptor; the plan's verifier keeps every counter inside the bank.
    unsafe {
        let [first, second] = (*descriptor).signal;
        if first == NO_COUNTER {
            // Inline signals come first: there is none.
            return;
        }
        machine.release();
        machine.add(run.counters.add(first as usize), 1);
        if second != NO_COUNTER {
            machine.add(run.counters.add(second as usize), 1);
            let extra = run.overflow.add((*descriptor).overflow as usize + 2 * (*descriptor).extra_waits as usize);
            let mut n = 0;
            while n < (*descriptor).extra_signals as usize {
                machine.add(run.counters.add(extra.add(n).read() as usize), 1);
                n += 1;
            }
        }
    }
}
