//! The channel of a task to the task of another rank: a slot at each end, and a signal each way. What is in a slot does not belong here
//! (`operations/channel.rs`); where slots lie is [`maco_abi::Messages`]'.
//!
//! Slots are two, by parity of a count that both ends have alike: in each launch each end stores once, signals once, and reads once, behind the other's signal. Who stores in
//! launch n + 2 has had the other's signal of launch n + 1, given by who had read what was stored in launch n, and ended that launch. So slots need no credits.
//!
//! Where a proxy copies, each end has two more slots that it copies from, and the signal is the word behind the slot: the proxy stores it when it has copied. That it has,
//! the other end's signal of the next launch says as well.

use super::{Peer, RankView, System, Trigger, Wait, reached};
use maco_abi::{MessageWord, Messages};

/// Whose slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// That of this rank.
    Own,
    /// That of the other rank.
    Peer,
    /// That of this rank which its proxy copies from.
    Proxy,
}

/// What the proxy does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Copies this rank's slot to the other rank's.
    pub copy: bool,
    /// Signals.
    pub signal: bool,
    /// Somebody waits until it has.
    pub flush: bool,
}

/// Bytes behind the words of a slot that a proxy copies: the signal, in a line of 16 bytes.
pub const SIGNAL: u32 = 16;

/// One end of the channel between two tasks of two ranks, as a thread of this rank's task sees it.
///
/// In each launch all threads call [`TileChannel::count`], store into the slot of one side, and meet; one calls [`TileChannel::signal`], all [`TileChannel::wait`], and then
/// load the slot of the other side.
#[derive(Clone, Copy)]
pub struct TileChannel {
    ranks: RankView,
    messages: Messages,
    peer: u32,
    tile: u32,
    theirs: u32,
}

impl TileChannel {
    /// Of the call that has `messages`, from tile `tile` to what rank `peer` knows as `theirs`.
    ///
    /// # Safety
    /// The messages are in the symmetric memory, at a 16-byte boundary, and all zero before the first launch; `peer` is another rank of the launch. All ranks have the same
    /// launches, with the same calls. A rank begins a launch when it has ended the one before.
    #[inline(always)]
    pub const unsafe fn new(ranks: RankView, messages: Messages, peer: u32, [tile, theirs]: [u32; 2]) -> TileChannel {
        TileChannel { ranks, messages, peer, tile, theirs }
    }

    /// How often this end has signalled, before it does in this launch.
    #[inline(always)]
    pub fn count<S: System>(&self, system: &S) -> u32 {
        // SAFETY: a word that only tasks of this rank and tile use, one a launch; threads meet before one of them stores it.
        unsafe { system.own_load(self.own_word(MessageWord::Sent)) }
    }

    /// Stores words from byte `at` of a slot on.
    ///
    /// # Safety
    /// They are inside the slot, `at` is a multiple of 8, and of 16 for more than two words. No other thread stores there, and the end has not signalled.
    #[inline(always)]
    pub unsafe fn store<S: System, const N: usize>(&self, system: &S, side: Side, count: u32, at: u32, words: [u32; N]) {
        // SAFETY: inside the slot, whose reader has read what was there: see above.
        unsafe { self.slot(side, count).at::<[u32; N]>(at.into()).store_words(system, words) }
    }

    /// Loads words from byte `at` of a slot on.
    ///
    /// # Safety
    /// They are inside the slot, `at` as of [`TileChannel::store`]. The thread has waited.
    #[inline(always)]
    pub unsafe fn load<S: System, const N: usize>(&self, system: &S, side: Side, count: u32, at: u32) -> [u32; N] {
        // SAFETY: inside the slot, whose writer has signalled, and stores it again when it has the signal of the next launch.
        unsafe { self.slot(side, count).at::<[u32; N]>(at.into()).load_words(system) }
    }

    /// Whether a thread of this rank has waited in vain for the other end. The threads have met since.
    #[inline(always)]
    pub fn missed<S: System>(&self, system: &S) -> bool {
        // SAFETY: the word of this tile, which threads of its tasks alone write in a launch, before they met.
        unsafe { system.own_load(self.ranks.missing(self.messages.first + self.tile)) != 0 }
    }

