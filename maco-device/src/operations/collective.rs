//! Collectives on a tile: each rank sends its part to those who need it, and makes its result of what it receives, in the order of ranks.
//!
//! Which rank sends what is all that a collective is here, and whether packets or data with a signal. Of the latter a tile has several tasks ([`ExchangeTask`]), so that the
//! worker has other work while the tile travels: one sends and one receives; in two steps (two-shot), one sends to the rank that owns the tile, one of that rank adds up and sends
//! the result, and one of all others receives it. Tiles that a GEMM has sent have no task that sends (`operations/pushed_tiles.rs`). How messages are numbered, and when their places are used again,
//! is [`TileMessages`]'.
//!
//! A thread has several blocks of eight elements on their way at a time ([`Turns`]): what a block takes is the time until it has come.

#[cfg(not(target_arch = "nvptx64"))]
use crate::channel::CpuThread;
use crate::channel::{RankView, System, TileMessages, Wait, Which};
use crate::data::element::Element;
use crate::data::inputs::Inputs;
use crate::data::number::Number;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::operations::simt_consumer::SimtConsumer;
use crate::operations::turns::{Turn, Turns, Values};
use maco_abi::{ExchangeTask, Gates};

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
    /// The first coordinate of a tile is the rank that sends what its result is made of.
    pub of_plane: bool,
    /// Some rank sends to another one and does not hear of it.
    pub one_way: bool,
    /// Tiles have owners, if the plan says so.
    pub owned: bool,
}

/// Waits end when the launch is aborted.
pub(super) struct UntilAbort;

impl Wait for UntilAbort {
    #[inline(always)]
    fn until(&self, condition: impl FnMut() -> bool) -> bool {
        #[cfg(target_arch = "nvptx64")]
        return crate::simt::poll(condition);
        #[cfg(not(target_arch = "nvptx64"))]
        crate::simt::give_up::wait_until(condition)
    }
}

/// The executor of this thread.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(super) fn system() -> crate::machine::Lane {
    crate::machine::Lane
}
/// The executor of this thread.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn system() -> CpuThread<fn() -> u32> {
    CpuThread::new(|| 0)
}

impl SimtConsumer {
    /// Sends and receives as `flow` says; `y` is what comes, reduced by `op`. Elements are combined as values, in the order of ranks, and rounded once. On all ranks
    /// `y` has the same size, that of a tile of `x`. Waits end when the launch is aborted; then `y` is not all written.
    #[inline(always)]
    pub fn collective<E: Element, O: Reduction<E::Value>, const A: usize, const B: usize, const I: usize, const J: usize>(
        self,
        x: Tile<E, A, B>,
        y: Tile<E, I, J>,
        task: Task,
        flow: Flow,
        op: O,
    ) {
        // Eight words of each block are on their way, and sixteen of its sum in registers: of larger elements fewer blocks have room.
        if const { E::BYTES > 2 } {
            self.collective_of::<E, O, 2, A, B, I, J>(x, y, task, flow, op);
        } else {
            self.collective_of::<E, O, 4, A, B, I, J>(x, y, task, flow, op);
        }
    }

