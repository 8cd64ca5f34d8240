//! Counters, waits, signals, tickets, schedulers, parts of sums, deadline and abort: one source for GPU warps and CPU threads.
//!
//! What a task does does not belong here. Evidence for each rule: DESIGN §5.

mod ahead;
mod counters;
#[cfg(not(target_arch = "nvptx64"))]
mod executor;
pub mod faults;
mod fixup;
#[cfg(not(target_arch = "nvptx64"))]
mod host;
mod layout;
mod mailbox;
mod queue;
mod schedule;
mod scheduler;
mod signal;
mod wait;

pub use ahead::{Push, Until};
pub use counters::{Counters, Poller, opens};
#[cfg(not(target_arch = "nvptx64"))]
pub use executor::{attend, work};
pub use fixup::{FixupWord, INCOMPLETE, OWNERS, SplitKPart};
#[cfg(not(target_arch = "nvptx64"))]
pub use host::Thread;
pub use layout::Layout;
pub use queue::{CLAIMED, CLAIMED_EARLY, DynamicTiles, Queue, admit, count_in, enter, leave};
pub use schedule::schedule;
pub use scheduler::notify;
pub use signal::{bump, bump_one, signal};
pub use wait::{Look, Names, Outcome, Patience, late, wait, wait_for, wait_for_all};

use maco_abi::{BlackBox, LAUNCH, Launch, State};

/// The atomics, clock and lanes of one kind of executor: a warp of a GPU (32 lanes that vote), a CPU thread. What is about lanes and own
/// memory defaults to one lane.
///
/// # Safety
/// `acquire` after a `load` that saw an `add` made after `release` orders memory between the two, at least among all executors of a device.
pub unsafe trait Machine {
    /// Polls between two looks at clock and abort word: both are slow to read.
    const LOOK: u32 = 64;
    /// This lane.
    #[inline(always)]
    fn lane(&self) -> u32 {
        0
    }
    /// Lanes that call together.
    #[inline(always)]
    fn lanes(&self) -> u32 {
        1
    }
    /// Whether `condition` holds in every lane.
    #[inline(always)]
    fn all(&self, condition: bool) -> bool {
        self.vote(!condition) == 0
    }
    /// The lanes in which `condition` holds, lane 0 in bit 0.
    #[inline(always)]
    fn vote(&self, condition: bool) -> u32 {
        condition as u32
    }
    /// The value of lane `lane`.
    #[inline(always)]
    fn broadcast(&self, value: u32, _lane: u32) -> u32 {
        value
    }
    /// Whether a scheduler may keep what it has loaded while it does something else. A constant.
    #[inline(always)]
    fn roomy(&self) -> bool {
        true
    }
    /// The lanes meet: what one did to own memory, all see.
    #[inline(always)]
    fn converge(&self) {}
    /// The launch is aborted: the lanes wait no more. For who wants to tell that from a wait that has ended.
    #[inline(always)]
    fn give_up(&self) {}
    /// Loads a word that only this executor's lanes use.
    ///
    /// # Safety
    /// `at` is such a word.
    #[inline(always)]
    unsafe fn own_load(&self, at: *const u32) -> u32 {
        // SAFETY: one lane uses it.
        unsafe { at.read() }
    }
    /// Stores a word that only this executor's lanes use.
    ///
    /// # Safety
    /// `at` is such a word.
    #[inline(always)]
    unsafe fn own_store(&self, at: *mut u32, value: u32) {
        // SAFETY: one lane uses it.
        unsafe { at.write(value) }
    }
    /// Adds to a word that only this executor's lanes use, atomically among them; the old value.
    ///
    /// # Safety
    /// `at` is such a word.
    #[inline(always)]
    unsafe fn own_add(&self, at: *mut u32, value: u32) -> u32 {
        // SAFETY: one lane uses it.
        unsafe {
            let old = at.read();
            at.write(old.wrapping_add(value));
            old
        }
    }
    /// Sets bits of a word that only this executor's lanes use, atomically among them.
    ///
    /// # Safety
    /// `at` is such a word.
    #[inline(always)]
    unsafe fn own_or(&self, at: *mut u32, value: u32) {
        // SAFETY: one lane uses it.
        unsafe { at.write(at.read() | value) }
    }
    /// Relaxed load.
    ///
    /// # Safety
    /// `at` is a word shared by executors.
    unsafe fn load(&self, at: *const u32) -> u32;
    /// Relaxed store.
    ///
    /// # Safety
    /// `at` is a word shared by executors.
    unsafe fn store(&self, at: *mut u32, value: u32);
    /// Relaxed addition.
    ///
    /// # Safety
    /// `at` is a word shared by executors.
    unsafe fn add(&self, at: *mut u32, value: u32);
    /// Relaxed addition; the old value.
    ///
    /// # Safety
    /// `at` is a word shared by executors.
    unsafe fn claim(&self, at: *mut u32, value: u32) -> u32;
    /// Relaxed compare and exchange; the old value.
    ///
    /// # Safety
    /// `at` is a word shared by executors.
    unsafe fn compare_exchange(&self, at: *mut u32, expected: u32, new: u32) -> u32;
    /// Acquire fence.
    fn acquire(&self);
    /// Release fence.
    fn release(&self);
    /// Nanoseconds of a monotonic clock.
    fn now(&self) -> u64;
    /// Called between polls.
    fn pause(&self, polls: u32);
    /// This multiprocessor or core, for the black box.
    fn multiprocessor(&self) -> u32;
    /// Publishes a black box.
    ///
    /// # Safety
    /// `at` is the launch's black box, and this executor alone writes it.
    unsafe fn report(&self, at: *mut BlackBox, report: BlackBox);
}

