//! What can be wrong with a graph once its sizes are known, in the user's names.

use std::fmt;

use super::Defect;

/// A call of the graph, as messages name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The task's name.
    pub task: &'static str,
    /// Position of the call in program order, from 0.
    pub call: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` (call #{})", self.task, self.call)
    }
}

/// Why a graph has no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Tiles of one grid would write the same elements.
    #[error(
        "MACO0001: tiles of {site} that differ in `{axis}` would write the same part of `{tensor}` (as `{param}`)\n  \
         = help: name `{axis}` in the region of `{param}`, without a halo or a divisor"
    )]
    WriteOverlap {
        /// The call.
        site: Site,
        /// Written parameter.
        param: &'static str,
        /// Its argument.
        tensor: Box<str>,
        /// Grid axis that does not separate the writes.
        axis: &'static str,
    },
    /// A view maps two indices to one element and is written.
    #[error(
        "MACO0001: the view of `{tensor}` that {site} writes (as `{param}`) holds some elements twice\n  \
         = help: write to a view whose indices do not overlap"
    )]
    WriteThroughOverlap {
        /// The call.
        site: Site,
        /// Written parameter.
        param: &'static str,
        /// Its argument.
        tensor: Box<str>,
    },
    /// One call writes what it also accesses through another parameter.
    #[error(
        "MACO0001: {site} would write `{tensor}` (as `{written}`) while other tiles of the same grid still use it (as `{other}`)\n  \
         = help: pass another tensor, disjoint slices, or take it once as `#[update]`"
    )]
    Alias {
        /// The call.
        site: Site,
        /// The tensor passed twice.
        tensor: Box<str>,
        /// Parameter that writes.
        written: &'static str,
        /// The other parameter.
        other: &'static str,
    },
    /// The rank of an argument is not that of the parameter.
    #[error(
        "MACO0004: `{param}` of {site} has {expected} dimensions, but its argument, a view of `{tensor}`, has {found}\n  \
         = help: pass a view of rank {expected}"
    )]
    ArgumentRank {
        /// The call.
        site: Site,
        /// Parameter.
        param: &'static str,
        /// Its argument.
        tensor: Box<str>,
        /// Rank of the parameter.
        expected: usize,
        /// Rank of the argument.
        found: usize,
    },
    /// Two uses of a grid axis give different numbers of tiles.
    #[error(
        "MACO0005: {site} has {tiles} tiles of {tile} along `{axis}` by `{param}`, but {other_tiles} by `{other}`\n  \
         = help: the dimensions that `{axis}` walks along must be equal: {extent} here, {other_extent} there"
    )]
    GridDisagreement {
        /// The call.
        site: Site,
        /// Grid axis.
        axis: &'static str,
        /// Tile size along it.
        tile: u32,
        /// First parameter that uses the axis.
        param: &'static str,
        /// Extent that it covers with the axis.
        extent: u64,
        /// Tiles that gives.
        tiles: u64,
        /// The parameter that disagrees.
        other: &'static str,
        /// Its extent.
        other_extent: u64,
        /// Its tiles.
        other_tiles: u64,
    },
    /// The element instance does not exist.
    #[error(
        "MACO0006: {site} is called on element type {found} of {count}\n  \
         = help: the graph is malformed; make it with `Recorder`"
    )]
    ElementChoice {
        /// The call.
        site: Site,
        /// Index given.
        found: u32,
        /// Instances there are.
        count: usize,
    },
    /// A wrong number of arguments.
    #[error(
        "MACO0007: {site} takes {expected} {what}, found {found}\n  \
         = help: pass one argument per parameter"
    )]
    Arity {
        /// The call.
        site: Site,
        /// `tensors` or `scalars`.
        what: &'static str,
        /// Parameters.
        expected: usize,
        /// Arguments.
        found: usize,
    },
    /// An `In` is written.
    #[error(
        "MACO0009: `{tensor}` is an `In`, but {site} writes its parameter `{param}`\n  \
         = help: take it as `InOut`, or write to a temp"
    )]
    WritesIn {
        /// The call.
        site: Site,
        /// Parameter.
        param: &'static str,
        /// Its argument.
        tensor: Box<str>,
    },
    /// A region divides an index by zero.
    #[error(
        "MACO0012: the region of `{param}` of {site} divides a tile index by 0\n  \
         = help: write `i / 1` or `i`"
    )]
    Divisor {
        /// The call.
        site: Site,
        /// Parameter.
        param: &'static str,
    },
    /// A region names a grid axis that the task does not have.
    #[error(
        "MACO0013: the region of `{param}` of {site} names grid axis {axis}, but the task has {axes}\n  \
         = help: add the index to `tile(..)`"
    )]
    UnknownAxis {
        /// The call.
        site: Site,
        /// Parameter.
        param: &'static str,
        /// Axis named.
        axis: u8,
        /// Axes there are.
        axes: usize,
    },
    /// No parameter says how far a grid axis goes.
    #[error(
        "MACO0028: no region of {site} uses the grid axis `{axis}`, so its number of tiles is unknown\n  \
         = help: name `{axis}` in the region of a parameter, or drop it from `tile(..)`"
    )]
    UnusedAxis {
        /// The call.
        site: Site,
        /// Grid axis.
        axis: &'static str,
    },
    /// `.tile(..)` names as many sizes as the grid has axes.
    #[error(
        "MACO0017: `.tile(..)` of {site} gives {found} sizes, but the grid has {expected} axes\n  \
         = help: give one tile size per axis"
    )]
    TileCount {
        /// The call.
        site: Site,
        /// Axes.
        expected: usize,
        /// Sizes given.
        found: usize,
    },
    /// A tile size that is not among the variants.
    #[error(
        "MACO0017: {site} has no tile of {found} along `{axis}`\n  \
         = help: allowed are {allowed:?}"
    )]
    TileVariant {
        /// The call.
        site: Site,
        /// Grid axis.
        axis: &'static str,
        /// Size given.
        found: u32,
        /// Sizes there are.
        allowed: &'static [u32],
    },
    /// Tile sizes that neither the GEMM form nor the GEMV form of a task has.
    #[error(
        "MACO0017: {site} has no tile of {found}\n  \
         = help: allowed are {allowed}"
    )]
    TileOfForms {
        /// The call.
        site: Site,
        /// Sizes given.
        found: Box<str>,
        /// Sizes of either form.
        allowed: Box<str>,
    },
    /// Split-K that the task does not support.
    #[error(
        "MACO0018: {site} cannot be split into {found} parts\n  \
         = help: it can be split into at most {max}; a task without a sum over `cta.steps(..)`, or with three grid axes, has no parts"
    )]
    Split {
        /// The call.
        site: Site,
        /// Parts asked for.
        found: u32,
        /// Most that there can be.
        max: u32,
    },
    /// A tile shape for a call that does not exist.
    #[error(
        "MACO0017: a shape is given for call #{call}, but the graph has {calls} calls\n  \
         = help: calls count from 0, in program order"
    )]
    ShapeCall {
        /// The call.
        call: u32,
        /// Calls there are.
        calls: usize,
    },
    /// Tiles of one grid add into the same elements.
    #[error(
        "MACO0018: tiles of {site} that differ in `{axis}` would all reduce into the same part of `{tensor}` (as `{param}`), \
         which is not supported yet\n  \
         = help: write partial results along `{axis}` and sum them in a second task"
    )]
    ReduceOverlap {
        /// The call.
        site: Site,
        /// Parameter.
        param: &'static str,
        /// Its argument.
        tensor: Box<str>,
        /// Grid axis.
        axis: &'static str,
    },
    /// A number of workers that cannot be planned for.
    #[error(
        "MACO0021: a plan needs 1 to {max} workers, found {found}\n  \
         = help: pass the number of multiprocessors of the device, or of threads"
    )]
    Workers {
        /// Workers asked for.
        found: u32,
        /// Most there may be.
        max: u32,
    },
    /// A number of schedulers that cannot be planned for.
    #[error(
        "MACO0021: {workers} workers can have 1 to {max} schedulers, found {found}\n  \
         = help: use one scheduler for 16 to 128 workers, or static lists"
    )]
    Schedulers {
        /// Schedulers asked for.
        found: u32,
        /// Most there may be.
        max: u32,
        /// Workers.
        workers: u32,
    },
    /// An assignment of tasks to workers that does not fit the plan.
    #[error(
        "MACO0021: the placement does not fit the plan: {what}\n  = help: name one worker per task, in the order of the plan's tasks, and plan static lists"
    )]
    Assignment {
        /// What is wrong.
        what: Box<str>,
    },
    /// Too many tensor parameters, grid axes or instances.
    #[error(
        "MACO0023: {site} has {found} {what}, at most {max} fit a task\n  \
         = help: split the task in two"
    )]
    TooManyParts {
        /// The call.
        site: Site,
        /// `tensor parameters`, `grid axes` or `instances`.
        what: &'static str,
        /// How many.
        found: usize,
        /// How many fit.
        max: usize,
    },
    /// A tensor of rank 0 or above 4.
    #[error(
        "MACO0023: tensor `{tensor}` has rank {found}, but ranks 1 to {max} are supported\n  \
         = help: merge dimensions"
    )]
    TensorRank {
        /// The tensor.
        tensor: Box<str>,
        /// Its rank.
        found: usize,
        /// Highest rank.
        max: usize,
    },
    /// No tile that is allowed goes the way that the call says.
    #[error(
        "MACO0018: {site} has no tile that goes `.via({via})`\n  \
         = help: tiles of 16 KiB and more go by `OneShot` and `TwoShot`, smaller ones by `Packets`: give `.tile(..)` such a one, or remove `.via(..)`, or that of `PlanOptions`"
    )]
    Via {
        /// The call.
        site: Site,
        /// What it says.
        via: &'static str,
    },
    /// `.via(Nccl)` of what NCCL cannot exchange in chunks of rows.
    #[error(
        "MACO0018: {site} has nothing that NCCL can exchange in chunks of rows\n  \
         = help: it exchanges whole rows of whole tensors, which it reads and writes by tiles, by reductions of its own: give it such tensors, or remove `.via(Nccl)`, or that of `PlanOptions`"
    )]
    Chunks {
        /// The call.
        site: Site,
    },
    /// Calls that are to overlap, with nothing that could.
    #[error(
        "MACO0018: {site} cannot overlap with what it was given: {why}\n  \
         = help: give it calls that need nothing of it"
    )]
    Overlap {
        /// The collective, or what was taken for one.
        site: Site,
        /// What is wrong.
        why: &'static str,
    },
    /// A phase that cannot begin where it is to.
    #[error(
        "MACO0018: {site} cannot be in a phase that depends on what it was given: {why}\n  \
         = help: build collectives in the phase, and name what calls before it make"
    )]
    Phase {
        /// The call in the phase.
        site: Site,
        /// What is wrong.
        why: Box<str>,
    },
    /// A view that reaches past its tensor.
    #[error(
        "MACO0025: the view of `{tensor}` passed to {site} as `{param}` ends at {end} along axis {axis}, past its extent of {extent}\n  \
         = help: slice within the tensor"
    )]
    ViewRange {
        /// The call.
        site: Site,
        /// Parameter.
        param: &'static str,
        /// Its argument.
        tensor: Box<str>,
        /// Tensor axis.
        axis: usize,
        /// End of the view.
        end: u64,
        /// Extent of the axis.
        extent: u64,
    },
    /// More tasks than allowed.
    #[error(
        "MACO0027: with {site} the graph has {found} tasks or more, at most {max} are allowed\n  \
         = help: use larger tiles, or raise `max_tasks`"
    )]
    TooManyTasks {
        /// The call that exceeded the limit.
        site: Site,
        /// Tasks up to and with it.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// An extent beyond what device coordinates hold.
    #[error(
        "MACO0027: tensor `{tensor}` has {extent} elements along axis {axis}, at most {max} fit a coordinate\n  \
         = help: split the dimension in two"
    )]
    TooLarge {
        /// The tensor.
        tensor: Box<str>,
        /// Its axis.
        axis: usize,
        /// Extent of the axis.
        extent: u64,
        /// Largest extent.
        max: u64,
    },
    /// More waits, signals or counters than a plan can number.
    #[error(
        "MACO0027: {site} needs {found} {what}, at most {max} fit\n  \
         = help: use tiles that divide those of the tasks before and after it"
    )]
    TooManyEvents {
        /// The call.
        site: Site,
        /// `waits of one task`, `signals of one task`, `counters` …
        what: &'static str,
        /// How many.
        found: u64,
        /// How many fit.
        max: u64,
    },
    /// The graph contradicts itself in a way that no source text can cause.
    #[error(
        "MACO0029: the graph is malformed: {what}\n  \
         = help: this is a defect in what made the graph; make it with `Recorder`"
    )]
    Malformed {
        /// What is wrong.
        what: Box<str>,
    },
    /// The verifier refused the plan.
    #[error(
        "MACO0029: the plan does not verify: {0}\n  \
         = help: this is a defect in MACO; please report the graph"
    )]
    Unverified(Defect),
}

