//! What the host writes and the device reads: `repr(C)` layouts, asserted on both sides.
//!
//! Behaviour does not belong here. Every structure is plain old data, valid for any bit pattern but for `op`, and holds no
//! pointer but the bases in [`Launch`] and [`View::base`].

/// Threads of a CTA: one service warpgroup and two consumer warpgroups.
pub const THREADS: u32 = 384;
/// Threads of the consumer warpgroups.
pub const CONSUMERS: u32 = 256;
/// Ring pages of shared memory.
pub const PAGES: u32 = 12;
/// Bytes of a ring page.
pub const PAGE_BYTES: u32 = 16 * 1024;
/// Bytes of epilogue staging: four chunks of 64 × 64 two-byte elements. The ring needs the rest: three stages of 48 KiB instead of four
/// cost 5 % of a GEMM's inner loop.
pub const STAGING_BYTES: u32 = 32 * 1024;
/// Bytes of control: slots and mbarriers.
pub const CONTROL_BYTES: u32 = 3 * 1024;
/// Dynamic shared memory of a worker CTA.
pub const SHARED_BYTES: u32 = PAGES * PAGE_BYTES + STAGING_BYTES + CONTROL_BYTES;
/// Where the seed of delays lies in shared memory: its last word.
pub const DELAY_SEED: u32 = SHARED_BYTES - 4;
/// Where it lies, with delays, how often each warp has asked whether to sleep: a word a warp. These are words of who records, which nobody does with delays.
pub const DELAY_COUNTS: u32 = DELAY_SEED - 124;
/// Shared memory that a scheduler CTA has for its own: all but control.
pub const SCHEDULER_BYTES: u32 = SHARED_BYTES - CONTROL_BYTES;
/// Tasks a worker keeps in flight: descriptors prefetched, loads ahead, signals behind.
pub const SLOTS: u32 = 8;
/// Entries of a list that a worker may fetch beyond its end.
pub const AHEAD: u32 = 16;
/// Tensor parameters of one task.
pub const OPERANDS: usize = 6;
/// Bytes of a chunk of a partial sum: 64 columns of both consumer warpgroups, in `f32`.
pub const CHUNK_BYTES: u32 = 64 * 128 * 4;
/// Rows and columns of the box of every tensor map (two-byte elements, 128-byte swizzle). A box of four-byte elements has [`columns`]
/// columns, and if the contraction runs along the rows as many rows.
pub const BOX: u32 = 64;
/// Bytes of a row of a box: what the swizzle is made for.
pub const ROW_BYTES: u32 = 128;
/// Rows of a box of what is read across its rows, whose width is [`ROW_BYTES`]: a page.
pub const PANEL_ROWS: u32 = PAGE_BYTES / ROW_BYTES;

/// Boxes of weights that stream, of two-byte elements: so many rows of pieces of [`PIECE`] columns, as they lie in a stage. Their tensor maps are those of pieces
/// × pieces in a row × rows, without a swizzle.
pub const WEIGHT_BOX_ROWS: u32 = 8;
/// See [`WEIGHT_BOX_ROWS`].
pub const WEIGHT_BOX_PIECES: u32 = 4;
/// Columns of a piece of a row: as many as an axis of a box has at most (CUDA driver API, `cuTensorMapEncodeTiled`).
pub const PIECE: u32 = 256;

/// Columns of a box of elements of `bytes` bytes, and elements of one step of a contraction.
pub const fn columns(bytes: u32) -> u32 {
    ROW_BYTES / bytes
}

/// Wait until `counter` reaches `need`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Index into the counter bank.
    pub counter: u32,
    /// Arrivals needed; with [`IN_BAND_FLAGS`], nobody waits for them.
    pub need: u32,
}

/// Bit of [`Wait::need`]: what the counter counts comes with flags of its own, which the task polls. The counter only says, if the task does
/// not end, what it polls for.
pub const IN_BAND_FLAGS: u32 = 1 << 31;

/// Elements from one row of a carried tile of `cols` columns to the next, where consumers keep it: a multiple of 64, and if there are more
/// `rows`, 32 more, so that rows do not meet in the banks of shared memory.
pub const fn in_band_stride(rows: u32, cols: u32) -> u32 {
    cols.next_multiple_of(64) + if rows > 1 { 32 } else { 0 }
}

