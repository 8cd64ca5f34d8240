//! Collectives on a tile: each rank sends its part to those who need it, as packets, and makes its result of what it receives, in the order of ranks.
//!
//! A packet carries its flag (NCCL's LL protocol, with words of 64 bits), so that data need no signal behind them. Which rank sends what is all that a collective is
//! here; where messages lie is [`maco_abi::Messages`]'.
//!
//! A place is used again by the message after the next one. Where a rank hears of all that it sends to, messages have the number of their launch: it has received
//! those of the launch between, which its peers sent when they had ended the one before. No more is needed. Messages that nobody answers are numbered by themselves, and
//! wait for a credit.

#[cfg(not(target_arch = "nvptx64"))]
use crate::channel::CpuThread;
use crate::channel::{System, packet, packet_data, packet_flag, reached};
use crate::data::element::Element;
use crate::data::number::Number;
use crate::data::task::{RankView, Task};
use crate::data::tile::Tile;
use crate::operations::simt_consumer::SimtConsumer;
use maco_abi::{MessageWord, Messages};

/// How values of all ranks become one.
pub trait Reduction<V>: Copy {
    /// Of two, the first of which is of lower ranks.
    fn combine(self, a: V, b: V) -> V;
    /// Of all `ranks` ranks.
    #[inline(always)]
    fn finish(self, all: V, _ranks: u32) -> V {
        all
    }
}

/// The sum: of `f32` in the order of ranks, of integers with wrap.
#[derive(Clone, Copy, Debug)]
pub struct Sum;
/// The sum divided by the number of ranks; of integers without what is behind the point.
#[derive(Clone, Copy, Debug)]
pub struct Mean;
/// The greatest; of values of which one is not a number, that.
#[derive(Clone, Copy, Debug)]
pub struct Max;
/// The least; of values of which one is not a number, that.
#[derive(Clone, Copy, Debug)]
pub struct Min;

impl<V: Number> Reduction<V> for Sum {
    #[inline(always)]
    fn combine(self, a: V, b: V) -> V {
        a.plus(b)
    }
}

impl<V: Number> Reduction<V> for Mean {
    #[inline(always)]
    fn combine(self, a: V, b: V) -> V {
        a.plus(b)
    }
    #[inline(always)]
    fn finish(self, all: V, ranks: u32) -> V {
        all.over(ranks)
    }
}

impl<V: Number> Reduction<V> for Max {
    #[inline(always)]
    fn combine(self, a: V, b: V) -> V {
        if a > b || a.is_no_number() { a } else { b }
    }
}

impl<V: Number> Reduction<V> for Min {
    #[inline(always)]
    fn combine(self, a: V, b: V) -> V {
        if a < b || a.is_no_number() { a } else { b }
    }
}

/// What one rank sends, there is only one value of.
#[derive(Clone, Copy)]
pub struct Only;

impl<V> Reduction<V> for Only {
    #[inline(always)]
    fn combine(self, a: V, _: V) -> V {
        a
    }
}

/// Some of the ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// This one, which there is.
    One(u32),
    /// None.
    None,
}

impl Which {
    #[inline(always)]
    fn has(self, rank: u32) -> bool {
        match self {
            Which::All => true,
            Which::One(one) => one == rank,
            Which::None => false,
        }
    }
}

/// What a rank does with a tile.
#[derive(Clone, Copy)]
pub struct Flow {
    /// Whom it sends its part.
    pub to: Which,
    /// Whose parts its result is made of, at least one.
    pub from: Which,
    /// The part for rank r is plane r of the input; else the tile.
    pub by_plane: bool,
    /// The first coordinate of a tile is a rank: who receives it knows it by the sender's.
    pub by_rank: bool,
    /// Some rank sends to another one and does not hear of it.
    pub one_way: bool,
}

/// Waits until `condition` holds; false if the launch is aborted first.
#[inline(always)]
fn wait(condition: impl FnMut() -> bool) -> bool {
    #[cfg(target_arch = "nvptx64")]
    return crate::simt::poll(condition);
    #[cfg(not(target_arch = "nvptx64"))]
    crate::simt::give_up::wait_until(condition)
}

