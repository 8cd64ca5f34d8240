//! Tasks as the host writes them: descriptors, and what a slot holds.

use crate::limits::OPERANDS;
use crate::signal::NO_COUNTER;
use crate::view::View;
use crate::wait::Wait;

/// [`Descriptor::op`] that ends a worker's list.
pub const OP_END: u16 = u16::MAX;
/// [`Descriptor::op`] of a task without a body (fences in tests and benches).
pub const OP_NONE: u16 = u16::MAX - 1;
/// [`Descriptor::op`] of an entry of a static list that stands for the tasks of a dynamic tile scheduler: see [`Descriptor::dynamic`].
pub const OP_DYNAMIC: u16 = u16::MAX - 2;

/// [`Descriptor::flags`]: a GEMM. Loader and store thread take part: operands come through the ring, results leave through staging memory.
pub const STAGED: u16 = 1;
/// [`Descriptor::flags`]: a later task may read by TMA what the consumers store, so the writer needs a proxy fence.
pub const READ_BY_TMA: u16 = 2;
/// [`Descriptor::flags`]: early start. The body of a SIMT task begins when the task is posted, and waits for its inputs itself.
pub const EARLY_START: u16 = 32;
/// [`Descriptor::flags`]: the task has one signal, a store of 1 ([`SINGLE_PRODUCER`]), so that it is idempotent. Consumers and store warp may both send it.
pub const IDEMPOTENT_SIGNAL: u16 = 16;
/// [`Descriptor::flags`]: the consumers poll the task's counters themselves, since the task is short and its start counts.
pub const CONSUMERS_POLL: u16 = 64;
/// [`Descriptor::flags`]: the split-K parts of its tile run at the same time, as far as the plan can tell, so each waits a little for the others.
pub const CONCURRENT_PARTS: u16 = 128;
/// [`Descriptor::flags`]: bulk copies bring rows of operands through the ring, or pages of the ring are scratch of the body. Results do not go through staging
/// memory.
pub const BULK_ROWS: u16 = 256;
/// [`Descriptor::flags`]: the loader does not wait for the task's counters. No task of the graph writes what it loads, or there is nothing to load.
pub const LOAD_BEFORE_WAIT: u16 = 512;
/// [`Descriptor::flags`]: a GEMV with an RMSNorm prologue on operand A. The norm's weights are the last of the call's [`OPERANDS`] views. Its [`View::map`] has the
/// bits of epsilon.
pub const RMSNORM_PROLOGUE: u16 = 1024;
/// [`Descriptor::flags`]: a GEMV with an elementwise prologue on operand A. The last of the call's [`OPERANDS`] views is the prologue's input. Its [`View::map`] is
/// the instance of the prologue, its [`View::col_stride`] what [`crate::elementwise_prologue`] packs.
pub const ELEMENTWISE_PROLOGUE: u16 = 1 << 15;
/// [`Descriptor::flags`]: a GEMM one of whose operands no task of the graph writes (weights). The loader fills the ring with that operand before it waits for the
/// other.
pub const LOAD_CONSTANT_OPERAND_EARLY: u16 = 2048;
/// [`Descriptor::flags`]: a warp task, a SIMT body of one warp. Consumer warp `n % 8` runs it if it is the worker's `n`-th task and has a slot to itself; see also
/// [`WARP_TASK_BATCH`].
pub const WARP_TASK: u16 = 4096;
/// [`Descriptor::flags`], with [`WARP_TASK`]: an entry of a list that stands for several warp tasks of one call, see [`Descriptor::batch`]. It has no waits and signals
/// of its own: each warp waits and signals for its tasks.
pub const WARP_TASK_BATCH: u16 = 8192;
/// [`Descriptor::flags`] of a slot, with [`WARP_TASK`]: a scheduler pushed the task before it is ready. Its first wait names a worker and how many tasks that must have
/// ended. The warp waits for it.
pub const UNREADY: u16 = 16384;
/// [`Descriptor::flags`], fault for tests: one consumer warp does not arrive at the end of the task.
pub const LOST_ARRIVE: u16 = 4;
/// [`Descriptor::flags`], fault for tests: the loader announces more bytes than it copies.
pub const EXTRA_BYTES: u16 = 8;

/// See [`Descriptor::split`].
pub const PARTS_SHIFT: u32 = 8;

