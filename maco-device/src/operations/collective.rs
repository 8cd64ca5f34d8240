//! Collectives on a tile: each rank sends its part to those who need it, and makes its result of what it receives, in the order of ranks.
//!
//! Which rank sends what is all that a collective is here. How messages are numbered, and when their places are used again, is
//! [`TileMessages`]'.

#[cfg(not(target_arch = "nvptx64"))]
use crate::channel::CpuThread;
use crate::channel::{RankView, TileMessages, Wait, Which};
use crate::data::element::Element;
use crate::data::number::Number;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::operations::grid_stride::GridStride;
use crate::operations::simt_consumer::SimtConsumer;

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
    /// Some rank sends to another one and does not hear of it.
    pub one_way: bool,
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
        let (ranks, messages) = task.ranks();
        let rank = ranks.rank;
        let coord = [0, 1, 2].map(|axis| task.coord(axis) as u32);
        // Others may know the tile by this rank.
        let theirs = if flow.by_rank { messages.tile([rank, coord[1], coord[2]]) } else { messages.tile(coord) };
        // SAFETY: where the plan has the messages of this call, which all ranks launch with the same lists of tasks.
        let exchange = unsafe { TileMessages::new(ranks, messages, [messages.tile(coord), theirs], flow.one_way) };
        let arrived = self.exchange_blocks(x, y, flow, op, exchange, ranks);
        // All threads come here, also when the launch is aborted: those without a block wait here for the others.
        if flow.one_way {
            self.sync();
            if self.thread == 0 && arrived {
                // SAFETY: all threads have come here.
                unsafe { exchange.end(&system(), flow.to, flow.from) };
            }
        }
    }

    /// Each thread its blocks of eight elements; `false` if the launch is aborted.
    #[inline(always)]
    fn exchange_blocks<E: Element, O: Reduction<E::Value>, const A: usize, const B: usize, const I: usize, const J: usize>(
        self,
        x: Tile<E, A, B>,
        y: Tile<E, I, J>,
        flow: Flow,
        op: O,
        exchange: TileMessages,
        ranks: RankView,
    ) -> bool {
        // Pairs of words of eight elements.
        let pairs = E::BYTES;
        let wide = x.wide();
        let cols = y.cols();
        let rows = if cols == 0 { 0 } else { y.rows() };
        let walk = GridStride::new(self.threads, cols.div_ceil(8).max(1));
        let RankView { rank, ranks: count, .. } = ranks;
        let system = system();
        // SAFETY: ranks of the launch.
        if !unsafe { exchange.begin(&system, &UntilAbort, flow.to) } {
            return false;
        }
        let part = |rank: u32, (row, beside): (u32, u32)| {
            let part = if flow.by_plane { x.of_plane(rank as i32) } else { x };
            part.block(wide, row, 8 * beside)
        };
        let (mut at, mut block) = (walk.start(self.thread), self.thread);
        while at.0 < rows {
            let mut n = 1;
            while n < count {
                // Ranks send to different ones at a time.
                let to = ranks.behind(n);
                if flow.to.has(to) {
                    let eight = part(to, at);
                    let eight = eight.as_ref();
                    let mut pair = 0;
                    while pair < pairs {
                        let word = 2 * pair as usize;
                        // SAFETY: a message has a tile's blocks, of which this one is this thread's.
                        unsafe { exchange.send(&system, to, block * pairs + pair, [eight[word], eight[word + 1]]) };
                        pair += 1;
                    }
                }
                n += 1;
            }
            (at, block) = (walk.next(at), block + self.threads);
        }
        let put = y.wide();
        let (mut at, mut block) = (walk.start(self.thread), self.thread);
        while at.0 < rows {
            // Zeros, not an `Option`: ptxas keeps what is not defined on all paths through the whole launch (docs/internals/gemm.md, "Registers").
            let mut all = E::open(E::Eight::default());
            let (mut any, mut from) = (false, 0);
            while from < count {
                if flow.from.has(from) {
                    let mut eight = E::Eight::default();
                    if from == rank {
                        eight = part(from, at);
                    } else {
                        let words = eight.as_mut().as_chunks_mut().0;
                        // SAFETY: as above; that rank sends to this one.
                        if !unsafe { exchange.receive(&system, &UntilAbort, from, block * pairs, words) } {
                            return false;
                        }
                    }
                    let values = E::open(eight);
                    all = core::array::from_fn(|n| if any { op.combine(all[n], values[n]) } else { values[n] });
                    any = true;
                }
                from += 1;
            }
            if any {
                // SAFETY: this thread's block; tiles of one grid do not overlap.
                unsafe { y.put_block(put, at.0, 8 * at.1, all.map(|value| op.finish(value, count))) };
            }
            (at, block) = (walk.next(at), block + self.threads);
        }
        true
    }
}