/// Bytes that consumers need behind a carried tile of `cols` columns, a multiple of eight, to make the norms of its `rows`: the squares of every
/// eight elements added up, and each row's factor.
pub const fn rmsnorm_bytes(rows: u32, cols: u32) -> u32 {
    rows * (cols / 8 + 1) * 4
}

/// Bytes that consumers need behind a carried tile to map its values: a task's slot.
pub const ELEMENTWISE_SLOT_BYTES: u32 = 256;

/// The word of a factor's view that says how it is mapped ([`ELEMENTWISE_PROLOGUE`]): the first entry of the map's scalars in [`Launch::scalars`], and of the
/// product's tiles the grid axis of their rows, and how many.
pub const fn elementwise_prologue(scalar: u16, axis: u8, rows: u8) -> u32 {
    (scalar as u32) << 16 | (axis as u32) << 8 | rows as u32
}

/// What is above the two bytes of every element that launch `launch` carries: another number than that of 65,535 launches before and behind
/// it. Zeros are of the launch before launch 0.
pub const fn epoch(launch: u32) -> u32 {
    launch.wrapping_add(1) << 16
}

/// No counter: an unused inline wait or signal.
pub const NO_COUNTER: u32 = u32::MAX;
/// [`Descriptor::op`] that ends a worker's list.
pub const OP_END: u16 = u16::MAX;
/// [`Descriptor::op`] of a task without a body (fences in tests and benches).
pub const OP_NONE: u16 = u16::MAX - 1;
/// [`Descriptor::op`] of an entry of a static list that stands for tasks to be claimed, see [`Descriptor::dynamic`].
pub const OP_DYNAMIC: u16 = u16::MAX - 2;
/// [`View::map`] of a view without a tensor map.
pub const NO_MAP: u32 = u32::MAX;
/// Bit of [`View::map`]: no task of the graph writes the tensor.
pub const UNWRITTEN: u32 = 1 << 31;

/// [`Descriptor::flags`]: tiles of the task travel through the ring, so loader and store thread have a part in it.
pub const STAGED: u16 = 1;
/// [`Descriptor::flags`]: a reader may fetch by TMA what the consumers store.
pub const READ_BY_TMA: u16 = 2;
/// [`Descriptor::flags`]: a SIMT task with a prologue, which begins when it is posted and passes its gate itself.
pub const EARLY_START: u16 = 32;
/// [`Descriptor::flags`]: a direct task that writes little, with one signal, [`SINGLE_PRODUCER`]. Whoever sees that it has ended may send it: twice is once.
pub const IDEMPOTENT_SIGNAL: u16 = 16;
/// [`Descriptor::flags`]: the task writes little, so that what counts is when it begins: its consumers look at counters themselves.
pub const CONSUMERS_POLL: u16 = 64;
/// [`Descriptor::flags`]: the parts of its tile run at the same time, as far as the plan can tell.
pub const CONCURRENT_PARTS: u16 = 128;
/// [`Descriptor::flags`]: rows of an operand come through the ring as they lie in memory, or pages of it are scratch of the body; results do
/// not.
pub const BULK_ROWS: u16 = 256;
/// [`Descriptor::flags`]: what is streamed or staged is written by no task of the graph, so that it is loaded before the task may run; or there
/// is nothing to load.
pub const LOAD_BEFORE_WAIT: u16 = 512;
/// [`Descriptor::flags`]: the factor that is multiplied with what is streamed is the norm of what its view names. The weights are the last of
/// the call's [`OPERANDS`] views, which has [`View::map`] for what is added to the mean square.
pub const RMSNORM_PROLOGUE: u16 = 1024;
/// [`Descriptor::flags`]: the factor that is multiplied with what is streamed is mapped first, value by value. The last of the call's [`OPERANDS`] views is
/// the factor's own, which has [`View::map`] for the instance that maps, and [`View::col_stride`] for what [`elementwise_prologue`] says.
pub const ELEMENTWISE_PROLOGUE: u16 = 1 << 15;
/// [`Descriptor::flags`]: a staged task that waits for a factor, and another that it multiplies is written by no task of the graph: what the ring has room
/// for of that one is loaded before the task may run.
pub const LOAD_CONSTANT_OPERAND_EARLY: u16 = 2048;
/// [`Descriptor::flags`]: a SIMT body of one warp. In a slot of its own, a worker's `n`-th, it is run by consumer warp `n % 8`, and otherwise as any task; see
/// also [`WARP_TASK_BATCH`].
pub const WARP_TASK: u16 = 4096;
/// [`Descriptor::flags`], with [`WARP_TASK`]: an entry of a list that stands for several tasks of a call, see [`Descriptor::batch`]. It waits for nothing and signals
/// nothing: the warps do so by themselves, for each of the tasks.
pub const WARP_TASK_BATCH: u16 = 8192;
/// [`Descriptor::flags`] of a slot, with [`WARP_TASK`]: the task was pushed before it is ready. Its first wait is for the number of tasks that a worker has ended, and its
/// warp waits.
pub const UNREADY: u16 = 16384;
/// [`Descriptor::flags`], a fault for tests: one consumer warp does not arrive at the end of the task.
pub const LOST_ARRIVE: u16 = 4;
/// [`Descriptor::flags`], a fault for tests: the loader announces more bytes than it copies.
pub const EXTRA_BYTES: u16 = 8;