    /// The same with `T` blocks of a thread together.
    #[inline(always)]
    fn collective_of<E: Element, O: Reduction<E::Value>, const T: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
        self,
        x: Tile<E, A, B>,
        y: Tile<E, I, J>,
        task: Task,
        flow: Flow,
        op: O,
    ) {
        let (wide, turns) = (y.wide(), self.turns(y, x.wide() & y.wide() & x.covers(y.rows(), y.cols())));
        let keep = |turn: &Turn<T>, (), values: Values<E, T>| {
            // SAFETY: tiles of one grid do not overlap.
            unsafe { turns.put(y, wide, turn, values) };
        };
        self.exchange::<E, O, _, T, A, B, I, J>(x, turns, task, flow, op, |_| (), keep);
    }

    /// Sends this thread's blocks of `x` and receives those of a tile of `I` × `J` elements, as `flow` says; `keep` gets them turn by turn, reduced by `op`, with what
    /// `ahead` has loaded before they come. Whether all have come: if not, the launch is aborted.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "what an exchange is, and what is done with it")]
    pub(super) fn exchange<
        E: Element,
        O: Reduction<E::Value>,
        L,
        const T: usize,
        const A: usize,
        const B: usize,
        const I: usize,
        const J: usize,
    >(
        self,
        x: Tile<E, A, B>,
        turns: Turns,
        task: Task,
        flow: Flow,
        op: O,
        ahead: impl Fn(&Turn<T>) -> L,
        keep: impl FnMut(&Turn<T>, L, Values<E, T>),
    ) -> bool {
        // Of large tiles only: other tasks have no code for it.
        let split = task.split_k();
        let signalled = const { maco_abi::is_signalled(I as u64, J as u64, E::BYTES) } && split.parts > 1;
        if signalled && split.parts == ExchangeTask::BY_NCCL {
            // Chunks are along one axis of the grid.
            let chunk = (task.coord(0) + task.coord(1) + task.coord(2)) as u32;
            return self.through_gate(task.gates(), chunk, ExchangeTask::of(split.part, split.parts));
        }
        let (ranks, messages) = task.ranks();
        let rank = ranks.rank;
        let coord = [0, 1, 2].map(|axis| task.coord(axis) as u32);
        // Others may know the tile by this rank.
        let theirs = if flow.by_rank { messages.tile([rank, coord[1], coord[2]]) } else { messages.tile(coord) };
        // SAFETY: where the plan has the messages of this call, which all ranks launch with the same lists of tasks.
        let mut exchange = unsafe { TileMessages::new(ranks, messages, [messages.tile(coord), theirs], flow.one_way) };
        let mut numbered = messages.tile(coord);
        let in_turn = !flow.one_way && messages.is_in_turn();
        if in_turn {
            let turn = messages.turn(coord, flow.of_plane);
            // SAFETY: as above; the planner has ordered the tasks of all ranks so.
            exchange = unsafe { TileMessages::in_turn(ranks, messages, numbered, turn) };
            numbered = turn.index;
        }
        let mut exchange = Exchange { ranks, flow, messages: exchange, signalled, result: ResultOf::Own };
        if signalled && flow.owned {
            let owner = maco_abi::owner(numbered, ranks.ranks);
            match ExchangeTask::of(split.part, split.parts) {
                ExchangeTask::Send | ExchangeTask::Receive | ExchangeTask::Offer | ExchangeTask::Await => {}
                ExchangeTask::SendToOwner => exchange.flow.to = if owner == rank { Which::None } else { Which::One(owner) },
                ExchangeTask::Reduce if owner == rank => exchange.result = ResultOf::Owner,
                ExchangeTask::ReceiveResult if owner != rank => {
                    (exchange.flow.from, exchange.result) = (Which::One(owner), ResultOf::Other);
                }
                // Another rank's.
                ExchangeTask::Reduce | ExchangeTask::ReceiveResult => return true,
            }
        }
        // All threads come to each barrier, also when the launch is aborted, and those without a block.
        let (mut arrived, mut own) = (true, Own { blocks: [E::Eight::default(); T], loaded: false });
        if !signalled || split.part == 0 {
            arrived = exchange.send::<E, T, A, B>(x, turns, &mut own);
        }
        if signalled && split.part == 0 {
            self.sync();
            if self.thread == 0 {
                // SAFETY: all threads have come here.
                unsafe { exchange.messages.signal(&system(), exchange.flow.to) };
            }
            return arrived;
        }
        if signalled && in_turn && flow.owned && exchange.result == ResultOf::Owner {
            // SAFETY: ranks of the launch.
            arrived = unsafe { exchange.messages.begin(&system(), &UntilAbort, Which::All) };
        }
        arrived = arrived && exchange.receive(x, turns, own, op, ahead, keep);
        if flow.owned && exchange.result == ResultOf::Owner {
            self.sync();
            if self.thread == 0 && !exchange.messages.missed(&system()) {
                // SAFETY: all threads have come here, and none has waited in vain: they have stored the result to all ranks.
                unsafe { exchange.messages.signal(&system(), Which::All) };
            }
        }
        if flow.one_way {
            self.sync();
            if self.thread == 0 && arrived {
                // SAFETY: all threads have come here.
                unsafe { exchange.messages.end(&system(), flow.to, flow.from) };
            }
        }
        if in_turn {
            self.sync();
            if self.thread == 0 && arrived {
                // SAFETY: all threads have come here.
                unsafe { exchange.messages.give_back(&system(), exchange.flow.from) };
            }
        }
        arrived
    }
}

