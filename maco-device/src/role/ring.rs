//! The ring of shared-memory pages between loader and consumers, and the map of shared memory.
//!
//! A stage is `n` consecutive pages, and the barriers of its first page serve it. Every page has barriers, so stages of different sizes may
//! follow one another without draining: the loader remembers where stages begin that it has not seen given back, and waits for those in the
//! pages that it takes. Both sides advance alike, so nothing is exchanged but arrivals.

use super::waits::WAITS;
use crate::abi::{CONSUMERS, PAGE_BYTES, PAGES, SLOTS, STAGING_BYTES};
use crate::hardware::{mbarrier, memory, special};

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
const NOTICES: u32 = BEGUN + WARPS * 4;
const CLAIMED: u32 = NOTICES + SLOTS * 4;
const CARRIED: u32 = (CLAIMED + CHUNKS / 2 * 4).next_multiple_of(8);
const COPIED: u32 = CARRIED + 20;
const END: u32 = COPIED + 4 * COPY as u32;
/// Words that say of what a copy is.
const COPY: usize = 4;
/// Words of [`crate::profile`].
const PROFILE: u32 = END.next_multiple_of(16);
/// A word per consumer warp, of SIMT bodies: see [`crate::Simt::fold`]; and as many more of [`crate::Warpgroup::fold`].
const TOTALS: u32 = PROFILE + crate::profile::BYTES;
/// Consumer warps.
pub const WARPS: u32 = CONSUMERS / 32;
/// Most schedulers of a launch: what a route numbers.
const MAX_SCHEDULERS: u32 = 256;
/// Chunks of epilogue staging: half of them for each consumer warpgroup, used round robin.
pub const CHUNKS: u32 = 4;
/// Bytes of a chunk: 64 × 64 two-byte elements.
pub const CHUNK_BYTES: u32 = STAGING_BYTES / CHUNKS;

const _: () = assert!(TOTALS.is_multiple_of(4) && TOTALS + 2 * WARPS * 4 <= crate::abi::SEED);
const _: () = assert!(SLOTS * WAITS * 8 <= MAX_SCHEDULERS && TAILS.is_multiple_of(8) && COUNTERS.is_multiple_of(8));

/// [`Arena::halt`]: consumers open no gate any more. See [`super::gate`].
pub const CLOSE: u32 = 1;
/// [`Arena::halt`]: no task is published any more.
pub const STOP: u32 = 2;
/// [`Arena::halt`]: no wait of this CTA waits any more.
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
pub struct Arena(pub u32);

