//! Which workers run which calls: rules by task or by role, made into a range of workers for each call.
//!
//! Tasks are not assigned here: who does (`assignment`, `collective_order`, `list_scheduling`) asks for the range of a task's call, and `verify` looks at the result.

use std::fmt;
use std::ops::Range;

use super::events::Events;
use super::{Options, PlanError, Schedule, Site, TaskNode};
use crate::ir::{Call, Graph};

/// A rule: some calls run on some workers only. With static lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkerRange {
    /// Which calls.
    pub of: TasksOf,
    /// Which workers: not empty, and none beyond the last one.
    pub workers: Range<u32>,
}

/// Which calls a rule is for. One of a task has precedence over one of a role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TasksOf {
    /// All of this task, by its name.
    Task(String),
    /// All that do this.
    Role(Role),
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It computes.
    Compute,
    /// It exchanges tiles with other ranks: a collective, or a task over a channel.
    Comm,
}

impl TasksOf {
    fn holds(&self, call: &Call) -> bool {
        match self {
            TasksOf::Task(name) => call.task.name == name,
            TasksOf::Role(Role::Compute) => call.task.collective().is_none(),
            TasksOf::Role(Role::Comm) => call.task.collective().is_some(),
        }
    }
}

impl fmt::Display for TasksOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TasksOf::Task(name) => write!(f, "task `{name}`"),
            TasksOf::Role(Role::Compute) => f.write_str("the role compute"),
            TasksOf::Role(Role::Comm) => f.write_str("the role comm"),
        }
    }
}

/// The workers of each call.
#[derive(Debug)]
pub(super) struct Ranges {
    /// By call; empty if all may run everywhere.
    of: Vec<Option<Range<u32>>>,
    workers: u32,
}

impl Ranges {
    /// By the options' rules.
    ///
    /// # Errors
    /// A rule that cannot hold, with what is against it.
    pub fn new(graph: &Graph, options: &Options) -> Result<Ranges, PlanError> {
        let refuse = |what: String| Err(PlanError::WorkerRange { what: what.into() });
        let workers = options.workers;
        for (number, rule) in options.ranges.iter().enumerate() {
            let Range { start, end } = rule.workers;
            if start >= end || end > workers {
                return refuse(format!("{} is given workers {start}..{end} of {workers}", rule.of));
            }
            if let Some(other) = options.ranges[..number].iter().find(|other| other.of == rule.of) {
                return refuse(format!("{} is given workers {:?} and workers {start}..{end}", rule.of, other.workers));
            }
            if let TasksOf::Task(_) = rule.of
                && !graph.calls.iter().any(|call| rule.of.holds(call))
            {
                return refuse(format!("{} is given workers {start}..{end}, but no call is of it", rule.of));
            }
        }
        let range = |call: &Call| {
            let by_role = |rule: &&WorkerRange| matches!(rule.of, TasksOf::Role(_));
            let rules = || options.ranges.iter().filter(|rule| rule.of.holds(call));
            let rule = rules().find(|rule| !by_role(rule)).or_else(|| rules().next())?;
            (rule.workers != (0..workers)).then(|| rule.workers.clone())
        };
        let of: Vec<_> = graph.calls.iter().map(range).collect();
        let confined = || of.iter().enumerate().filter_map(|(call, range)| Some((call as u32, range.clone()?)));
        let Some((first, _)) = confined().next() else { return Ok(Ranges { of: Vec::new(), workers }) };
        let against = |call: u32, why: &str| {
            let site = Site { task: graph.calls[call as usize].task.name, call };
            let range = of[call as usize].clone().unwrap_or_default();
            PlanError::WorkerRange { what: format!("{site} is to run on workers {range:?}, but {why}").into() }
        };
        if options.schedule != Schedule::Static {
            return Err(against(first, &format!("with {} tasks have no worker until they run", options.schedule)));
        }
        if let Some((call, _)) = confined().find(|&(call, _)| graph.calls[call as usize].drain) {
            return Err(against(call, "it is drained: whichever worker is free claims its tasks"));
        }
        Ok(Ranges { of, workers })
    }

    /// Whether any call has workers of its own.
    pub fn any(&self) -> bool {
        !self.of.is_empty()
    }

    /// How many workers there are.
    pub fn workers(&self) -> u32 {
        self.workers
    }

    /// Whether call `call` has.
    pub fn confines(&self, call: u32) -> bool {
        self.of.get(call as usize).is_some_and(Option::is_some)
    }

    /// The workers that may run call `call`.
    pub fn of(&self, call: u32) -> Range<u32> {
        self.of.get(call as usize).cloned().flatten().unwrap_or(0..self.workers)
    }

    /// The worker of call `call` that is `number` places behind worker `from`, or behind the first one if that one is none of its.
    pub fn place(&self, call: u32, from: u32, number: u32) -> u32 {
        let Range { start, end } = self.of(call);
        let from = if (start..end).contains(&from) { from - start } else { from % (end - start) };
        start + (from + number) % (end - start)
    }

    /// Refuses an assignment of the tasks of `events`, if there is one, that breaks a rule.
    pub fn check(&self, graph: &Graph, assignment: Option<&[u32]>, events: &Events) -> Result<(), PlanError> {
        let mut tasks = (0u32..).zip(&events.tasks).zip(assignment.unwrap_or(&[]));
        let breaks = |((_, node), worker): &((u32, &TaskNode), &u32)| self.confines(node.call) && !self.of(node.call).contains(worker);
        let Some(((task, &TaskNode { call, .. }), worker)) = tasks.find(breaks) else { return Ok(()) };
        let site = Site { task: graph.calls[call as usize].task.name, call };
        let what = format!("{site} is to run on workers {:?}, but the placement puts its task {task} on worker {worker}", self.of(call));
        Err(PlanError::WorkerRange { what: what.into() })
    }

    /// As a plan has them.
    pub fn into_calls(self) -> Vec<Option<Range<u32>>> {
        self.of
    }
}
