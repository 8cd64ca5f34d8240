//! What a plan is made for, beyond sizes.

use std::time::Duration;

use maco_graph::plan::{CallShape, Costs, Schedule};
use maco_graph::spec::Via;

use crate::communicator::Communicator;
use crate::error::Error;
use crate::tuning::Tuning;

/// See [`PlanOptions::deadline`].
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);
const VARIABLE: &str = "MACO_DEADLINE_SCALE";

/// Options of a plan; `PlanOptions::new()` is what `plan` uses.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOptions {
    pub(crate) workers: Option<u32>,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) deadline: Option<Duration>,
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
    pub(crate) share_temps: bool,
    pub(crate) push_tiles: bool,
    pub(crate) own_share: bool,
    pub(crate) via: Via,
    pub(crate) choose_nccl: bool,
    pub(crate) comm_sms: u32,
    pub(crate) communicator: Option<Communicator>,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions {
            workers: None,
            schedule: None,
            deadline: None,
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
            share_temps: true,
            push_tiles: true,
            own_share: true,
            via: Via::Automatic,
            choose_nccl: true,
            comm_sms: 8,
            communicator: None,
        }
    }
}

impl PlanOptions {
    /// One worker per multiprocessor or thread, static lists, a deadline of 2 seconds, at most 2²⁰ tasks, cooperative launches.
    pub fn new() -> PlanOptions {
        PlanOptions::default()
    }

    /// The ranks over which tensors are spread. A graph with `#[shard(axis)]` or `.partial(Sum)` is planned with one only: MACO0072.
    #[must_use]
    pub fn communicator(mut self, communicator: Communicator) -> PlanOptions {
        self.communicator = Some(communicator);
        self
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

    /// The worker of every task, in the order of [`maco_graph::plan::Plan::tasks`]. For static lists; ignored for tasks of
    /// drained calls. By default tasks are assigned round robin.
    #[must_use]
    pub fn placement(mut self, workers: Vec<u32>) -> PlanOptions {
        self.placement = Some(workers);
        self
    }

    /// What tasks cost, such as from a profile of an earlier run ([`crate::profile::Profile::costs`]), for list scheduling: the longest
    /// path to the end first, each task on the worker where it ends earliest. Ignored with a placement, or with another schedule.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> PlanOptions {
        self.costs = Some(costs);
        self
    }

    /// Tiles and split-K of calls, by their position in program order, for tuning. What the source says has precedence.
    #[must_use]
    pub fn shapes(mut self, shapes: Vec<CallShape>) -> PlanOptions {
        self.shapes = shapes;
        self
    }

    /// What was measured on this kind of device: tiles and split-K that are the fastest, and what the device costs, by which the planner chooses those of
    /// other calls, and which ways of collectives are the fastest. What the source says has precedence, and so has [`PlanOptions::shapes`]. Without, the file that the environment's `MACO_TUNING` names,
    /// if it does.
    #[must_use]
    pub fn tuning(mut self, tuning: Tuning) -> PlanOptions {
        self.tuning = Some(tuning);
        self
    }

    /// On a CPU device: each worker is five threads, the roles of a CTA on a GPU (dependency poller, loader, two consumers, store) over a model
    /// of its shared memory, barriers and copies. Much slower, for tests of the pipeline; results are the same. Ignored on a GPU.
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

    /// Whether small temps between GEMVs have in-band flags: each element is stored with a flag, and consumers poll the elements instead of
    /// counters. On a GPU with static lists or tickets, and in a pipelined plan. With `false` all tasks wait for counters, for
    /// comparison; results have the same bits.
    #[must_use]
    pub fn in_band_flags(mut self, in_band_flags: bool) -> PlanOptions {
        self.in_band_flags = in_band_flags;
        self
    }

    /// Whether schedulers push a task whose only missing input is a running task, which halves the latency from one task to the next; by default they push
    /// none before it is ready. Results are the same. Without it, a critical chain beside 50,000 independent tasks takes at most three times as
    /// long as by itself (one scheduler, on a GPU). With it that bound does not hold: 7.4 times as long was measured, because the chain by itself becomes
    /// faster, and beside the others it does not (`docs/decisions/0018`).
    #[must_use]
    pub fn look_ahead(mut self, look_ahead: bool) -> PlanOptions {
        self.look_ahead = look_ahead;
        self
    }

