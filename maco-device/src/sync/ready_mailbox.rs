//! The mailbox of ready tasks: one word of shared memory tells the consumers all they need to know of a published task that is nothing but a body.
//!
//! Between two short tasks, testing two mbarriers and then reading the slot is much of what a consumer does. The word names the task, so one load says both whether
//! the task may run, and how.

use crate::hardware::memory;
use crate::shared_memory::{ARRIVALS, SharedMemory};
use maco_abi::{ELEMENTWISE_PROLOGUE, Flags, OP_END, READ_BY_TMA, SLOTS, STAGED, WARP_TASK};

/// Flags of tasks that are more than a body to consumers: something has to be settled, waited for or fenced before or behind
/// them, or not all warps have a part in them.
const SPECIAL: Flags = STAGED.with(READ_BY_TMA).with(WARP_TASK).with(ELEMENTWISE_PROLOGUE);
/// Bits 0 to 15 are the instance, the next ones places to the task that this one comes after (fewer than slots).
const AFTER: u32 = 16;
/// The word is a notice.
const GIVEN: u32 = 1 << 19;
/// From here on: how often the slot has been used before, as far as there are bits. No older notice is left: every task in the slot has
/// overwritten it.
const LAP: u32 = 20;
/// As many laps are told apart: of a task's number, what stands above it is not looked at.
pub const LAPS: u32 = 1 << (u32::BITS - LAP);
const _: () = assert!(SLOTS <= 8);

/// Whether a task is more than a body, whose flags are the lower half of `ways`.
#[inline(always)]
pub fn special(ways: u32) -> bool {
    ways & SPECIAL.mask() != 0
}

/// What task `n` is to be announced by, whose slot begins with the words `head` and `ways`; 0 if it is more than a body.
#[inline(always)]
pub fn of(n: u32, [head, ways]: [u32; 2]) -> u32 {
    if head as u16 == OP_END || special(ways) { 0 } else { head & 0xffff | (ways >> 16) << AFTER | GIVEN | (n / SLOTS) << LAP }
}

/// Announces task `n`. Whoever has published it calls, having acquired what it waits for.
///
/// # Safety
/// One thread calls, before it publishes another task of the slot.
#[inline(always)]
pub unsafe fn give(smem: SharedMemory, n: u32, message: u32) {
    // SAFETY: a word of shared memory that only publishers write.
    unsafe { memory::store_release_shared(smem.ready_mailbox(n % SLOTS), message) }
}

/// Of tasks of one warp in the slot of task `n`, which are not announced: leaves a word that differs with the task, and is no notice.
///
/// # Safety
/// A word of shared memory that only publishers write, and those who run such a task of the slot meanwhile.
#[inline(always)]
pub unsafe fn progress(smem: SharedMemory, n: u32, task: u32) {
    if ARRIVALS == 1 {
        // SAFETY: passed on from the caller.
        unsafe { memory::store_relaxed_shared(smem.ready_mailbox(n % SLOTS), task & (GIVEN - 1)) };
    }
}

/// What consumers have found of a task, in one register.
#[derive(Clone, Copy)]
pub struct Notice(u32);

impl Notice {
    /// Whether the task has been announced.
    #[inline(always)]
    pub fn is_given(self) -> bool {
        self.0 >> (AFTER + 3) == 0
    }
    /// Its instance.
    #[inline(always)]
    pub fn op(self) -> u16 {
        self.0 as u16
    }
    /// How many places before it the task is that it comes after.
    #[inline(always)]
    pub fn after(self) -> u32 {
        self.0 >> AFTER
    }
}

/// What has been announced of task `n`.
///
/// # Safety
/// Consumers have ended all tasks in the slot before.
#[inline(always)]
pub unsafe fn take(smem: SharedMemory, n: u32) -> Notice {
    if ARRIVALS > 1 {
        // Racecheck does not follow these words, and knows no access that is relaxed.
        return Notice(u32::MAX);
    }
    // SAFETY: a word of shared memory.
    let word = unsafe { memory::load_acquire_shared(smem.ready_mailbox(n % SLOTS)) };
    // What it should say of the lap vanishes.
    Notice(word ^ (GIVEN | (n / SLOTS) << LAP))
}
