//! What a launch did and when: spans of every worker, role and scheduler, and what they mean in the user's names.
//!
//! How spans are recorded does not belong here (`maco-device`), nor does drawing them (`maco-trace`). All times are nanoseconds from
//! the first moment of the launch.

mod chrome;
pub(crate) mod clock;
mod costs;
mod path;
mod rank_summary;
mod ranks;
mod read;
pub(crate) mod record;
mod summary;
mod time_attribution;

use maco_graph::plan::Plan;

use crate::hang::{task_name, tile};

pub use crate::files::FileError;
pub use chrome::MOST_ARROWS;
pub use clock::RankClock;
pub use costs::{read_costs, write_costs};
pub use path::{CriticalPath, Step};
pub use rank_summary::{RankOperationSummary, RankSummary};
pub use ranks::RankProfiles;
pub use summary::{OperationSummary, SchedulerSummary, Summary};

/// One launch, as its workers and schedulers noted it.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The megakernel.
    pub megakernel: String,
    /// Which rank it is of, and when it begins on the clock of all ranks; none of a plan of one rank, and of ranks on several hosts.
    pub rank: Option<RankClock>,
    /// What it ran on.
    pub device: String,
    /// How tasks reached the workers: `static`, `tickets`, `schedulers`, `spare warps`.
    pub schedule: String,
    /// Workers of the launch; spans name them by number.
    pub workers: u32,
    /// The multiprocessor of each worker; empty on a CPU.
    pub multiprocessors: Vec<u32>,
    /// What each scheduler did; empty where nobody pushes tasks.
    pub schedulers: Vec<Scheduler>,
    /// From the first begin of a worker or scheduler to the last end, in nanoseconds.
    pub elapsed: u64,
    /// Records for which there was no room: the spans are not all.
    pub dropped: u64,
    /// What the device can do at most; none on a CPU, and on GPUs that are not known.
    pub roofline: Option<Roofline>,
    /// The calls of the megakernel, in program order.
    pub operations: Vec<Operation>,
    /// Every task of the plan, by its number.
    pub tasks: Vec<TaskPlace>,
    /// By worker and role, then by warp, then by time.
    pub spans: Vec<Span>,
    /// Which tasks wait for which. Waits for rows that only data names are not among them.
    pub dependencies: Vec<Group>,
}

/// What a device can do at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Bytes per second from device memory.
    pub bytes_per_second: f64,
    /// Floating-point operations per second of the tensor cores, 16-bit and dense.
    pub flops_per_second: f64,
    /// Multiprocessors that share them.
    pub multiprocessors: u32,
}

/// One call: all its tasks are instances of the same code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The task's name.
    pub name: String,
    /// Elements of a tile along each grid axis.
    pub tile: Vec<u32>,
    /// Tasks.
    pub tasks: u32,
    /// Bytes that all tasks read and write if each element travels once; none where only data knows.
    pub bytes: Option<u64>,
    /// Floating-point operations of all tasks, if they contract; else 0.
    pub flops: u64,
}

/// Where a task belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlace {
    /// Index into [`Profile::operations`].
    pub operation: u32,
    /// Tile coordinates, one per grid axis.
    pub tile: Vec<u32>,
}

/// Tasks that wait for all of some others: what one counter stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// They end before.
    pub producers: Vec<u32>,
    /// They begin after all producers.
    pub consumers: Vec<u32>,
}

/// A scheduler: a CTA or a spare warp of a GPU, a thread of a CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scheduler {
    /// Its multiprocessor, that of a worker too if it is a spare warp; none on a CPU.
    pub multiprocessor: Option<u32>,
    /// When it served, in order of time; between two of these it looked for messages in vain.
    pub busy: Vec<Busy>,
}

impl Scheduler {
    /// Nanoseconds in which it served.
    pub fn serving(&self) -> u64 {
        self.busy.iter().map(Busy::duration).sum()
    }

    /// `scheduler 0 (SM 7)`
    pub fn label(&self, number: usize) -> String {
        match self.multiprocessor {
            Some(sm) => format!("scheduler {number} (SM {sm})"),
            None => format!("scheduler {number}"),
        }
    }
}

/// A time in which a scheduler took arrivals and pushed tasks: from the first message that it found until it had done all that there was to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// First nanosecond.
    pub start: u64,
    /// End, in nanoseconds.
    pub end: u64,
}

impl Busy {
    /// Nanoseconds.
    pub const fn duration(&self) -> u64 {
        self.end - self.start
    }
}

/// What a scheduler does, in tables and files.
const SERVE: &str = "serve";

/// Who noted a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The threads that compute; on a CPU the worker.
    Consume,
    /// The thread that copies operands into shared memory.
    Load,
    /// The warp that sends results and signals.
    Store,
}

impl Role {
    /// In the order of the tracks.
    pub const ALL: [Role; 3] = [Role::Consume, Role::Load, Role::Store];

