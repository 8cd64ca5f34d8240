//! The messages of one tile that ranks exchange: packets, or data and signals; their numbers and credits. What is in them, and how a result is made of it, does not belong here
//! (`operations/collective.rs`); where they lie is [`maco_abi::Messages`]'.
//!
//! A packet carries its flag (NCCL's LL protocol, with words of 64 bits), so that data need no signal behind them. Large tiles that all ranks answer go as data alone, half
//! as many bytes: when all threads have stored their part and met, one of them signals ([`TileMessages::signal`]), and each that loads waits for the signal.
//!
//! A place is used again by the message after the next one. Where a rank hears of all that it sends to, messages have the number of their launch: it has received
//! those of the launch between, which its peers sent when they had ended the one before. No more is needed: no fence says so, but a store depends on what its rank has
//! waited for, and launches follow each other. Messages that nobody answers are numbered by themselves, and wait for a credit.
//!
//! A signal is one of two words of its peer and tile, by parity too, and has the flag of its launch. The peer may be a launch ahead, which stores the other word; never two,
//! as above. So the flag is compared for equality.
//!
//! With less room than tiles, tiles have slots in turn: `tile` and `theirs` are slots then. Places are still two by parity of the launch, so a slot's first message of a launch needs
//! nothing more. Each later one waits for a credit: that the peer has read the one before ([`TileMessages::begin`], [`TileMessages::give_back`]). Flags have the round besides the
//! launch. The peer's credit may be beyond the message that a slow thread waits for, never in another launch: its next one would answer what this rank sends when it has ended this one.

use super::{RankView, System, Wait, packet, packet_data, packet_flag, reached};
use maco_abi::{MessageWord, Messages, Turn};

/// As many pairs are received together: those of eight elements of four bytes.
const MOST_PAIRS: usize = 4;

/// Some of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// This one, which there is.
    One(u32),
    /// None.
    None,
}

impl Which {
    /// Whether `rank` is one of them.
    #[inline(always)]
    pub const fn has(self, rank: u32) -> bool {
        match self {
            Which::All => true,
            Which::One(one) => one == rank,
            Which::None => false,
        }
    }
}

/// The messages of one tile in one launch, as a thread of a rank sees them. The threads of the rank share its pairs: each sends and receives its own ones, to all
/// ranks and from all.
///
/// In each launch: [`TileMessages::begin`], [`TileMessages::send`], [`TileMessages::receive`], and [`TileMessages::end`] when all threads have come so far. Of messages that
/// are signalled: [`TileMessages::store`], [`TileMessages::signal`] when all threads have come so far, [`TileMessages::wait`] and
/// [`TileMessages::load`].
#[derive(Clone, Copy)]
pub struct TileMessages {
    ranks: RankView,
    messages: Messages,
    tile: u32,
    theirs: u32,
    /// Where [`RankView::missing`] has the tile.
    noted: u32,
    /// The tile's round in its slot.
    round: u32,
    one_way: bool,
}

impl TileMessages {
    /// Tile `tile` of the call that has `messages`, which other ranks know as `theirs`. `one_way`: some rank sends to another one and does not hear of it, and so
    /// messages have numbers of their own.
    ///
    /// # Safety
    /// The messages are in the symmetric memory, at a 16-byte boundary, and all zero before the first launch. All ranks have the same launches, with the same calls. A
    /// rank begins a launch when it has ended the one before.
    #[inline(always)]
    pub const unsafe fn new(ranks: RankView, messages: Messages, [tile, theirs]: [u32; 2], one_way: bool) -> TileMessages {
        TileMessages { ranks, messages, tile, theirs, noted: messages.first + tile, round: 0, one_way }
    }

    /// The messages of tile `tile` of a call whose tiles have slots in turn, which stands at `turn`, on all ranks.
    ///
    /// # Safety
    /// As of [`TileMessages::new`]; all ranks answer. On each rank, all that read the message before in the slot stand before all that send this one, in an order in which
    /// whoever is before ends without those behind.
    #[inline(always)]
    pub const unsafe fn in_turn(ranks: RankView, messages: Messages, tile: u32, turn: Turn) -> TileMessages {
        let Turn { slot, round, .. } = turn;
        TileMessages { ranks, messages, tile: slot, theirs: slot, noted: messages.first + tile, round, one_way: false }
    }

    /// Waits until all of `to` have read what lies where messages go; false if the ranks do not go on. Every thread that sends calls it.
    ///
    /// # Safety
    /// The ranks are those of the launch, and the same at its end.
    #[inline(always)]
    pub unsafe fn begin<S: System>(&self, system: &S, wait: &impl Wait, to: Which) -> bool {
        if self.one_way || self.round != 0 {
            let mut n = 1;
            while n < self.ranks.ranks {
                let peer = self.ranks.behind(n);
                if to.has(peer) && !self.wait_for_credit(system, wait, peer) {
                    return false;
                }
                n += 1;
            }
        }
        true
    }

