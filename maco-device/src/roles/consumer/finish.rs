//! The end of a GEMM: its sum, whole or in parts, goes through the epilogue and to the store role.
//!
//! One code for all tile shapes, since a sum is in the same registers whatever its shape; which epilogue it is is asked for each chunk, or for each tile.

use super::Consumer;
use crate::data::element::MmaElement;
use crate::data::epilogue::{Epilogue, Epilogues, WithEpilogue};
use crate::data::split_k::{INCOMPLETE, OwnedChunks, SplitK};
use crate::data::task::Task;
use crate::data::tile_shape::TileShape;
use crate::hardware::{barrier, memory, special, warp};
use crate::operations::wgmma_accumulator::{self, Chunk, Columns, Pending, Sum, Turning};
use crate::shared_memory::CHUNKS;
use maco_abi::{self as abi, BOX};

impl Consumer {
    /// All products of `sum` are made: gives the last stage back, and writes the tile, or this task's part of it. `P` knows the task's instance.
    #[inline(always)]
    pub(super) fn finish<P: Epilogues>(&mut self, sum: &Sum, shape: TileShape, split: SplitK, task: Task) {
        self.give_back();
        self.settle();
        if split.parts > 1 {
            // SAFETY: the task runs, so its launch is live.
            unsafe { self.fix_up::<P>(sum, shape, split, task) };
            return;
        }
        P::with(task.op(), Put { consumer: self, sum, shape, task });
    }

    /// Adds a part to a tile's sum, and stages the chunks of the whole sum that this CTA adds up, or one that is none: see [`crate::data::split_k`]. The store
    /// role learns from a word beside the first ones whose they are.
    ///
    /// # Safety
    /// `split` is one of several parts, of a live launch; all consumers call.
    #[inline(always)]
    unsafe fn fix_up<P: Epilogues>(&mut self, part: &Sum, shape: TileShape, split: SplitK, task: Task) {
        let chunks = shape.own_columns() / BOX;
        let own = split.owned(split.part, chunks);
        // What others add up; of a task that does not look for them, all.
        let stays = if split.looks > 0 { own } else { OwnedChunks::NONE };
        // SAFETY: the plan keeps this memory for the part alone.
        unsafe { wgmma_accumulator::keep(part, shape, split.chunk(split.part, chunks, 0), stays, self.again()) };
        // A second one moves up when the first is staged.
        let (mut sum, then) = wgmma_accumulator::owned(part, shape, own.first);
        // Nothing waits any more: said here, its registers are free.
        self.pending = Pending::new();
        // SAFETY: passed on from the caller; all threads have met.
        let mut owners = self.agree(|| unsafe { split.arrive(chunks) });
        if owners == INCOMPLETE {
            // SAFETY: as above.
            unsafe {
                wgmma_accumulator::keep_columns(&sum, split.chunk(split.part, chunks, own.first), self.again());
                if own.first + 1 < own.end {
                    wgmma_accumulator::keep_columns(&then, split.chunk(split.part, chunks, own.first + 1), self.again());
                }
            }
            // SAFETY: as above, and now all is written.
            owners = self.agree(|| unsafe { split.leave(chunks) });
        }
        owners = split.known(owners, chunks);
        if owners == 0 {
            let buffer = self.wait_free();
            self.hand_over(buffer);
        }
        while owners != 0 {
            let owner = split.next(owners);
            owners &= !(1 << owner);
            let OwnedChunks { first: mut chunk, end } = split.owned(owner, chunks);
            while chunk < end {
                let mut n = 1;
                if owner != split.part {
                    sum = wgmma_accumulator::nothing();
                    n = 0;
                }
                while n < split.parts {
                    // Several at a time: what a part takes is the time until its bytes come.
                    // SAFETY: (of both) all parts have arrived, and have written what this CTA does not own, or all.
                    unsafe {
                        let at = |more: u32| split.chunk(split.nth(owner, n + more), chunks, chunk).cast_const();
                        wgmma_accumulator::add(&mut sum, at, split.parts - n, self.again());
                    }
                    n += wgmma_accumulator::ADDED;
                }
                let thread = self.again();
                // Which epilogue it is is asked anew: what follows from the answer would be in registers through the loops.
                let (first, second, two) = P::with(task.op(), Whole { sum: &sum, chunk, shape, task, thread });
                self.stage(first);
                if two {
                    self.stage(second);
                }
                sum.clone_from(&then);
                chunk += 1;
            }
        }
    }

