//! What a plan is made for, beyond sizes.

use std::time::Duration;

use maco_graph::plan::{CallShape, Costs, Schedule};

use crate::error::Error;
use crate::tuning::Tuning;

const VARIABLE: &str = "MACO_DEADLINE_SCALE";

/// Options of a plan; `PlanOptions::new()` is what `plan` uses.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    pub(crate) workers: Option<u32>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) deadline: Duration,
    pub(crate) max_tasks: usize,
    pub(crate) placement: Option<Vec<u32>>,
    pub(crate) pipelined: bool,
    pub(crate) costs: Option<Costs>,
    pub(crate) shapes: Vec<CallShape>,
    pub(crate) tuning: Option<Tuning>,
    pub(crate) cooperative: bool,
    pub(crate) dependent_launch: bool,
    pub(crate) in_band_flags: bool,
    pub(crate) look_ahead: bool,
    pub(crate) prologues: bool,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            workers: None,
            schedule: None,
            deadline: Duration::from_secs(2),
            max_tasks: 1 << 20,
            placement: None,
            pipelined: false,
            costs: None,
            shapes: Vec::new(),
            tuning: None,
            cooperative: true,
            dependent_launch: true,
            in_band_flags: true,
            look_ahead: false,
            prologues: true,
        }
    }
}

impl PlanOptions {
    /// One worker per multiprocessor or thread, static lists, a deadline of 2 seconds, at most 2²⁰ tasks, cooperative launches.
    pub fn new() -> PlanOptions {
        PlanOptions::default()
    }

    /// Workers: CTAs of a GPU or threads of a CPU device. Overrules the megakernel's attribute.
    #[must_use]
    pub fn workers(mut self, workers: u32) -> PlanOptions {
        self.workers = Some(workers);
        self
    }

