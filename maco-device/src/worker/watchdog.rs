//! The watchdog: tasks in flight, and what happens when one does not end.

use core::mem::offset_of;

use crate::data::task::Task;
use crate::hardware::{mbarrier, memory, special, warp};
use crate::protocol::{Look, Machine, Patience, Run};
use crate::shared_memory::{self, FALL_THROUGH, RUNNING, STOP, SharedMemory, WAITING, WARPS, place};
use crate::sync::gate;
use maco_abi::{BlackBox, Descriptor, Launch, PUSHED, REPORT_DEADLINE, REPORT_STUCK, SLOTS, Slot, WARP_TASK_BATCH, Wait};

/// The task in a slot.
#[inline(always)]
pub fn slot(smem: SharedMemory, slot: u32) -> *const Slot {
    special::generic(smem.slot(slot)) as *const Slot
}

/// Byte of a slot: [`Descriptor::flags`], and [`Descriptor::after`] above them.
pub const WAYS: u32 = offset_of!(Descriptor, flags) as u32;
const _: () = assert!(offset_of!(Descriptor, op) == 0 && WAYS == 4);
/// Byte of a slot: [`Descriptor::task`].
pub const TASK: u32 = offset_of!(Descriptor, task) as u32;
/// Byte of a slot: [`Descriptor::signal`].
pub const SIGNALS: u32 = offset_of!(Descriptor, signal) as u32;
const _: () = assert!(offset_of!(Descriptor, after) == offset_of!(Descriptor, flags) + 2 && offset_of!(Slot, descriptor) == 0);

/// The task in a slot, as its code sees it.
///
/// # Safety
/// The launch is live, and the slot holds a published task.
#[inline(always)]
pub unsafe fn task(smem: SharedMemory, launch: *const Launch, at: u32) -> Task {
    #[cfg(target_arch = "nvptx64")]
    let place = smem.slot(at);
    #[cfg(not(target_arch = "nvptx64"))]
    let place = slot(smem, at);
    // SAFETY: passed on from the caller.
    unsafe { Task::new(place, launch) }
}

/// Nanoseconds that published tasks get to complete after an abort.
const GRACE: u64 = 2_000_000;

/// Waits until the first `published` tasks have left their slots, so that nothing of this CTA outlives it: on a hang, past the
/// deadline, or after an abort past a grace, lets every wait of the CTA through. The whole warp that publishes tasks calls.
#[inline(always)]
pub unsafe fn supervise<M: Machine>(warp: &M, smem: SharedMemory, run: &Run, published: u32) {
    let mut n = published.saturating_sub(SLOTS);
    while n < published {
        let (at, parity) = place(n);
        let (mut patience, mut stall) = (Patience::new(), Stall::new());
        let mut aborted = 0;
        // SAFETY: initialised barriers, a live launch.
        unsafe {
            // Not `try_wait`: the deadline counts polls, and that one may sleep for long.
            while !warp.all(mbarrier::test(smem.vacant(at), parity)) {
                stall.look(warp, smem, &mut patience);
                match patience.look(warp, run) {
                    Look::Again => {}
                    Look::Late => stuck(warp, smem, run, &patience, at),
                    Look::Abort => {
                        let now = warp.now();
                        if aborted == 0 {
                            aborted = now;
                        }
                        if !warp.all(now - aborted < GRACE) {
                            smem.halt(FALL_THROUGH);
                            return;
                        }
                    }
                }
            }
        }
        n += 1;
    }
}

/// What the task in a slot polls for, if it polls: its first wait then has [`IN_BAND_FLAGS`].
#[inline(always)]
pub unsafe fn polled(smem: SharedMemory, at: u32) -> Wait {
    // SAFETY: the slot holds a task that was posted.
    unsafe { (&raw const (*slot(smem, at)).descriptor.wait).cast::<Wait>().read() }
}