    /// A word for tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Consume => "consume",
            Role::Load => "load",
            Role::Store => "store",
        }
    }
}

/// What a span was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The consumers had nothing to do until the task might run.
    Wait,
    /// The consumers ran the task.
    Run,
    /// The loader copied operands, or waited for room.
    Load,
    /// Results were sent, and the end of the task was signalled.
    Store,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [Kind::Wait, Kind::Run, Kind::Load, Kind::Store];

    /// A word for tables and files.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Wait => "wait",
            Kind::Run => "run",
            Kind::Load => "load",
            Kind::Store => "store",
        }
    }

    /// Who notes it.
    pub const fn role(self) -> Role {
        match self {
            Kind::Wait | Kind::Run => Role::Consume,
            Kind::Load => Role::Load,
            Kind::Store => Role::Store,
        }
    }
}

/// Something that one role of one worker did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The worker.
    pub worker: u32,
    /// Of a task that one warp waited for and ran by itself, that consumer warp: up to eight do so at a time. None of what all of them did, and of other
    /// roles.
    pub warp: Option<u32>,
    /// What it was; that says whose.
    pub kind: Kind,
    /// Index into [`Profile::tasks`].
    pub task: u32,
    /// First nanosecond.
    pub start: u64,
    /// End, in nanoseconds.
    pub end: u64,
}

impl Span {
    /// Consumer warps of a worker that [`Span::warp`] may name, from 0 on.
    pub const WARPS: u32 = maco_abi::CONSUMERS / 32;

    /// Nanoseconds.
    pub const fn duration(&self) -> u64 {
        self.end - self.start
    }
}

impl Profile {
    /// What the plan knows, without spans.
    pub(crate) fn of(plan: &Plan, device: String, roofline: Option<Roofline>) -> Profile {
        let operations = (0..plan.calls.len() as u32).map(|call| {
            let (planned, work) = (&plan.calls[call as usize], plan.workload(call));
            Operation {
                name: task_name(plan, call),
                tile: planned.tile.clone(),
                tasks: planned.tasks.len() as u32,
                bytes: work.bytes,
                flops: work.flops,
            }
        });
        let mut groups = vec![Group::default(); plan.counters as usize];
        for task in 0..plan.tasks.len() as u32 {
            plan.signals_of(task).iter().for_each(|&counter| groups[counter as usize].producers.push(task));
            plan.waits_of(task).iter().for_each(|wait| groups[wait.counter as usize].consumers.push(task));
        }
        groups.retain(|group| !group.consumers.is_empty());
        Profile {
            megakernel: plan.graph.name.clone(),
            rank: None,
            device,
            schedule: plan.schedule.name().to_owned(),
            workers: plan.workers,
            multiprocessors: Vec::new(),
            schedulers: Vec::new(),
            elapsed: 0,
            dropped: 0,
            roofline,
            operations: operations.collect(),
            tasks: plan.tasks.iter().map(|node| TaskPlace { operation: node.call, tile: tile(plan, node) }).collect(),
            spans: Vec::new(),
            dependencies: groups,
        }
    }

    /// `worker 3 (SM 7)`, or `rank 0 worker 3 (SM 7)` of one of several ranks.
    fn worker_label(&self, worker: u32) -> String {
        let name = match self.multiprocessors.get(worker as usize) {
            Some(sm) => format!("worker {worker} (SM {sm})"),
            None => format!("worker {worker}"),
        };
        self.of_rank(name)
    }

    /// Of one of several ranks, with the rank in front.
    fn of_rank(&self, name: String) -> String {
        self.rank.map_or(name.clone(), |RankClock { rank, .. }| format!("rank {rank} {name}"))
    }

    /// The spans in which tasks ran.
    pub fn runs(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| span.kind == Kind::Run)
    }

    /// Pairs of tasks of which the second waits for the first, once for each counter that says so.
    pub fn edges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.dependencies.iter().flat_map(|group| {
            group.consumers.iter().flat_map(|&consumer| group.producers.iter().map(move |&producer| (producer, consumer)))
        })
    }

    /// The span in which each task ran.
    pub(crate) fn run_of(&self) -> Vec<Option<&Span>> {
        let mut of = vec![None; self.tasks.len()];
        self.runs().for_each(|span| of[span.task as usize] = Some(span));
        of
    }

    /// `linear [2, 5]`, or `linear (2 of 3) [2, 5]`
    pub fn label(&self, task: u32) -> String {
        let place = &self.tasks[task as usize];
        format!("{} {:?}", self.operation_label(place.operation as usize), place.tile)
    }

    /// `linear`, or `linear (2 of 3)` of the second of three calls of that task, in program order.
    pub fn operation_label(&self, operation: usize) -> String {
        let name = &self.operations[operation].name;
        let calls = |operations: &[Operation]| operations.iter().filter(|other| other.name == *name).count();
        match calls(&self.operations) {
            1 => name.clone(),
            all => format!("{name} ({} of {all})", calls(&self.operations[..=operation])),
        }
    }
}