/// Bit of a signal: the counter has no other producer, so that a store of 1 does.
pub const SINGLE_PRODUCER: u32 = 1 << 31;
/// With schedulers a signal is a *route*: bit 31, the task's own scheduler gets a credit back; above [`ROUTE_SHIFT`], the scheduler;
/// below, its number of the counter plus 1, or 0 for none.
pub const CREDIT: u32 = 1 << 31;
/// See [`CREDIT`].
pub const ROUTE_SHIFT: u32 = 23;
/// Mask of the counter in a route.
pub const ROUTE_COUNTER: u32 = (1 << ROUTE_SHIFT) - 1;
/// Tasks that a scheduler has pushed to a worker and that have not ended: one that runs, one behind it.
pub const INBOX: u32 = 2;
/// Words of an inbox: its places, then a pair for each, what a task pushed with [`UNTIL`] waits for. One sector of 32 bytes: the worker polls it.
pub const INBOX_WORDS: u32 = 8;
const _: () = assert!(INBOX_WORDS >= 3 * INBOX);
/// Messages on the way from a worker to a scheduler.
pub const MAILBOX: u32 = 16;
/// An inbox word that ends a worker's launch; otherwise the word is the task's descriptor plus 1, and [`UNTIL`].
pub const PUSH_END: u32 = u32::MAX;
/// Bit of an inbox word that is a task: it may run once a worker has ended so many tasks. Two words of the inbox say which, and how many.
pub const UNTIL: u32 = 1 << 31;
/// Bit of a task in a scheduler's image, a fault for tests: its push is lost.
pub const LOST_PUSH: u32 = 1 << 31;

/// See [`Descriptor::split`].
pub const PARTS_SHIFT: u32 = 8;

/// Most tasks of a [`WARP_TASK_BATCH`]. Longer ones would be given back later, and the next call's run would come into its slot later.
pub const MAX_WARP_TASK_BATCH: u32 = 32;