impl PlanError {
    /// The stable code, such as 5 for `MACO0005`.
    pub const fn code(&self) -> u16 {
        match self {
            PlanError::WriteOverlap { .. } | PlanError::WriteThroughOverlap { .. } | PlanError::Alias { .. } => 1,
            PlanError::ArgumentRank { .. } => 4,
            PlanError::GridDisagreement { .. } => 5,
            PlanError::ElementChoice { .. } => 6,
            PlanError::Arity { .. } => 7,
            PlanError::WritesIn { .. } => 9,
            PlanError::Divisor { .. } => 12,
            PlanError::UnknownAxis { .. } => 13,
            PlanError::TileCount { .. } | PlanError::TileVariant { .. } | PlanError::TileOfForms { .. } | PlanError::ShapeCall { .. } => 17,
            PlanError::ReduceOverlap { .. }
            | PlanError::Split { .. }
            | PlanError::Via { .. }
            | PlanError::Chunks { .. }
            | PlanError::Overlap { .. }
            | PlanError::Phase { .. } => 18,
            PlanError::Workers { .. } | PlanError::Schedulers { .. } | PlanError::Assignment { .. } => 21,
            PlanError::TooManyParts { .. } | PlanError::TensorRank { .. } => 23,
            PlanError::ViewRange { .. } => 25,
            PlanError::TooManyTasks { .. } | PlanError::TooLarge { .. } | PlanError::TooManyEvents { .. } => 27,
            PlanError::UnusedAxis { .. } => 28,
            PlanError::Malformed { .. } | PlanError::Unverified(_) => 29,
        }
    }
}