impl SimtConsumer {
    /// NCCL exchanges the chunk beside the kernel: says that it is there, or waits until it has been exchanged. Whether it has: if not, the launch is aborted.
    #[inline(always)]
    fn through_gate(self, gates: Gates, chunk: u32, task: ExchangeTask) -> bool {
        let system = system();
        if task == ExchangeTask::Offer {
            self.sync();
            if self.thread == 0 {
                // SAFETY: a live gate, whose first word one task of the launch writes, and the host's stream when it has seen that.
                unsafe { system.publish(gates.ready(chunk) as *mut u32, 1) };
            }
            return true;
        }
        let done = gates.done(chunk) as *const u32;
        // SAFETY: a live gate.
        let exchanged = UntilAbort.until(|| unsafe { system.poll(done) } != 0);
        system.acquire();
        exchanged
    }
}

/// This rank's own blocks of the first turn, if they have been loaded to be sent: they need not be loaded again when others have come.
struct Own<E: Element, const T: usize> {
    blocks: [E::Eight; T],
    loaded: bool,
}

/// Whose result is made of the blocks that come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultOf {
    /// This rank's.
    Own,
    /// That of all ranks: this one owns the tile, and sends it.
    Owner,
    /// It has come from the owner as it is.
    Other,
}

/// What a rank does with the blocks of a tile.
#[derive(Clone, Copy)]
struct Exchange {
    ranks: RankView,
    flow: Flow,
    messages: TileMessages,
    /// Messages are data with a signal.
    signalled: bool,
    result: ResultOf,
}

impl Exchange {
    /// The part of `x` for rank `rank`.
    #[inline(always)]
    fn part<E: Element, const A: usize, const B: usize>(&self, x: Tile<E, A, B>, rank: u32) -> Tile<E, A, B> {
        if self.flow.by_plane { x.of_plane(rank as i32) } else { x }
    }

    /// Sends this thread's blocks; `false` if the launch is aborted.
    #[inline(always)]
    fn send<E: Element, const T: usize, const A: usize, const B: usize>(
        &self,
        x: Tile<E, A, B>,
        mut turns: Turns,
        own: &mut Own<E, T>,
    ) -> bool {
        let (system, wide, count) = (system(), x.wide(), self.ranks.ranks);
        // SAFETY: ranks of the launch.
        if !unsafe { self.messages.begin(&system, &UntilAbort, self.flow.to) } {
            return false;
        }
        if count == 1 || self.flow.to == Which::None {
            return true;
        }
        while turns.any() {
            let turn = turns.next::<T>();
            let mut eights = [E::Eight::default(); T];
            if !self.flow.by_plane {
                eights = turns.load(x, wide, &turn);
                if !own.loaded {
                    *own = Own { blocks: eights, loaded: true };
                }
            }
            let mut n = 1;
            while n < count {
                // Ranks send to different ones at a time.
                let to = self.ranks.behind(n);
                if self.flow.to.has(to) {
                    if self.flow.by_plane {
                        eights = turns.load(self.part(x, to), wide, &turn);
                    }
                    self.send_turn::<E, T>(to, &turn, &eights);
                }
                n += 1;
            }
        }
        true
    }

    /// Stores blocks to rank `to`.
    #[inline(always)]
    fn send_turn<E: Element, const T: usize>(&self, to: u32, turn: &Turn<T>, eights: &[E::Eight; T]) {
        let system = system();
        let mut n = 0;
        while n < T {
            if turn.there[n] {
                let (words, block) = (eights[n].as_ref(), turn.number[n]);
                if self.signalled {
                    let at = block * const { 8 * E::BYTES };
                    let mut word = 0;
                    while word < const { 2 * E::BYTES } as usize {
                        let to_words = at + 4 * word as u32;
                        if const { E::BYTES == 1 } {
                            // SAFETY: a message has a tile's blocks, of which this one is this thread's; it is signalled behind all of them.
                            unsafe { self.messages.store(&system, to, to_words, [words[word], words[word + 1]]) };
                        } else {
                            let four = [words[word], words[word + 1], words[word + 2], words[word + 3]];
                            // SAFETY: as above.
                            unsafe { self.messages.store(&system, to, to_words, four) };
                        }
                        word += 4;
                    }
                } else {
                    let mut pair = 0;
                    while pair < E::BYTES {
                        let word = 2 * pair as usize;
                        // SAFETY: as above.
                        unsafe { self.messages.send(&system, to, block * E::BYTES + pair, [words[word], words[word + 1]]) };
                        pair += 1;
                    }
                }
            }
            n += 1;
        }
    }

