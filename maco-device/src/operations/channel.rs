//! Tiles through the slots of a channel: which thread stores and loads which words. When it may is [`TileChannel`]'s.

use crate::channel::{Order, Side, TileChannel, TileMessages};
use crate::data::element::Element;
use crate::data::tile::Tile;
use crate::operations::collective::{UntilAbort, system};
use crate::operations::simt_consumer::SimtConsumer;

/// The channel of a task to that of another rank, and how the other end is known.
#[derive(Clone, Copy)]
pub struct End {
    /// Its slots and signals.
    pub channel: TileChannel,
    /// The same as messages of packets.
    pub packets: TileMessages,
    /// The other rank.
    pub peer: u32,
    /// Bytes of a slot: a tile of another size than the task's result stays inside.
    pub bytes: u32,
}

impl SimtConsumer {
    /// Calls `each` for this thread's blocks of eight elements of a tile: row, column, and where the block is among all. `bytes` are those of a block, of which `room` bytes hold
    /// some; the rest is left out. Ends when `each` returns false.
    #[inline(always)]
    pub(super) fn message_blocks<E: Element, const I: usize, const J: usize>(
        self,
        tile: Tile<E, I, J>,
        [bytes, room]: [u32; 2],
        mut each: impl FnMut(u32, u32, u32) -> bool,
    ) -> bool {
        let across = tile.cols().div_ceil(8);
        let (all, held) = (tile.rows() * across, room / bytes);
        let count = if all < held { all } else { held };
        let mut block = self.thread;
        while block < count {
            if !each(block / across, block % across * 8, block) {
                return false;
            }
            block += self.threads;
        }
        true
    }

    /// Stores `x` in a slot, and counts: see [`TileChannel::count`].
    #[inline(always)]
    pub fn fill<E: Element, const I: usize, const J: usize>(self, x: Tile<E, I, J>, end: End, side: Side) -> u32 {
        let (system, wide) = (system(), x.wide());
        let count = end.channel.count(&system);
        let bytes = const { 8 * E::BYTES };
        self.message_blocks(x, [bytes, end.bytes], |row, col, block| {
            let eight = x.block(wide, row, col);
            let eight = eight.as_ref();
            if const { E::BYTES == 1 } {
                // SAFETY: a block of the slot, of which this one is this thread's; the caller signals behind it.
                unsafe { end.channel.store(&system, side, count, bytes * block, [eight[0], eight[1]]) };
            } else {
                let mut at = 0;
                while at < const { 2 * E::BYTES } as usize {
                    let four = [eight[at], eight[at + 1], eight[at + 2], eight[at + 3]];
                    // SAFETY: as above.
                    unsafe { end.channel.store(&system, side, count, bytes * block + 4 * at as u32, four) };
                    at += 4;
                }
            }
            true
        });
        count
    }

    /// Tells the other end that all threads have filled their parts.
    #[inline(always)]
    pub fn signal(self, end: End, count: u32) {
        self.sync();
        if self.thread == 0 {
            // SAFETY: all threads have come here.
            unsafe { end.channel.signal(&system(), count) };
        }
    }

    /// Waits for the signal of the other end; false if the launch is aborted.
    #[inline(always)]
    pub fn await_signal(self, end: End, count: u32) -> bool {
        end.channel.wait(&system(), &UntilAbort, count)
    }

    /// Has the proxy do something behind what all threads have stored; false if the launch is aborted.
    #[inline(always)]
    pub fn order(self, end: End, count: u32, order: Order) -> bool {
        self.sync();
        // SAFETY: all threads have come here; the kind of the body is that of the call.
        self.thread != 0 || unsafe { end.channel.order(&system(), &UntilAbort, count, order) }
    }

    /// Waits for the signal of the other end's proxy; false if the launch is aborted.
    #[inline(always)]
    pub fn await_proxy(self, end: End, count: u32) -> bool {
        // SAFETY: as above.
        unsafe { end.channel.wait_for_proxy(&system(), &UntilAbort, count) }
    }

    /// Loads `y` from a slot.
    #[inline(always)]
    pub fn empty<E: Element, const I: usize, const J: usize>(self, y: Tile<E, I, J>, end: End, side: Side, count: u32) {
        let (system, wide) = (system(), y.wide());
        let bytes = const { 8 * E::BYTES };
        self.message_blocks(y, [bytes, end.bytes], |row, col, block| {
            let mut eight = E::Eight::default();
            let words = eight.as_mut();
            if const { E::BYTES == 1 } {
                // SAFETY: a block of the slot; this thread has waited.
                words.copy_from_slice(&unsafe { end.channel.load::<_, 2>(&system, side, count, bytes * block) });
            } else {
                let mut at = 0;
                while at < const { 2 * E::BYTES } as usize {
                    // SAFETY: as above.
                    let four = unsafe { end.channel.load::<_, 4>(&system, side, count, bytes * block + 4 * at as u32) };
                    words[at..][..4].copy_from_slice(&four);
                    at += 4;
                }
            }
            // SAFETY: this thread's block; tiles of one grid do not overlap.
            unsafe { y.put_block(wide, row, col, E::open(eight)) };
            true
        });
    }

    /// Sends `x` as packets.
    #[inline(always)]
    pub fn send_packets<E: Element, const I: usize, const J: usize>(self, x: Tile<E, I, J>, end: End) {
        let (system, wide) = (system(), x.wide());
        self.message_blocks(x, [const { 16 * E::BYTES }, end.bytes], |row, col, block| {
            let eight = x.block(wide, row, col);
            let eight = eight.as_ref();
            let mut pair = 0;
            while pair < E::BYTES {
                let at = 2 * pair as usize;
                // SAFETY: a message has a tile's blocks, of which this one is this thread's.
                unsafe { end.packets.send(&system, end.peer, block * E::BYTES + pair, [eight[at], eight[at + 1]]) };
                pair += 1;
            }
            true
        });
    }

    /// Makes `y` of packets; false if the launch is aborted.
    #[inline(always)]
    pub fn receive_packets<E: Element, const I: usize, const J: usize>(self, y: Tile<E, I, J>, end: End) -> bool {
        let (system, wide) = (system(), y.wide());
        self.message_blocks(y, [const { 16 * E::BYTES }, end.bytes], |row, col, block| {
            let mut eight = E::Eight::default();
            let words = eight.as_mut().as_chunks_mut().0;
            // SAFETY: as in `send_packets`; that rank sends to this one.
            if !unsafe { end.packets.receive(&system, &UntilAbort, end.peer, block * E::BYTES, words) } {
                return false;
            }
            // SAFETY: this thread's block; tiles of one grid do not overlap.
            unsafe { y.put_block(wide, row, col, E::open(eight)) };
            true
        })
    }

    /// `y = x`, of tiles of one size.
    #[inline(always)]
    pub fn copy_tile<E: Element, const I: usize, const J: usize>(self, x: Tile<E, I, J>, y: Tile<E, I, J>) {
        let wide = [x.wide(), y.wide()];
        self.message_blocks(y, [1, u32::MAX], |row, col, _| {
            // SAFETY: this thread's block; tiles of one grid do not overlap.
            unsafe { y.put_block(wide[1], row, col, E::open(x.block(wide[0], row, col))) };
            true
        });
    }
}