/// One task, 64 bytes. Indices only: no pointers.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Dense instance number: the arm of the dispatch.
    pub op: u16,
    /// First entry of the call's scalars in [`Launch::scalars`].
    pub scalar: u16,
    /// [`STAGED`], [`BULK_ROWS`], [`LOAD_BEFORE_WAIT`], [`LOAD_CONSTANT_OPERAND_EARLY`], [`RMSNORM_PROLOGUE`], [`ELEMENTWISE_PROLOGUE`], [`READ_BY_TMA`], [`EARLY_START`], [`CONSUMERS_POLL`], [`IDEMPOTENT_SIGNAL`], [`CONCURRENT_PARTS`], [`WARP_TASK`], [`WARP_TASK_BATCH`], faults.
    pub flags: u16,
    /// The consumers begin after the worker's own task so many places before; 0 for none, below [`SLOTS`]. Of [`Descriptor::dynamic`] how many tasks a
    /// worker may have claimed and not ended, at most [`SLOTS`].
    pub after: u16,
    /// Start of the overflow in [`Launch::overflow`]: `extra_waits` × [`Wait`] (two words each), `extra_signals` words, then
    /// `indirect` × [`Indirect`].
    pub overflow: u32,
    /// The views of the call's [`OPERANDS`] tensor parameters: index of the first one in [`Launch::views`].
    pub views: u32,
    /// First waits; unused ones have `counter == NO_COUNTER`, and the first one is used before the second.
    pub wait: [Wait; 2],
    /// Tile coordinates, one per grid axis. Of a part of a tile's sum the third one is the tile's first chunk of [`CHUNK_BYTES`] in
    /// [`Launch::partials`].
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
    /// Which part of its tile's sum the task makes, and above [`PARTS_SHIFT`] how many there are; 0 if it makes all of it.
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

    /// The entry at which a worker claims tasks until none is left: ticket `n`, drawn from word `ticket` of the counter bank, is for
    /// descriptor `first + n`; there are `tasks` of them, of which it may have claimed `ahead` and not ended them.
    pub const fn dynamic(ticket: u32, tasks: u32, first: u32, ahead: u16) -> Descriptor {
        Descriptor { op: OP_DYNAMIC, after: ahead, coord: [ticket, tasks, first], ..Descriptor::END }
    }

    /// The entry for `tasks` [`WARP_TASK`] tasks of one call, the descriptors from `at` on, of which the first one is this: the tasks that consumer warps take, each
    /// every eighth one, in this order.
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

/// A descriptor with its views beside it: what the controller puts into shared memory, 256 bytes.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The task.
    pub descriptor: Descriptor,
    /// Views of its tensor parameters.
    pub views: [View; OPERANDS],
}

const _: () = assert!(size_of::<Slot>() == 256);

/// Tasks that lie before the launch record, for each CTA, the last one's first: those that a worker begins with, as they lie in a slot (`Slot`), if they wait for
/// nothing. Behind the last one is an entry that is no task: the list's first one if that is a drain, of which each worker has been dealt its task, else [`OP_END`].
pub const INITIAL_TASKS: u32 = 2;

/// Wait for the rows of a tensor that another one names: eight words of [`Launch::overflow`].
///
/// The task's region of the naming tensor is `rows` rows of it from row `coord[axis] * rows`; each element `e` names a row, and the
/// wait is for counter `base + (first + e) / size` to reach `need`. Rows from `limit` on do not exist and are not waited for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indirect {
    /// Which tensor parameter names the rows, [`FLAT`] and [`KNOWN`].
    pub operand: u32,
    /// Grid axis of its rows; 3 for none.
    pub axis: u32,
    /// Rows of it per tile.
    pub rows: u32,
    /// First counter.
    pub base: u32,
    /// Rows per counter.
    pub size: u32,
    /// Rows there are.
    pub limit: u32,
    /// Arrivals needed, the same for all counters.
    pub need: u32,
    /// Row of the first counter's rows at which row 0 of the view lies.
    pub first: u32,
}

/// Bit of [`Indirect::operand`]: the tensor has rank 1, so that tiles count its elements.
pub const FLAT: u32 = 1 << 8;
/// Bit of [`Indirect::operand`]: no task writes the names, so that they can be read before anything has been waited for.
pub const KNOWN: u32 = 1 << 9;

/// A rectangular view of a tensor in memory, 32 bytes. Rank 1 is one row; axes before the last two are folded into planes.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Address of element (0, 0, 0): device memory on a GPU, host memory on the CPU.
    pub base: u64,
    /// Rows of a plane.
    pub rows: u32,
    /// Columns of a plane.
    pub cols: u32,
    /// Elements from one row to the next.
    pub row_stride: u32,
    /// Elements from one column to the next; 1 unless transposed. Of a factor that is mapped: see [`ELEMENTWISE_PROLOGUE`].
    pub col_stride: u32,
    /// Elements from one plane to the next. Of a tensor of one axis whose elements name planes of other tensors: how many these have. Of the last view
    /// of a task that is [`RMSNORM_PROLOGUE`] or [`ELEMENTWISE_PROLOGUE`]: a multiple of eight above 0, which no others have.
    pub plane_stride: u32,
    /// Index into [`Launch::maps`] and [`UNWRITTEN`], or `NO_MAP`. Of the weights of a norm: what is added to the mean square, the bits of an `f32`. Of a factor
    /// that is mapped: the instance.
    pub map: u32,
}

