//! Translates the black box of a hang to the user's names. How a hang is detected does not belong here.

use std::fmt;
use std::time::Duration;

use maco_abi::{BlackBox, NO_COUNTER, REPORT_STUCK};
use maco_graph::plan::Plan;
use maco_graph::spec::Param;

/// What a hang looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Symptom {
    /// The task waited for a signal that never came.
    Waited,
    /// The task was given to a worker, and did not end.
    DidNotEnd,
}

/// One of those that run a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// A worker, by its number.
    Worker(u32),
    /// A scheduler, by its number.
    Scheduler(u32),
}

impl Executor {
    /// Who wrote `report`, or has the task that it names.
    fn of(report: &BlackBox, workers: u32, schedulers: u32) -> Executor {
        if report.report == REPORT_STUCK || schedulers == 0 {
            return Executor::Worker(report.worker);
        }
        // What is pushed comes ready, so only schedulers wait for counters. They are numbered behind the workers, spare warps as
        // schedulers: those are no more than the workers.
        Executor::Scheduler(report.worker.checked_sub(workers).unwrap_or(report.worker))
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Executor::Worker(number) => write!(f, "worker {number}"),
            Executor::Scheduler(number) => write!(f, "scheduler {number}"),
        }
    }
}

/// A launch without progress: the first task whose wait passed the deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hang {
    /// The megakernel.
    pub megakernel: String,
    /// What the task did.
    pub symptom: Symptom,
    /// The task.
    pub task: String,
    /// Position of its call in program order.
    pub call: u32,
    /// Its tile, one coordinate per grid axis.
    pub tile: Vec<u32>,
    /// What it waited for, where the plan knows.
    pub dependency: Option<Dependency>,
    /// The counter.
    pub counter: u32,
    /// Signals needed.
    pub expected: u32,
    /// Signals that came.
    pub seen: u32,
    /// The wait for another rank that the launch did not get through, if there is one: of this task, or of one before it.
    pub peer: Option<RankWait>,
    /// The worker that had the task; the scheduler that held it back, where schedulers wait for the signals.
    pub executor: Executor,
    /// The multiprocessor that reported it, on a GPU.
    pub multiprocessor: Option<u32>,
    /// How long it took; on a CPU without the time in which task bodies ran.
    pub waited: Duration,
}

/// A task that waited in vain for another rank.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankWait {
    /// The task.
    pub task: String,
    /// Position of its call in program order.
    pub call: u32,
    /// Its tile, one coordinate per grid axis.
    pub tile: Vec<u32>,
    /// The rank that did not send, or did not make room for what this one sends.
    pub rank: u32,
}

/// The relation between two calls that a counter stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dependency {
    /// The tensor.
    pub tensor: String,
    /// Task of the earlier call.
    pub producer: String,
    /// Position of the earlier call.
    pub call: u32,
    /// `read after write`, `write after read` or `write after write`.
    pub hazard: &'static str,
}

impl Hang {
    pub(crate) fn new(plan: &Plan, report: &BlackBox, gpu: bool) -> Hang {
        let node = plan.tasks.get(report.task as usize);
        let call = node.map_or(0, |node| node.call);
        let dependency =
            (report.counter != NO_COUNTER.0).then(|| plan.relation(report.counter, call)).flatten().map(|relation| Dependency {
                tensor: plan.graph.tensors[relation.tensor as usize].name.clone(),
                producer: task_name(plan, relation.producer),
                call: relation.producer,
                hazard: relation.hazard.name(),
            });
        Hang {
            megakernel: plan.graph.name.clone(),
            symptom: if report.report == REPORT_STUCK { Symptom::DidNotEnd } else { Symptom::Waited },
            task: task_name(plan, call),
            call,
            tile: node.map_or_else(Vec::new, |node| tile(plan, node)),
            dependency,
            counter: report.counter,
            expected: report.expected,
            seen: report.seen,
            peer: None,
            executor: Executor::of(report, plan.workers, plan.schedule.schedulers()),
            multiprocessor: gpu.then_some(report.sm),
            waited: Duration::from_nanos(report.elapsed_ns),
        }
    }
}