    /// Stores pair `n` of the message to rank `to`.
    ///
    /// # Safety
    /// There is such a rank, and a message has as many pairs. No other thread stores this one, and this one has begun.
    #[inline(always)]
    pub unsafe fn send<S: System>(&self, system: &S, to: u32, n: u32, [a, b]: [u32; 2]) {
        let (number, flag) = self.number(system, to, MessageWord::Sent);
        let at = self.messages.message(number, self.ranks.rank, self.theirs) + 16 * n as u64;
        // SAFETY: the message of this rank and tile, as the caller promises; its reader has read what was there.
        unsafe { self.ranks.peer::<u8>(to).at(at).store_packets(system, [packet(a, flag), packet(b, flag)]) };
    }

    /// Loads `pairs`, up to four, from pair `first` of the message from rank `from`; false if the ranks do not go on before they come.
    ///
    /// # Safety
    /// There is such a rank, which sends one with as many pairs.
    #[inline(always)]
    pub unsafe fn receive<S: System>(&self, system: &S, wait: &impl Wait, from: u32, first: u32, pairs: &mut [[u32; 2]]) -> bool {
        let (number, flag) = self.number(system, from, MessageWord::Received);
        let at = self.messages.message(number, from, self.tile) + 16 * first as u64;
        let at = self.ranks.own(at).cast::<u64>();
        let mut packets = [[0; 2]; MOST_PAIRS];
        let count = pairs.len();
        let found = wait.until(|| {
            // All loads are under way before the first flag is looked at.
            let mut n = 0;
            while n < count {
                // SAFETY: two packets of this rank's symmetric memory at a 16-byte boundary.
                packets[n] = unsafe { system.load_packets(at.wrapping_add(2 * n)) };
                n += 1;
            }
            let (mut all, mut n) = (true, 0);
            while n < count {
                all &= (packet_flag(packets[n][0]) == flag) & (packet_flag(packets[n][1]) == flag);
                n += 1;
            }
            all
        });
        let mut n = 0;
        while n < count {
            pairs[n] = packets[n].map(packet_data);
            n += 1;
        }
        found || self.miss::<S, ()>(system, from).is_some()
    }

    /// Stores words from byte `at` of the message to rank `to` on.
    ///
    /// # Safety
    /// Messages are signalled. There is such a rank, the words are inside a message, and `at` is a multiple of 8, and of 16 for more than two words. No other thread stores
    /// there, and nobody has signalled in this launch.
    #[inline(always)]
    pub unsafe fn store<S: System, const N: usize>(&self, system: &S, to: u32, at: u32, words: [u32; N]) {
        let message = self.messages.message(self.ranks.launch, self.ranks.rank, self.theirs);
        // SAFETY: the message of this rank and tile, as the caller promises; its reader has read what was there.
        unsafe { self.ranks.peer::<u8>(to).at::<[u32; N]>(message + at as u64).store_words(system, words) };
    }

    /// Tells all of `to` that their messages are there.
    ///
    /// # Safety
    /// Messages are signalled. All threads have stored to these ranks, and met; one of them calls.
    #[inline(always)]
    pub unsafe fn signal<S: System>(&self, system: &S, to: Which) {
        let at = self.messages.signal(self.ranks.launch, self.ranks.rank, self.theirs);
        let mut n = 1;
        while n < self.ranks.ranks {
            let peer = self.ranks.behind(n);
            if to.has(peer) {
                // SAFETY: the peer's word of this rank, tile and parity, of which this thread is the only writer, and which the peer has read in the launch before the last.
                unsafe { self.ranks.peer::<u8>(peer).at::<u32>(at).publish(system, self.flag()) };
            }
            n += 1;
        }
    }

    /// Gives the slot back to all of `from`: their messages have been read. Only where tiles have slots in turn.
    ///
    /// # Safety
    /// All threads have received all of these messages, and met; one of them calls.
    #[inline(always)]
    pub unsafe fn give_back<S: System>(&self, system: &S, from: Which) {
        let at = self.messages.word(self.ranks.rank, self.theirs, MessageWord::Received);
        let mut n = 1;
        while n < self.ranks.ranks {
            let peer = self.ranks.behind(n);
            if from.has(peer) {
                // SAFETY: the peer's word of this rank and slot, which tasks of this rank alone store, one behind the other: the next message comes when this one's credit has.
                unsafe { self.ranks.peer::<u8>(peer).at::<u32>(at).publish(system, self.flag()) };
            }
            n += 1;
        }
    }

    /// Waits until all of `from` have signalled; false if the ranks do not go on before they do. Each thread that loads calls it.
    ///
    /// # Safety
    /// Messages are signalled, and these ranks send one.
    #[inline(always)]
    pub unsafe fn wait<S: System>(&self, system: &S, wait: &impl Wait, from: Which) -> bool {
        let flag = self.flag();
        let mut n = 1;
        while n < self.ranks.ranks {
            let peer = self.ranks.behind(n);
            if from.has(peer) {
                let at = self.ranks.own(self.messages.signal(self.ranks.launch, peer, self.tile)).cast::<u32>();
                // SAFETY: an aligned word of this rank's symmetric memory.
                if !wait.until(|| unsafe { system.poll(at) } == flag) {
                    self.miss::<S, ()>(system, peer);
                    return false;
                }
            }
            n += 1;
        }
        system.acquire();
        true
    }

