//! The loops of executors that do one thing at a time: CPU threads. On a GPU the roles of a CTA share them.

use super::{Machine, Outcome, Queue, Run, enter, leave, notify, schedule, signal, wait};
use crate::profile::Recorder;
use crate::profile::served::Served;
use maco_abi::{
    Descriptor, KIND_RUN, KIND_STORE, KIND_WAIT, Launch, OP_DYNAMIC, OP_END, ROLE_CONSUME, ROLE_STORE, SchedulerPartition, View,
    WARP_TASK_BATCH,
};

/// Runs the tasks of `worker` and leaves. `body` runs one task; after `Abort` the worker takes no more.
///
/// # Safety
/// `launch` names live memory; each worker of the launch calls once. `tails` has an entry per scheduler: messages sent before, 0.
pub unsafe fn work<M: Machine>(
    machine: &M,
    launch: &Launch,
    worker: u32,
    tails: &mut [u8],
    mut body: impl FnMut(&Run, *const Descriptor) -> Outcome,
) {
    // SAFETY: the caller promises a live launch; descriptors, views and overflow are not written while it runs.
    unsafe {
        let run = Run::new(machine, launch, worker);
        enter(machine, &run);
        run.clear_idle(machine, worker, launch.workers);
        let mut queue = Queue::new(launch, &run);
        let mut recorder = Recorder::new(launch, worker);
        let mut ended = 0;
        while let Some((index, until)) = queue.next(machine, &run) {
            let descriptor = |index: u32| (launch.descriptors as *const Descriptor).add(index as usize);
            let entry = descriptor(index);
            if (*entry).op == OP_END || run.aborted(machine) || until.wait(machine, &run) == Outcome::Abort {
                break;
            }
            let mut one = |descriptor: *const Descriptor| {
                let views = (launch.views as *const View).add((*descriptor).views as usize);
                let task = (*descriptor).task;
                if wait(machine, &run, descriptor, views) == Outcome::Abort {
                    return Outcome::Abort;
                }
                recorder.note(ROLE_CONSUME, KIND_WAIT, task);
                if body(&run, descriptor) == Outcome::Abort {
                    return Outcome::Abort;
                }
                recorder.note(ROLE_CONSUME, KIND_RUN, task);
                ended += 1;
                if !queue.is_pushed() {
                    signal(machine, &run, descriptor);
                } else if notify(machine, launch, &run, descriptor, ended, tails.as_mut_ptr()) == Outcome::Abort {
                    return Outcome::Abort;
                }
                recorder.note(ROLE_STORE, KIND_STORE, task);
                Outcome::Ready
            };
            let outcome = if (*entry).op < OP_DYNAMIC && (*entry).flags.has(WARP_TASK_BATCH) {
                let [first, tasks, _] = (*entry).coord;
                match (first..first + tasks).all(|index| one(descriptor(index)) == Outcome::Ready) {
                    true => Outcome::Ready,
                    false => Outcome::Abort,
                }
            } else {
                one(entry)
            };
            if outcome == Outcome::Abort {
                break;
            }
        }
        recorder.finish();
        leave(machine, run.state, worker, launch.executors);
    }
}

/// Runs scheduler `number` and leaves.
///
/// # Safety
/// `launch` names live memory; each scheduler of the launch calls once, and [`SchedulerPartition::memory`] holds its image.
pub unsafe fn attend<M: Machine>(machine: &M, launch: &Launch, number: u32) {
    // SAFETY: the caller promises a live launch.
    unsafe {
        let run = Run::new(machine, launch, launch.workers + number);
        enter(machine, &run);
        let memory = (*(launch.partitions as *const SchedulerPartition).add(number as usize)).memory as *mut u32;
        let served = Served::new(launch, number);
        schedule(machine, launch, &run, number, memory, served.serving());
        served.finish();
        leave(machine, run.state, launch.workers + number, launch.executors);
    }
}