/// A `CUtensorMap`: 128 opaque bytes at a 64-byte boundary, encoded by the driver.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap(pub [u64; 16]);

/// Everything a launch needs, in device memory: written when the plan is made or its arguments change, never a kernel parameter.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// `[Descriptor]`: lists, each of which ends with [`OP_END`], then tasks that are claimed, then [`AHEAD`] more end entries
    /// (prefetch reads past a list).
    pub descriptors: u64,
    /// `[u32; workers + 1]`: first descriptor of each worker's list (static), or all 0 (else: descriptors are in task order).
    pub starts: u64,
    /// `[View]`, at least [`OPERANDS`]; the views of one call lie together.
    pub views: u64,
    /// `[TensorMap]`
    pub maps: u64,
    /// `[u32]`: scalars by call.
    pub scalars: u64,
    /// `[u32]`: waits and signals that do not fit a descriptor.
    pub overflow: u64,
    /// [`State`], then two banks of `counters` words, each at a 128-byte boundary.
    pub state: u64,
    /// [`BlackBox`] in pinned host memory (device address).
    pub black_box: u64,
    /// `[SchedulerPartition; schedulers]`
    pub partitions: u64,
    /// `[u32; workers * INBOX_WORDS]`, then `[u32; schedulers * workers * MAILBOX]`; between launches all places are 0.
    pub rings: u64,
    /// Words of one counter bank, a multiple of 32: counters, then the tickets of drains. With schedulers, who count the arrivals themselves:
    /// how many tasks each worker has ended.
    pub counters: u32,
    /// Workers: CTAs that run tasks, before the schedulers in the grid.
    pub workers: u32,
    /// Tasks.
    pub tasks: u32,
    /// [`STATIC`], [`TICKETS`] or [`PUSHED`].
    pub schedule: u32,
    /// How many schedulers push tasks.
    pub schedulers: u32,
    /// 1: schedulers are spare warps of workers, not CTAs.
    pub spare: u32,
    /// Nanoseconds a single wait may last.
    pub deadline_ns: u64,
    /// Polls a wait makes at least before the deadline counts.
    pub deadline_polls: u32,
    /// Seed of the delays before waits, loads, stores and signals, when the device code was built with the feature `delays`.
    pub delays: u32,
    /// `[Profile; workers + schedulers]`, then `[Record; workers * ROLES * records]` and `[Record; schedulers * served(records, ..)]` ([`served`]), or 0:
    /// nothing is recorded. Looked at by code that records only.
    pub profile: u64,
    /// Most records of one role of a worker.
    pub records: u32,
    /// Who enters and leaves: a worker each, and a scheduler each unless it is a warp of a worker.
    pub executors: u32,
    /// `[f32]`: partial sums of tiles that several tasks make, chunk after chunk.
    pub partials: u64,
    /// `[u32]`, one per chunk of `partials`; used is that of each tile's first chunk: parts that have arrived, and owners that have left, 0
    /// between launches ([`crate::protocol::SplitKPart`]).
    pub arrived: u64,
    /// Temps whose elements, of two bytes, carry flags: [`Launch::in_band_bytes`] of them.
    pub in_band: u64,
    /// `[u32]`, one per element of `carried`, in the same order: its bits, and above them what [`epoch`] says of the launch that wrote them.
    pub in_band_words: u64,
    /// Bytes of `carried`, gaps between tensors included; 0 for none.
    pub in_band_bytes: u32,
    /// Explicit padding.
    pub reserved: u32,
}

