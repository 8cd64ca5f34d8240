//! What a plan is made for. What a plan makes of it does not belong here.

use super::{Costs, DeviceModel, OverlapMode, Schedule, WayLine, WorkerRange};
use crate::spec::Via;

/// What a plan is made for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// CTAs (or threads of the CPU device) that run tasks.
    pub workers: u32,
    /// What the device costs.
    pub model: DeviceModel,
    /// How tasks reach the workers.
    pub schedule: Schedule,
    /// Refuse graphs of more tasks than this.
    pub max_tasks: usize,
    /// The worker of every task, in global order. For static lists only; ignored for tasks of drained calls. `None`: round robin.
    pub assignment: Option<Vec<u32>>,
    /// What tasks cost, for static lists without an assignment: list scheduling by the longest path then assigns each task to the worker where it
    /// ends earliest.
    pub costs: Option<Costs>,
    /// Whether the planner may choose split-K for calls without `.split_k(..)`.
    pub split_k: bool,
    /// Tiles and split-K of calls, where the graph leaves them open.
    pub shapes: Vec<CallShape>,
    /// Whether small tensors between two GEMVs are passed with in-band flags: see [`Relation::in_band`](super::Relation::in_band).
    pub in_band_flags: bool,
    /// Whether an RMSNorm or a unary element-wise call is fused into the GEMVs that read its result: see [`PlannedCall::prologue`](super::PlannedCall::prologue). Only where the
    /// input comes with in-band flags.
    pub fuse_prologues: bool,
    /// Whether element-wise prologues are fused too, not RMSNorm alone: the device code must have been built with them.
    pub fuse_elementwise: bool,
    /// Whether temps share memory: see [`Plan::memory`](super::Plan::memory).
    pub share_temps: bool,
    /// Whether a GEMM sends its tiles to the other ranks of an all-reduce as it stores them: see [`PlannedCall::pushed_by`](super::PlannedCall::pushed_by). Only for several ranks, and for workers with a
    /// store role.
    pub push_tiles: bool,
    /// How many ranks there are.
    pub ranks: u32,
    /// Which of them this is.
    pub rank: u32,
    /// Whether GEMMs of what ranks exchange begin at a share that depends on the rank: see [`super::PlannedCall::order`]. All ranks say the same.
    pub own_share: bool,
    /// The way of each collective that does not say its own and has this one: see [`Way`](super::Way).
    pub via: Via,
    /// Whether NCCL can run beside the kernel: then what goes its way has chunks for it ([`PlannedCall::nccl`](super::PlannedCall::nccl)).
    pub nccl: bool,
    /// Whether tiles can go from rank to rank by the kernel. If not, what nobody says goes by NCCL, where that can do it.
    pub peers: bool,
    /// The way of what neither call nor option says: of the first line that is for it, and can be gone.
    pub ways: Vec<WayLine>,
    /// Which collectives wait beside calls that need nothing of them.
    pub overlap: OverlapMode,
    /// Calls that run on some of the workers only.
    pub ranges: Vec<WorkerRange>,
    /// Bytes that each rank has for messages: where they are not enough for all tiles of its collectives, tiles have slots in turn
    /// ([`PlannedCall::slots`](super::PlannedCall::slots)). Then costs are not looked at, since lists by them have another order than that in which slots come back.
    /// `None`: as many as are needed.
    pub message_bytes: Option<u64>,
}

impl Options {
    /// Static lists for `workers` workers of the default device model, and at most 2²⁰ tasks. Split-K and in-band flags are used where they are faster.
    pub const fn new(workers: u32) -> Options {
        let shapes = Vec::new();
        Options {
            workers,
            model: DeviceModel::DEFAULT,
            schedule: Schedule::Static,
            max_tasks: 1 << 20,
            assignment: None,
            costs: None,
            split_k: true,
            shapes,
            in_band_flags: true,
            fuse_prologues: true,
            fuse_elementwise: true,
            share_temps: true,
            push_tiles: false,
            ranks: 1,
            rank: 0,
            own_share: true,
            overlap: OverlapMode::AsSaid,
            ranges: Vec::new(),
            via: Via::Automatic,
            nccl: false,
            peers: true,
            ways: Vec::new(),
            message_bytes: None,
        }
    }
}

/// The tile and the split-K of one call, for tuning. What the graph says has precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallShape {
    /// Position of the call in program order, from 0.
    pub call: u32,
    /// Tile size in elements, one per grid axis; `None`: the planner chooses.
    pub tile: Option<Vec<u32>>,
    /// Split-K: parts of each tile; `None`: the planner chooses.
    pub split: Option<u32>,
    /// With `split`: so many tiles, the first ones in task order, are not split.
    pub whole: u32,
}
