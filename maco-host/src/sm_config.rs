//! Which workers of a device do what: by role, by task, or as the planner likes.
//!
//! Tasks are not assigned here: the planner does it, by the rules that come out (`maco_graph::plan::WorkerRange`).

use std::ops::Range;

use maco_graph::plan::{PlanError, Role, Schedule, TasksOf, WorkerRange};

use crate::device::Device;
use crate::error::Error;
use crate::options::PlanOptions;
use crate::program::Program;

/// Of so many multiprocessors NCCL has one, if nobody says how many: 8 of an H200's 132.
const AUTOMATIC: u32 = 16;

/// What the multiprocessors of a GPU do, or the threads of a CPU device: [`PlanOptions::sms`].
///
/// Multiprocessors are numbered by workers: a worker is one CTA that has a multiprocessor for itself, and which one the hardware chooses. A range is of workers of the plan.
/// Tasks that are confined so need static lists, and no `.drain()`.
///
/// A plan has one configuration. A program with two kinds of launches, such as prefill and decode, makes a plan for each from the same megakernel and passes both the same
/// weights: device code is loaded once, and which plan is launched next costs nothing.
///
/// ```
/// # use maco_host::SmConfig;
/// let prefill = SmConfig::automatic();
/// let decode = SmConfig::split(120, 12).tasks(&["attention"], 0..60).tasks(&["linear"], 60..120);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmConfig {
    compute: Option<Range<u32>>,
    comm: Option<Range<u32>>,
    schedulers: Option<Range<u32>>,
    tasks: Vec<(String, Range<u32>)>,
}

/// What a configuration comes to on a device, for one program.
pub(crate) struct Resolved {
    pub(crate) schedule: Schedule,
    pub(crate) workers: u32,
    /// Multiprocessors that NCCL has.
    pub(crate) comm_sms: u32,
    pub(crate) ranges: Vec<WorkerRange>,
}

impl SmConfig {
    /// By the device: all multiprocessors are workers that run any task, but for those that schedulers take, and a sixteenth for NCCL where it does a collective.
    pub fn automatic() -> SmConfig {
        SmConfig::default()
    }

    /// `compute` multiprocessors compute, and the `comm` behind them communicate: [`SmConfig::compute`] and [`SmConfig::comm`].
    pub fn split(compute: u32, comm: u32) -> SmConfig {
        SmConfig::automatic().compute(0..compute).comm(compute..compute.saturating_add(comm))
    }

    /// The workers that run all tasks but those that exchange tiles with other ranks. With [`SmConfig::comm`], the plan has no other workers, unless
    /// [`PlanOptions::workers`] says so.
    #[must_use]
    pub fn compute(mut self, workers: Range<u32>) -> SmConfig {
        self.compute = Some(workers);
        self
    }

    /// The workers that run collectives, and tasks over channels. Where NCCL does collectives of the megakernel on GPUs, as many multiprocessors are NCCL's, and no workers.
    #[must_use]
    pub fn comm(mut self, workers: Range<u32>) -> SmConfig {
        self.comm = Some(workers);
        self
    }

    /// As many scheduler CTAs ([`Schedule::Schedulers`]), behind the workers: the first one's number is how many workers there are. They push tasks to any worker, so no
    /// task has workers of its own.
    #[must_use]
    pub fn schedulers(mut self, ctas: Range<u32>) -> SmConfig {
        self.schedulers = Some(ctas);
        self
    }

    /// The workers that run these tasks, by their names, whatever their role.
    #[must_use]
    pub fn tasks(mut self, names: &[&str], workers: Range<u32>) -> SmConfig {
        self.tasks.extend(names.iter().map(|name| ((*name).to_owned(), workers.clone())));
        self
    }

    /// Workers that compute, where it is said.
    pub fn compute_sms(&self) -> Option<u32> {
        self.compute.as_ref().map(|range| range.len() as u32)
    }

    /// Workers that communicate, or multiprocessors of NCCL, where it is said.
    pub fn comm_sms(&self) -> Option<u32> {
        self.comm.as_ref().map(|range| range.len() as u32)
    }

    /// What it comes to for `program`, with `options` that it is part of; `beside`: NCCL exchanges something beside the kernel.
    pub(crate) fn resolve(device: &Device, program: &Program, options: &PlanOptions, beside: bool) -> Result<Resolved, Error> {
        let SmConfig { compute, comm, schedulers, tasks } = &options.sms;
        let max = device.workers();
        let by_attribute = match program.schedulers.unwrap_or(0) {
            0 => Schedule::Static,
            schedulers => Schedule::Schedulers(schedulers),
        };
        let schedule = match (options.schedule, schedulers) {
            (schedule, None) => schedule.unwrap_or(by_attribute),
            (None, Some(ctas)) => Schedule::Schedulers(ctas.len() as u32),
            (Some(schedule), Some(ctas)) if schedule == Schedule::Schedulers(ctas.len() as u32) => schedule,
            (Some(schedule), Some(ctas)) => {
                let what = format!("the role schedulers is given CTAs {ctas:?}, but the schedule is {schedule}");
                return Err(PlanError::WorkerRange { what: what.into() }.into());
            }
        };
        // A scheduler CTA takes a multiprocessor; on a CPU a scheduler is one more thread.
        let ctas = match schedule {
            Schedule::Schedulers(schedulers) if device.is_gpu() => schedulers,
            _ => 0,
        };
        // NCCL's kernels run beside the workers.
        let comm_sms = options.comm_sms.or(options.sms.comm_sms()).unwrap_or(max / AUTOMATIC).max(1);
        let taken = ctas.saturating_add(if beside { comm_sms } else { 0 });
        let own = match (compute, comm, schedulers) {
            (_, _, Some(ctas)) => Some(ctas.start),
            (Some(compute), Some(_), None) if beside => Some(compute.end),
            (Some(compute), Some(comm), None) => Some(compute.end.max(comm.end)),
            _ => None,
        };
        let workers = options.workers.or(own).or(program.workers).unwrap_or(max.saturating_sub(taken).max(1));
        if workers.saturating_add(taken) > max {
            return Err(Error::Workers { found: workers, schedulers: taken, max, device: device.to_string().into() });
        }
        let of_role = |role, range: &Option<Range<u32>>| range.clone().map(|workers| WorkerRange { of: TasksOf::Role(role), workers });
        let comm = if beside { None } else { of_role(Role::Comm, comm) };
        let of_tasks = tasks.iter().map(|(name, workers)| WorkerRange { of: TasksOf::Task(name.clone()), workers: workers.clone() });
        let ranges = of_role(Role::Compute, compute).into_iter().chain(comm).chain(of_tasks).collect();
        Ok(Resolved { schedule, workers, comm_sms, ranges })
    }
}
