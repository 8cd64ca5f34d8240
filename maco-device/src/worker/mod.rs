//! The CTA: which warp plays which role, and the way of a task through them.
//!
//! fetcher (warp 3) → slot, `posted` → controller (warp 1) → `ready` → loader (warp 0) and consumers (warps 4–11) → `done` → store and
//! signals (warp 2) → counters, and `vacant` → fetcher. With schedulers a task comes ready, so the fetcher publishes it itself and
//! warp 1 is spare: it may be a scheduler. A CTA behind the workers is a scheduler and nothing else.
//!
//! Only fetcher, controller and schedulers wait on global memory, so only they time out. An abort ends the list at a task border:
//! no task is published any more, and those that were complete as usual. If they do not, every wait inside the CTA is let through.

mod control;
mod fetch;
mod machine;
mod roles;

use crate::abi::{BlackBox, Launch, PUSHED, REPORT_BUSY, SHARED_BYTES, SLOTS, Share};
use crate::protocol::{self, Layout, Machine, Patience, Run};
use crate::ptx::{barrier, local, mbarrier, memory, special, warp};
use crate::role::ring::{Arena, STOP};
use crate::task::{Callable, Filter, Slot};
use machine::{Lane, SharedWarp, Warp};

/// Runs a CTA: the body of every device entry.
///
/// # Safety
/// Launched with [`crate::abi::THREADS`] threads, [`crate::abi::SHARED_BYTES`] of dynamic shared memory and one CTA per worker and
/// scheduler, all resident; `launch` and everything it names is live device memory that the plan filled for `C`.
#[inline(always)]
pub unsafe fn megakernel<C: Callable, F: Filter>(launch: *const Launch) {
    let arena = Arena(special::shared_base());
    let thread = special::thread();
    let block = special::block();
    // SAFETY: the caller promises a live launch, which does not change while it runs; every role gets the threads it is for.
    unsafe {
        let workers = (*launch).workers;
        if block >= workers {
            scheduler(arena, launch, block - workers);
        } else {
            if thread == 0 {
                arena.init();
            }
            barrier::sync_cta();
            if thread < 128 {
                special::registers_decrease();
                match thread / 32 {
                    0 => roles::load::<C, F>(arena, launch),
                    1 => control::control(arena, launch),
                    2 => roles::store::<C, F>(arena, launch),
                    _ => fetch::fetch(arena, launch),
                }
            } else {
                special::registers_increase();
                roles::consume::<C, F>(arena, launch);
            }
            warp::sync();
        }
        barrier::sync_cta();
        if thread == 0 {
            protocol::leave(&Lane, (*launch).state as *mut _, special::blocks());
        }
    }
}

/// A CTA that is scheduler `number`.
#[inline(always)]
unsafe fn scheduler(arena: Arena, launch: *const Launch, number: u32) {
    // SAFETY: the caller promises a live launch; all threads copy before the first warp reads.
    unsafe {
        // Read once: the next acquire would send a later read to the second-level cache.
        let launch = &{ *launch };
        let share = (launch.shares as *const Share).add(number as usize).read();
        let words = Layout::new(&share, launch.workers, launch.schedulers, number).words;
        if share.memory != 0 {
            copy(&share, share.memory, words, special::thread(), crate::abi::THREADS);
        } else {
            copy(&share, special::generic(arena.0), words, special::thread(), crate::abi::THREADS);
        }
        barrier::sync_cta();
        if special::thread() < 32 {
            let run = Run::new(&Warp, launch, launch.workers + number);
            if share.memory != 0 {
                protocol::schedule(&Warp, launch, &run, number, share.memory as *mut u32);
            } else {
                protocol::schedule(&SharedWarp, launch, &run, number, arena.0 as usize as *mut u32);
            }
        }
        warp::sync();
    }
}

