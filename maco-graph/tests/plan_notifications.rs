//! How workers and schedulers are notified of ended tasks: edges inside a worker, and messages to schedulers. Random plans are run in random
//! orders that those allow, and every task still comes after all that it depends on.

mod plan_graphs;

use std::collections::VecDeque;

use maco_graph::plan::{Entry, Options, Plan, Schedule, SchedulerTasks, plan};
use plan_graphs::random::{Draw, Script, scripts};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRng, TestRunner};

/// Tasks that a worker has in flight: a task ends before the one so many places behind it begins.
const SLOTS: usize = 8;
/// Tasks that a scheduler has pushed to a worker and that have not ended.
const INBOX: usize = 2;

fn config(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// What has begun and ended in a run.
struct Run<'a> {
    plan: &'a Plan,
    counters: Vec<u32>,
    begun: Vec<bool>,
    ended: usize,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> Run<'a> {
        Run { plan, counters: vec![0; plan.counters as usize], begun: vec![false; plan.tasks.len()], ended: 0 }
    }

    /// All that the task depends on must have ended.
    fn begin(&mut self, task: u32) -> Result<(), String> {
        if std::mem::replace(&mut self.begun[task as usize], true) {
            return Err(format!("task {task} begins twice"));
        }
        match self.plan.waits_of(task).iter().find(|wait| self.counters[wait.counter as usize] < wait.need) {
            Some(wait) => Err(format!("task {task} begins before what fills counter {}", wait.counter)),
            None => Ok(()),
        }
    }

    fn end(&mut self, task: u32) {
        self.ended += 1;
        for &counter in self.plan.signals_of(task) {
            self.counters[counter as usize] += 1;
        }
    }

    fn whole(&self) -> Result<(), String> {
        if self.ended == self.plan.tasks.len() { Ok(()) } else { Err(format!("{} of {} tasks ended", self.ended, self.plan.tasks.len())) }
    }
}

/// A worker with a static list.
#[derive(Default)]
struct Worker {
    entries: VecDeque<Entry>,
    /// Tasks of the list, and what was claimed, in the order in which they were taken.
    taken: Vec<u32>,
    begun: usize,
    /// Tasks end in order, as they begin.
    ended: usize,
}

impl Worker {
    /// Takes a task ahead of those that have begun, if there is one.
    fn take(&mut self, plan: &Plan, tickets: &mut [u32]) {
        while self.taken.len() == self.begun {
            match self.entries.front() {
                None => return,
                Some(&Entry::Task(task)) => {
                    self.entries.pop_front();
                    self.taken.push(task);
                }
                Some(&Entry::Drain(drain)) => {
                    let (drain, ticket) = (&plan.lists.drains[drain as usize], &mut tickets[drain as usize]);
                    if drain.start + *ticket < drain.end {
                        self.taken.push(drain.start + *ticket);
                        *ticket += 1;
                    } else {
                        self.entries.pop_front();
                    }
                }
            }
        }
    }
}

/// Workers with static lists: tasks of a worker begin in order and overlap, polled counters hold only what is signalled, and `after`
/// stands for the rest. With `deaf`, workers ignore `after`.
fn lists(plan: &Plan, draw: &mut Draw<'_>, deaf: bool) -> Result<(), String> {
    let mut run = Run::new(plan);
    let mut polled = vec![0u32; plan.counters as usize];
    let mut tickets = vec![0; plan.lists.drains.len()];
    let mut workers: Vec<Worker> =
        (0..plan.workers as usize).map(|list| Worker { entries: plan.lists.entries(list).collect(), ..Worker::default() }).collect();
    while run.ended < plan.tasks.len() {
        let count = workers.len();
        let start = draw.below(count);
        // Late ends show more.
        let reluctant = draw.below(4) != 0;
        let mut moved = false;
        for (offset, eager) in [false, true].into_iter().flat_map(|eager| (0..count).map(move |offset| (offset, eager))) {
            let worker = &mut workers[(start + offset) % count];
            worker.take(plan, &mut tickets);
            let (begun, ended) = (worker.begun, worker.ended);
            let next = worker.taken.get(begun).copied().filter(|&task| {
                let arrived = plan
                    .waits_of(task)
                    .iter()
                    .all(|wait| plan.worker_edges.contains(task, wait.counter) || polled[wait.counter as usize] >= wait.need);
                let after = plan.worker_edges.after(task) as usize;
                let after = if after < SLOTS { after } else { 0 };
                let last = after == 0 || deaf || ended > begun - after;
                arrived && last && begun < ended + SLOTS
            });
            if let Some(task) = next {
                run.begin(task)?;
                worker.begun += 1;
                moved = true;
            } else if ended < begun && (eager || !reluctant) {
                let task = worker.taken[ended];
                run.end(task);
                for &counter in plan.signals_of(task) {
                    polled[counter as usize] += u32::from(plan.worker_edges.is_signalled(counter));
                }
                worker.ended += 1;
                moved = true;
            }
            if moved {
                break;
            }
        }
        if !moved {
            return Err(format!("{} tasks wait for ever", plan.tasks.len() - run.ended));
        }
    }
    run.whole()
}