    /// Makes this thread's blocks, and has them kept; `false` if the launch is aborted.
    #[inline(always)]
    fn receive<E: Element, O: Reduction<E::Value>, L, const T: usize, const A: usize, const B: usize>(
        &self,
        x: Tile<E, A, B>,
        mut turns: Turns,
        mut own: Own<E, T>,
        op: O,
        ahead: impl Fn(&Turn<T>) -> L,
        mut keep: impl FnMut(&Turn<T>, L, Values<E, T>),
    ) -> bool {
        let wide = x.wide();
        let RankView { rank, ranks: count, .. } = self.ranks;
        // SAFETY: these ranks send to this one.
        if self.signalled && !unsafe { self.messages.wait(&system(), &UntilAbort, self.flow.from) } {
            return false;
        }
        while turns.any() {
            let turn = turns.next();
            let loaded = ahead(&turn);
            // Zeros, not an `Option`: ptxas keeps what is not defined on all paths through the whole launch (docs/internals/gemm.md, "Registers").
            let mut all = [E::open(E::Eight::default()); T];
            let (mut any, mut from) = (false, 0);
            while from < count {
                if self.flow.from.has(from) {
                    let mut eights = [E::Eight::default(); T];
                    if from == rank {
                        eights = if own.loaded { own.blocks } else { turns.load(self.part(x, from), wide, &turn) };
                        own.loaded = false;
                    } else if !self.receive_turn::<E, T>(from, &turn, &mut eights) {
                        return false;
                    }
                    let mut n = 0;
                    while n < T {
                        let values = E::open(eights[n]);
                        all[n] = core::array::from_fn(|at| if any { op.combine(all[n][at], values[at]) } else { values[at] });
                        n += 1;
                    }
                    any = true;
                }
                from += 1;
            }
            if any {
                if !self.flow.owned || self.result != ResultOf::Other {
                    all = all.map(|block| block.map(|value| op.finish(value, count)));
                }
                if self.flow.owned && self.result == ResultOf::Owner {
                    let eights = all.map(E::close);
                    let mut n = 1;
                    while n < count {
                        self.send_turn::<E, T>(self.ranks.behind(n), &turn, &eights);
                        n += 1;
                    }
                }
                keep(&turn, loaded, all);
            }
        }
        true
    }

    /// Loads blocks from rank `from`; `false` if the launch is aborted.
    #[inline(always)]
    fn receive_turn<E: Element, const T: usize>(&self, from: u32, turn: &Turn<T>, eights: &mut [E::Eight; T]) -> bool {
        let system = system();
        let mut n = 0;
        while n < T {
            let (words, block) = (eights[n].as_mut(), turn.number[n]);
            if self.signalled {
                let at = block * const { 8 * E::BYTES };
                let mut word = 0;
                while word < const { 2 * E::BYTES } as usize {
                    let of_words = at + 4 * word as u32;
                    if const { E::BYTES == 1 } {
                        // SAFETY: a block of the message, whose signal this thread has seen.
                        words[word..][..2].copy_from_slice(&unsafe { self.messages.load::<_, 2>(&system, from, of_words) });
                    } else {
                        // SAFETY: as above.
                        words[word..][..4].copy_from_slice(&unsafe { self.messages.load::<_, 4>(&system, from, of_words) });
                    }
                    word += 4;
                }
            } else if turn.there[n] {
                let pairs = words.as_chunks_mut().0;
                // SAFETY: as above; that rank sends to this one.
                if !unsafe { self.messages.receive(&system, &UntilAbort, from, block * E::BYTES, pairs) } {
                    return false;
                }
            }
            n += 1;
        }
        true
    }
}
