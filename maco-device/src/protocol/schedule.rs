//! The loop of a scheduler: it pushes what is ready, hears what has ended, and looks ahead if there is nothing else.

use super::ahead::Ahead;
use super::layout::{Layout, own};
use super::scheduler::{BATCH, Scheduler};
use super::wait::{Look, Patience};
use super::{Machine, Run};
use crate::profile;
use crate::profile::served::Serving;
use maco_abi::{Launch, SchedulerPartition};

/// Runs scheduler `number` until its tasks have ended or the plan is aborted; `serving` notes when it served. All lanes call together.
///
/// # Safety
/// `run` is a live launch, `serving` its notes of this scheduler, `memory` holds the image of the partition, is used by nobody else, and was written
/// before by this executor or one that has met it at a barrier.
#[inline(always)]
pub unsafe fn schedule<M: Machine>(machine: &M, launch: &Launch, run: &Run, number: u32, memory: *mut u32, serving: Serving<'_>) {
    // SAFETY: the caller promises a live launch; the plan checks 1 <= schedulers <= workers.
    unsafe {
        let partition = (launch.partitions as *const SchedulerPartition).add(number as usize).read();
        let at = Layout::new(&partition, launch.workers, launch.schedulers, number);
        let own = own(launch.workers, launch.schedulers, number);
        let scheduler = Scheduler { machine, launch, run, number, own, tasks: partition.tasks, at, memory, serving };
        let mut patience = Patience::new();
        let (mut turn, mut ahead) = (0, Ahead::default());
        loop {
            let mut base = machine.lane();
            // What has come in is on its way while ready tasks are pushed, if there are registers for it.
            let mut words = if machine.roomy() { scheduler.listen(base) } else { [0; BATCH as usize] };
            let pushed = scheduler.push(&mut turn);
            machine.converge();
            if !machine.roomy() {
                words = scheduler.listen(base);
            }
            let mut heard = false;
            loop {
                heard |= scheduler.hear(base, words);
                base += BATCH * machine.lanes();
                if base - machine.lane() >= launch.workers {
                    break;
                }
                words = scheduler.listen(base);
            }
            machine.converge();
            // Of a task that was pushed ahead, the end may be heard before all that it waited for: messages would be left behind.
            if scheduler.load(scheduler.at.ended) == scheduler.tasks && scheduler.load(scheduler.at.ahead) == 0 {
                scheduler.finish();
                if profile::ON {
                    serving.swept(true);
                    serving.swept(false);
                }
                return;
            }
            // A spare warp has no registers to look ahead.
            if machine.roomy() && (heard || pushed) {
                ahead.begin(&scheduler);
            }
            if machine.roomy() && ahead.look(&scheduler) || heard || pushed {
                if profile::ON {
                    serving.swept(true);
                }
                patience = Patience::new();
                continue;
            }
            if profile::ON {
                serving.swept(false);
            }
            match patience.look(machine, run) {
                Look::Again => {}
                Look::Abort => return,
                Look::Late => {
                    if machine.lane() == 0 {
                        scheduler.complain(&patience);
                    }
                }
            }
        }
    }
}
