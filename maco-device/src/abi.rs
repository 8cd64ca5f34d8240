//! What the host writes and the device reads: `repr(C)` layouts, asserted on both sides.
//!
//! Behaviour does not belong here. Every structure is plain old data, valid for any bit pattern but for `op`, and holds no
//! pointer but the bases in [`Launch`] and [`View::base`].

mod descriptor;
mod launch;
mod record;

pub use descriptor::*;
pub use launch::*;
pub use record::*;

/// Threads of a CTA: one service warpgroup and two consumer warpgroups.
pub const THREADS: u32 = 384;
/// Threads of the consumer warpgroups.
pub const CONSUMERS: u32 = 256;
/// Ring pages of shared memory.
pub const PAGES: u32 = 12;
/// Bytes of a ring page.
pub const PAGE_BYTES: u32 = 16 * 1024;
/// Bytes of epilogue staging: four chunks of 64 × 64 two-byte elements. The ring gets the rest. Three stages of 48 KiB instead of four cost a GEMM 5 % of its
/// main loop.
pub const STAGING_BYTES: u32 = 32 * 1024;
/// Bytes of slots, mbarriers and other words of control.
pub const CONTROL_BYTES: u32 = 3 * 1024;
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
/// No counter: an unused inline wait or signal.
pub const NO_COUNTER: u32 = u32::MAX;
/// Tensor parameters of one task.
pub const OPERANDS: usize = 6;
/// Bytes of a chunk of a split-K partial sum: 64 columns of both consumer warpgroups, in `f32`.
pub const CHUNK_BYTES: u32 = 64 * 128 * 4;
/// Rows and columns of a GEMM operand's TMA box (two-byte elements, 128-byte swizzle). A box of four-byte elements has [`columns`] columns. If K runs along the
/// rows, it has as many rows too.
pub const BOX: u32 = 64;
/// Bytes of a row of a box: the width of the 128-byte swizzle.
pub const ROW_BYTES: u32 = 128;
/// Rows of a box for column reductions and transpositions, [`ROW_BYTES`] wide: one ring page.
pub const PANEL_ROWS: u32 = PAGE_BYTES / ROW_BYTES;

/// Rows of a TMA box of GEMV weights, two-byte elements. A row is cut into pieces of [`PIECE`] columns, and the tensor map has three axes without swizzle: columns
/// of a piece, pieces of a row, rows.
pub const WEIGHT_BOX_ROWS: u32 = 8;
/// Pieces per row of such a box.
pub const WEIGHT_BOX_PIECES: u32 = 4;
/// Columns of a piece: the most that an axis of a TMA box may have (CUDA driver API, `cuTensorMapEncodeTiled`).
pub const PIECE: u32 = 256;

/// Columns of a box of elements of `bytes` bytes: also the elements of K in one step of a GEMM.
pub const fn columns(bytes: u32) -> u32 {
    ROW_BYTES / bytes
}

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

/// [`View::col_stride`] of operand A of a GEMV with an [`ELEMENTWISE_PROLOGUE`]: `scalar` is the first entry of the prologue's scalars in [`Launch::scalars`], `axis`
/// the grid axis of the GEMV's rows, `rows` the rows of its tiles.
pub const fn elementwise_prologue(scalar: u16, axis: u8, rows: u8) -> u32 {
    (scalar as u32) << 16 | (axis as u32) << 8 | rows as u32
}

/// The in-band flag of launch `launch`: the upper half of each word of a tensor with in-band flags. It repeats after 65,536 launches. Zero is the flag of the launch
/// before launch 0.
pub const fn epoch(launch: u32) -> u32 {
    launch.wrapping_add(1) << 16
}

/// Tasks that a scheduler pushes to a worker before the first of them has ended: one runs, one waits behind it.
pub const INBOX: u32 = 2;
/// Words of an inbox: [`INBOX`] entries, then for each a pair of words that [`UNTIL`] uses. The worker polls it, so it is one sector of 32 bytes.
pub const INBOX_WORDS: u32 = 8;
const _: () = assert!(INBOX_WORDS >= 3 * INBOX);
/// Entries of the mailbox from a worker to a scheduler.
pub const MAILBOX: u32 = 16;
/// Inbox word that ends the worker's launch. Any other is the index of the task's descriptor plus 1, perhaps with [`UNTIL`].
pub const PUSH_END: u32 = u32::MAX;
/// Bit of an inbox word: the task was pushed before it is ready. It may run when a worker has ended some number of tasks. Two words of the inbox say which worker
/// and how many.
pub const UNTIL: u32 = 1 << 31;
/// Fault for tests, bit of a task in a scheduler's image: its push is lost.
pub const LOST_PUSH: u32 = 1 << 31;

/// Slots before the launch record for each CTA, those of the last CTA first: the tasks that a worker begins with, if they wait for nothing. The one behind the last
/// task is the list's [`OP_DYNAMIC`] entry, if that comes first and its tasks have been dealt to the workers, else [`OP_END`].
pub const INITIAL_TASKS: u32 = 2;

const _: () = assert!(SHARED_BYTES <= 227 * 1024);
