//! Parts of one tile's sum, made by several tasks: what a task knows of its part, and where the parts meet.
//!
//! How a role writes and adds up partial sums does not belong here. Each task of a tile writes its partial sum to memory of the plan and
//! arrives; nobody waits. When all have arrived, the sum is added up chunk by chunk in the order of the parts, so that it is the same
//! whoever does it: tasks claim chunks until none is left. The last one to arrive always does, others a share if they run at the same time.

use crate::abi::{CHUNK_BYTES, Launch};

/// A task's part of its tile's sum.
#[derive(Clone, Copy)]
pub struct Split {
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

impl Split {
    /// All of a sum, made by one task.
    pub const WHOLE: Split = Split { part: 0, parts: 1, first: 0, looks: 0, launch: core::ptr::null() };

    /// Of `steps` steps the first one of this part, and the first one of the next.
    #[inline(always)]
    pub fn steps(self, steps: u32) -> (u32, u32) {
        // The plan makes no more parts than there are steps, nor than 64: nothing overflows, and no part is empty.
        (steps * self.part / self.parts, steps * (self.part + 1) / self.parts)
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

    /// How many parts have arrived, all being none, and how many chunks are claimed.
    ///
    /// # Safety
    /// As [`Split::chunk`].
    #[inline(always)]
    unsafe fn words(self) -> (*mut u32, *mut u32) {
        // SAFETY: a live launch.
        let base = unsafe { (*self.launch).arrived } as *mut u32;
        let arrived = base.wrapping_add(2 * self.first as usize);
        (arrived, arrived.wrapping_add(1))
    }

    /// This part's sum is written, by threads that have met: the chunks, of `chunks`, that the task adds up; none if it has not seen all
    /// parts arrive in as many looks as it cares for. One thread calls.
    ///
    /// # Safety
    /// As [`Split::chunk`]; each part arrives once in a launch.
    #[inline(always)]
    pub unsafe fn arrive(self, chunks: u32) -> Claims {
        use crate::hardware::{fence, local};
        // SAFETY: the plan keeps both words for this tile. All parts forget old claims before they arrive, and claims come after all
        // arrivals, so none of this launch is forgotten. Arrivals wrap to 0, which nobody can mistake for the number before any: whoever
        // looks has arrived.
        unsafe {
            let (arrived, claimed) = self.words();
            local::store_relaxed(claimed, 0);
            fence::release_gpu();
            let last = local::fetch_wrap(arrived, self.parts - 1) == self.parts - 1;
            let mut all = last;
            let mut looks = 0;
            while !all && looks < self.looks {
                all = local::load_relaxed(arrived) == 0;
                looks += 1;
            }
            fence::acquire_gpu();
            let mut claims = Claims { split: self, chunk: chunks, more: 0 };
            if last {
                // Nobody claims the first one.
                claims = Claims { chunk: 0, more: u32::MAX, ..claims };
            } else if all {
                claims.more = chunks.div_ceil(self.parts);
                claims.go_on(chunks);
            }
            claims
        }
    }
}

/// The chunks of a tile's sum that a task adds up, one after the other. The last task to arrive goes on until none is left; another one takes
/// its share and no more, so that it need not ask in vain.
pub struct Claims {
    split: Split,
    chunk: u32,
    /// Chunks that may still be claimed.
    more: u32,
}

impl Claims {
    /// No chunk.
    pub const NONE: Claims = Claims { split: Split::WHOLE, chunk: u32::MAX, more: 0 };

    /// The chunk that nobody else adds up; there is none left if it does not exist.
    #[inline(always)]
    pub fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Goes on to another of `chunks`.
    ///
    /// # Safety
    /// As [`Split::chunk`]; of a task that has seen all parts arrive.
    #[inline(always)]
    pub unsafe fn go_on(&mut self, chunks: u32) {
        self.chunk = chunks;
        if self.more > 0 {
            self.more -= 1;
            // SAFETY: the plan keeps the word for this tile.
            self.chunk = unsafe { crate::hardware::local::fetch_add_relaxed(self.split.words().1, 1) } + 1;
        }
    }
}
