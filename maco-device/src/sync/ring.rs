//! The ring of shared-memory pages between loader and consumers.
//!
//! A stage is `n` consecutive pages, and uses the barriers of its first page. Every page has barriers, so stages of different sizes may follow one another without
//! draining: the loader remembers the first pages of stages that it has not seen released, and waits for those among the pages that it takes. Both sides advance
//! alike, so they exchange nothing but arrivals.

use crate::hardware::{mbarrier, special, warp};
use crate::shared_memory::{ARRIVALS, FALL_THROUGH, STOP, SharedMemory, arrives, place};
use maco_abi::{PAGE_BYTES, PAGES, ROW_BYTES, SLOTS};

/// One side's position in the ring.
#[derive(Clone, Copy)]
pub struct Ring {
    smem: SharedMemory,
    next: u32,
    /// One register. Bits 0 to 11, one per page: parity of the next phase of stages that begin there. Loader only: bits 16 to 27, such a stage
    /// has not been seen given back; bit 31, announce more bytes than are copied; bit 12, the task that is loaded is not known to be published,
    /// bits 13 to 15 and 28, its slot and the parity there.
    parity: u32,
}

/// Pages of streamed weights that are asked for and have not come, at most: see [`Ring::throttle`]. Those of the whole ring, of all multiprocessors, are
/// what memory needs 6 µs for; with fewer, GEMVs that wait for each other are faster (docs/internals/gemv.md).
const UNDER_WAY: u32 = 4;
/// The same, if what began [`ROOM`] pages behind the next stage's first one has not been given back: then consumers wait for something else than weights,
/// and what they wait for is not to stand behind these.
const FULL_UNDER_WAY: u32 = 2;
/// See [`FULL_UNDER_WAY`].
const ROOM: u32 = 4;
const _: () = assert!(FULL_UNDER_WAY <= UNDER_WAY && UNDER_WAY <= PAGES && ROOM < PAGES);

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

/// Pages of a stage of a contraction that keeps so many rows and columns of its operands, of 128 bytes each.
#[inline(always)]
pub const fn pages(kept: u32) -> u32 {
    (kept * ROW_BYTES).div_ceil(PAGE_BYTES)
}

/// Pages of the scratch of a SIMT body, `bytes` bytes.
pub const fn scratch_pages(bytes: usize) -> u32 {
    (bytes as u32).div_ceil(PAGE_BYTES)
}

impl Ring {
    /// Of a thread that has no ring.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const NONE: Ring = Ring { smem: SharedMemory(0), next: 0, parity: 0 };

    /// Whether there is one.
    #[inline(always)]
    pub fn is_some(self) -> bool {
        cfg!(target_arch = "nvptx64") || self.smem.0 != 0
    }

    #[inline(always)]
    pub fn new(smem: SharedMemory) -> Ring {
        Ring { smem, next: 0, parity: 0 }
    }

    /// The position in two registers, as a function takes and returns it: a structure would travel through memory.
    #[inline(always)]
    pub fn packed(self) -> u64 {
        self.next as u64 | (self.parity as u64) << 32
    }

    /// From [`Ring::packed`], or [`Ring::packed_stage`].
    #[inline(always)]
    pub fn unpack(smem: SharedMemory, packed: u64) -> Ring {
        Ring { smem, next: packed as u32 & 0xff, parity: (packed >> 32) as u32 }
    }

    /// The same, with a stage of `pages` pages that was taken last.
    #[inline(always)]
    pub fn packed_stage(self, stage: Stage, pages: u32) -> u64 {
        self.packed() | ((self.next - pages) as u64) << 8 | (!stage.is_some() as u64) << 16
    }