    /// Where an address of this rank's symmetric memory is, from its beginning.
    #[inline(always)]
    pub fn offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.ranks.own(0) as u64)
    }

    /// The place so many bytes into the other rank's symmetric memory.
    #[inline(always)]
    pub fn far<T>(&self, offset: u64) -> Peer<T> {
        // SAFETY: a rank of the launch.
        unsafe { self.ranks.peer::<u8>(self.peer) }.at(offset)
    }

    /// Tells the other end that the slot holds what this launch has to say.
    ///
    /// # Safety
    /// All threads have stored, and met; one of them calls. `count` is theirs.
    #[inline(always)]
    pub unsafe fn signal<S: System>(&self, system: &S, count: u32) {
        let (next, at) = (count.wrapping_add(1), self.messages.word(self.ranks.rank, self.theirs, MessageWord::Credit));
        // SAFETY: the peer's word is of this rank and tile, of which this thread is the only writer; the other one is as in `count`.
        unsafe {
            system.own_store(self.own_word(MessageWord::Sent), next);
            self.ranks.peer::<u8>(self.peer).at::<u32>(at).publish(system, next);
        }
    }

    /// Hands an order to the proxy; false if the ranks do not go on.
    ///
    /// # Safety
    /// The call is of a port channel. All threads have stored, and met; one of them calls, and orders one signal a launch, behind the copy. `count` is theirs.
    #[inline(always)]
    pub unsafe fn order<S: System>(&self, system: &S, wait: &impl Wait, count: u32, order: Order) -> bool {
        let Order { copy, signal, flush } = order;
        let data = self.messages.bytes - SIGNAL;
        let (from, to) = (self.messages.message(count, 1, self.tile), self.messages.message(count, 0, self.theirs));
        let (skip, bytes) = if copy { (0, data) } else { (data as u64, 0) };
        let next = count.wrapping_add(1);
        // SAFETY: (of all) the slot is this task's, whose signal this thread alone stores, and the proxy has copied the one before; the places are inside the messages.
        unsafe {
            if signal {
                system.own_store(self.own_word(MessageWord::Sent), next);
                self.slot(Side::Proxy, count).at::<u32>(data.into()).store(system, next);
            }
            let fifo = self.ranks.fifo();
            let trigger = Trigger { channel: self.peer, copy, signal, flush, from: from + skip, to: to + skip, bytes };
            match fifo.push_until(system, wait, trigger) {
                Some(ticket) => !flush || fifo.completed_until(system, wait, ticket),
                None => false,
            }
        }
    }

    /// Waits until the other end's proxy has signalled in this launch; false if the ranks do not go on. Each thread that loads calls it.
    ///
    /// # Safety
    /// The call is of a port channel.
    #[inline(always)]
    pub unsafe fn wait_for_proxy<S: System>(&self, system: &S, wait: &impl Wait, count: u32) -> bool {
        let at = self.ranks.own(self.messages.message(count, 0, self.tile) + (self.messages.bytes - SIGNAL) as u64);
        self.wait_for(system, wait, at.cast(), count)
    }

    /// Waits until the other end has signalled in this launch; false if the ranks do not go on. Each thread that loads calls it.
    #[inline(always)]
    pub fn wait<S: System>(&self, system: &S, wait: &impl Wait, count: u32) -> bool {
        self.wait_for(system, wait, self.own_word(MessageWord::Credit), count)
    }

    #[inline(always)]
    fn wait_for<S: System>(&self, system: &S, wait: &impl Wait, at: *const u32, count: u32) -> bool {
        // SAFETY: an aligned word of this rank's symmetric memory.
        let found = wait.until(|| reached(unsafe { system.poll(at) }, count.wrapping_add(1)));
        system.acquire();
        if !found {
            self.miss(system);
        }
        found
    }

    #[inline(always)]
    fn slot(&self, side: Side, count: u32) -> Peer<u8> {
        let (rank, source, tile) = match side {
            Side::Own => (self.ranks.rank, 0, self.tile),
            Side::Peer => (self.peer, 0, self.theirs),
            Side::Proxy => (self.ranks.rank, 1, self.tile),
        };
        // SAFETY: ranks of the launch.
        unsafe { self.ranks.peer::<u8>(rank) }.at(self.messages.message(count, source, tile))
    }

    #[inline(always)]
    fn own_word(&self, word: MessageWord) -> *mut u32 {
        self.ranks.own(self.messages.word(self.peer, self.tile, word)).cast()
    }

    /// Nothing has come.
    #[cold]
    fn miss<S: System>(&self, system: &S) {
        // SAFETY: the word of this tile, which all its threads may write and nobody reads before the launch has ended.
        unsafe { system.tell(self.ranks.missing(self.messages.first + self.tile), self.peer + 1) };
    }
}
