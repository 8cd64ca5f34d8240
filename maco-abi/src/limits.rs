//! Sizes that several rooms agree on: of the hardware, of a CTA's shared memory, of tables. Each stands here once.
//!
//! What a device costs does not belong here (`maco_graph::plan::DeviceModel`), nor does where a CTA keeps its words (`maco-device`).

/// Threads of a CTA: one service warpgroup and two consumer warpgroups.
pub const THREADS: u32 = 384;
/// Threads of the consumer warpgroups.
pub const CONSUMERS: u32 = 256;
/// Consumer warps: so many warp tasks run at a time.
pub const CONSUMER_WARPS: u32 = CONSUMERS / WARP;
/// Threads of a warp.
pub const WARP: u32 = 32;
/// Named barriers of a CTA (PTX ISA §9.7.13.1 `barrier`).
pub const BARRIERS: u32 = 16;
/// Barrier of all threads, at start and end.
pub const BARRIER_CTA: u32 = 0;
/// Barrier of consumers between two operations of a body.
pub const BARRIER_OPERATIONS: u32 = 1;
/// Barrier of the first warpgroup of a SIMT body; the next one is the other's.
pub const BARRIER_WARPGROUPS: u32 = 2;
/// Barrier of all threads of a SIMT body, the consumers.
pub const BARRIER_BODY: u32 = 4;
/// Barrier of consumers between tasks, and between the steps of adding up parts.
pub const BARRIER_CONSUMERS: u32 = 5;
/// First barrier of those that a SIMT body has for some of its threads; all from here on.
pub const BARRIER_PART: u32 = 6;
/// Ring pages of shared memory.
pub const PAGES: u32 = 12;
/// Bytes of a ring page.
pub const PAGE_BYTES: u32 = 16 * 1024;
/// Bytes of epilogue staging: four chunks of 64 × 64 two-byte elements. The ring gets the rest. Three stages of 48 KiB instead of four cost a GEMM 5 % of its
/// main loop.
pub const STAGING_BYTES: u32 = 32 * 1024;
/// Bytes of slots, mbarriers and other words of control.
pub const CONTROL_BYTES: u32 = 3 * 1024;
/// Most dynamic shared memory of a CTA on compute capability 9.0 (CUDA C++ Programming Guide, technical specifications per compute capability).
pub const MAX_SHARED_BYTES: u32 = 227 * 1024;
/// Dynamic shared memory of a worker CTA.
pub const SHARED_BYTES: u32 = PAGES * PAGE_BYTES + STAGING_BYTES + CONTROL_BYTES;
/// Where shared memory has the seed of delayed builds: its last word.
pub const DELAY_SEED: u32 = SHARED_BYTES - 4;
/// Where shared memory counts, with delayed builds, how often each warp has asked whether to sleep: a word per warp. Code that records uses the same words,
/// so the two exclude each other.
pub const DELAY_COUNTS: u32 = DELAY_SEED - 124;
/// Shared memory of a scheduler CTA for its tables: all but control.
pub const SCHEDULER_BYTES: u32 = SHARED_BYTES - CONTROL_BYTES;
/// Tasks that a worker has in flight: prefetched, loading, running, or not signalled yet.
pub const SLOTS: u32 = 8;
/// Descriptors of a plan, and so tasks of a worker, at most: a consumer has the number of its task and what it knows of it in one register.
pub const MOST_TASKS: u32 = 1 << 24;
/// Entries behind the end of a list that a worker may prefetch.
pub const AHEAD: u32 = 16;
/// Tensor parameters of one task.
pub const OPERANDS: usize = 6;
/// Grid axes of one task.
pub const AXES: usize = 3;
/// Axes of one tensor.
pub const RANK: usize = 4;
/// Axes of a tensor that a task addresses: planes, rows and columns.
pub const TASK_RANK: usize = 3;
/// Most workers of a launch.
pub const MAX_WORKERS: u32 = 1 << 14;
/// Most schedulers of a launch: what a route numbers.
pub const MAX_SCHEDULERS: u32 = 256;
/// Most split-K parts of one tile.
pub const MAX_SPLIT_K: u32 = 64;
/// Rows of the tiles that the tensor cores make of a GEMM.
pub const TILE_ROWS: [u32; 2] = [64, 128];
/// Columns of these tiles.
pub const TILE_COLUMNS: [u32; 2] = [128, 256];
/// Elements of a chunk of a split-K partial sum, which one task adds up at a time: 64 columns of both consumer warpgroups.
pub const CHUNK: u32 = 64 * 128;
/// Bytes of an element of a partial sum, `f32`.
pub const PARTIAL_BYTES: u32 = 4;
/// Bytes of such a chunk.
pub const CHUNK_BYTES: u32 = CHUNK * PARTIAL_BYTES;
/// Least bytes that a task reads for its tiles to come through the ring: with fewer than a page, direct loads are faster than the loader.
pub const RING_BYTES: u32 = PAGE_BYTES;
/// Rows and columns of a GEMM operand's TMA box (two-byte elements, 128-byte swizzle). A box of four-byte elements has [`columns`] columns. If K runs along the
/// rows, it has as many rows too.
pub const BOX: u32 = 64;
/// Bytes of a row of a box: the width of the 128-byte swizzle. Also the bytes of a row of one K step of a GEMM.
pub const ROW_BYTES: u32 = 128;
/// Rows of a box for column reductions and transpositions, [`ROW_BYTES`] wide: one ring page.
pub const PANEL_ROWS: u32 = PAGE_BYTES / ROW_BYTES;

