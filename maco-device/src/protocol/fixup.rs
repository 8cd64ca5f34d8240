//! Split-K fix-up: one word per tile, at which all parts arrive and none waits without end.
//!
//! Which chunks a part owns, and how they are added up, does not belong here. A part that has arrived polls a while for the others. If all have arrived it adds up
//! the chunks that it owns. If not it sets a bit, which leaves them to the last part to arrive. Atomics on the word decide who has left and who is last, so exactly one
//! task adds up each owner's chunks.

/// Of the word: how many parts have arrived, all being none again. Above it a bit for each owner that has left.
const COUNT: u32 = 0xff;
const LEFT: u32 = 8;
/// Most owners: chunks of the largest tile.
pub const OWNERS: u32 = 4;

/// [`SplitKPart::arrive`]: others have not been seen, so what this part owns is to be written, and then [`SplitKPart::leave`].
pub const INCOMPLETE: u32 = 1 << OWNERS;

/// The word of a tile, 0 between launches: relaxed atomics, and fences.
///
/// # Safety
/// `acquire` behind a `load`, an `arrive` or a `leave` that saw what another executor's `arrive`, `leave` or `clear` left behind its `release` orders memory
/// between the two.
pub unsafe trait FixupWord {
    /// What is there.
    fn load(&self) -> u32;
    /// Adds; the old value.
    fn arrive(&self, value: u32) -> u32;
    /// Sets bits; the old value.
    fn leave(&self, bits: u32) -> u32;
    /// Makes bits 0.
    fn clear(&self, bits: u32);
    /// Acquire fence.
    fn acquire(&self);
    /// Release fence.
    fn release(&self);
}

/// One of the parts.
#[derive(Clone, Copy)]
pub struct SplitKPart {
    /// How many there are: 2 or more, and less than 256.
    pub parts: u32,
    /// Its bit among owners, or 0 if it owns nothing.
    pub own: u32,
    /// How often it looks whether others have arrived.
    pub looks: u32,
}

impl SplitKPart {
    /// What others add up has been written; if this part does not look for them, what it owns too. The owners, a bit each, whose chunks this task is to add
    /// up, or [`INCOMPLETE`]. Once in a launch.
    #[inline(always)]
    pub fn arrive<M: FixupWord>(self, word: &M) -> u32 {
        let leaves = if self.looks == 0 { self.own << LEFT } else { 0 };
        word.release();
        let before = word.arrive(1 + leaves);
        let mut owners = 0;
        if before & COUNT == self.parts - 1 {
            // Whoever leaves now finds that it need not have, and takes its bit back: the word is 0 when all tasks have ended.
            word.clear(COUNT | before | leaves);
            owners = self.own | before >> LEFT;
        } else if self.own != 0 && self.looks > 0 {
            owners = INCOMPLETE;
            let mut looks = 0;
            while owners == INCOMPLETE && looks < self.looks {
                if self.is_complete(word.load()) {
                    owners = self.own;
                }
                looks += 1;
            }
        }
        word.acquire();
        owners
    }

    /// What this part owns is written too, since it was [`INCOMPLETE`]. The owners, as [`SplitKPart::arrive`]: none, or itself if all others have arrived meanwhile.
    #[inline(always)]
    pub fn leave<M: FixupWord>(self, word: &M) -> u32 {
        word.release();
        let complete = self.is_complete(word.leave(self.own << LEFT));
        if complete {
            word.clear(self.own << LEFT);
        }
        word.acquire();
        if complete { self.own } else { 0 }
    }

    /// What a part that has arrived sees when all have: to it 0 is all.
    #[inline(always)]
    fn is_complete(self, word: u32) -> bool {
        word & COUNT == 0 || word & COUNT == self.parts
    }
}