/// Name of the task that call `call` runs.
pub(crate) fn task_name(plan: &Plan, call: u32) -> String {
    plan.graph.calls.get(call as usize).map_or_else(String::new, |call| call.task.name.to_string())
}

/// The name of a call's tensor parameter.
pub(crate) fn parameter(plan: &Plan, call: u32, operand: u32) -> &'static str {
    let params = plan.graph.calls.get(call as usize).map_or(&[][..], |call| call.task.params);
    let tensors = params.iter().filter_map(|param| if let Param::Tensor(tensor) = param { Some(tensor.name) } else { None });
    tensors.into_iter().nth(operand as usize).unwrap_or_default()
}

/// Coordinates of a task, one per grid axis.
pub(crate) fn tile(plan: &Plan, node: &maco_graph::plan::TaskNode) -> Vec<u32> {
    let axes = plan.calls.get(node.call as usize).map_or(0, |call| call.grid.len());
    node.coord[..axes.min(node.coord.len())].to_vec()
}

impl Hang {
    /// What happened, without code and help.
    pub(crate) fn what(&self) -> impl fmt::Display + '_ {
        What(self)
    }
}

struct What<'a>(&'a Hang);

impl fmt::Display for What<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What(this) = *self;
        write!(f, "hang in megakernel `{}`: task `{}` tile {:?} (call #{}) ", this.megakernel, this.task, this.tile, this.call)?;
        match this.symptom {
            Symptom::DidNotEnd => {
                write!(f, "did not end within {:.1?}", this.waited)?;
            }
            Symptom::Waited => {
                write!(f, "waited {:.1?}", this.waited)?;
                if let Some(dependency) = &this.dependency {
                    write!(
                        f,
                        " for `{}` from task `{}` (call #{}, {})",
                        dependency.tensor, dependency.producer, dependency.call, dependency.hazard
                    )?;
                }
                write!(f, ": counter {} has {} of {} signals", this.counter, this.seen, this.expected)?;
            }
        }
        match &this.peer {
            Some(peer) if (peer.call, &peer.tile) == (this.call, &this.tile) => write!(f, ": it waits for rank {}", peer.rank)?,
            Some(peer) => {
                write!(f, ": task `{}` tile {:?} (call #{}) waits for rank {}", peer.task, peer.tile, peer.call, peer.rank)?;
            }
            None => {}
        }
        write!(f, " ({}", this.executor)?;
        if let Some(multiprocessor) = this.multiprocessor {
            write!(f, ", multiprocessor {multiprocessor}")?;
        }
        f.write_str(")")
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MACO0047: {}", self.what())?;
        f.write_str(
            "\nhelp: call `recover()` on the plan, then run again; raise the deadline (`PlanOptions::deadline`, MACO_DEADLINE_SCALE) \
             if the work before it is slow or the GPU is shared, else report the graph (`plan.graph().json()`)",
        )
    }
}

#[cfg(test)]
mod tests {
    use maco_abi::REPORT_DEADLINE;

    use super::*;

    #[test]
    fn schedulers_are_distinguished_from_workers() {
        let of = |report, worker, schedulers| Executor::of(&BlackBox { report, worker, ..BlackBox::EMPTY }, 4, schedulers).to_string();
        assert_eq!(of(REPORT_DEADLINE, 3, 0), "worker 3");
        // A CTA behind the workers, and a spare warp of worker 1.
        assert_eq!(of(REPORT_DEADLINE, 5, 2), "scheduler 1");
        assert_eq!(of(REPORT_DEADLINE, 1, 2), "scheduler 1");
        // A scheduler says which worker does not end its task.
        assert_eq!(of(REPORT_STUCK, 1, 2), "worker 1");
    }
}
