//! What a statement is to the protocol: the words that its rules are made of.

use maco_abi::{BARRIER_OPERATIONS, CONSUMERS};
use maco_ptx::Statement;

use super::peers::of_channel;

pub(super) type Is = fn(&Statement<'_>) -> bool;

pub(super) fn op(statement: &Statement<'_>, start: &str) -> bool {
    statement.opcode().starts_with(start)
}

pub(super) fn part(statement: &Statement<'_>, wanted: &str) -> bool {
    statement.opcode().split('.').any(|part| part == wanted)
}

fn tagged(statement: &Statement<'_>, tag: &str) -> bool {
    statement.tag == Some(tag)
}

pub(super) const ACQUIRE: Is = |s| s.opcode() == "fence.acquire.gpu";
pub(super) const RELEASE: Is = |s| s.opcode() == "fence.release.gpu";
pub(super) const PROXY_GLOBAL: Is = |s| s.opcode() == "fence.proxy.async.global";
pub(super) const PROXY_SHARED: Is = |s| s.opcode() == "fence.proxy.async.shared::cta";
pub(super) const PROXY_MAP: Is = |s| s.opcode() == "fence.proxy.tensormap::generic.acquire.gpu";
pub(super) const SEQUENTIAL: Is = |s| s.opcode() == "fence.sc.cta";
/// Of the halt word; and of notices, whose value is no constant.
pub(super) const HALTS: Is = |s| op(s, "st.release.cta.shared");
pub(super) const INIT: Is = |s| op(s, "mbarrier.init");
/// Of the runtime, not of bodies at their own barriers.
pub(super) const ARRIVE: Is = |s| op(s, "mbarrier.arrive") && !tagged(s, "scratch");
pub(super) const WAIT: Is = |s| (op(s, "mbarrier.try_wait") || op(s, "mbarrier.test_wait")) && !tagged(s, "scratch");
pub(super) const BARRIER: Is = |s| op(s, "mbarrier.arrive") || op(s, "mbarrier.try_wait") || op(s, "mbarrier.test_wait");
pub(super) const INVALIDATE: Is = |s| op(s, "mbarrier.inval");
pub(super) const ALL_THREADS: Is = |s| op(s, "bar.sync") && s.text.ends_with(" 0");
/// Not those ahead of a task that is not turned to yet, which are asked about where that waits.
pub(super) const LOAD: Is = |s| op(s, "ld.relaxed.gpu.global") && !tagged(s, "in_band.load") && !tagged(s, "wait.ahead");
/// Of a warp that runs a published task by itself: it looks at no gate.
pub(super) const ALONE: Is = |s| LOAD(s) && tagged(s, "wait.alone");
pub(super) const ADD: Is = |s| op(s, "red.relaxed.gpu.global.add");
pub(super) const STORE: Is = |s| op(s, "st.relaxed.gpu.global") && !tagged(s, "in_band.store");
/// Elements that came with flags of their own, which nobody acquires, as consumers keep them.
pub(super) const RECEIVED: Is = |s| tagged(s, "receive");
/// Weights of an RMSNorm prologue on their way to shared memory, and a thread's wait for its own.
pub(super) const FETCH: Is = |s| s.opcode() == "cp.async.cg.shared.global";
pub(super) const FETCHED: Is = |s| s.opcode() == "cp.async.wait_all";
/// Of an elementwise prologue: how received elements are read, and how the results are written.
pub(super) const TAKEN: Is = |s| op(s, "ld.shared.v4");
pub(super) const MADE: Is = |s| tagged(s, "elementwise");
/// Of an RMSNorm prologue: squares of a part of a row, and what the row is multiplied by.
pub(super) const SQUARES: Is = |s| op(s, "st.") && tagged(s, "rmsnorm.sum");
pub(super) const SQUARED: Is = |s| op(s, "ld.") && tagged(s, "rmsnorm.sum");
pub(super) const SCALE: Is = |s| op(s, "st.") && tagged(s, "rmsnorm.factor");
pub(super) const SCALED: Is = |s| op(s, "ld.") && tagged(s, "rmsnorm.factor");
/// A word of a table in a stage of the ring, which all consumers raise.
pub(super) const RAISED: Is = |s| tagged(s, "table.raise");
pub(super) const CLAIM: Is = |s| op(s, "atom.relaxed.gpu.global.cas") || op(s, "atom.relaxed.gpu.global.add") && !PART(s);
/// A part of a sum is there, or leaves what it would have added up.
pub(super) const PART: Is = |s| tagged(s, "part.arrive") || tagged(s, "part.leave");
/// A barrier of some of the threads.
pub(super) const MET: Is = |s| op(s, "bar.sync") && !ALL_THREADS(s);
/// All consumers, between two operations of a body.
pub(super) const BETWEEN_OPERATIONS: Is = |s| op(s, "bar.sync") && s.text == format!("bar.sync {BARRIER_OPERATIONS}, {CONSUMERS}");
/// The lanes of a warp.
pub(super) const MET_WARP: Is = |s| op(s, "bar.warp.sync");
/// The same of a warp that runs a task by itself and has waited in vain: the launch is aborted, and the task does not begin.
pub(super) const GIVEN_UP: Is = |s| MET_WARP(s) && tagged(s, "give_up");
/// Boxes of a tensor, or rows as they lie.
pub(super) const COPY: Is = |s| op(s, "cp.async.bulk.") && s.opcode().contains("mbarrier::complete_tx");
pub(super) const TMA_LOAD: Is = |s| COPY(s) && op(s, "cp.async.bulk.tensor");
pub(super) const TMA_STORE: Is = |s| op(s, "cp.async.bulk.tensor") && s.opcode().ends_with("bulk_group");
/// A body's copy from its scratch: of bytes, or of a box.
pub(super) const BODY_STORE: Is = |s| op(s, "cp.async.bulk.global.shared::cta") || TMA_STORE(s) && tagged(s, "scratch");
/// A body's copy of a box to its scratch.
pub(super) const BODY_LOAD: Is = |s| TMA_LOAD(s) && tagged(s, "scratch");
/// What a body writes to its scratch through the generic proxy. The runtime's own words are `st.shared`.
pub(super) const SCRATCH: Is = |s| op(s, "st.") && tagged(s, "scratch") || STAGED(s) || INVALIDATE(s);
pub(super) const COMMIT: Is = |s| op(s, "cp.async.bulk.commit_group");
pub(super) const COPIED: Is = |s| op(s, "cp.async.bulk.wait_group");
pub(super) const STORED: Is = |s| s.opcode() == "cp.async.bulk.wait_group" && s.text.ends_with(" 0");
pub(super) const STAGED: Is = |s| op(s, "stmatrix");
/// Sums of several warps, which consumers leave in a stage of the ring: of a function with a [`PRODUCT`].
pub(super) const SUMS: Is = |s| op(s, "st.shared.v2");
/// Operands in a stage of the ring: of tf32, which consumers have transposed, or operand A behind an elementwise prologue.
pub(super) const TURNED: Is = |s| op(s, "st.shared.v4") && !RECEIVED(s) && !MADE(s);
pub(super) const MULTIPLY: Is = |s| op(s, "wgmma.mma_async");
/// Registers and shared memory before it are those of the tensor cores' next products.
pub(super) const HANDED: Is = |s| op(s, "wgmma.fence");
pub(super) const PRODUCT: Is = |s| op(s, "mma.sync");
/// A store of a task's result by its own threads, or a call of a body, which stores them. A panic comes to no end.
pub(super) const WRITE: Is =
    |s| CALL(s) || op(s, "st.") && !["shared", "relaxed", "release", "param", "local"].iter().any(|other| part(s, other));
pub(super) const CALL: Is = |s| (s.opcode() == "call" || op(s, "call.")) && !s.last;
pub(super) const WORD: Is = |s| op(s, "st.relaxed.sys") && !of_channel(s);
pub(super) const REPORT: Is = |s| op(s, "st.release.sys") && !of_channel(s);
/// What has a part in the order of memory, waits, copies or reports.
pub(super) const ORDERS: Is = |s| {
    const STARTS: [&str; 8] =
        ["bar.sync", "cp.async.", "fence.", "griddepcontrol.", "mbarrier.", "st.relaxed.sys.", "st.release.", "st.weak.shared"];
    const ONE: [Is; 6] = [LOAD, STORE, ADD, CLAIM, PART, STAGED];
    STARTS.iter().any(|start| op(s, start)) || ONE.iter().any(|is| is(s)) || of_channel(s)
};
/// What of that bodies do, wherever they are.
pub(super) const OF_BODIES: Is = |s| {
    const OF_THE_RING: [&str; 3] =
        ["mbarrier.try_wait.parity.shared::cta.b64", "mbarrier.arrive.shared::cta.b64", "fence.proxy.async.shared::cta"];
    BETWEEN_OPERATIONS(s) || OF_THE_RING.contains(&s.opcode())
};
pub(super) const NEVER: Is = |_| false;
