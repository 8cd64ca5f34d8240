//! Split-K: several tasks each sum a part of K for one tile, and the fix-up adds the parts.
//!
//! How a role writes and adds partial sums does not belong here. Each of the first parts owns some chunks of the tile. It keeps these in registers, writes all
//! others to memory of the plan, and arrives. When all parts have arrived, each owner adds up its chunks. An owner that does not see that in time writes its own
//! chunks too, and leaves them to the last part that arrives. So no part waits without end. Each chunk is added up once, in an order that does not depend on who
//! does it: the owner's part first, then the others by number.

use crate::hardware::{fence, gpu_scope};
pub use crate::protocol::INCOMPLETE;
use crate::protocol::{FixupWord, OWNERS, SplitKPart};
use maco_abi::{CHUNK_BYTES, Launch};

/// A task's part of its tile's sum.
#[derive(Clone, Copy)]
pub struct SplitK {
    /// Which part: which steps of the contraction, and which of the partial sums.
    pub part: u32,
    /// How many there are; 1 if the task makes all of it.
    pub parts: u32,
    /// The tile's first chunk among all of the plan.
    pub first: u32,
    /// How often the task looks whether others have arrived before it leaves the adding up to them.
    pub looks: u32,
    /// The launch that it is a part of.
    pub launch: *const Launch,
}

/// Chunks of a tile, one after the other.
#[derive(Clone, Copy)]
pub struct OwnedChunks {
    pub first: u32,
    pub end: u32,
}

impl OwnedChunks {
    pub const NONE: OwnedChunks = OwnedChunks { first: 0, end: 0 };

    #[inline(always)]
    pub fn has(self, chunk: u32) -> bool {
        self.first <= chunk && chunk < self.end
    }
}

impl SplitK {
    /// All of a sum, made by one task.
    pub const WHOLE: SplitK = SplitK { part: 0, parts: 1, first: 0, looks: 0, launch: core::ptr::null() };

    /// Of `steps` steps the first one of this part, and the first one of the next.
    #[inline(always)]
    pub fn steps(self, steps: u32) -> (u32, u32) {
        // The plan makes no more parts than there are steps, nor than 64: nothing overflows, and no part is empty.
        (steps * self.part / self.parts, steps * (self.part + 1) / self.parts)
    }

    /// How many parts own any of a tile's `chunks`, which are 1, 2 or 4: the first ones.
    #[inline(always)]
    fn owners(self, chunks: u32) -> u32 {
        if self.parts < chunks { self.parts } else { chunks }
    }

    /// The chunks that part `part` adds up. Two at most, and if so both in the same half of four.
    #[inline(always)]
    pub fn owned(self, part: u32, chunks: u32) -> OwnedChunks {
        let owners = self.owners(chunks);
        // One to four owners divide twelve: 12, 6, 4 and 3, from the second digit on. A division by their number is a call, which takes registers from everything
        // around it, and a `match` is a table in memory.
        let twelfths = (0x346c0 >> (4 * owners)) & 15;
        let before = |part: u32| part * chunks * twelfths / 12;
        if part < owners { OwnedChunks { first: before(part), end: before(part + 1) } } else { OwnedChunks::NONE }
    }

    /// The `n`-th part of a chunk's sum, in the order in which they are added; `owner` is the first one.
    #[inline(always)]
    pub fn nth(self, owner: u32, n: u32) -> u32 {
        match n {
            0 => owner,
            n if n <= owner => n - 1,
            n => n,
        }
    }

    /// Where chunk `chunk` of partial sum `part` lies; a partial sum has `chunks`.
    ///
    /// # Safety
    /// The launch is live, and the task is one of several parts.
    #[inline(always)]
    pub unsafe fn chunk(self, part: u32, chunks: u32, chunk: u32) -> *mut u32 {
        // SAFETY: a live launch.
        let base = unsafe { (*self.launch).partials };
        let number = self.first as u64 + (part * chunks + chunk) as u64;
        (base + number * CHUNK_BYTES as u64) as *mut u32
    }