/// This thread's part of a scheduler's image.
#[inline(always)]
unsafe fn copy(share: &Share, memory: u64, words: u32, thread: u32, threads: u32) {
    let (from, to) = (share.image as *const u32, memory as *mut u32);
    let mut at = thread * 4;
    while at < words {
        // SAFETY: both sides have `words` words, a multiple of 4, at a 16-byte boundary.
        unsafe {
            let four = memory::load4(from.add(at as usize));
            let mut n = 0;
            while n < 4 {
                crate::ptx::own::store(to.add(at as usize + n), four[n]);
                n += 1;
            }
        }
        at += threads * 4;
    }
}

/// Whether the launch may run: it was not aborted before, and nobody else runs it. The first worker's controller claims it.
#[inline(always)]
unsafe fn admitted(run: &Run) -> bool {
    // SAFETY: a live launch.
    unsafe {
        let mut aborted = run.aborted(&Warp);
        let lane = special::thread() % 32;
        if run.worker == 0 && lane == 0 && local::compare_exchange(&raw mut (*run.state).busy, 0, 1) != 0 {
            Patience::new().report(&Lane, run, BlackBox { report: REPORT_BUSY, ..BlackBox::EMPTY });
            aborted = true;
        }
        Warp.all(!aborted)
    }
}

/// Slot and parity of a worker's `n`-th task.
#[inline(always)]
fn place(n: u32) -> (u32, u32) {
    (n % SLOTS, n / SLOTS & 1)
}

/// The task in a slot.
#[inline(always)]
fn slot(arena: Arena, slot: u32) -> *const Slot {
    special::generic(arena.slot(slot)) as *const Slot
}

/// Nanoseconds that published tasks get to complete after an abort.
const GRACE: u64 = 2_000_000;

/// Waits until the first `published` tasks have left their slots, so that nothing of this CTA outlives it: on a hang, past the
/// deadline, or after an abort past a grace, lets every wait of the CTA through. The whole warp that publishes tasks calls.
#[inline(always)]
unsafe fn supervise(arena: Arena, run: &Run, published: u32) {
    let mut n = if published > SLOTS { published - SLOTS } else { 0 };
    while n < published {
        let (at, parity) = place(n);
        let mut patience = Patience::new();
        let mut aborted = 0;
        // SAFETY: initialised barriers, a live launch.
        unsafe {
            while !Warp.all(mbarrier::try_wait(arena.vacant(at), parity)) {
                match patience.look(&Warp, run) {
                    protocol::Look::Again => {}
                    protocol::Look::Late => stuck(arena, run, &patience, at),
                    protocol::Look::Abort => {
                        let now = special::global_timer();
                        if aborted == 0 {
                            aborted = now;
                        }
                        if !Warp.all(now - aborted < GRACE) {
                            arena.halt(crate::role::ring::FALL_THROUGH);
                            return;
                        }
                    }
                }
            }
        }
        n += 1;
    }
}

/// Reports that the task in a slot does not end.
#[inline(always)]
unsafe fn stuck(arena: Arena, run: &Run, patience: &Patience, at: u32) {
    // SAFETY: a live launch; the slot holds a task that was published.
    unsafe {
        if special::thread() % 32 == 0 {
            let task = (&raw const (*slot(arena, at)).descriptor.task).read();
            patience.report(&Lane, run, BlackBox { report: crate::abi::REPORT_STUCK, task, ..BlackBox::EMPTY });
        }
    }
}

/// Publishes no further task after the first `published`; they complete.
#[inline(always)]
unsafe fn stop(arena: Arena, run: &Run, published: u32) {
    // SAFETY: passed on from the caller.
    unsafe {
        arena.halt(STOP);
        supervise(arena, run, published);
    }
}

/// Whether tasks are pushed by schedulers.
#[inline(always)]
unsafe fn pushed(launch: *const Launch) -> bool {
    // SAFETY: a live launch.
    unsafe { (*launch).schedule == PUSHED }
}

const _: () = assert!(SHARED_BYTES.is_multiple_of(16));