impl Arena {
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
    /// The slot holds a task, which may not run yet (1 arrival: fetcher). See [`super::gate`].
    #[inline(always)]
    pub fn posted(self, slot: u32) -> u32 {
        self.base() + POSTED + slot * 8
    }
    /// A byte per scheduler: messages sent to it.
    #[inline(always)]
    pub fn tails(self) -> u32 {
        self.base() + TAILS
    }
    /// The task in the slot may run (1 arrival: controller, or fetcher when tasks come ready). Never before `posted`.
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
    fn full(self, page: u32) -> u32 {
        self.base() + FULL + page * 8
    }
    #[inline(always)]
    fn empty(self, page: u32) -> u32 {
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

    /// A published task in a word, for consumers: see [`super::notice`].
    #[inline(always)]
    pub fn notice(self, slot: u32) -> u32 {
        self.base() + NOTICES + slot * 4
    }
    /// What the task in a slot waits for: see [`super::waits`]. Only when no scheduler pushes tasks, who come ready: the messages to
    /// schedulers have the same place.
    #[inline(always)]
    pub fn waits(self, slot: u32) -> u32 {
        self.base() + TAILS + slot * WAITS * 8
    }
    /// What consumer warp `warp` has begun: see [`super::gate`].
    #[inline(always)]
    pub fn begun(self, warp: u32) -> u32 {
        self.base() + BEGUN + warp * 4
    }

    /// Which chunk of a sum made in parts the `n`-th chunks of both warpgroups are: a word per pair of buffers, which stays until they are
    /// free.
    #[inline(always)]
    pub fn claimed(self, n: u32) -> u32 {
        self.base() + CLAIMED + n % (CHUNKS / 2) * 4
    }

    /// Words of [`crate::profile`].
    #[inline(always)]
    pub fn profile(self) -> u32 {
        self.base() + PROFILE
    }

    /// Where this launch's counters lie; written before the first task is posted.
    #[inline(always)]
    pub fn set_counters(self, counters: *mut u32) {
        // SAFETY: words of the arena, which nobody reads before a task is posted.
        unsafe {
            memory::store_shared(self.base() + COUNTERS, counters as u64 as u32);
            memory::store_shared(self.base() + COUNTERS + 4, (counters as u64 >> 32) as u32);
        }
    }

    /// See [`Arena::set_counters`].
    #[inline(always)]
    pub fn counters(self) -> *mut u32 {
        // SAFETY: words of the arena.
        let (low, high) = unsafe { (memory::read_shared(self.base() + COUNTERS), memory::read_shared(self.base() + COUNTERS + 4)) };
        (low as u64 | (high as u64) << 32) as *mut u32
    }

    /// Which elements of this launch carry flags, and which, `epoch`; written before the first task is posted.
    #[inline(always)]
    pub fn set_carried(self, carried: u64, words: u64, bytes: u32, epoch: u32) {
        let at = self.base() + CARRIED;
        // SAFETY: words of the arena, which nobody reads before a task is posted.
        unsafe {
            memory::store_shared2(at, [carried as u32, (carried >> 32) as u32]);
            memory::store_shared2(at + 8, [words as u32, (words >> 32) as u32]);
            memory::store_shared(at + 16, bytes);
            memory::store_shared(self.base() + EPOCH, epoch);
        }
        // What the launch before has left is not this one's.
        self.set_copied([0; COPY]);
    }

    /// The word of the element at `at`, of two bytes, if it carries a flag; else null. Read anew: it would take registers that a product
    /// needs.
    #[inline(always)]
    pub fn word(self, at: u64) -> *mut u32 {
        let place = self.base() + CARRIED;
        let whole = |[low, high]: [u32; 2]| low as u64 | (high as u64) << 32;
        // SAFETY: words of the arena.
        let (away, bytes) = unsafe { (at.wrapping_sub(whole(memory::read_shared2(place))), memory::read_shared(place + 16)) };
        if away >= bytes as u64 {
            return core::ptr::null_mut();
        }
        // SAFETY: as above.
        (unsafe { whole(memory::read_shared2(place + 8)) } + 2 * away) as *mut u32
    }

    /// Whether `factor` is what the consumers have a copy of in the staging memory: see [`super::carried`].
    #[inline(always)]
    pub fn is_copied(self, factor: [u32; COPY]) -> bool {
        let at = self.base() + COPIED;
        // SAFETY: words of the arena; consumers write them between barriers of theirs.
        let other = |n: u32, word: u32| unsafe { memory::load_shared(at + n * 4) } ^ word;
        // Word by word: arrays that are compared are in local memory.
        let [a, b, c, d] = factor;
        other(0, a) | other(1, b) | other(2, c) | other(3, d) == 0
    }

    /// See [`Arena::is_copied`]. By one consumer thread, between two of their barriers.
    #[inline(always)]
    pub fn set_copied(self, factor: [u32; COPY]) {
        let at = self.base() + COPIED;
        // SAFETY: words of the arena, which nobody reads between those barriers.
        let put = |n: u32, word: u32| unsafe { memory::store_shared(at + n * 4, word) };
        put(0, factor[0]);
        put(1, factor[1]);
        put(2, factor[2]);
        put(3, factor[3]);
    }

    /// What is above the bits of this launch's elements ([`crate::abi::epoch`]).
    #[inline(always)]
    pub fn epoch(self) -> u32 {
        // SAFETY: a word of the arena.
        unsafe { memory::read_shared(self.base() + EPOCH) }
    }

    /// What warp `warp` of a SIMT body has to combine with the others.
    #[cfg(target_arch = "nvptx64")]
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
        // SAFETY: a word of the arena, which only grows.
        unsafe { memory::store_shared(self.base() + HALT, level) };
    }

    /// See [`Arena::halt`].
    #[inline(always)]
    pub fn halted(self) -> u32 {
        // SAFETY: a word of the arena.
        unsafe { memory::load_shared(self.base() + HALT) }
    }

