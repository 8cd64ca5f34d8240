//! Warp tasks: which warp runs which tasks of a slot, and its loop over them.
//!
//! Warp tasks of one call that follow one another in a static list are one entry, a batch ([`Descriptor::batch`]). So a worker has many more of them in flight than it
//! has slots, and the service warps handle them once. A batch is published as soon as it is posted. Its slot is vacant when all consumer warps have gone through it;
//! between two of its tasks no warp waits for another. A task that a worker claims or a scheduler pushes has a slot to itself. It is ready when it is published,
//! unless it was pushed ahead ([`maco_abi::UNREADY`]); one warp runs it, and the store warp signals its end.

use super::watchdog::WAYS;
use crate::hardware::{memory, warp};
use crate::profile::warp_task::WarpTaskTimer;
use crate::protocol::faults;
use crate::shared_memory::{self, RUNNING, SharedMemory, WARPS, place};
use crate::sync::ready_mailbox;
use maco_abi::{Descriptor, LOST_ARRIVE, Launch, WARP_TASK_BATCH};

/// Byte of a slot: of a run, its first descriptor and how many there are.
const COORD: u32 = core::mem::offset_of!(Descriptor, coord) as u32;

/// No task; no run.
const NONE: u32 = u32::MAX;

/// The tasks of a slot that a thread's warps run.
#[derive(Clone, Copy)]
struct Own {
    /// The first descriptor, or [`NONE`] if it is no run.
    first: u32,
    /// How many there are.
    tasks: u32,
}

impl Own {
    /// Whether it is a run.
    #[inline(always)]
    fn is_run(self) -> bool {
        self.first != NONE
    }

    /// Those in the slot of task `n`.
    ///
    /// # Safety
    /// The slot holds tasks of one warp.
    #[inline(always)]
    unsafe fn of(smem: SharedMemory, n: u32) -> Own {
        let slot = smem.slot(place(n).0);
        // SAFETY: passed on from the caller.
        unsafe {
            if memory::read_shared(slot + WAYS) & WARP_TASK_BATCH.mask() == 0 {
                return Own { first: NONE, tasks: 1 };
            }
            Own { first: memory::read_shared(slot + COORD), tasks: memory::read_shared(slot + COORD + 4) }
        }
    }
}

/// Says which task of the slot of task `n` the warp runs, for who finds that it does not end: see [`super::watchdog::stuck`] and [`super::watchdog::Stall`].
#[inline(always)]
unsafe fn say(smem: SharedMemory, n: u32, warp: u32, task: u32, run: bool) {
    if warp::lane_again() == 0 {
        // SAFETY: words of shared memory; where a run has waits this warp alone writes its own.
        unsafe {
            if run {
                memory::store_relaxed_shared(smem.said(place(n).0, warp), task | RUNNING);
            }
            ready_mailbox::progress(smem, n, task);
        }
    }
}

/// The warp runs no task of the slot of task `n` any more.
#[inline(always)]
unsafe fn end(smem: SharedMemory, n: u32, warp: u32, run: bool) {
    if run && warp::lane_again() == 0 {
        // SAFETY: as in [`say`].
        unsafe { memory::store_relaxed_shared(smem.said(place(n).0, warp), 0) };
    }
}

/// The warp has gone through the slot of task `n`.
#[inline(always)]
unsafe fn leave(smem: SharedMemory, n: u32) {
    warp::sync();
    // SAFETY: an initialised barrier; a converged consumer warp, once for each slot.
    unsafe { shared_memory::arrive(smem.done(place(n).0), warp::lane_again()) };
}

#[cfg(target_arch = "nvptx64")]
pub(super) use device::run;

#[cfg(target_arch = "nvptx64")]
mod device {
    use core::marker::PhantomData;

    use super::*;
    use crate::data::task::Task;
    use crate::dispatch::{Callable, Filter, dispatch};
    use crate::ptx::special;
    use crate::sync::warp_task::{WarpTask, Words};
    use maco_abi::EARLY_START;

    /// The tasks of `C` in `F` that one warp runs.
    struct OnlyWarpTasks<C, F>(PhantomData<(C, F)>);

    impl<C: Callable, F: Filter> Filter for OnlyWarpTasks<C, F> {
        const MASK: u128 = C::WARP_TASKS & F::MASK;
    }