    /// Prologue fusion: whether an RMSNorm or a unary element-wise call is fused into the GEMVs that read its result. It needs in-band flags on the input
    /// ([`PlanOptions::in_band_flags`]) and no other reader of the result; the fused call has no tasks. A unary call is `gelu`, or any task whose body is
    /// `cta.zip(x, y, f)`; it is not fused in programs with warp tasks. With `false` every call has its own tasks, for
    /// comparison; results have the same bits.
    #[must_use]
    pub fn prologues(mut self, prologues: bool) -> PlanOptions {
        self.prologues = prologues;
        self
    }

    /// Whether a GEMM sends its tiles to the other ranks of an all-reduce as it stores them, where its tiles fit: of 16 KiB and more, whole tiles of the all-reduce in each. On
    /// GPUs, and in a pipelined plan. With `false` tasks of the all-reduce read them again and send them, for comparison; results have the same bits.
    #[must_use]
    pub fn push_tiles(mut self, push_tiles: bool) -> PlanOptions {
        self.push_tiles = push_tiles;
        self
    }

    /// Whether GEMMs of what ranks exchange begin at a share that depends on the rank: with the tiles of the next rank, where a tile belongs to one, and at the own part of what was
    /// gathered. With `false` all ranks make tiles in the same order, for comparison; results have the same bits. All ranks say the same.
    #[must_use]
    pub fn own_share(mut self, own_share: bool) -> PlanOptions {
        self.own_share = own_share;
        self
    }

    /// The way of every collective whose call does not say its own, as if each said `.via(way)`: so what cannot go that way, such as packets of which only large tiles are allowed,
    /// is MACO0018. It counts for collectives that have the way: all-reduces have all, others `Via::Nccl` alone, an exchange of the user's own none. On CPU ranks, and on
    /// one rank, nobody has NCCL, and the plan chooses.
    ///
    /// By default the plan chooses: by the lines of the tuning file ([`PlanOptions::tuning`]), by those that MACO comes with, and where none is for a call by what its tiles
    /// cost. Without access of the GPUs to each other's memory NCCL does what it can do. The printed plan says which way each goes, and why.
    #[must_use]
    pub fn via(mut self, via: Via) -> PlanOptions {
        self.via = via;
        self
    }

    /// Whether the plan may choose NCCL for collectives that nobody says the way of: where a table says that it is the fastest, or GPUs have no access to each other's memory.
    /// With `false` sums have the bits of those of the kernel, and NCCL does what says `.via(Nccl)` alone.
    #[must_use]
    pub fn choose_nccl(mut self, choose_nccl: bool) -> PlanOptions {
        self.choose_nccl = choose_nccl;
        self
    }

    /// How many multiprocessors of a GPU NCCL has for itself, 8 if it is not set, in plans with collectives that go by NCCL: as many CTAs exchange chunks, and so many workers
    /// fewer there are. Plans without have all.
    #[must_use]
    pub fn comm_sms(mut self, multiprocessors: u32) -> PlanOptions {
        self.comm_sms = multiprocessors.max(1);
        self
    }

    /// Whether temps share memory: a temp takes the place of an earlier one whose last readers all end before it is written. Mostly the order of the tasks
    /// proves that; if not, tasks get a wait more, but only where the planner's cost model says that none begins later for it. With `false` every temp has
    /// memory of its own, for comparison; results have the same bits. [`crate::Plan::memory`] says what it saves.
    #[must_use]
    pub fn share_temps(mut self, share_temps: bool) -> PlanOptions {
        self.share_temps = share_temps;
        self
    }

    /// How long one wait may last before the launch is aborted as hung: 2 seconds if it is not set, and of a plan whose tasks wait for other ranks, which may launch it
    /// later, as long as those wait elsewhere ([`Communicator::deadline`]); `MACO_DEADLINE_SCALE` multiplies it. On a CPU, time in
    /// which a task computes does not count; but a task that computes for twenty deadlines, and for five seconds at least, is taken for one that never ends
    /// (MACO0092).
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> PlanOptions {
        self.deadline = Some(deadline);
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
