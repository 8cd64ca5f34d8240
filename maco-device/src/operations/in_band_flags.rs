//! Operand A with in-band flags: all consumers poll it, and keep it in shared memory while the GEMV runs.
//!
//! The writer stores each element in a word with the launch's number above it. A word is never torn: a reader that sees the number sees the element. So the two need
//! no fence, and the flag says nothing about other data (the LL protocol of NCCL, with words of half the size).

use crate::data::element::HalfElement;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::special::CONSUMER_THREADS;
use crate::hardware::{barrier, gpu_scope, memory, special, warp};
use crate::operations::rmsnorm_prologue;
use crate::shared_memory::{FALL_THROUGH, SharedMemory};
use maco_abi::{CONSUMERS, NO_MAP, View, in_band_stride};

/// Eight elements on their way.
#[derive(Clone, Copy)]
struct Eight {
    from: *const u32,
    to: u32,
    /// All ones, or 0 if there are none.
    inside: u32,
    /// 0 if none has still to come.
    missing: u32,
    words: [[u32; 4]; 2],
}

impl Eight {
    /// The `n`-th ones of `x`, whose words lie at `words`; it has `across` of them in each of its rows, and they go to `to` with `stride`
    /// elements a row.
    #[inline(always)]
    fn of<E: HalfElement, const I: usize>(x: Tile<E, I, 0>, words: *const u32, n: u32, across: u32, (to, stride): (u32, u32)) -> Eight {
        let row = n.checked_div(across).unwrap_or(0);
        let col = (n - row * across) * 8;
        let (from, to) = (words.wrapping_add((row * x.row_stride() + col) as usize), to + (row * stride + col) * 2);
        // In a register: a warp has few predicates.
        let inside = special::opaque(if row < x.rows() { u32::MAX } else { 0 });
        Eight { from, to, inside, missing: inside, words: [[0; 4]; 2] }
    }

    /// Looks once more if any are missing; without a branch.
    #[inline(always)]
    unsafe fn poll(&mut self) {
        let [low, high] = &mut self.words;
        // SAFETY: eight words of operand A at a 32-byte boundary, as the plan promises.
        unsafe {
            gpu_scope::poll4_if(self.missing != 0, self.from, low);
            gpu_scope::poll4_if(self.missing != 0, self.from.wrapping_add(4), high);
        }
    }

    /// Notes which have the launch's number, `epoch`.
    #[inline(always)]
    fn note(&mut self, epoch: u32) {
        let [[a, b, c, d], [e, f, g, h]] = self.words.map(|words| words.map(|word| word ^ epoch));
        self.missing = (a | b | c | d | e | f | g | h) >> 16 & self.inside;
    }

    /// Puts them where they are read.
    #[inline(always)]
    unsafe fn put(&self) {
        let [[a, b, c, d], [e, f, g, h]] = self.words;
        let pair = |low: u32, high: u32| low & 0xffff | high << 16;
        if self.inside != 0 {
            // SAFETY: passed on from the caller; the plan promises that there is room for the tile.
            unsafe { memory::receive_shared4(self.to, [pair(a, b), pair(c, d), pair(e, f), pair(g, h)]) };
        }
    }
}

/// What a copy of `x` is known by, or of the result of `task`'s prologue on it. In a launch, an element with an in-band flag is written once, and
/// neither an RMSNorm's weights nor scalars are.
#[inline(always)]
pub fn copy_key<E: HalfElement, const I: usize>(x: Tile<E, I, 0>, task: Task, staged: u32) -> [u32; 4] {
    [x.pointer(0, 0) as u64 as u32, staged, x.rows() | x.cols() << 8, task.prologue()]
}