/// Whether anything moves in the slots: what is published, and tasks of one warp that begin, of which one publication may be about many.
#[derive(Clone, Copy)]
pub struct Stall {
    seen: u32,
}

impl Stall {
    /// Nothing has been seen.
    #[inline(always)]
    pub fn new() -> Stall {
        Stall { seen: 0 }
    }

    /// Called at each vain poll, before [`Patience::look`]: who has seen something move has patience anew.
    ///
    /// # Safety
    /// The CTA's shared memory; all lanes call together.
    #[inline(always)]
    pub unsafe fn look<M: Machine>(&mut self, machine: &M, smem: SharedMemory, patience: &mut Patience) {
        // Built for racecheck, nobody says how tasks of one warp go on: a deadline there has room for a run of them.
        if shared_memory::ARRIVALS > 1 || !patience.asks(machine) {
            return;
        }
        let (mut at, mut seen) = (machine.lane(), 0u32);
        while at < SLOTS {
            // SAFETY: words of shared memory.
            seen = seen.wrapping_mul(SLOTS + 1).wrapping_add(unsafe { memory::load_relaxed_shared(smem.ready_mailbox(at)) });
            at += machine.lanes();
        }
        if !machine.all(seen == self.seen) {
            self.seen = seen;
            *patience = Patience::new();
        }
    }
}

/// Reports that the task in a slot does not end; that it waits, if it polls for what has not come. Of a run, that one of those tasks does not which warps have
/// begun; what one waits for its warp reports.
#[inline(always)]
pub unsafe fn stuck<M: Machine>(machine: &M, smem: SharedMemory, run: &Run, patience: &Patience, at: u32) {
    // SAFETY: a live launch; the slot holds a task that was published.
    unsafe {
        if machine.lane() == 0 {
            let mut task = (&raw const (*slot(smem, at)).descriptor.task).read();
            if memory::load_shared(smem.slot(at) + WAYS) & WARP_TASK_BATCH.mask() != 0 {
                let (mut begun, mut waits) = (None, false);
                let mut consumer = 0;
                while consumer < WARPS {
                    let said = memory::load_relaxed_shared(smem.said(at, consumer));
                    match said & (RUNNING | WAITING) {
                        RUNNING => begun = Some(said & !RUNNING),
                        WAITING => waits = true,
                        _ => {}
                    }
                    consumer += warp::CONSUMERS;
                }
                if begun.is_none() && waits {
                    return;
                }
                task = begun.unwrap_or(task);
            }
            let wait = polled(smem, at);
            let mut report = BlackBox { report: REPORT_STUCK, task, ..BlackBox::EMPTY };
            if wait.has_in_band_flags() {
                // Adds nothing. Not a poll, behind which there would be something to acquire.
                let (need, seen) = (wait.arrivals(), machine.claim(run.counters.add(wait.counter.0 as usize), 0));
                if seen < need {
                    report = BlackBox { report: REPORT_DEADLINE, counter: wait.counter.0, expected: need, seen, ..report };
                }
            }
            patience.report(machine, run, report);
        }
    }
}

/// Publishes no further task after the first `published`, but those that a consumer warp has begun. How many are published then; all these complete, which
/// [`supervise`] waits for.
#[inline(always)]
pub unsafe fn stop<M: Machine>(warp: &M, smem: SharedMemory, published: u32) -> u32 {
    // SAFETY: passed on from the caller; a task that a warp has begun is in its slot.
    unsafe {
        let begun = gate::close(smem, published);
        let mut n = published;
        while n < begun {
            gate::confirm(warp, smem, n);
            shared_memory::arrive(smem.ready(place(n).0), warp.lane());
            n += 1;
        }
        warp.converge();
        smem.halt(STOP);
        begun
    }
}

/// Whether tasks are pushed by schedulers.
#[inline(always)]
pub unsafe fn pushed(launch: *const Launch) -> bool {
    // SAFETY: a live launch.
    unsafe { (*launch).schedule == PUSHED }
}