    /// How tasks reach the workers: static lists, tickets, or pushed by scheduler CTAs or spare warps. Overrules the megakernel's
    /// attribute. Scheduler CTAs take multiprocessors from the workers.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> PlanOptions {
        self.schedule = Some(schedule);
        self
    }

    /// The worker of every task, in the order of [`maco_graph::plan::Plan::tasks`]; for static lists, and not looked at for tasks of
    /// drained calls. By default tasks are dealt round robin.
    #[must_use]
    pub fn placement(mut self, workers: Vec<u32>) -> PlanOptions {
        self.placement = Some(workers);
        self
    }

    /// What tasks cost, such as a profile of an earlier run says ([`crate::profile::Profile::costs`]): static lists are then made by them, the longest
    /// path to the end first, each task where it ends earliest. Not looked at with a placement, or with another schedule.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> PlanOptions {
        self.costs = Some(costs);
        self
    }

    /// Tiles and parts of calls, by their place in program order, for whoever measures which are best. What the source says counts more.
    #[must_use]
    pub fn shapes(mut self, shapes: Vec<CallShape>) -> PlanOptions {
        self.shapes = shapes;
        self
    }

    /// Tiles and parts that were measured to be the fastest on this kind of device; the planner's model is asked about other calls only.
    /// What the source says counts more, and so does [`PlanOptions::shapes`].
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> PlanOptions {
        self.tuning = Some(tuning);
        self
    }

    /// On a CPU device: each worker is five threads, the roles of a CTA on a GPU (controller, loader, two consumers, store) over a model
    /// of its shared memory, barriers and copies. Much slower, and for tests of the pipeline; results are the same. A GPU has its own.
    #[must_use]
    pub fn pipelined(mut self, pipelined: bool) -> PlanOptions {
        self.pipelined = pipelined;
        self
    }

    /// Whether a GPU gets cooperative launches, which begin when there is room for all CTAs at once (CUDA C++ Programming Guide, Cooperative
    /// Groups). A plain launch, with `false`, begins where there is room, and its first CTAs wait for the others: they hold multiprocessors
    /// meanwhile, and two such launches of two processes might wait for each other. So after eight deadlines without the others it is
    /// aborted with MACO0066; before that, no deadline counts. For where cooperative launches are not to be had.
    #[must_use]
    pub fn cooperative(mut self, cooperative: bool) -> PlanOptions {
        self.cooperative = cooperative;
        self
    }

    /// Whether a launch behind another kernel of its stream, or of its CUDA graph, may begin where that one has already ended (programmatic dependent
    /// launch; CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization"): it finds out what its first tasks are, and waits
    /// until all that kernel has written is there before it touches anything else. With `false` it begins when that kernel has ended, for graphs that
    /// older tools are to read: they do not know of such edges.
    #[must_use]
    pub fn dependent_launch(mut self, dependent_launch: bool) -> PlanOptions {
        self.dependent_launch = dependent_launch;
        self
    }

    /// Whether small temps that products of few rows hand to each other carry flags beside their elements, so that tasks poll the elements
    /// and wait for no counter: on a GPU with static lists or tickets, and in a pipelined plan. With `false` all wait for counters, to measure
    /// or to test the one beside the other; results have the same bits.
    #[must_use]
    pub fn in_band_flags(mut self, in_band_flags: bool) -> PlanOptions {
        self.in_band_flags = in_band_flags;
        self
    }

    /// Whether schedulers push tasks that lack only the end of one that runs, which halves the way from one task to the next; by default they push
    /// none before it is ready. Results are the same. Without it, a critical chain beside 50,000 tasks that nobody waits for takes at most three times as
    /// long as alone (one scheduler, on a GPU); with it that bound is not kept: 7.4 times as long was measured, because alone the chain has become
    /// faster and beside the others it has not (`docs/decisions/0018-schedulers-push-tasks-before-they-are-ready.md`).
    #[must_use]
    pub fn look_ahead(mut self, look_ahead: bool) -> PlanOptions {
        self.look_ahead = look_ahead;
        self
    }

    /// Whether products of few rows may make a norm or a map of their factor themselves, where that comes with flags ([`PlanOptions::in_band_flags`]) and
    /// nothing else reads that: the call has then no tasks. A map is an element-wise task of one tensor: `gelu`, or any whose body is
    /// `cta.zip(x, y, f)`, but in no program that has tasks of one warp. With `false` every call has its own tasks, to measure or to test the one
    /// beside the other; results have the same bits.
    #[must_use]
    pub fn prologues(mut self, prologues: bool) -> PlanOptions {
        self.prologues = prologues;
        self
    }

    /// How long one wait may last before the launch is aborted as hung; `MACO_DEADLINE_SCALE` multiplies it.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> PlanOptions {
        self.deadline = deadline;
        self
    }

    /// Refuse graphs of more tasks than this.
    #[must_use]
    pub fn max_tasks(mut self, max_tasks: usize) -> PlanOptions {
        self.max_tasks = max_tasks;
        self
    }
}

/// The deadline in nanoseconds, scaled by the environment.
pub(crate) fn deadline_ns(deadline: Duration) -> Result<u64, Error> {
    scaled(deadline, std::env::var(VARIABLE).ok().as_deref())
}

fn scaled(deadline: Duration, scale: Option<&str>) -> Result<u64, Error> {
    let scale = match scale {
        None => 1.0,
        Some(text) => match text.trim().parse::<f64>() {
            Ok(scale) if scale.is_finite() && scale > 0.0 => scale,
            _ => return Err(Error::Environment { variable: VARIABLE, value: text.into(), expected: "a positive number" }),
        },
    };
    let nanoseconds = deadline.as_nanos() as f64 * scale;
    if (1.0..u64::MAX as f64 / 4.0).contains(&nanoseconds) { Ok(nanoseconds as u64) } else { Err(Error::Deadline { found: deadline }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_scaled() {
        let second = Duration::from_secs(1);
        assert_eq!(scaled(second, None).unwrap(), 1_000_000_000);
        assert_eq!(scaled(second, Some(" 2.5 ")).unwrap(), 2_500_000_000);
        for bad in ["", "fast", "0", "-1", "inf", "NaN"] {
            assert_eq!(scaled(second, Some(bad)).unwrap_err().code(), 58, "{bad}");
        }
        assert_eq!(scaled(Duration::ZERO, None).unwrap_err().code(), 59);
        assert_eq!(scaled(Duration::MAX, None).unwrap_err().code(), 59);
    }
}