    /// What one thread finds behind a barrier of all, to all; and to the store role, with what is staged next.
    #[inline(always)]
    fn agree(&self, find: impl FnOnce() -> u32) -> u32 {
        // All that this CTA has written is announced by one thread.
        barrier::sync_consumers();
        if self.again() == 0 {
            let found = find();
            // The store role reads the word that is there as long as its chunks are not free.
            self.wait_free();
            // SAFETY: a word of shared memory, which all consumers have read that read it before. It is written again when chunks of both warpgroups
            // that were staged behind this have been read.
            unsafe { memory::store_shared(self.smem.owners(self.staged()), found) };
        }
        warp::sync();
        // Behind this, all see what the parts have written, since the thread that has seen them arrive has acquired it.
        barrier::sync_consumers();
        // SAFETY: as above.
        unsafe { memory::load_shared(self.smem.owners(self.staged())) }
    }
}

/// Stages a whole sum, or keeps its end for the next tile's time.
struct Put<'a> {
    consumer: &'a mut Consumer,
    sum: &'a Sum,
    shape: TileShape,
    task: Task,
}

impl WithEpilogue for Put<'_> {
    type Output = ();

    #[inline(always)]
    fn none() {}

    #[inline(always)]
    fn of<T: Epilogue, E: MmaElement>(self) {
        const { assert!(CHUNKS == 4, "two chunks of a warpgroup find room, and two more can wait") };
        let Put { consumer, sum, shape, task } = self;
        let chunks = shape.own_columns() / abi::columns(E::BYTES);
        let thread = consumer.again();
        if const { T::ROLLED && T::WORDS == 0 && E::BYTES == 2 } {
            let (mut turning, mut n) = (Turning::of(sum), 0);
            let last = loop {
                let words = turning.front::<T, E>(n, shape, task, thread);
                // Opaque, or each turn would be written out.
                n = special::opaque(n + 1);
                if n <= 2 {
                    consumer.stage(words.clone());
                }
                if n >= chunks {
                    break words;
                }
                turning.turn(words);
            };
            if chunks > 2 {
                consumer.pending = Pending::of(turning.behind(), last);
                consumer.staged.keep_two();
            }
            return;
        }
        macro_rules! chunk {
            ($n:literal) => {
                wgmma_accumulator::chunk::<T, E, $n>(sum, shape, task, thread)
            };
        }
        if T::WORDS > 0 {
            // Nothing waits any more: said here, its registers are free for operands. A tile of one chunk or two does not write them.
            consumer.pending = Pending::new();
        }
        consumer.stage(chunk!(0));
        if chunks < 2 {
            return;
        }
        consumer.stage(chunk!(1));
        if chunks < 4 {
            return;
        }
        // Of two bytes there are no more than four.
        if E::BYTES == 2 || chunks < 8 {
            consumer.pending = Pending::of(chunk!(2), chunk!(3));
        } else {
            consumer.stage(chunk!(2));
            consumer.stage(chunk!(3));
            consumer.stage(chunk!(4));
            consumer.stage(chunk!(5));
            consumer.pending = Pending::of(chunk!(6), chunk!(7));
        }
        consumer.staged.keep_two();
    }
}

/// 64 columns of a whole sum that were added up, as one chunk of the store role, or two.
struct Whole<'a> {
    sum: &'a Columns,
    /// Which 64 of this warpgroup's columns.
    chunk: u32,
    shape: TileShape,
    task: Task,
    thread: u32,
}

impl WithEpilogue for Whole<'_> {
    /// The second, if there is one; not an option: ptxas keeps what is undefined then (docs/internals/gemm.md).
    type Output = (Chunk, Chunk, bool);

    #[inline(always)]
    fn none() -> Self::Output {
        (wgmma_accumulator::empty(), wgmma_accumulator::empty(), false)
    }

    #[inline(always)]
    fn of<T: Epilogue, E: MmaElement>(self) -> Self::Output {
        let Whole { sum, chunk, shape, task, thread } = self;
        // Chunks of the store role in one of the sum.
        let each = BOX / abi::columns(E::BYTES);
        let first = wgmma_accumulator::whole::<T, E, 0>(sum, each * chunk, shape, task, thread);
        if each == 1 {
            return (first, wgmma_accumulator::empty(), false);
        }
        (first, wgmma_accumulator::whole::<T, E, 1>(sum, each * chunk, shape, task, thread), true)
    }
}