/// A launch as one executor sees it: addresses of its counter bank and state.
#[derive(Clone, Copy)]
pub struct Run {
    /// First counter of this launch's bank; with schedulers, of tasks that workers have ended: see [`Launch::counters`].
    pub counters: *mut u32,
    /// First counter of the other bank, to be zeroed.
    pub idle: *mut u32,
    /// Words of a bank.
    pub words: u32,
    /// Plan state.
    pub state: *mut State,
    /// Overflow waits and signals.
    pub overflow: *const u32,
    /// How many launches have ended before this one, in 16 bits.
    pub number: u32,
    /// This worker.
    pub worker: u32,
    /// The launch itself, for what is seldom needed: a copy of it would cost registers.
    pub launch: *const Launch,
}

impl Run {
    /// Chooses the bank by the launch number in device memory, so that a captured launch can be replayed.
    ///
    /// # Safety
    /// `launch` describes live memory of a plan, and this executor has not left.
    #[inline(always)]
    pub unsafe fn new<M: Machine>(machine: &M, launch: &Launch, worker: u32) -> Run {
        let state = launch.state as *mut State;
        // SAFETY: the caller promises live memory; the number does not change before all executors have left.
        let number = unsafe { machine.load(&raw const (*state).left) } / LAUNCH;
        let bank = number & 1;
        let first = (launch.state + size_of::<State>() as u64) as *mut u32;
        let words = launch.counters as usize;
        Run {
            counters: first.wrapping_add(words * bank as usize),
            idle: first.wrapping_add(words * (1 - bank as usize)),
            words: launch.counters,
            state,
            overflow: launch.overflow as *const u32,
            number,
            worker,
            launch,
        }
    }

    /// The same launch, from what a caller knows of it: all but the other bank, which nobody zeroes who waits.
    ///
    /// # Safety
    /// As of [`Run::new`], which has found these.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub unsafe fn of(launch: *const Launch, state: *mut State, counters: *mut u32, number: u32, worker: u32) -> Run {
        // SAFETY: the caller promises a live launch.
        let overflow = unsafe { (*launch).overflow as *const u32 };
        Run { counters, idle: core::ptr::null_mut(), words: 0, state, overflow, number, worker, launch }
    }

    /// Which of the two banks is this launch's.
    #[inline(always)]
    pub fn bank(&self) -> u32 {
        self.number & 1
    }

    /// What this launch's elements carry.
    #[inline(always)]
    pub fn epoch(&self) -> u32 {
        maco_abi::epoch(self.number)
    }

    /// Whether the plan has been aborted.
    ///
    /// # Safety
    /// The plan's memory is live.
    #[inline(always)]
    pub unsafe fn aborted<M: Machine>(&self, machine: &M) -> bool {
        // SAFETY: the caller promises live memory.
        unsafe { machine.load(&raw const (*self.state).abort) != 0 }
    }

    /// Zeroes part `part` of `parts` of the other bank, for the next launch.
    ///
    /// # Safety
    /// The plan's memory is live; parts are given out once each.
    #[inline(always)]
    pub unsafe fn clear_idle<M: Machine>(&self, machine: &M, part: u32, parts: u32) {
        let mut word = part * machine.lanes() + machine.lane();
        while word < self.words {
            // SAFETY: inside the bank, which nobody uses in this launch.
            unsafe { machine.store(self.idle.add(word as usize), 0) };
            word += parts * machine.lanes();
        }
        if part == 0 && machine.lane() == 0 {
            // SAFETY: as above.
            unsafe { machine.store((&raw mut (*self.state).ticket).cast::<u32>().add(1 - self.bank() as usize), 0) };
        }
    }
}
