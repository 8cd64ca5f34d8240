//! Divides the tasks among schedulers, and lists which schedulers the end of each task is notified to.
//!
//! How messages travel does not belong here. A scheduler owns tasks, counts the arrivals at the counters that they wait for, and
//! pushes a task to a worker once all of them are complete. Of ready tasks it pushes the one with the longest path to the end first:
//! that order is topological, and a long chain does not starve behind a wide fan (highest level first, T. C. Hu 1961).

use super::{Plan, Wait};

/// The tasks of each scheduler, and the notifications that they send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerPartition {
    /// One per scheduler.
    pub schedulers: Vec<SchedulerTasks>,
    /// Notifications that the end of a task sends, task after task.
    pub notifications: Vec<Notification>,
    /// First notification of each task, and the end.
    pub starts: Vec<u32>,
    /// Per task: the scheduler that owns it.
    pub owner: Vec<u32>,
}

/// The tasks and counters of one scheduler. Its tasks are numbered in order of priority, its counters in order of first use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulerTasks {
    /// Task of each number.
    pub tasks: Vec<u32>,
    /// How many counters each task waits for.
    pub pending: Vec<u32>,
    /// The plan's counter and the arrivals it needs.
    pub counters: Vec<Wait>,
    /// Numbers of the tasks that wait for a counter, counter after counter.
    pub waiters: Vec<u32>,
    /// First waiter of each counter, and the end.
    pub starts: Vec<u32>,
}

/// One notification to scheduler `to`: its counter `counter` has one more arrival; and with `credit`, the worker has ended a task that this
/// scheduler pushed, so that its inbox has room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The scheduler.
    pub to: u32,
    /// Which of its counters.
    pub counter: Option<u32>,
    /// Whether it pushed the task.
    pub credit: bool,
}

impl SchedulerPartition {
    pub(super) fn new(plan: &Plan) -> SchedulerPartition {
        let schedulers = plan.schedule.schedulers();
        if schedulers == 0 {
            return SchedulerPartition::default();
        }
        let mut partition = SchedulerPartition {
            schedulers: vec![SchedulerTasks::default(); schedulers as usize],
            owner: vec![0; plan.tasks.len()],
            notifications: Vec::with_capacity(plan.signals.len() + plan.tasks.len()),
            starts: Vec::with_capacity(plan.tasks.len() + 1),
        };
        for (rank, task) in by_level(plan).into_iter().enumerate() {
            let owner = rank as u32 % schedulers;
            partition.owner[task as usize] = owner;
            partition.schedulers[owner as usize].tasks.push(task);
        }
        // Per counter: the schedulers that count it, and its number there.
        let mut known: Vec<Vec<(u32, u32)>> = vec![Vec::new(); plan.counters as usize];
        for (owner, owned) in partition.schedulers.iter_mut().enumerate() {
            owned.count(plan, owner as u32, &mut known);
        }
        for task in 0..plan.tasks.len() as u32 {
            let first = partition.notifications.len();
            partition.starts.push(first as u32);
            let owner = partition.owner[task as usize];
            for &counter in plan.signals_of(task) {
                for &(to, number) in &known[counter as usize] {
                    // A notification of an arrival also returns the credit.
                    let credit = to == owner && !partition.notifications[first..].iter().any(|notification| notification.credit);
                    partition.notifications.push(Notification { to, counter: Some(number), credit });
                }
            }
            if !partition.notifications[first..].iter().any(|notification| notification.credit) {
                partition.notifications.push(Notification { to: owner, counter: None, credit: true });
            }
        }
        partition.starts.push(partition.notifications.len() as u32);
        partition
    }

    /// The notifications that the end of `task` sends.
    pub fn notifications_of(&self, task: u32) -> &[Notification] {
        &self.notifications[self.starts[task as usize] as usize..self.starts[task as usize + 1] as usize]
    }
}

impl SchedulerTasks {
    fn count(&mut self, plan: &Plan, owner: u32, known: &mut [Vec<(u32, u32)>]) {
        let mut waits = Vec::new();
        for (number, &task) in self.tasks.iter().enumerate() {
            let own = plan.waits_of(task);
            self.pending.push(own.len() as u32);
            for &wait in own {
                let list = &mut known[wait.counter as usize];
                let counter = match list.last() {
                    Some(&(to, counter)) if to == owner => counter,
                    _ => {
                        self.counters.push(wait);
                        list.push((owner, self.counters.len() as u32 - 1));
                        self.counters.len() as u32 - 1
                    }
                };
                waits.push((counter, number as u32));
            }
        }
        self.starts = vec![0; self.counters.len() + 1];
        for &(counter, _) in &waits {
            self.starts[counter as usize + 1] += 1;
        }
        for counter in 0..self.counters.len() {
            self.starts[counter + 1] += self.starts[counter];
        }
        let mut next = self.starts.clone();
        self.waiters = vec![0; waits.len()];
        for (counter, number) in waits {
            self.waiters[next[counter as usize] as usize] = number;
            next[counter as usize] += 1;
        }
    }
}

/// All tasks, the one with the longest path to the end first; of equals the earlier one.
fn by_level(plan: &Plan) -> Vec<u32> {
    let mut level = vec![0u32; plan.tasks.len()];
    let mut waiting = vec![0u32; plan.counters as usize];
    for task in (0..plan.tasks.len() as u32).rev() {
        let longest = plan.signals_of(task).iter().map(|&counter| waiting[counter as usize]).max().unwrap_or(0);
        level[task as usize] = longest;
        for wait in plan.waits_of(task) {
            let entry = &mut waiting[wait.counter as usize];
            *entry = (longest + 1).max(*entry);
        }
    }
    let mut tasks: Vec<u32> = (0..plan.tasks.len() as u32).collect();
    tasks.sort_by_key(|&task| std::cmp::Reverse(level[task as usize]));
    tasks
}
