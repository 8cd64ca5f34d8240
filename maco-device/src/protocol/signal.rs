//! Signals: one release fence, then relaxed additions without result.

use super::{Machine, Run};
use maco_abi::{Descriptor, NO_SIGNAL, Signal};

/// Releases what the task wrote, then bumps every counter it signals; without a signal, nothing.
///
/// # Safety
/// `run` is a live launch and `descriptor` valid. Everything the task wrote has been observed by this executor.
#[inline(always)]
pub unsafe fn signal<M: Machine>(machine: &M, run: &Run, descriptor: *const Descriptor) {
    // SAFETY: passed on from the caller.
    unsafe {
        let first = (*descriptor).signal[0];
        if first == NO_SIGNAL {
            // Inline signals come first: there is none.
            return;
        }
        machine.release();
        bump(machine, run, first, descriptor);
    }
}

/// Bumps every counter that the task signals, behind a release fence; `first` is the first one.
///
/// # Safety
/// As [`signal`], and the executor has released what it observed.
#[inline(always)]
pub unsafe fn bump<M: Machine>(machine: &M, run: &Run, first: u32, descriptor: *const Descriptor) {
    // SAFETY: the caller promises a valid descriptor; the plan's verifier keeps every counter inside the bank.
    unsafe {
        bump_one(machine, run, first);
        let second = (*descriptor).signal[1];
        if second != NO_SIGNAL {
            bump_one(machine, run, second);
            let extra = run.overflow.add((*descriptor).overflow as usize + 2 * (*descriptor).extra_waits as usize);
            let mut n = 0;
            while n < (*descriptor).extra_signals as usize {
                bump_one(machine, run, extra.add(n).read());
                n += 1;
            }
        }
    }
}

/// Bumps one counter, behind a release fence.
///
/// # Safety
/// As [`bump`].
#[inline(always)]
pub unsafe fn bump_one<M: Machine>(machine: &M, run: &Run, signal: u32) {
    // SAFETY: passed on from the caller; the counter is inside the bank.
    unsafe {
        let Signal { counter, single_producer } = Signal::decode(signal);
        let counter = run.counters.add(counter.0 as usize);
        if single_producer { machine.store(counter, 1) } else { machine.add(counter, 1) }
    }
}
