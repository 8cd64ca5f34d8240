//! Elementwise prologue of a GEMV: the consumers run the body of an elementwise task on operand A, which they have copied to staging memory.
//!
//! What the body computes does not belong here. This is the role as which consumers run it. The role reads and writes the copy, not the tiles that the body names,
//! block by block, with the same conversions as the task.

use crate::data::element::{Element, f16};
use crate::data::inputs::Inputs;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::special::{self, CONSUMER_THREADS};
use crate::hardware::{barrier, memory, warp};
use crate::operations::in_band_flags;
use crate::role::Role;
use crate::shared_memory::SharedMemory;
use maco_abi::{CONSUMERS, ELEMENTWISE_SLOT_BYTES, Launch, Slot, in_band_stride};

const _: () = assert!(size_of::<Slot>() == ELEMENTWISE_SLOT_BYTES as usize && align_of::<Slot>() == 64);

/// A consumer that runs the prologue on its share of rows, which lie at `at`, `in_band_stride` elements apart.
pub struct ElementwisePrologue {
    at: u32,
    rows: u32,
    cols: u32,
    /// Among those that share.
    thread: u32,
}

/// Waits until all of operand A of `task` has come and, unless the result of its elementwise prologue lies there already, makes room for that: not 0 if it is to be
/// run, by [`ElementwisePrologue::of`]. Then consumers have met.
///
/// A function of its own, apart from the prologue: what polls holds many registers, and what runs a body, too.
///
/// # Safety
/// As of [`in_band_flags::receive`]; `task` is [`maco_abi::ELEMENTWISE_PROLOGUE`], of a live launch.
#[inline(never)]
pub unsafe fn receive(task: Task, smem: u32, staged: u32) -> u32 {
    let (smem, thread) = (SharedMemory(smem), special::thread_again() - 128);
    // Two bytes, whatever they are.
    let (x, _, head): (Tile<f16, 0, 0>, u32, u32) = task.elementwise_prologue();
    if warp::all(smem.is_copied(in_band_flags::copy_key(x, task, staged))) {
        return 0;
    }
    let slot = slot(smem, x);
    let mut word = thread / (CONSUMERS / CONSUMER_THREADS);
    while word < ELEMENTWISE_SLOT_BYTES / 4 {
        // SAFETY: the plan promises room for a slot, which nobody reads before the barrier.
        unsafe { memory::store_shared(slot + word * 4, if word == 0 { head } else { 0 }) };
        word += CONSUMER_THREADS;
    }
    // SAFETY: passed on from the caller.
    unsafe { in_band_flags::poll(smem, x, smem.chunk(0), thread) };
    barrier::sync_consumers();
    if thread == 0 {
        smem.set_copied(in_band_flags::copy_key(x, task, staged));
    }
    1
}

/// The prologue's own slot, behind the rows of operand A: scalars, and coordinates that are all 0.
#[inline(always)]
fn slot(smem: SharedMemory, x: Tile<f16, 0, 0>) -> u32 {
    smem.chunk(0) + x.rows() * in_band_stride(x.rows(), x.cols()) * 2
}

impl ElementwisePrologue {
    /// Who runs the prologue of `task`, of which task that is, and by which instance.
    ///
    /// # Safety
    /// A consumer, behind [`receive`], until consumers meet again; the launch is live.
    #[inline(always)]
    pub unsafe fn of(task: Task, smem: SharedMemory, launch: *const Launch) -> (ElementwisePrologue, Task, u32) {
        let (x, op, _): (Tile<f16, 0, 0>, u32, u32) = task.elementwise_prologue();
        let thread = (special::thread_again() - 128) / (CONSUMERS / CONSUMER_THREADS);
        let slot = slot(smem, x);
        #[cfg(not(target_arch = "nvptx64"))]
        let slot = special::generic(slot) as *const Slot;
        // SAFETY: the slot is written, and stays until consumers meet.
        let task = unsafe { Task::new(slot, launch) };
        (ElementwisePrologue { at: smem.chunk(0), rows: x.rows(), cols: x.cols(), thread }, task, op)
    }
}

impl Role for ElementwisePrologue {
    type Accumulator<const I: usize, const J: usize> = ();

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) {}

    #[inline(always)]
    fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        _: X,
        _: Tile<E, I, J>,
        _: Task,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        // The plan fuses only tasks whose elements have two bytes before and behind.
        if const { size_of::<X::Blocks>() != 16 || size_of::<E::Eight>() != 16 || E::BYTES != 2 } {
            return;
        }
        let across = self.cols / 8;
        let mut n = self.thread;
        while n < self.rows * across {
            // A division takes longer than the whole prologue.
            let row = if self.rows == 1 { 0 } else { n.checked_div(across).unwrap_or(0) };
            let at = self.at + (row * in_band_stride(self.rows, self.cols) + (n - row * across) * 8) * 2;
            // SAFETY: (of all) a block of a row at a 16-byte boundary, of one thread; eight elements of two bytes are four words.
            unsafe {
                let v = X::open(core::mem::transmute_copy(&memory::load_shared4(at)));
                let made = E::close([f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])]);
                memory::map_shared4(at, core::mem::transmute_copy(&made));
            }
            n += CONSUMER_THREADS;
        }
    }
}