/// Rows of a TMA box of GEMV weights, two-byte elements. A row is cut into pieces of [`PIECE`] columns, and the tensor map has three axes without swizzle: columns
/// of a piece, pieces of a row, rows.
pub const WEIGHT_BOX_ROWS: u32 = 8;
/// Pieces per row of such a box.
pub const WEIGHT_BOX_PIECES: u32 = 4;
/// Columns of a piece.
pub const PIECE: u32 = MAX_BOX;
/// Most elements that an axis of a TMA box may have (CUDA driver API, `cuTensorMapEncodeTiled`).
pub const MAX_BOX: u32 = 256;
/// Rows of a swizzle pattern: tiles that TMA copies have a multiple of them.
pub const SWIZZLE_ROWS: u32 = 8;
/// Bytes of a row of a TMA box, and of its swizzle; 16 for none.
pub const SWIZZLES: [u32; 4] = [16, 32, 64, ROW_BYTES];
/// Addresses and strides of a tensor map are multiples of this many bytes (same source); rows of tensors that MACO allocates are padded to it.
pub const MAP_ALIGN: u32 = 16;
/// Strides of a tensor map are below this many bytes (same source).
pub const MAP_STRIDE: u64 = 1 << 40;

/// Columns of a box of elements of `bytes` bytes: also the elements of K in one step of a GEMM.
pub const fn columns(bytes: u32) -> u32 {
    ROW_BYTES / bytes
}

/// Most bytes of the elements with in-band flags that one task reads, scratch of a prologue included: staging memory, since operand B has the ring.
pub const IN_BAND_BYTES: u32 = STAGING_BYTES;
/// Elements of a vector load of those: two bytes each.
pub const IN_BAND_VECTOR: u32 = 8;

/// Row stride, in elements, of the copy in shared memory of a tile with in-band flags. With several rows it is padded by 32, so that rows do not share banks.
pub const fn in_band_stride(rows: u32, cols: u32) -> u32 {
    cols.next_multiple_of(64) + if rows > 1 { 32 } else { 0 }
}

/// Bytes of scratch behind that copy for an RMSNorm prologue: for each of `rows` rows a sum of squares per eight columns, and the row's scale. `cols` is a multiple
/// of eight.
pub const fn rmsnorm_bytes(rows: u32, cols: u32) -> u32 {
    rows * (cols / 8 + 1) * 4
}

/// Bytes of scratch behind that copy for an elementwise prologue: the slot of the task that is fused in.
pub const ELEMENTWISE_SLOT_BYTES: u32 = 256;

/// Slots before the launch record for each CTA, those of the last CTA first: the tasks that a worker begins with, if they wait for nothing. The one behind the last
/// task is the list's [`crate::OP_DYNAMIC`] entry, if that comes first and its tasks have been dealt to the workers, else [`crate::OP_END`].
pub const INITIAL_TASKS: u32 = 2;

const _: () = assert!(SHARED_BYTES <= MAX_SHARED_BYTES);
