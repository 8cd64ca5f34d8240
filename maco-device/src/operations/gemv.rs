//! The main loop of a GEMV, by all consumers: the same for every task with such tiles, whatever its epilogue.
//!
//! It is a function of its own, one for all calls with the same tiles. It has many instructions, each of which runs once or twice in a task. Cold code stalls on
//! instruction fetch for longer than it runs (docs/internals/gemv.md).

use crate::data::element::HalfElement;
use crate::data::tile::Tile;
use crate::hardware::{barrier, fence, special, warp};
use crate::operations::mma_sync::{self, Columns, MmaSync};
use crate::operations::row_stages;
use crate::shared_memory::{self, SharedMemory};
use crate::sync::ring::Ring;
use maco_abi::{NO_MAP, View};

/// Two words as one, the first one below.
#[inline(always)]
pub fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Adds up the products of the task's stages, and leaves each warp's part in the last of them. The ring behind them, and that stage: see
/// [`Ring::unpack_stage`]. Operand A lies at `base`, with rows and columns of `shape`, `stride` elements from one to the next; `w` are rows and
/// columns of the weights.
///
/// # Safety
/// All consumers call, whole converged warps, in a task that is published, whose rows come through the ring, in the order of its loader. Tensors are live, and
/// nobody writes them.
#[inline(never)]
pub unsafe fn sum<E: HalfElement, const I: usize, const J: usize>(ring: u64, smem: u32, base: u64, shape: u64, stride: u32, w: u64) -> u64 {
    let (smem, thread) = (SharedMemory(smem), special::thread_again() - 128);
    let lane = thread % 32;
    let mut ring = Ring::unpack(smem, ring);
    let view =
        View { base, rows: shape as u32, cols: (shape >> 32) as u32, row_stride: stride, col_stride: 1, plane_stride: 0, map: NO_MAP };
    let x: Tile<E, I, 0> = Tile::new(view, 0, 0, 0);
    let w = (w as u32, (w >> 32) as u32);
    let mut sums = MmaSync::<I, J>::new();
    // SAFETY: (of calls) the task has waited for its inputs, or has a copy, and nobody writes them while it runs.
    let load = |col: u32| unsafe { mma_sync::columns::<E, I, J>(x, col, thread) };
    // Adds the stage that begins with column `col`, to which `now` belongs; the stage if it is the last one.
    let mut add = |now: Columns, col: u32| {
        // SAFETY: all consumers run the same outline as the loader; whole warps run it.
        unsafe {
            let (stage, at_stage) = ring.wait_full(row_stages::pages(J));
            sums.add::<E>(now, x, w, col, at_stage, thread);
            if col + row_stages::columns(J) >= w.1 {
                return Some((stage, at_stage));
            }
            warp::sync();
            if shared_memory::arrives(lane) {
                ring.release(stage);
            }
        }
        None
    };
    let (mut col, mut now) = (0, load(0));
    let (stage, at_stage) = loop {
        // What is read of memory is one stage ahead, if there are registers for it. One copy of the products, whatever the moves take: whose code is
        // run once waits for its instructions.
        let then = if I == 8 { Some(load(col + row_stages::columns(J))) } else { None };
        if let Some(last) = add(now, col) {
            break last;
        }
        col += row_stages::columns(J);
        now = then.unwrap_or_else(|| load(col));
    };
    // SAFETY: (of calls) between barriers the last stage is the consumers', who have all read it.
    unsafe {
        barrier::sync_consumers();
        sums.write(at_stage, thread);
        // The stage's next bytes come through the other proxy.
        fence::proxy_async_shared();
        barrier::sync_consumers();
    }
    ring.packed_stage(stage, row_stages::pages(J))
}