/// The executor of this thread.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn system() -> crate::machine::Lane {
    crate::machine::Lane
}
/// The executor of this thread.
#[cfg(not(target_arch = "nvptx64"))]
fn system() -> CpuThread<fn() -> u32> {
    CpuThread::new(|| 0)
}

/// The messages of one tile.
struct Mail<S> {
    system: S,
    ranks: RankView,
    messages: Messages,
    /// The tile, by this rank's number and by that of others.
    tile: u32,
    theirs: u32,
    /// Messages have numbers of their own.
    one_way: bool,
}

impl<S: System> Mail<S> {
    /// This rank's own word of `peer`.
    #[inline(always)]
    fn word(&self, peer: u32, word: MessageWord) -> *mut u32 {
        self.ranks.own(self.messages.word(peer, self.tile, word)).cast()
    }

    /// The number of the next message to or from `peer`, as `word` counts them, and its flag.
    #[inline(always)]
    fn number(&self, peer: u32, word: MessageWord) -> (u32, u32) {
        if !self.one_way {
            return (self.ranks.launch, maco_abi::launch_flag(self.ranks.launch));
        }
        // SAFETY: a word that only tasks of this rank and tile use, one a launch.
        let number = unsafe { self.system.own_load(self.word(peer, word)) };
        (number, maco_abi::message_flag(number))
    }

    /// Stores pair `n` of the message to rank `to`.
    #[inline(always)]
    fn send(&self, to: u32, n: u32, [a, b]: [u32; 2]) {
        let (number, flag) = self.number(to, MessageWord::Sent);
        let at = self.messages.message(number, self.ranks.rank, self.theirs) + 16 * n as u64;
        // SAFETY: the message of this rank and tile, which has as many pairs; no other thread stores this one, and its reader has read what was there.
        unsafe { self.ranks.peer::<u8>(to).at(at).store_packets(&self.system, [packet(a, flag), packet(b, flag)]) };
    }

    /// Pair `n` of the message from rank `from`; `None` if the launch is aborted before it comes.
    #[inline(always)]
    fn receive(&self, from: u32, n: u32) -> Option<[u32; 2]> {
        let (number, flag) = self.number(from, MessageWord::Received);
        let at = self.messages.message(number, from, self.tile) + 16 * n as u64;
        let at = self.ranks.own(at).cast::<u64>();
        let mut words = [0; 2];
        let found = wait(|| {
            // SAFETY: two packets of this rank's symmetric memory at a 16-byte boundary.
            words = unsafe { self.system.load_packets(at) };
            packet_flag(words[0]) == flag && packet_flag(words[1]) == flag
        });
        if found { Some(words.map(packet_data)) } else { self.miss(from) }
    }

    /// Nothing has come from rank `from`.
    #[cold]
    fn miss<T>(&self, from: u32) -> Option<T> {
        // SAFETY: the word of this tile, which all its threads may write and nobody reads before the launch has ended.
        unsafe { self.system.tell(self.ranks.missing.wrapping_add((self.messages.first + self.tile) as usize), from + 1) };
        None
    }

    /// Waits until rank `to` has read what lies where the next message goes; false if the launch is aborted first.
    #[inline(always)]
    fn wait_for_credit(&self, to: u32) -> bool {
        let (number, _) = self.number(to, MessageWord::Sent);
        let at = self.word(to, MessageWord::Credit);
        // SAFETY: an aligned word of this rank's symmetric memory.
        let found = wait(|| reached(unsafe { self.system.poll(at) }, number.wrapping_sub(1)));
        self.system.acquire();
        found || self.miss::<()>(to).is_some()
    }

    /// A message to rank `to` has been sent, by all threads before they met.
    #[inline(always)]
    fn sent(&self, to: u32) {
        let (number, _) = self.number(to, MessageWord::Sent);
        // SAFETY: as in `number`; the threads have all loaded it.
        unsafe { self.system.own_store(self.word(to, MessageWord::Sent), number.wrapping_add(1)) };
    }