/// What a scheduler knows.
struct Scheduler {
    remaining: Vec<u32>,
    pending: Vec<u32>,
    ready: Vec<u32>,
    /// Per worker of all: its tasks that were pushed and have not ended.
    outstanding: Vec<usize>,
    /// Per worker of all: counter and credit of each message.
    mail: Vec<VecDeque<(Option<u32>, bool)>>,
    ended: usize,
}

impl Scheduler {
    fn receive(&mut self, partition: &SchedulerTasks, worker: usize, (counter, credit): (Option<u32>, bool)) -> Result<(), String> {
        if credit {
            self.outstanding[worker] = self.outstanding[worker].checked_sub(1).ok_or("a place is given back that nobody took")?;
            self.ended += 1;
        }
        let Some(counter) = counter.map(|counter| counter as usize) else { return Ok(()) };
        self.remaining[counter] = self.remaining[counter].checked_sub(1).ok_or("an arrival too many")?;
        if self.remaining[counter] == 0 {
            for &waiter in &partition.waiters[partition.starts[counter] as usize..partition.starts[counter + 1] as usize] {
                self.pending[waiter as usize] -= 1;
                if self.pending[waiter as usize] == 0 {
                    self.ready.push(waiter);
                }
            }
        }
        Ok(())
    }
}

/// Schedulers: each knows only what its messages say. Messages from one worker to one scheduler keep their order. With
/// `lost`, the messages of that task are.
fn schedulers(plan: &Plan, draw: &mut Draw<'_>, lost: Option<u32>) -> Result<(), String> {
    let (count, workers) = (plan.scheduler_partition.schedulers.len(), plan.workers as usize);
    let mut run = Run::new(plan);
    let mut all: Vec<Scheduler> = plan
        .scheduler_partition
        .schedulers
        .iter()
        .map(|partition| Scheduler {
            remaining: partition.counters.iter().map(|wait| wait.need).collect(),
            pending: partition.pending.clone(),
            ready: (0..partition.tasks.len() as u32).filter(|&number| partition.pending[number as usize] == 0).collect(),
            outstanding: vec![0; workers],
            mail: vec![VecDeque::new(); workers],
            ended: 0,
        })
        .collect();
    let mut inbox: Vec<VecDeque<u32>> = vec![VecDeque::new(); workers];
    let mut working: Vec<Option<u32>> = vec![None; workers];
    // Whatever can be done next: a worker begins or ends a task, a scheduler reads a message or pushes a task.
    let actions = workers + count * workers + count;
    loop {
        let start = draw.below(actions);
        let mut moved = false;
        for action in (0..actions).map(|offset| (start + offset) % actions) {
            moved = match action.checked_sub(workers) {
                None => match working[action].take() {
                    Some(task) => {
                        run.end(task);
                        for notification in plan.scheduler_partition.notifications_of(task).iter().filter(|_| lost != Some(task)) {
                            all[notification.to as usize].mail[action].push_back((notification.counter, notification.credit));
                        }
                        true
                    }
                    None => {
                        working[action] = inbox[action].pop_front();
                        working[action].map(|task| run.begin(task)).transpose()?.is_some()
                    }
                },
                Some(mail) if mail < count * workers => {
                    let (number, worker) = (mail / workers, mail % workers);
                    let message = all[number].mail[worker].pop_front();
                    message
                        .map(|message| all[number].receive(&plan.scheduler_partition.schedulers[number], worker, message))
                        .transpose()?
                        .is_some()
                }
                Some(push) => {
                    let number = push - count * workers;
                    // Its own workers only, and never more than the inbox holds.
                    let worker = number + count * draw.below((workers - number).div_ceil(count));
                    let scheduler = &mut all[number];
                    let room = scheduler.outstanding[worker] < INBOX && !scheduler.ready.is_empty();
                    if room {
                        let task = scheduler.ready.swap_remove(draw.below(scheduler.ready.len()));
                        scheduler.outstanding[worker] += 1;
                        inbox[worker].push_back(plan.scheduler_partition.schedulers[number].tasks[task as usize]);
                    }
                    room
                }
            };
            if moved {
                break;
            }
        }
        if !moved {
            break;
        }
    }
    run.whole()?;
    for (number, (scheduler, partition)) in all.iter().zip(&plan.scheduler_partition.schedulers).enumerate() {
        let received = scheduler.ended == partition.tasks.len() && scheduler.outstanding.iter().all(|&tasks| tasks == 0);
        if !received || scheduler.mail.iter().any(|mail| !mail.is_empty()) {
            return Err(format!("scheduler {number} has heard of {} of {} ends", scheduler.ended, partition.tasks.len()));
        }
    }
    Ok(())
}