    /// The tile's word.
    ///
    /// # Safety
    /// As [`SplitK::chunk`].
    #[inline(always)]
    unsafe fn word(self) -> *mut u32 {
        // SAFETY: a live launch.
        let base = unsafe { (*self.launch).arrived } as *mut u32;
        base.wrapping_add(self.first as usize)
    }

    /// Those of `owners`, a bit each, that there are: a CTA that is let through may read what was never written.
    #[inline(always)]
    pub fn known(self, owners: u32, chunks: u32) -> u32 {
        owners & ((1 << self.owners(chunks)) - 1)
    }

    /// Whose chunks are added up next: the task's own, which are in registers, then those of others, of which there are some.
    #[inline(always)]
    pub fn next(self, owners: u32) -> u32 {
        if self.part < OWNERS && owners >> self.part & 1 == 1 { self.part } else { owners.trailing_zeros() }
    }

    /// For the store role, which has `each` chunks in one: those of the next of `owners`, the first one and the one behind the last, and `owners` are
    /// the others then. If there is none, a chunk that the tile does not have.
    #[inline(always)]
    pub fn staged(self, owners: &mut u32, chunks: u32, each: u32) -> (u32, u32) {
        if *owners == 0 {
            return (chunks * each, chunks * each);
        }
        let owner = self.next(*owners);
        *owners &= !(1 << owner);
        let OwnedChunks { first, end } = self.owned(owner, chunks);
        (first * each, end * each)
    }

    /// All chunks that others add up are written, by threads that have met; and if it does not look for others, its own: [`SplitKPart::arrive`]. One thread calls,
    /// once in a launch.
    ///
    /// # Safety
    /// As [`SplitK::chunk`].
    #[inline(always)]
    pub unsafe fn arrive(self, chunks: u32) -> u32 {
        // SAFETY: the plan keeps the word for this tile.
        self.part_of(chunks).arrive(&Word(unsafe { self.word() }))
    }

    /// The chunks that this part owns are written too, by threads that have met, since it was [`INCOMPLETE`]: [`SplitKPart::leave`]. One thread calls.
    ///
    /// # Safety
    /// As [`SplitK::chunk`].
    #[inline(always)]
    pub unsafe fn leave(self, chunks: u32) -> u32 {
        // SAFETY: the plan keeps the word for this tile.
        self.part_of(chunks).leave(&Word(unsafe { self.word() }))
    }

    #[inline(always)]
    fn part_of(self, chunks: u32) -> SplitKPart {
        SplitKPart { parts: self.parts, own: if self.part < self.owners(chunks) { 1 << self.part } else { 0 }, looks: self.looks }
    }
}

/// A word of device memory, or of the host's, that the parts of a tile share.
struct Word(*mut u32);

// SAFETY: relaxed `.gpu` accesses with `.gpu` fences (PTX ISA §8.8, release and acquire patterns), or the same of the host's threads. Atomics of the word go on
// what those before released.
unsafe impl FixupWord for Word {
    #[inline(always)]
    fn load(&self) -> u32 {
        // SAFETY: (of all) whoever makes a `Word` has a live one.
        unsafe { gpu_scope::load_relaxed(self.0) }
    }

    #[inline(always)]
    fn arrive(&self, value: u32) -> u32 {
        // SAFETY: as above.
        unsafe { gpu_scope::arrive(self.0, value) }
    }

    #[inline(always)]
    fn leave(&self, bits: u32) -> u32 {
        // SAFETY: as above.
        unsafe { gpu_scope::leave(self.0, bits) }
    }

    #[inline(always)]
    fn clear(&self, bits: u32) {
        // SAFETY: as above.
        unsafe { gpu_scope::clear(self.0, bits) }
    }

    #[inline(always)]
    fn acquire(&self) {
        fence::acquire_gpu();
    }

    #[inline(always)]
    fn release(&self) {
        fence::release_gpu();
    }
}