    /// Whether a thread of this rank has waited in vain for one of these messages.
    ///
    /// The threads have met since.
    #[inline(always)]
    pub fn missed<S: System>(&self, system: &S) -> bool {
        // SAFETY: the word of this tile, which threads of its tasks alone write in a launch, before they met.
        unsafe { system.own_load(self.ranks.missing(self.noted)) != 0 }
    }

    /// Loads words from byte `at` of the message from rank `from` on.
    ///
    /// # Safety
    /// Messages are signalled, and the thread has waited for that rank. The words are inside a message, `at` as of [`TileMessages::store`].
    #[inline(always)]
    pub unsafe fn load<S: System, const N: usize>(&self, system: &S, from: u32, at: u32) -> [u32; N] {
        let message = self.messages.message(self.ranks.launch, from, self.tile);
        // SAFETY: (of both) inside the message, which is this rank's; its writer has signalled, and stores there again when it has a signal of the next launch.
        unsafe { self.ranks.peer::<u8>(self.ranks.rank).at::<[u32; N]>(message + at as u64).load_words(system) }
    }

    /// Counts the messages to the ranks `to` and from the ranks `from`, and gives the latter their credits. Only needed where messages have numbers of their own.
    ///
    /// # Safety
    /// All threads have sent and received all pairs, and met; one of them calls.
    #[inline(always)]
    pub unsafe fn end<S: System>(&self, system: &S, to: Which, from: Which) {
        let mut n = 1;
        while n < self.ranks.ranks {
            let peer = self.ranks.behind(n);
            if to.has(peer) {
                self.sent(system, peer);
            }
            if from.has(peer) {
                self.received(system, peer);
            }
            n += 1;
        }
    }

    /// This rank's own word of `peer`.
    #[inline(always)]
    fn word(&self, peer: u32, word: MessageWord) -> *mut u32 {
        self.ranks.own(self.messages.word(peer, self.tile, word)).cast()
    }

    /// The number of the next message to or from `peer`, as `word` counts them, and its flag.
    #[inline(always)]
    fn number<S: System>(&self, system: &S, peer: u32, word: MessageWord) -> (u32, u32) {
        if !self.one_way {
            return (self.ranks.launch, self.flag());
        }
        // SAFETY: a word that only tasks of this rank and tile use, one a launch.
        let number = unsafe { system.own_load(self.word(peer, word)) };
        (number, maco_abi::message_flag(number))
    }

    /// The flag of this launch's messages, and of their signals.
    #[inline(always)]
    const fn flag(&self) -> u32 {
        maco_abi::turn_flag(self.ranks.launch, self.round)
    }

    /// Nothing has come from rank `from`.
    #[cold]
    fn miss<S: System, T>(&self, system: &S, from: u32) -> Option<T> {
        // SAFETY: the word of this tile, which all its threads may write and nobody reads before the launch has ended.
        unsafe { system.tell(self.ranks.missing(self.noted), from + 1) };
        None
    }

    /// Waits until rank `to` has read what lies where the next message goes; false if the ranks do not go on.
    #[inline(always)]
    fn wait_for_credit<S: System>(&self, system: &S, wait: &impl Wait, to: u32) -> bool {
        let found = if self.one_way {
            let (number, _) = self.number(system, to, MessageWord::Sent);
            let at = self.word(to, MessageWord::Credit);
            // SAFETY: an aligned word of this rank's symmetric memory.
            wait.until(|| reached(unsafe { system.poll(at) }, number.wrapping_sub(1)))
        } else {
            let (at, before) = (self.word(to, MessageWord::Received), maco_abi::turn_flag(self.ranks.launch, self.round - 1));
            // SAFETY: as above.
            wait.until(|| maco_abi::is_read(unsafe { system.poll(at) }, before))
        };
        system.acquire();
        found || self.miss::<S, ()>(system, to).is_some()
    }

    /// A message to rank `to` has been sent, by all threads before they met.
    #[inline(always)]
    fn sent<S: System>(&self, system: &S, to: u32) {
        let (number, _) = self.number(system, to, MessageWord::Sent);
        // SAFETY: as in `number`; the threads have all loaded it.
        unsafe { system.own_store(self.word(to, MessageWord::Sent), number.wrapping_add(1)) };
    }

    /// A message from rank `from` has been read, by all threads before they met: tells that rank.
    #[inline(always)]
    fn received<S: System>(&self, system: &S, from: u32) {
        let next = self.number(system, from, MessageWord::Received).0.wrapping_add(1);
        let at = self.messages.word(self.ranks.rank, self.theirs, MessageWord::Credit);
        // SAFETY: as above; the peer's word is of this rank and tile, of which this thread is the only writer.
        unsafe {
            system.own_store(self.word(from, MessageWord::Received), next);
            self.ranks.peer::<u8>(from).at::<u32>(at).publish(system, next);
        }
    }
}
