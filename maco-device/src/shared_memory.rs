//! The layout of a CTA's shared memory: pages, staging, slots, barriers and words; how they are initialised, and how waits end when the CTA stops.
//!
//! What is in a stage, and which role has it, does not belong here: see `sync/ring.rs`.

use crate::hardware::{mbarrier, memory, special};
use crate::profile::words;
use maco_abi::{CONSUMERS, MAX_SCHEDULERS, PAGE_BYTES, PAGES, SLOTS, STAGING_BYTES};

const STAGING: u32 = PAGES * PAGE_BYTES;
const CONTROL: u32 = STAGING + STAGING_BYTES;
const SLOT_BYTES: u32 = 256;
const READY: u32 = CONTROL + SLOTS * SLOT_BYTES;
const DONE: u32 = READY + SLOTS * 8;
const VACANT: u32 = DONE + SLOTS * 8;
const POSTED: u32 = VACANT + SLOTS * 8;
const FULL: u32 = POSTED + SLOTS * 8;
const EMPTY: u32 = FULL + PAGES * 8;
const STAGED: u32 = EMPTY + PAGES * 8;
const FREE: u32 = STAGED + CHUNKS * 8;
const TAILS: u32 = FREE + CHUNKS * 8;
const HALT: u32 = TAILS + MAX_SCHEDULERS;
const EPOCH: u32 = HALT + 4;
const COUNTERS: u32 = EPOCH + 4;
const BEGUN: u32 = COUNTERS + 8;
const READY_MAILBOXES: u32 = BEGUN + WARPS * 4;
const OWNERS: u32 = READY_MAILBOXES + SLOTS * 4;
const IN_BAND_FLAGS: u32 = (OWNERS + CHUNKS / 2 * 4).next_multiple_of(8);
const COPIED: u32 = IN_BAND_FLAGS + 20;
const END: u32 = COPIED + 4 * COPY as u32;
/// Words that say of what a copy is.
const COPY: usize = 4;
/// Words of [`crate::profile`].
const PROFILE: u32 = END.next_multiple_of(16);
/// A word per consumer warp, of SIMT bodies: see [`crate::Simt::fold`]; and as many more of [`crate::Warpgroup::fold`].
const TOTALS: u32 = PROFILE + words::BYTES;
/// Waits beside a slot: see [`crate::sync::waits`].
pub const WAITS: u32 = 4;
/// Consumer warps.
pub const WARPS: u32 = CONSUMERS / 32;
/// Chunks of epilogue staging: half of them for each consumer warpgroup, used round robin.
pub const CHUNKS: u32 = 4;
/// Bytes of a chunk: 64 × 64 two-byte elements.
pub const CHUNK_BYTES: u32 = STAGING_BYTES / CHUNKS;

const _: () = assert!(TOTALS.is_multiple_of(4) && TOTALS + 2 * WARPS * 4 <= maco_abi::DELAY_SEED);
const _: () = assert!(PROFILE <= maco_abi::DELAY_COUNTS && maco_abi::DELAY_COUNTS + maco_abi::THREADS / 8 <= TOTALS);
const _: () = assert!(SLOTS * WAITS * 8 <= MAX_SCHEDULERS && TAILS.is_multiple_of(8) && COUNTERS.is_multiple_of(8));

/// Of [`SharedMemory::said`]: the warp has begun with the task.
pub const RUNNING: u32 = 1 << 30;
/// Of [`SharedMemory::said`]: it waits for the task's inputs, and reports itself if they do not come.
pub const WAITING: u32 = 1 << 31;
/// A word per consumer warp where a slot has its waits.
const _: () = assert!(WAITS * 8 >= WARPS * 4);
/// [`SharedMemory::halt`]: consumers open no gate any more. See [`crate::sync::gate`].
pub const CLOSE: u32 = 1;
/// [`SharedMemory::halt`]: no task is published any more.
pub const STOP: u32 = 2;
/// [`SharedMemory::halt`]: no wait of this CTA waits any more.
pub const FALL_THROUGH: u32 = 3;

/// Arrivals that a warp makes at once. One, behind the warp's barrier; but NVIDIA's racecheck follows an arrival only to what the
/// arriving thread itself has accessed (docs/internals/sanitizer.md), so code that is built for it arrives by every lane.
pub const ARRIVALS: u32 = if cfg!(maco_every_lane) { 32 } else { 1 };