    /// Waits for the phase of parity `parity` of a barrier of this arena; false if it was let through without it.
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
    /// As [`Arena::wait`].
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
    /// Called by those threads before any other uses the arena.
    #[inline(always)]
    pub unsafe fn init(self, thread: u32, threads: u32) {
        // SAFETY: the addresses are inside the arena; the caller promises that nobody uses them yet.
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
                crate::profile::clear(self);
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

/// One side's position in the ring.
#[derive(Clone, Copy)]
pub struct Ring {
    arena: Arena,
    next: u32,
    /// One register. Bits 0 to 11, one per page: parity of the next phase of stages that begin there. Loader only: bits 16 to 27, such a stage
    /// has not been seen given back; bit 31, announce more bytes than are copied; bit 12, the task that is loaded is not known to be published,
    /// bits 13 to 15 and 28, its slot and the parity there.
    parity: u32,
}

const LENT: u32 = 16;
const EXCESS: u32 = 1 << 31;
const PRECEDES: u32 = 1 << 12;
const SLOT: u32 = 13;
const SLOT_PARITY: u32 = 28;
const _: () = assert!(PAGES <= 12 && SLOTS <= 8 && LENT + PAGES <= SLOT_PARITY);

/// A stage: its first page.
#[derive(Clone, Copy)]
pub struct Stage(u32);

impl Stage {
    /// No stage.
    pub const NONE: Stage = Stage(u32::MAX);

    /// As a bit of a set of stages; no stage is none.
    #[inline(always)]
    pub fn bit(self) -> u32 {
        if self.is_some() { 1 << self.0 } else { 0 }
    }

    #[inline(always)]
    pub fn is_some(self) -> bool {
        self.0 != u32::MAX
    }
}

/// An empty stage that the loader fills: its shared address, and its `full` barrier.
#[derive(Clone, Copy)]
pub struct Room {
    pub shared: u32,
    pub full: u32,
}

/// Pages of a stage of an `I` × `J` contraction: 64 steps of two bytes.
pub const fn pages(i: usize, j: usize) -> u32 {
    ((i + j) as u32 * 128).div_ceil(PAGE_BYTES)
}

/// Pages of the scratch of a SIMT body, `bytes` bytes.
pub const fn scratch_pages(bytes: usize) -> u32 {
    (bytes as u32).div_ceil(PAGE_BYTES)
}

impl Ring {
    /// Of a thread that has no ring.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const NONE: Ring = Ring { arena: Arena(0), next: 0, parity: 0 };

    /// Whether there is one.
    #[inline(always)]
    pub fn is_some(self) -> bool {
        cfg!(target_arch = "nvptx64") || self.arena.0 != 0
    }

    #[inline(always)]
    pub fn new(arena: Arena) -> Ring {
        Ring { arena, next: 0, parity: 0 }
    }

    /// The position in two registers, as a function takes and returns it: a structure would travel through memory.
    #[inline(always)]
    pub fn packed(self) -> u64 {
        self.next as u64 | (self.parity as u64) << 32
    }

    /// From [`Ring::packed`].
    #[inline(always)]
    pub fn unpack(arena: Arena, packed: u64) -> Ring {
        Ring { arena, next: packed as u32, parity: (packed >> 32) as u32 }
    }

    /// The first page of the next stage of `pages`.
    #[inline(always)]
    fn place(&self, pages: u32) -> u32 {
        if self.next + pages > PAGES { 0 } else { self.next }
    }

    #[inline(always)]
    fn advance(&mut self, pages: u32) -> u32 {
        let first = self.place(pages);
        self.next = first + pages;
        first
    }

    /// Loader: the pages that the next stage of `pages` takes, with those at the end that it leaves out.
    #[inline(always)]
    pub fn span(&self, pages: u32) -> u32 {
        if self.next + pages > PAGES { PAGES - self.next + pages } else { pages }
    }

    /// Loader: where the next stage would begin if it fits before the end; for [`Ring::again`].
    #[inline(always)]
    pub fn position(&self) -> u32 {
        self.next
    }

    /// Loader: the stage of `pages` that was acquired when the ring was at `position`, which goes on to the next one.
    #[inline(always)]
    pub fn again(&self, position: &mut u32, pages: u32) -> Room {
        let mut then = Ring { next: *position, ..*self };
        let first = then.advance(pages);
        *position = then.next;
        Room { shared: self.arena.page(first), full: self.arena.full(first) }
    }

    /// Loader: a fault for tests, from the next stage on: announce more bytes than are copied, or not.
    #[inline(always)]
    pub fn exaggerate(&mut self, excess: bool) {
        self.parity = if excess { self.parity | EXCESS } else { self.parity & !EXCESS };
    }

    /// Loader: what is loaded from now on is for task `n`, which is not known to be published if it `precedes` its wait.
    #[inline(always)]
    pub fn precede(&mut self, n: u32, precedes: bool) {
        let (slot, parity) = place(n);
        let others = self.parity & !(PRECEDES | (SLOTS - 1) << SLOT | 1 << SLOT_PARITY);
        self.parity = others | slot << SLOT | parity << SLOT_PARITY | if precedes { PRECEDES } else { 0 };
    }

    /// Loader: waits until the stage that began at `page` is given back; false if it never will be, since the CTA stops.
    #[inline(always)]
    unsafe fn wait_empty(&self, page: u32) -> bool {
        let (at, parity) = (self.arena.empty(page), (self.parity >> page & 1) ^ 1);
        let mut precedes = self.parity & PRECEDES != 0;
        // SAFETY: initialised barriers. A fresh one counts as having completed the phase of parity 1.
        unsafe {
            while !mbarrier::try_wait(at, parity) {
                let halted = self.arena.halted();
                // Whoever stops the CTA has published before all that is ever begun. Consumers give no page back for the sake of a task
                // that is not, nor a stage that they were let through without.
                if halted >= FALL_THROUGH {
                    return false;
                }
                if halted >= STOP && precedes {
                    let (slot, parity) = (self.parity >> SLOT & (SLOTS - 1), self.parity >> SLOT_PARITY & 1);
                    if !mbarrier::test(self.arena.ready(slot), parity) {
                        return false;
                    }
                    // It stays so as long as the task is loaded; asking again would look like work, and the grace of others would not end.
                    precedes = false;
                }
            }
        }
        true
    }

    /// Loader: waits until a stage of `pages` is empty, announces `bytes` of copies, and has `copy` ask for them; false if the CTA no longer
    /// waits. A closure, since one that stops goes another way from where it stops: were there an answer to look at, each step of a product
    /// would make it and look at it, and steps are bound by the instructions of this thread (docs/internals/gemm.md).
    ///
    /// # Safety
    /// Called by the loader thread, in the same order as the consumers call [`Ring::wait_full`].
    #[inline(always)]
    pub unsafe fn acquire(&mut self, pages: u32, bytes: u32, copy: impl FnOnce(Room)) -> bool {
        let first = self.advance(pages);
        // Stages follow their like, nearly always: then there is one, which began where this one does. One that began before these pages has
        // been waited for with the pages where it did.
        let others = self.parity >> LENT & ((1 << pages) - 2) << first;
        if others != 0 {
            // SAFETY: the loader thread.
            if !unsafe { self.wait_others(special::opaque(others)) } {
                return false;
            }
        }
        // SAFETY: as above.
        if !unsafe { self.wait_empty(first) } {
            return false;
        }
        self.parity = (self.parity | 1 << (first + LENT)) ^ 1 << first;
        let full = self.arena.full(first);
        let bytes = if self.parity & EXCESS != 0 { bytes + 16 } else { bytes };
        // SAFETY: an initialised barrier.
        unsafe { mbarrier::arrive_expect(full, bytes) };
        copy(Room { shared: self.arena.page(first), full });
        true
    }

    /// Loader: waits until the stages `others` are given back.
    #[inline(always)]
    unsafe fn wait_others(&mut self, mut others: u32) -> bool {
        self.parity &= !(others << LENT);
        while others != 0 {
            // SAFETY: passed on from the caller.
            if !unsafe { self.wait_empty(others.trailing_zeros()) } {
                return false;
            }
            others &= others - 1;
        }
        true
    }

    /// Loader: waits until every copy has landed, so that none outlives the CTA. If fewer bytes come than were announced, a
    /// millisecond has to do.
    ///
    /// # Safety
    /// Called by the loader thread after its last copy.
    #[inline(always)]
    pub unsafe fn drain(&self) {
        const LONG: u64 = 1_000_000;
        let begin = special::global_timer();
        let mut page = 0;
        while page < PAGES {
            // The last phase of the page had the opposite of the next one's parity; a fresh barrier passes.
            let parity = (self.parity >> page & 1) ^ 1;
            // SAFETY: an initialised barrier.
            while !unsafe { mbarrier::try_wait(self.arena.full(page), parity) } && special::global_timer() - begin < LONG {}
            page += 1;
        }
    }

    /// Consumer: whether the next stage of `pages` is full.
    ///
    /// # Safety
    /// Called by consumer threads between two [`Ring::wait_full`].
    #[inline(always)]
    pub unsafe fn is_full(&self, pages: u32) -> bool {
        let first = self.place(pages);
        // SAFETY: an initialised barrier.
        unsafe { mbarrier::test(self.arena.full(first), self.parity >> first & 1) }
    }

    /// Consumer: takes the next stage of `pages`, which it knows to be full; its shared address.
    #[inline(always)]
    pub fn take(&mut self, pages: u32) -> (Stage, u32) {
        let first = self.advance(pages);
        self.parity ^= 1 << first;
        (Stage(first), self.arena.page(first))
    }

    /// Consumer: waits for the next stage of `pages`; its shared address. [`Stage::NONE`] if this thread was let through, since the CTA no
    /// longer waits: such a stage is not given back, since its barrier may expect copies still.
    ///
    /// # Safety
    /// Called by every consumer thread, in the same order as the loader calls [`Ring::acquire`].
    #[inline(always)]
    pub unsafe fn wait_full(&mut self, pages: u32) -> (Stage, u32) {
        let first = self.advance(pages);
        // SAFETY: an initialised barrier.
        let full = unsafe { self.arena.wait(self.arena.full(first), self.parity >> first & 1) };
        // Of a phase that is not complete nobody waits for the next one: it would seem to be over.
        self.parity ^= (full as u32) << first;
        (if full { Stage(first) } else { Stage::NONE }, self.arena.page(first))
    }

    /// Consumer: gives stages back, the [bits](Stage::bit) of `stages`. The lanes of every consumer warp that arrive.
    ///
    /// # Safety
    /// The warp no longer reads the stages.
    #[inline(always)]
    pub unsafe fn release_all(&self, mut stages: u32) {
        while stages != 0 {
            // SAFETY: an initialised barrier.
            unsafe { mbarrier::arrive(self.arena.empty(stages.trailing_zeros())) };
            stages &= stages - 1;
        }
    }

    /// Consumer: gives a stage back, if there is one. The lanes of every consumer warp that arrive.
    ///
    /// # Safety
    /// The warp no longer reads the stage.
    #[inline(always)]
    pub unsafe fn release(&self, stage: Stage) {
        if stage.is_some() {
            // SAFETY: an initialised barrier.
            unsafe { mbarrier::arrive(self.arena.empty(stage.0)) };
        }
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::hardware::tma;
    use crate::model::{Modelled, Shared, Surroundings, special};

    struct Nobody;

    impl Surroundings for Nobody {
        fn now(&self) -> u64 {
            1
        }
        fn working(&self, _: bool) {}
    }

    #[repr(align(16))]
    struct Aligned([u8; 16]);

    static FROM: Aligned = Aligned([7; 16]);

    /// Stages of all sizes behind each other: none is handed out before every consumer has given back whatever lay in its pages.
    #[test]
    fn stages_of_different_sizes_follow_one_another() {
        const STAGES: usize = 60;
        for seed in 1..=4u32 {
            let sizes: Vec<u32> =
                (0..STAGES as u32).map(|n| (n.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503)) >> 13) % 5 + 1).collect();
            let shared = Shared::new();
            let part = |number, warps, body: &dyn Fn(Arena)| {
                Modelled::new(&shared, &Nobody, 0, number, warps, 0).enter(|| body(Arena(special::shared_base())));
            };
            // SAFETY: nobody else uses the arena yet.
            part(0, 1, &|arena| unsafe { arena.init(0, 1) });
            // Consumers that still use a page.
            let users: [AtomicU32; PAGES as usize] = Default::default();
            // Those that used one when it was handed out again: nobody panics while others wait.
            let in_use = AtomicU32::new(0);
            let of = |arena: Arena, at: u32, pages: u32| {
                let first = (at - arena.page(0)) / PAGE_BYTES;
                &users[first as usize..(first + pages) as usize]
            };
            let loader = |arena: Arena| {
                let mut ring = Ring::new(arena);
                for &pages in &sizes {
                    let copy = |room: Room| {
                        for page in of(arena, room.shared, pages) {
                            in_use.fetch_add(page.swap(2, Ordering::AcqRel), Ordering::Relaxed);
                        }
                        // SAFETY: 16 bytes at such a boundary, and a stage that expects them.
                        unsafe { tma::row(room.shared, (&raw const FROM.0) as u64, 16, room.full) };
                    };
                    // SAFETY: the loader, in the order of the consumers; nobody stops the CTA.
                    assert!(unsafe { ring.acquire(pages, 16, copy) });
                }
                // SAFETY: behind the last copy.
                unsafe { ring.drain() };
            };
            let consumer = |arena: Arena| {
                let mut ring = Ring::new(arena);
                for &pages in &sizes {
                    // SAFETY: both consumers, in the order of the loader; nobody stops the CTA.
                    let (stage, at) = unsafe { ring.wait_full(pages) };
                    (0..(pages ^ seed) % 4).for_each(|_| std::thread::yield_now());
                    for page in of(arena, at, pages) {
                        page.fetch_sub(1, Ordering::AcqRel);
                    }
                    // SAFETY: this consumer uses it no more.
                    unsafe { ring.release(stage) };
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| part(0, 1, &loader));
                scope.spawn(|| part(128, 4, &consumer));
                scope.spawn(|| part(256, 4, &consumer));
            });
            assert_eq!(in_use.into_inner(), 0, "seed {seed}");
        }
    }
}