/// Roles of a worker that record what they do, each in records of its own: [`ROLE_CONSUME`], [`ROLE_LOAD`], [`ROLE_STORE`].
pub const ROLES: u32 = 3;
/// Consumers: [`KIND_WAIT`] and [`KIND_RUN`].
pub const ROLE_CONSUME: u32 = 0;
/// Loader: [`KIND_LOAD`].
pub const ROLE_LOAD: u32 = 1;
/// Store and signals: [`KIND_STORE`].
pub const ROLE_STORE: u32 = 2;

/// The consumers had nothing to do but to wait until the task might run.
pub const KIND_WAIT: u32 = 0;
/// The consumers ran the task.
pub const KIND_RUN: u32 = 1;
/// The loader copied, or waited for a place to copy to.
pub const KIND_LOAD: u32 = 2;
/// Results were sent, and the end of the task was signalled.
pub const KIND_STORE: u32 = 3;
/// A scheduler took messages and pushed tasks; it has no other kind, and its records name no task.
pub const KIND_SERVE: u32 = 4;

/// Most records of a scheduler: as many as one role of all workers has that it pushes to.
pub const fn served(records: u32, workers: u32, schedulers: u32) -> u32 {
    match (workers + schedulers.saturating_sub(1)).checked_div(schedulers) {
        Some(own) if records.saturating_mul(own) < 1 << 31 => records * own,
        Some(_) => i32::MAX as u32,
        None => 0,
    }
}

/// Lowest bit of [`Record::kind`] that is not of the `KIND_*` value: above them a consumer warp's number, plus 1, if it ran the task by itself.
pub const KIND_BITS: u32 = 8;

/// One span of one role, or of a scheduler: 16 bytes. Times are the low words of the worker's clock; records of a role end in the order in which
/// they lie, or nearly so where several warps note. But behind what a warp ran by itself lies what it had waited before, which ended where that begins.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Tick at which it began, modulo 2³².
    pub start: u32,
    /// Ticks that it lasted.
    pub ticks: u32,
    /// One of the `KIND_*` values, and above [`KIND_BITS`] whose.
    pub kind: u32,
    /// Index of the task in the plan.
    pub task: u32,
}

/// The same moment on two clocks: that of one worker, and one that all workers share.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Ticks of the worker's clock.
    pub ticks: u64,
    /// Nanoseconds of the shared clock.
    pub nanoseconds: u64,
}

/// What a worker or a scheduler leaves of a launch besides its records, 64 bytes; written when the launch ends.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// Before the first task.
    pub begin: Stamp,
    /// After the last one.
    pub end: Stamp,
    /// Records that each role would have made with room for all; of a scheduler the first of these.
    pub made: [u32; ROLES as usize],
    /// Multiprocessor.
    pub sm: u32,
    /// Not 0: written.
    pub written: u32,
    /// Padding to half a line.
    pub reserved: [u32; 3],
}

/// [`Launch::schedule`]: a list per worker.
pub const STATIC: u32 = 0;
/// [`Launch::schedule`]: workers draw tickets.
pub const TICKETS: u32 = 1;
/// [`Launch::schedule`]: schedulers push.
pub const PUSHED: u32 = 2;

/// What one scheduler owns: `image` is its memory as it is at the start of a launch, `memory` where it lives if that does not fit
/// shared memory. See [`crate::protocol::Layout`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerPartition {
    /// `[u32]` at a 16-byte boundary.
    pub image: u64,
    /// `[u32]` of the same length, or 0.
    pub memory: u64,
    /// `[u32; counters]`: the plan's number of each counter, for the black box.
    pub names: u64,
    /// Tasks.
    pub tasks: u32,
    /// Counters.
    pub counters: u32,
    /// Entries of the lists of waiters.
    pub waiters: u32,
    /// Explicit padding.
    pub reserved: u32,
}

/// What the executors of one launch add together to [`State::begun`], and to [`State::left`].
pub const LAUNCH: u32 = 1 << 16;
/// Most executors of a launch: [`entered`] tells the first one's share from those of all others.
pub const MAX_EXECUTORS: u32 = LAUNCH / 2 - 1;