/// Waits until all of `x` has come, and puts this thread's part of it where consumers keep it, from `to` on; who then meet. Never more than until the CTA
/// is let through.
///
/// # Safety
/// As of [`receive`].
#[inline(always)]
pub unsafe fn poll<E: HalfElement, const I: usize>(smem: SharedMemory, x: Tile<E, I, 0>, to: u32, thread: u32) {
    let (rows, cols) = (x.rows(), x.cols());
    let stride = in_band_stride(rows, cols);
    let (across, words, epoch) = (cols / 8, smem.word(x.pointer(0, 0) as u64), smem.epoch());
    let all = rows * across;
    let first = thread / (CONSUMERS / CONSUMER_THREADS);
    let eight = |n: u32| Eight::of(x, words, n, across, (to, stride));
    // As often for all. What a thread runs is what it needs: its instructions come late, too.
    let mut before = 0;
    if all <= CONSUMER_THREADS {
        let mut a = eight(first);
        loop {
            // SAFETY: passed on from the caller.
            unsafe { a.poll() };
            a.note(epoch);
            let found = warp::all(a.missing == 0);
            special::polled(found);
            if found || warp::any(smem.halted() >= FALL_THROUGH) {
                break;
            }
        }
        // SAFETY: as above.
        unsafe { a.put() };
        before = all;
    }
    while before < all {
        let n = before + first;
        let [mut a, mut b, mut c, mut d] =
            [eight(n), eight(n + CONSUMER_THREADS), eight(n + 2 * CONSUMER_THREADS), eight(n + 3 * CONSUMER_THREADS)];
        loop {
            // SAFETY: (of all) passed on from the caller.
            unsafe {
                a.poll();
                b.poll();
                c.poll();
                d.poll();
            }
            a.note(epoch);
            b.note(epoch);
            c.note(epoch);
            d.note(epoch);
            let found = warp::all(a.missing | b.missing | c.missing | d.missing == 0);
            special::polled(found);
            if found || warp::any(smem.halted() >= FALL_THROUGH) {
                break;
            }
        }
        // SAFETY: as above.
        unsafe {
            a.put();
            b.put();
            c.put();
            d.put();
        }
        before += 4 * CONSUMER_THREADS;
    }
}

/// Waits until all of operand A has come, and makes a copy of it in the staging memory: [`copy`]. One that a
/// task before has made stays, if nothing was staged since. Never more than until the CTA is let through.
///
/// # Safety
/// All consumers call, whole converged warps, in a task that is published, with at least one barrier of theirs behind. `x` has words, and is
/// no larger than a plan allows; nothing that was staged still has to be sent, and no consumer reads a copy made before. `staged` chunks have
/// been. Nobody writes the weights of the task's norm, which are of a live tensor and as many as `x` has columns.
///
/// Not 0 if the norm of the rows is still to be made of the copy: by [`rmsnorm_prologue::make`], which is not called here, since a function that calls another takes
/// the registers of both.
///
/// A function of its own, one for all tiles: each GEMV of a kernel would have a copy. `x` lies at `base`, with rows and columns of `shape`, the rows below, and
/// `stride` elements from one row to the next.
#[inline(never)]
pub unsafe fn receive<E: HalfElement>(task: Task, smem: u32, base: u64, shape: u64, stride: u32, staged: u32) -> u32 {
    let (smem, thread) = (SharedMemory(smem), special::thread_again() - 128);
    let (rows, cols) = (shape as u32, (shape >> 32) as u32);
    let view = View { base, rows, cols, row_stride: stride, col_stride: 1, plane_stride: 0, map: NO_MAP };
    let x: Tile<E, 0, 0> = Tile::new(view, 0, 0, 0);
    let to = smem.chunk(0);
    // Of the slot, nothing is kept in registers while `x` is polled for.
    if !warp::all(smem.is_copied(copy_key(x, task, staged))) {
        if let Some(norm) = task.norm::<E>() {
            // SAFETY: passed on from the caller; nobody uses what the rows' copy and what is behind it lie in.
            unsafe { rmsnorm_prologue::fetch(norm, to, rows, cols, thread) };
        }
        // SAFETY: passed on from the caller.
        unsafe { poll(smem, x, to, thread) };
        memory::fetched();
        barrier::sync_consumers();
        if thread == 0 {
            smem.set_copied(copy_key(x, task, staged));
        }
        return task.norm::<E>().is_some() as u32;
    }
    0
}

/// Where consumers keep `x` when they have received it.
#[inline(always)]
pub fn copy<E: HalfElement, const I: usize>(smem: SharedMemory, x: Tile<E, I, 0>) -> Tile<E, I, 0> {
    let (rows, cols) = (x.rows(), x.cols());
    let (stride, to) = (in_band_stride(rows, cols), smem.chunk(0));
    let view = View { base: special::generic(to), rows, cols, row_stride: stride, col_stride: 1, plane_stride: 0, map: NO_MAP };
    Tile::new(view, 0, 0, 0)
}
