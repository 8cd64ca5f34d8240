//! The initial memory image of each scheduler: its tasks and counters.

use maco_abi as abi;
use maco_device::protocol::Layout;
use maco_graph::plan::Plan;

/// One scheduler's image, and the plan's numbers of its counters.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// Numbers of tasks, counters and waiters; the addresses are 0.
    pub(crate) header: abi::SchedulerPartition,
    /// Its memory at the start of a launch.
    pub(crate) words: Vec<u32>,
    /// The plan's number of each counter, and what it needs.
    pub(crate) names: Vec<abi::Wait>,
}

/// Of the counters of `owned` that the end of `task` arrives at, the one whose first waiter is pushed first, plus 1; 0 for none.
fn signalled(plan: &Plan, owner: u32, owned: &maco_graph::plan::SchedulerTasks, task: u32) -> u32 {
    let own = plan.scheduler_partition.notifications_of(task).iter().filter(|notification| notification.to == owner);
    let first = |&counter: &u32| owned.waiters[owned.starts[counter as usize] as usize];
    own.filter_map(|notification| notification.counter).min_by_key(first).map_or(0, |counter| counter + 1)
}

/// One image per scheduler; `descriptor_of` has the descriptor of each task. Without `look_ahead` no task is pushed before it is ready.
pub(super) fn images(plan: &Plan, descriptor_of: &[u32], look_ahead: bool) -> Vec<Image> {
    let schedulers = plan.schedule.schedulers();
    let image = |(number, owned): (usize, &maco_graph::plan::SchedulerTasks)| {
        let counts = abi::SchedulerPartition {
            tasks: owned.tasks.len() as u32,
            counters: owned.counters.len() as u32,
            waiters: owned.waiters.len() as u32,
            ..abi::SchedulerPartition::default()
        };
        let at = Layout::new(&counts, plan.workers, schedulers, number as u32);
        let mut words = vec![0; at.words as usize];
        let mut put = |first: u32, values: &mut dyn Iterator<Item = u32>| {
            for (n, value) in values.enumerate() {
                words[first as usize + n] = value;
            }
        };
        put(at.remaining, &mut owned.counters.iter().map(|wait| wait.need));
        put(at.pending, &mut owned.pending.iter().copied());
        if look_ahead {
            put(at.signals, &mut owned.tasks.iter().map(|&task| signalled(plan, number as u32, owned, task)));
        }
        put(at.starts, &mut owned.starts.iter().copied());
        put(at.waiters, &mut owned.waiters.iter().copied());
        put(at.tasks, &mut owned.tasks.iter().map(|&task| descriptor_of[task as usize]));
        // Tasks that wait for nothing are ready.
        for (task, _) in owned.pending.iter().enumerate().filter(|&(_, &pending)| pending == 0) {
            words[at.ready as usize + task / 32] |= 1 << (task % 32);
            words[at.summary as usize + task / 1024] |= 1 << (task / 32 % 32);
            words[at.count as usize] += 1;
        }
        let names = owned.counters.iter().map(super::descriptor::waiting).collect();
        Image { header: counts, words, names }
    };
    plan.scheduler_partition.schedulers.iter().enumerate().map(image).collect()
}