/// What executor `executor` of `executors` adds when it enters a launch, and when it leaves: one, and the first of them what is missing to
/// [`LAUNCH`]. So nobody has to be the last: the number above counts on by itself, and again from 0 behind 65,535, where words of carried temps
/// ([`epoch`]) and parities do not notice.
pub const fn arrival_increment(executor: u32, executors: u32) -> u32 {
    if executor == 0 { LAUNCH - (executors - 1) } else { 1 }
}

/// How many of `executors` have added their [`arrival_increment`] to the lower half of a word.
pub const fn entered(word: u32, executors: u32) -> u32 {
    let sum = word % LAUNCH;
    if sum > MAX_EXECUTORS { sum - (LAUNCH - executors) } else { sum }
}

/// Mutable words of a plan in device memory, zeroed when the plan is made and by `recover`.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Launches that have ended, as a number of 16 bits above those who have left the one that runs: see [`arrival_increment`]. Its parity chooses the
    /// counter bank.
    pub left: u32,
    /// Not 0: aborted, until `recover`.
    pub abort: u32,
    /// The same of those who have entered. More than there are: two launches at once, an error.
    pub begun: u32,
    /// Ticket of the dynamic queue, one per bank.
    pub ticket: [u32; 2],
    /// Padding to one line.
    pub reserved: [u32; 27],
}

/// Who waited for what when the deadline passed. Written once, by the CTA that set [`State::abort`].
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlackBox {
    /// One of the `REPORT_*` values; written last.
    pub report: u32,
    /// Worker.
    pub worker: u32,
    /// Multiprocessor.
    pub sm: u32,
    /// Task index in the plan.
    pub task: u32,
    /// Counter it waited for.
    pub counter: u32,
    /// Arrivals needed.
    pub expected: u32,
    /// Arrivals seen.
    pub seen: u32,
    /// Polls made.
    pub polls: u32,
    /// Nanoseconds the wait lasted.
    pub elapsed_ns: u64,
    /// Padding to one line.
    pub reserved: [u32; 6],
}

impl BlackBox {
    /// Nothing to report.
    pub const EMPTY: BlackBox = BlackBox {
        report: 0,
        worker: 0,
        sm: 0,
        task: u32::MAX,
        counter: NO_COUNTER,
        expected: 0,
        seen: 0,
        polls: 0,
        elapsed_ns: 0,
        reserved: [0; 6],
    };
}

/// No report.
pub const REPORT_NONE: u32 = 0;
/// A wait passed its deadline.
pub const REPORT_DEADLINE: u32 = 1;
/// Two launches of one plan at once.
pub const REPORT_BUSY: u32 = 2;
/// A task was begun, or pushed, and did not end.
pub const REPORT_STUCK: u32 = 3;
/// Not all CTAs of a launch that is not cooperative have begun: [`BlackBox::seen`] of [`BlackBox::expected`].
pub const REPORT_ABSENT: u32 = 4;

const _: () = {
    assert!(size_of::<Descriptor>() == 64);
    assert!(size_of::<View>() == 32);
    assert!(size_of::<TensorMap>() == 128);
    assert!(size_of::<Launch>() == 176 && core::mem::offset_of!(Launch, delays) == 116);
    assert!(size_of::<Record>() == 16);
    assert!(size_of::<Profile>() == 64);
    assert!(size_of::<SchedulerPartition>() == 40);
    assert!(size_of::<Indirect>() == 32);
    assert!(size_of::<State>() == 128);
    assert!(size_of::<BlackBox>() == 64);
    assert!(SHARED_BYTES <= 227 * 1024);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_a_launch() {
        for executors in [1, 2, 3, 132, 140, MAX_EXECUTORS] {
            let all: u32 = (0..executors).map(|executor| arrival_increment(executor, executors)).sum();
            assert_eq!(all, LAUNCH, "{executors} executors");
            // As long as one is missing, with and without the first one.
            for others in [0, 1, executors / 2, executors - 1].into_iter().filter(|&others| others < executors) {
                assert_eq!(entered(others, executors), others);
                if others + 1 < executors {
                    assert_eq!(entered(arrival_increment(0, executors) + others, executors), others + 1);
                }
            }
        }
    }
}