/// Whether this lane arrives for its warp: see [`ARRIVALS`].
#[inline(always)]
pub fn arrives(lane: u32) -> bool {
    ARRIVALS > 1 || lane == 0
}

/// The warp arrives, having met; `lane` is this lane.
///
/// # Safety
/// `at` is an initialised mbarrier that counts [`ARRIVALS`] for the warp, which is converged.
#[inline(always)]
pub unsafe fn arrive(at: u32, lane: u32) {
    if arrives(lane) {
        // SAFETY: passed on from the caller.
        unsafe { mbarrier::arrive(at) };
    }
}

/// Addresses in shared memory.
#[derive(Clone, Copy)]
pub struct SharedMemory(pub u32);

impl SharedMemory {
    /// See [`special::opaque`].
    #[inline(always)]
    fn base(self) -> u32 {
        special::opaque(self.0)
    }
    /// Ring page.
    #[inline(always)]
    pub fn page(self, page: u32) -> u32 {
        self.base() + page * PAGE_BYTES
    }
    /// Staging chunk.
    #[inline(always)]
    pub fn chunk(self, chunk: u32) -> u32 {
        self.base() + STAGING + chunk * CHUNK_BYTES
    }
    /// Task slot.
    #[inline(always)]
    pub fn slot(self, slot: u32) -> u32 {
        self.base() + CONTROL + slot * SLOT_BYTES
    }
    /// The number of the task slot at `slot`.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub fn number(self, slot: u32) -> u32 {
        (slot - self.slot(0)) / SLOT_BYTES
    }
    /// The slot holds a task, which may not run yet (1 arrival: prefetcher). See [`crate::sync::gate`].
    #[inline(always)]
    pub fn posted(self, slot: u32) -> u32 {
        self.base() + POSTED + slot * 8
    }
    /// A byte per scheduler: messages sent to it.
    #[inline(always)]
    pub fn tails(self) -> u32 {
        self.base() + TAILS
    }
    /// The task in the slot may run (1 arrival: dependency poller, or prefetcher when tasks come ready). Never before `posted`.
    #[inline(always)]
    pub fn ready(self, slot: u32) -> u32 {
        self.base() + READY + slot * 8
    }
    /// Consumers have finished the task (8 arrivals: one per warp).
    #[inline(always)]
    pub fn done(self, slot: u32) -> u32 {
        self.base() + DONE + slot * 8
    }
    /// The slot may be refilled (2 arrivals: loader, store).
    #[inline(always)]
    pub fn vacant(self, slot: u32) -> u32 {
        self.base() + VACANT + slot * 8
    }
    #[inline(always)]
    pub(crate) fn full(self, page: u32) -> u32 {
        self.base() + FULL + page * 8
    }
    #[inline(always)]
    pub(crate) fn empty(self, page: u32) -> u32 {
        self.base() + EMPTY + page * 8
    }
    /// The chunk holds results (4 arrivals: one per warp of its warpgroup).
    #[inline(always)]
    pub fn staged(self, chunk: u32) -> u32 {
        self.base() + STAGED + chunk * 8
    }
    /// The chunk may be refilled (1 arrival: store).
    #[inline(always)]
    pub fn free(self, chunk: u32) -> u32 {
        self.base() + FREE + chunk * 8
    }

    /// A published task in a word, for consumers: see [`crate::sync::ready_mailbox`].
    #[inline(always)]
    pub fn ready_mailbox(self, slot: u32) -> u32 {
        self.base() + READY_MAILBOXES + slot * 4
    }
    /// What the task in a slot waits for: see [`crate::sync::waits`]. Only when no scheduler pushes tasks, who come ready: the messages to
    /// schedulers have the same place.
    #[inline(always)]
    pub fn waits(self, slot: u32) -> u32 {
        self.base() + TAILS + slot * WAITS * 8
    }
    /// Of a run in a slot, once it is published: which of its tasks consumer warp `warp` is at, and [`RUNNING`] or [`WAITING`]. A run has no waits, so what is in
    /// the word before the warp writes to it has neither bit alone.
    #[inline(always)]
    pub fn said(self, slot: u32, warp: u32) -> u32 {
        self.waits(slot) + warp * 4
    }
    /// What consumer warp `warp` has begun: see [`crate::sync::gate`].
    #[inline(always)]
    pub fn begun(self, warp: u32) -> u32 {
        self.base() + BEGUN + warp * 4
    }

    /// The owners whose chunks of a sum made in parts this CTA adds up, of a task whose first chunks are the `n`-th of both warpgroups: a word per
    /// pair of buffers, which stays until they are free. See [`crate::data::split_k`].
    #[inline(always)]
    pub fn owners(self, n: u32) -> u32 {
        self.base() + OWNERS + n % (CHUNKS / 2) * 4
    }

    /// Words of [`crate::profile`]. There is no room for more.
    #[inline(always)]
    pub fn profile(self) -> u32 {
        self.base() + PROFILE
    }

    /// Where this launch's counters lie; written before the first task is posted.
    #[inline(always)]
    pub fn set_counters(self, counters: *mut u32) {
        // SAFETY: words of shared memory, which nobody reads before a task is posted.
        unsafe {
            memory::store_shared(self.base() + COUNTERS, counters as u64 as u32);
            memory::store_shared(self.base() + COUNTERS + 4, (counters as u64 >> 32) as u32);
        }
    }

    /// See [`SharedMemory::set_counters`].
    #[inline(always)]
    pub fn counters(self) -> *mut u32 {
        // SAFETY: words of shared memory.
        let (low, high) = unsafe { (memory::read_shared(self.base() + COUNTERS), memory::read_shared(self.base() + COUNTERS + 4)) };
        (low as u64 | (high as u64) << 32) as *mut u32
    }

    /// Which elements of this launch carry flags, and which, `epoch`; written before the first task is posted.
    #[inline(always)]
    pub fn set_in_band(self, in_band: u64, words: u64, bytes: u32, epoch: u32) {
        let at = self.base() + IN_BAND_FLAGS;
        // SAFETY: words of shared memory, which nobody reads before a task is posted.
        unsafe {
            memory::store_shared2(at, [in_band as u32, (in_band >> 32) as u32]);
            memory::store_shared2(at + 8, [words as u32, (words >> 32) as u32]);
            memory::store_shared(at + 16, bytes);
            memory::store_shared(self.base() + EPOCH, epoch);
        }
        // What the launch before has left is not this one's.
        self.set_copied([0; COPY]);
    }

    /// The word of the element at `at`, of two bytes, if it carries a flag; else null. Read anew: it would take registers that a GEMM
    /// needs.
    #[inline(always)]
    pub fn word(self, at: u64) -> *mut u32 {
        let place = self.base() + IN_BAND_FLAGS;
        let whole = |[low, high]: [u32; 2]| low as u64 | (high as u64) << 32;
        // SAFETY: words of shared memory.
        let (away, bytes) = unsafe { (at.wrapping_sub(whole(memory::read_shared2(place))), memory::read_shared(place + 16)) };
        if away >= bytes as u64 {
            return core::ptr::null_mut();
        }
        // SAFETY: as above.
        (unsafe { whole(memory::read_shared2(place + 8)) } + 2 * away) as *mut u32
    }

    /// Whether the consumers have the copy of operand A that `key` stands for in the staging memory: see [`crate::operations::in_band_flags`].
    #[inline(always)]
    pub fn is_copied(self, key: [u32; COPY]) -> bool {
        let at = self.base() + COPIED;
        // SAFETY: words of shared memory; consumers write them between barriers of theirs.
        let other = |n: u32, word: u32| unsafe { memory::load_shared(at + n * 4) } ^ word;
        // Word by word: arrays that are compared are in local memory.
        let [a, b, c, d] = key;
        other(0, a) | other(1, b) | other(2, c) | other(3, d) == 0
    }

    /// See [`SharedMemory::is_copied`]. By one consumer thread, between two of their barriers.
    #[inline(always)]
    pub fn set_copied(self, key: [u32; COPY]) {
        let at = self.base() + COPIED;
        // SAFETY: words of shared memory, which nobody reads between those barriers.
        let put = |n: u32, word: u32| unsafe { memory::store_shared(at + n * 4, word) };
        put(0, key[0]);
        put(1, key[1]);
        put(2, key[2]);
        put(3, key[3]);
    }

    /// What is above the bits of this launch's elements ([`maco_abi::epoch`]).
    #[inline(always)]
    pub fn epoch(self) -> u32 {
        // SAFETY: a word of shared memory.
        unsafe { memory::read_shared(self.base() + EPOCH) }
    }

    /// What warp `warp` of a SIMT body has to combine with the others.
    #[inline(always)]
    pub fn total(self, warp: u32) -> u32 {
        self.base() + TOTALS + warp * 4
    }

    /// What it has to combine with the others of its warpgroup, which may be ahead of the other one.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub fn group_total(self, warp: u32) -> u32 {
        self.base() + TOTALS + (WARPS + warp) * 4
    }

    /// Stops the CTA: `level` is [`CLOSE`], [`STOP`] or [`FALL_THROUGH`].
    #[inline(always)]
    pub fn halt(self, level: u32) {
        // SAFETY: a word of shared memory, which only grows. Released: who sees it sees what was published before.
        unsafe { memory::store_release_shared(self.base() + HALT, level) };
    }

    /// See [`SharedMemory::halt`].
    #[inline(always)]
    pub fn halted(self) -> u32 {
        // SAFETY: a word of shared memory.
        unsafe { memory::load_acquire_shared(self.base() + HALT) }
    }

    /// Where the word of [`SharedMemory::halt`] is.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn halt_word(self) -> u32 {
        self.base() + HALT
    }

    /// Waits for the phase of parity `parity` of a barrier of this shared memory; false if it was let through without it.
    ///
    /// # Safety
    /// `at` is such a barrier.
    #[inline(always)]
    pub unsafe fn wait(self, at: u32, parity: u32) -> bool {
        // SAFETY: passed on from the caller.
        while !unsafe { mbarrier::try_wait(at, parity) } {
            if self.halted() >= FALL_THROUGH {
                return false;
            }
        }
        true
    }

    /// The same, but false as soon as the CTA stops, unless the phase is complete by then: all who wait agree, because whoever stops
    /// the CTA has arrived before.
    ///
    /// # Safety
    /// As [`SharedMemory::wait`].
    #[inline(always)]
    pub unsafe fn wait_unless_stopped(self, at: u32, parity: u32) -> bool {
        // SAFETY: passed on from the caller.
        unsafe {
            while !mbarrier::try_wait(at, parity) {
                if self.halted() >= STOP {
                    return mbarrier::test(at, parity);
                }
            }
        }
        true
    }

    /// Initialises every barrier and every word: thread `thread` of `threads`, its share. Barriers by the first one: their addresses are constants, one
    /// instruction each. Shared among lanes, or lanes of several warps, they take longer: of addresses that are not, ptxas does not see that one
    /// thread initialises one, and makes a loop over threads (docs/internals/dispatch.md).
    ///
    /// # Safety
    /// Called by those threads before any other uses shared memory.
    #[inline(always)]
    pub unsafe fn init(self, thread: u32, threads: u32) {
        // SAFETY: the addresses are inside shared memory; the caller promises that nobody uses them yet.
        unsafe {
            if thread == 0 {
                let mut i = 0;
                while i < SLOTS {
                    mbarrier::init(self.ready(i), ARRIVALS);
                    mbarrier::init(self.done(i), 8 * ARRIVALS);
                    mbarrier::init(self.vacant(i), 1 + ARRIVALS);
                    mbarrier::init(self.posted(i), ARRIVALS);
                    i += 1;
                }
                i = 0;
                while i < PAGES {
                    mbarrier::init(self.full(i), 1);
                    mbarrier::init(self.empty(i), 8 * ARRIVALS);
                    i += 1;
                }
                i = 0;
                while i < CHUNKS {
                    mbarrier::init(self.staged(i), 4 * ARRIVALS);
                    mbarrier::init(self.free(i), 1);
                    i += 1;
                }
                // Nothing is recorded until the launch begins.
                if words::ON {
                    let mut word = 0;
                    while word < words::BYTES {
                        memory::store_shared(self.profile() + word, 0);
                        word += 4;
                    }
                }
                crate::hardware::fence::mbarrier_init();
            }
            // The tails and, behind them, the halt word, what the warps have begun, and notices.
            let mut word = TAILS + 4 * thread;
            while word < END {
                memory::store_shared(self.base() + word, 0);
                word += 4 * threads;
            }
        }
    }
}

/// Slot and parity of a worker's `n`-th task.
#[inline(always)]
pub fn place(n: u32) -> (u32, u32) {
    (n % SLOTS, (n / SLOTS) & 1)
}
