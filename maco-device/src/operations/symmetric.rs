//! Tiles stored in another rank's symmetric memory: which thread stores which words. When it may is [`crate::cta::symmetric`]'s.

use super::channel::End;
use crate::channel::Side;
use crate::data::element::Element;
use crate::data::tile::Tile;
use crate::operations::collective::system;
use crate::operations::simt_consumer::SimtConsumer;

impl SimtConsumer {
    /// Stores where `y` lies in the slot of the other end, and counts: see [`crate::channel::TileChannel::count`].
    #[inline(always)]
    pub fn grant<E: Element, const I: usize, const J: usize>(self, y: Tile<E, I, J>, end: End) -> u32 {
        let system = system();
        let count = end.channel.count(&system);
        if self.thread == 0 {
            let offset = end.channel.offset(y.pointer(0, 0) as u64);
            let words = [offset as u32, (offset >> 32) as u32, y.row_stride(), 0];
            // SAFETY: a slot has 16 bytes, which this thread alone stores; the other end has loaded those of the launch before, since it has told of what it stored there.
            unsafe { end.channel.store(&system, Side::Peer, count, 0, words) };
        }
        count
    }

    /// Tells the other end of signal `count` when all threads have stored. A thread that has waited in vain has stored nothing: then nothing is told.
    #[inline(always)]
    pub fn signal_if_stored(self, end: End, count: u32) {
        // All threads come to the barrier, also when the launch is aborted.
        self.sync();
        if self.thread == 0 && !end.channel.missed(&system()) {
            // SAFETY: all threads have come here.
            unsafe { end.channel.signal(&system(), count) };
        }
    }

    /// Stores `x` where the other end's grant says. The thread has waited for it.
    #[inline(always)]
    pub fn fill_far<E: Element, const I: usize, const J: usize>(self, x: Tile<E, I, J>, end: End, count: u32) {
        let (system, wide) = (system(), x.wide());
        // SAFETY: this thread has waited for the grant.
        let [low, high, row_stride, _] = unsafe { end.channel.load::<_, 4>(&system, Side::Own, count, 0) };
        let base = u64::from(low) | u64::from(high) << 32;
        self.message_blocks(x, [1, u32::MAX], |row, col, _| {
            let eight = x.block(wide, row, col);
            let eight = eight.as_ref();
            let at = base + (u64::from(row) * u64::from(row_stride) + u64::from(col)) * const { E::BYTES as u64 };
            if const { E::BYTES == 1 } {
                let far = end.channel.far::<[u32; 2]>(at);
                // SAFETY: a block of the other end's tile, which it has opened and nobody else uses until it is told; this one is this thread's. Hosts have looked that
                // columns are whole blocks, and rows begin at 16 bytes.
                unsafe { far.store_words(&system, [eight[0], eight[1]]) };
            } else {
                let mut word = 0;
                while word < const { 2 * E::BYTES } as usize {
                    let far = end.channel.far::<[u32; 4]>(at + 4 * word as u64);
                    // SAFETY: as above.
                    unsafe { far.store_words(&system, [eight[word], eight[word + 1], eight[word + 2], eight[word + 3]]) };
                    word += 4;
                }
            }
            true
        });
    }
}