/// Most tasks of a [`WARP_TASK_BATCH`]. A longer one would hold its slot longer, and delay the next call's batch.
pub const MAX_WARP_TASK_BATCH: u32 = 32;

/// One task, 64 bytes. Indices only: no pointers.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Dense instance number: the arm of the dispatch.
    pub op: u16,
    /// First entry of the call's scalars in [`crate::Launch::scalars`].
    pub scalar: u16,
    /// [`STAGED`], [`BULK_ROWS`], [`LOAD_BEFORE_WAIT`], [`LOAD_CONSTANT_OPERAND_EARLY`], [`RMSNORM_PROLOGUE`], [`ELEMENTWISE_PROLOGUE`], [`READ_BY_TMA`], [`EARLY_START`], [`CONSUMERS_POLL`], [`IDEMPOTENT_SIGNAL`], [`CONCURRENT_PARTS`], [`WARP_TASK`], [`WARP_TASK_BATCH`], faults.
    pub flags: u16,
    /// The task begins after the worker's own task this many places before has ended; 0 for none, less than [`crate::SLOTS`]. In [`Descriptor::dynamic`]: how many tasks a
    /// worker may have claimed and not ended, at most [`crate::SLOTS`].
    pub after: u16,
    /// Start of the overflow in [`crate::Launch::overflow`]: `extra_waits` × [`Wait`] (two words each), `extra_signals` words, then
    /// `indirect` × [`Indirect`].
    pub overflow: u32,
    /// The views of the call's [`OPERANDS`] tensor parameters: index of the first one in [`crate::Launch::views`].
    pub views: u32,
    /// First waits; unused ones have `counter == NO_COUNTER`, and the first one is used before the second.
    pub wait: [Wait; 2],
    /// Tile coordinates, one per grid axis. With split-K the third one is the tile's first chunk of [`crate::CHUNK_BYTES`] in [`crate::Launch::partials`].
    pub coord: [u32; 3],
    /// Index of the task in the plan, for the black box.
    pub task: u32,
    /// First signals, counters or routes; unused ones are `NO_COUNTER`, and the first one is used before the second.
    pub signal: [u32; 2],
    /// Waits beyond the inline two.
    pub extra_waits: u16,
    /// Signals beyond the inline two.
    pub extra_signals: u16,
    /// Waits whose counters are named by data.
    pub indirect: u16,
    /// With split-K, which part of K the task sums, and from bit [`PARTS_SHIFT`] on how many parts there are; 0 without split-K.
    pub split: u16,
}

impl Descriptor {
    /// The entry that ends a list.
    pub const END: Descriptor = Descriptor {
        op: OP_END,
        scalar: 0,
        flags: 0,
        after: 0,
        overflow: 0,
        views: 0,
        wait: [Wait { counter: NO_COUNTER, need: 0 }; 2],
        coord: [0; 3],
        task: u32::MAX,
        signal: [NO_COUNTER; 2],
        extra_waits: 0,
        extra_signals: 0,
        indirect: 0,
        split: 0,
    };

    /// The entry of a dynamic tile scheduler: workers claim `tasks` tasks by an atomic ticket until none is left. Ticket `n`, drawn from word `ticket` of the counter bank,
    /// is for descriptor `first + n`. A worker may have claimed `ahead` tasks and not ended them.
    pub const fn dynamic(ticket: u32, tasks: u32, first: u32, ahead: u16) -> Descriptor {
        Descriptor { op: OP_DYNAMIC, after: ahead, coord: [ticket, tasks, first], ..Descriptor::END }
    }

    /// The entry for a batch of `tasks` warp tasks of one call, whose descriptors lie from `at` on. This is the first of them. Each of the eight consumer warps takes every
    /// eighth task, in this order.
    pub const fn batch(&self, at: u32, tasks: u32) -> Descriptor {
        Descriptor {
            op: self.op,
            scalar: self.scalar,
            flags: self.flags | WARP_TASK_BATCH,
            views: self.views,
            coord: [at, tasks, 0],
            task: self.task,
            ..Descriptor::END
        }
    }
}

/// A descriptor with the views of its tensors, 256 bytes: what the prefetcher puts into shared memory.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The task.
    pub descriptor: Descriptor,
    /// Views of its tensor parameters.
    pub views: [View; OPERANDS],
}

const _: () = {
    assert!(size_of::<Descriptor>() == 64);
    assert!(size_of::<Slot>() == 256);
};