    /// See [`super::super::roles::Warps::run_warp_tasks`].
    #[inline(always)]
    pub unsafe fn run<C: Callable, F: Filter>(launch: *const Launch, n: u32, warp: u32, mut timer: WarpTaskTimer) -> u32 {
        let smem = SharedMemory(special::shared_base());
        let slot = smem.slot(place(n).0);
        // SAFETY: passed on from the caller.
        unsafe {
            let own = Own::of(smem, n);
            let op = memory::read_shared(slot) & 0xffff;
            let mut k = warp.wrapping_sub(n) % WARPS;
            // Of a run.
            let words = |k: u32| Words::load(((*launch).descriptors as *const Descriptor).wrapping_add(own.first.wrapping_add(k) as usize));
            let (mut next, mut seen, mut whole) = (Words::NONE, (0, false), true);
            if k < own.tasks {
                next = if own.is_run() { words(k) } else { Words::read(slot) };
            }
            while k < own.tasks {
                let (index, task) = (own.first.wrapping_add(k), next);
                k += WARPS;
                // On its way while this one is run.
                next = if k < own.tasks { words(k) } else { Words::NONE };
                let mut role = WarpTask::new(launch, slot, index, task, own.is_run(), seen, warp, timer);
                say(smem, n, warp, role.task(), own.is_run());
                if role.has(EARLY_START) || role.pass() {
                    dispatch::<C, WarpTask, OnlyWarpTasks<C, F>>(&mut role, Task::new(slot, launch), op);
                }
                let ran = role.ran();
                if own.is_run() {
                    let (ended, saw) = role.end(if k < own.tasks { Some(&next) } else { None });
                    if !ended {
                        break;
                    }
                    seen = saw;
                } else {
                    role.hand_over();
                }
                timer = ran.note(smem, role.task());
                // What is in a slot alone and has not begun does not end: nobody is told.
                if faults::hit(launch, LOST_ARRIVE, || role.task()) || !own.is_run() && role.stopped() {
                    whole = false;
                    break;
                }
            }
            if whole {
                end(smem, n, warp, own.is_run());
                leave(smem, n);
            }
            n + 1
        }
    }
}

/// The same on a host thread, which stands for several warps; `body` runs a task's instance.
///
/// # Safety
/// As [`super::roles::Warps::run_warp_tasks`].
#[cfg(not(target_arch = "nvptx64"))]
pub(super) unsafe fn run<M: crate::protocol::Machine>(
    machine: &M,
    smem: SharedMemory,
    launch: *const Launch,
    (n, warp): (u32, u32),
    mut timer: WarpTaskTimer,
    mut body: impl FnMut(crate::data::task::Task, u32),
) -> u32 {
    use crate::data::task::Task;
    use crate::hardware::{fence, special};
    use crate::protocol::{self, Outcome, Run};
    use crate::shared_memory::WAITING;
    use maco_abi::{OPERANDS, READ_BY_TMA, Slot, View, ViewEntry};

    // SAFETY: passed on from the caller.
    unsafe {
        let own = Own::of(smem, n);
        let slot = special::generic(smem.slot(place(n).0)) as *const Slot;
        let counters = Run::new(machine, &*launch, special::block());
        let is_own = |k: u32| n.wrapping_add(k).wrapping_sub(warp) % WARPS < warp::CONSUMERS;
        for k in (0..own.tasks).filter(|&k| is_own(k)) {
            let views = (&raw const (*slot).views).cast::<[ViewEntry; OPERANDS]>().read();
            let descriptor = match own.is_run() {
                true => ((*launch).descriptors as *const Descriptor).add((own.first + k) as usize).read(),
                false => (&raw const (*slot).descriptor).read(),
            };
            if own.is_run() {
                memory::store_relaxed_shared(smem.said(place(n).0, warp), descriptor.task | WAITING);
                // Not a body that computes: the clock by which a wait is too long goes on.
                if special::idle(|| protocol::wait(machine, &counters, &descriptor, views.as_ptr().cast::<View>())) == Outcome::Abort {
                    break;
                }
                timer.waited();
            }
            say(smem, n, warp, descriptor.task, own.is_run());
            let task = Slot { descriptor, views };
            body(Task::new(&task, launch), descriptor.op.into());
            let ran = timer.ran();
            if descriptor.flags.has(READ_BY_TMA) {
                fence::proxy_async_global();
            }
            if own.is_run() {
                protocol::signal(machine, &counters, &descriptor);
            }
            timer = ran.note(smem, descriptor.task);
            if faults::hit(launch, LOST_ARRIVE, || descriptor.task) {
                return n + 1;
            }
        }
        end(smem, n, warp, own.is_run());
        leave(smem, n);
    }
    n + 1
}