/// Workers; more would only make runs longer.
const MOST: u32 = 9;

fn planned(script: &Script, schedule: Schedule) -> Plan {
    plan(script.graph(), &Options { schedule, ..Options::new(script.workers.min(MOST)) }).unwrap()
}

fn fail(plan: &Plan) -> impl Fn(String) -> TestCaseError {
    let text = plan.to_string();
    move |what| TestCaseError::fail(format!("{what}\n{text}"))
}

proptest! {
    #![proptest_config(config(500))]

    #[test]
    fn overlapping_tasks_of_lists_respect_every_dependency(script in scripts(16)) {
        let plan = planned(&script, Schedule::Static);
        for _ in 0..4 {
            lists(&plan, &mut Draw::endless(&script.dice), false).map_err(fail(&plan))?;
        }
    }

    #[test]
    fn schedulers_push_every_task_once_and_after_its_inputs(script in scripts(10), several in 1u32..9, spare in any::<bool>()) {
        let several = several.min(script.workers).min(MOST);
        let plan = planned(&script, if spare { Schedule::SpareWarps(several) } else { Schedule::Schedulers(several) });
        schedulers(&plan, &mut Draw::endless(&script.dice), None).map_err(fail(&plan))?;
    }

    #[test]
    fn every_task_has_one_scheduler_and_returns_one_credit(script in scripts(16), several in 1u32..9) {
        let several = several.min(script.workers).min(MOST);
        let plan = planned(&script, Schedule::Schedulers(several));
        let mut owned = vec![0; plan.tasks.len()];
        for (number, partition) in plan.scheduler_partition.schedulers.iter().enumerate() {
            for &task in &partition.tasks {
                owned[task as usize] += 1;
                prop_assert_eq!(plan.scheduler_partition.owner[task as usize], number as u32);
            }
        }
        prop_assert!(owned.iter().all(|&owners| owners == 1));
        for task in 0..plan.tasks.len() as u32 {
            let credits: Vec<u32> = plan.scheduler_partition.notifications_of(task).iter().filter(|notification| notification.credit).map(|notification| notification.to).collect();
            prop_assert_eq!(credits, vec![plan.scheduler_partition.owner[task as usize]]);
        }
    }
}

/// On graphs that are the same at every run: in how many `run` fails, and in how many it had something to detect.
fn refused(schedule: Schedule, run: impl Fn(&Plan, &mut Draw<'_>) -> Option<bool>) -> (usize, usize) {
    let mut runner = TestRunner::new_with_rng(config(400), TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha));
    let seen = std::cell::Cell::new((0, 0));
    let drawn = |script: Script| {
        if script.workers >= schedule.schedulers() {
            let plan = planned(&script, schedule);
            if let Some(failed) = run(&plan, &mut Draw::endless(&script.dice)) {
                seen.set((seen.get().0 + usize::from(failed), seen.get().1 + 1));
            }
        }
        Ok(())
    };
    runner.run(&scripts(16), drawn).unwrap();
    seen.get()
}

/// A worker that does not wait for its own tasks is detected, and there are many such waits.
#[test]
fn a_missing_wait_for_the_own_worker_is_detected() {
    let (noticed, with) = refused(Schedule::Static, |plan, draw| {
        let close = (0..plan.tasks.len() as u32).any(|task| (1..SLOTS as u32).contains(&plan.worker_edges.after(task)));
        close.then(|| (0..8).any(|_| lists(plan, draw, true).is_err()))
    });
    assert!(with > 50 && noticed * 10 >= with * 7, "{noticed} of {with}");
}

/// A task whose messages are lost leaves others waiting, or its scheduler.
#[test]
fn a_lost_notification_is_detected() {
    let (noticed, with) = refused(Schedule::Schedulers(1), |plan, draw| {
        (!plan.tasks.is_empty()).then(|| schedulers(plan, draw, Some(draw_task(plan))).is_err())
    });
    assert!(with > 50 && noticed == with, "{noticed} of {with}");
}

fn draw_task(plan: &Plan) -> u32 {
    (plan.edges % plan.tasks.len() as u64) as u32
}

/// Counters without a poll are not signalled; polled counters are, by all their producers.
#[test]
fn one_worker_needs_no_counters() {
    let (with, all) = refused(Schedule::Static, |plan, _| {
        let mut graph = plan.graph.clone();
        // What is claimed may be anybody's.
        graph.calls.iter_mut().for_each(|call| call.drain = false);
        let plan = maco_graph::plan::plan(graph, &Options::new(plan.workers)).unwrap();
        let polls = |task: u32| plan.waits_of(task).iter().any(|wait| !plan.worker_edges.contains(task, wait.counter));
        (plan.workers == 1).then(|| (0..plan.tasks.len() as u32).any(polls))
    });
    assert!(all > 10 && with == 0, "{with} of {all} plans for one worker poll");
}