    /// The stage of [`Ring::packed_stage`], and its shared address.
    #[inline(always)]
    pub fn unpack_stage(smem: SharedMemory, packed: u64) -> (Stage, u32) {
        let page = packed as u32 >> 8 & 0xff;
        (if packed as u32 >> 16 & 1 == 0 { Stage(page) } else { Stage::NONE }, smem.page(page))
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
        Room { shared: self.smem.page(first), full: self.smem.full(first) }
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
        let (at, parity) = (self.smem.empty(page), (self.parity >> page & 1) ^ 1);
        let mut precedes = self.parity & PRECEDES != 0;
        // SAFETY: initialised barriers. A fresh one counts as having completed the phase of parity 1.
        unsafe {
            while !mbarrier::try_wait(at, parity) {
                let halted = self.smem.halted();
                // Whoever stops the CTA has published before all that is ever begun. Consumers give no page back for the sake of a task
                // that is not, nor a stage that they were let through without.
                if halted >= FALL_THROUGH {
                    return false;
                }
                if halted >= STOP && precedes {
                    let (slot, parity) = (self.parity >> SLOT & (SLOTS - 1), self.parity >> SLOT_PARITY & 1);
                    if !mbarrier::test(self.smem.ready(slot), parity) {
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
    /// waits. A closure, since one that stops goes another way from where it stops: were there an answer to look at, each step of a GEMM
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
        let full = self.smem.full(first);
        let bytes = if self.parity & EXCESS != 0 { bytes + 16 } else { bytes };
        // SAFETY: an initialised barrier.
        unsafe { mbarrier::arrive_expect(full, bytes) };
        copy(Room { shared: self.smem.page(first), full });
        true
    }

    /// Loader: waits until of the stages behind each other, of which the next one will have `pages`, at most as many are on their way as
    /// [`UNDER_WAY`] pages hold, that one among them, or [`FULL_UNDER_WAY`] if the ring is nearly full. What has come stays in the ring. Whatever began in
    /// those places last is waited for, or nothing if nothing did: behind stages of another kind, that is not a limit. It comes, unless the CTA no longer
    /// waits: its copies have been asked for.
    ///
    /// # Safety
    /// Called by the loader thread before [`Ring::acquire`], with no stage that is asked for in part.
    #[inline(always)]
    pub unsafe fn throttle(&self, pages: u32) {
        let first = self.place(pages);
        let before = |pages: u32| if first >= pages { first - pages } else { first + PAGES - pages };
        let ahead = if first + pages + ROOM > PAGES { 0 } else { first + ROOM };
        // SAFETY: (of all) an initialised barrier of shared memory; the last phase of its page had the opposite of the next one's parity.
        unsafe {
            let wait = |page: u32| self.smem.wait(self.smem.full(page), (self.parity >> page & 1) ^ 1);
            wait(before(UNDER_WAY));
            if !mbarrier::test(self.smem.empty(ahead), (self.parity >> ahead & 1) ^ 1) {
                wait(before(FULL_UNDER_WAY));
            }
        }
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
            while !unsafe { mbarrier::try_wait(self.smem.full(page), parity) } && special::global_timer() - begin < LONG {}
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
        unsafe { mbarrier::test(self.smem.full(first), self.parity >> first & 1) }
    }

    /// Consumer: takes the next stage of `pages`, which it knows to be full; its shared address.
    #[inline(always)]
    pub fn take(&mut self, pages: u32) -> (Stage, u32) {
        let first = self.advance(pages);
        self.parity ^= 1 << first;
        (Stage(first), self.smem.page(first))
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
        let full = unsafe { self.smem.wait(self.smem.full(first), self.parity >> first & 1) };
        // Of a phase that is not complete nobody waits for the next one: it would seem to be over.
        self.parity ^= (full as u32) << first;
        (if full { Stage(first) } else { Stage::NONE }, self.smem.page(first))
    }

    /// Consumer: gives stages back, the [bits](Stage::bit) of `stages`. All lanes of every consumer warp; this is lane `lane`.
    ///
    /// # Safety
    /// The warp no longer reads the stages.
    #[inline(always)]
    pub unsafe fn release_all(&self, mut stages: u32, lane: u32) {
        if const { ARRIVALS == 1 && warp::LANES >= PAGES } {
            // A lane for each page: a loop of one lane would keep the others waiting.
            if stages >> lane & 1 == 1 {
                // SAFETY: an initialised barrier.
                unsafe { mbarrier::arrive(self.smem.empty(lane)) };
            }
            return;
        }
        while arrives(lane) && stages != 0 {
            // SAFETY: an initialised barrier.
            unsafe { mbarrier::arrive(self.smem.empty(stages.trailing_zeros())) };
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
            unsafe { mbarrier::arrive(self.smem.empty(stage.0)) };
        }
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::hardware::tma;
    use crate::model::{Modelled, Nobody, Shared, special};

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
            let part = |number, warps, body: &dyn Fn(SharedMemory)| {
                Modelled::new(&shared, &Nobody, 0, number, warps, 0).enter(|| body(SharedMemory(special::shared_base())));
            };
            // SAFETY: nobody else uses shared memory yet.
            part(0, 1, &|smem| unsafe { smem.init(0, 1) });
            // Consumers that still use a page.
            let users: [AtomicU32; PAGES as usize] = Default::default();
            // Those that used one when it was handed out again: nobody panics while others wait.
            let in_use = AtomicU32::new(0);
            let of = |smem: SharedMemory, at: u32, pages: u32| {
                let first = (at - smem.page(0)) / PAGE_BYTES;
                &users[first as usize..(first + pages) as usize]
            };
            let loader = |smem: SharedMemory| {
                let mut ring = Ring::new(smem);
                for &pages in &sizes {
                    let copy = |room: Room| {
                        for page in of(smem, room.shared, pages) {
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
            let consumer = |smem: SharedMemory| {
                let mut ring = Ring::new(smem);
                for &pages in &sizes {
                    // SAFETY: both consumers, in the order of the loader; nobody stops the CTA.
                    let (stage, at) = unsafe { ring.wait_full(pages) };
                    (0..(pages ^ seed) % 4).for_each(|_| std::thread::yield_now());
                    for page in of(smem, at, pages) {
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