    /// A message from rank `from` has been read, by all threads before they met: tells that rank.
    #[inline(always)]
    fn received(&self, from: u32) {
        let next = self.number(from, MessageWord::Received).0.wrapping_add(1);
        let at = self.messages.word(self.ranks.rank, self.theirs, MessageWord::Credit);
        // SAFETY: as above; the peer's word is of this rank and tile, of which this thread is the only writer.
        unsafe {
            self.system.own_store(self.word(from, MessageWord::Received), next);
            self.ranks.peer::<u8>(from).at::<u32>(at).publish(&self.system, next);
        }
    }
}

impl SimtConsumer {
    /// Sends and receives as `flow` says; `y` is what comes, reduced by `op`. Elements are combined as values, in the order of ranks, and rounded once. On all ranks
    /// `y` has the same size, that of a tile of `x`. `false` if the launch is aborted.
    #[inline(always)]
    pub fn collective<E: Element, O: Reduction<E::Value>, const A: usize, const B: usize, const I: usize, const J: usize>(
        self,
        x: Tile<E, A, B>,
        y: Tile<E, I, J>,
        task: Task,
        flow: Flow,
        op: O,
    ) -> bool {
        // Words of eight elements.
        let words = const { 2 * E::BYTES };
        let (rows, cols) = (y.rows(), y.cols());
        let (across, wide) = (cols.div_ceil(8), x.wide());
        let (ranks, messages) = task.ranks();
        let RankView { rank, ranks: count, .. } = ranks;
        let coord = [0, 1, 2].map(|axis| task.coord(axis) as u32);
        // Others may know the tile by this rank.
        let theirs = if flow.by_rank { messages.tile([rank, coord[1], coord[2]]) } else { messages.tile(coord) };
        let mail = Mail { system: system(), ranks, messages, tile: messages.tile(coord), theirs, one_way: flow.one_way };
        // Ranks send to different ones at a time.
        let peer = |n: u32| if rank + n < count { rank + n } else { rank + n - count };
        if flow.one_way {
            let mut n = 1;
            while n < count {
                if flow.to.has(peer(n)) && !mail.wait_for_credit(peer(n)) {
                    return false;
                }
                n += 1;
            }
        }
        let part = |rank: u32| if flow.by_plane { x.of_plane(rank as i32) } else { x };
        let mut block = self.thread;
        while block < rows * across {
            let (row, col) = (block / across, block % across * 8);
            let mut n = 1;
            while n < count {
                let to = peer(n);
                if flow.to.has(to) {
                    let eight = part(to).block(wide, row, col);
                    let eight = eight.as_ref();
                    let mut pair = 0;
                    while pair < words / 2 {
                        let at = 2 * pair as usize;
                        mail.send(to, block * (words / 2) + pair, [eight[at], eight[at + 1]]);
                        pair += 1;
                    }
                }
                n += 1;
            }
            block += self.threads;
        }
        let put = y.wide();
        let mut block = self.thread;
        while block < rows * across {
            let (row, col) = (block / across, block % across * 8);
            let mut all: Option<[E::Value; 8]> = None;
            let mut from = 0;
            while from < count {
                if flow.from.has(from) {
                    let mut eight = E::Eight::default();
                    if from == rank {
                        eight = part(from).block(wide, row, col);
                    } else {
                        let mut pair = 0;
                        while pair < words / 2 {
                            let Some(two) = mail.receive(from, block * (words / 2) + pair) else { return false };
                            eight.as_mut()[2 * pair as usize..][..2].copy_from_slice(&two);
                            pair += 1;
                        }
                    }
                    let values = E::open(eight);
                    all = Some(match all {
                        None => values,
                        Some(before) => core::array::from_fn(|n| op.combine(before[n], values[n])),
                    });
                }
                from += 1;
            }
            if let Some(all) = all {
                // SAFETY: this thread's block; tiles of one grid do not overlap.
                unsafe { y.put_block(put, row, col, all.map(|value| op.finish(value, count))) };
            }
            block += self.threads;
        }
        if flow.one_way {
            self.sync();
            let mut n = 1;
            while n < count && self.thread == 0 {
                if flow.to.has(peer(n)) {
                    mail.sent(peer(n));
                }
                if flow.from.has(peer(n)) {
                    mail.received(peer(n));
                }
                n += 1;
            }
        }
        true
    }
}
