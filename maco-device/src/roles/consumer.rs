//! The consumers: two warpgroups that run GEMMs, GEMVs and elementwise operations.

mod finish;
mod product;

use crate::data::element::{Element, HalfElement, MmaElement, pack};
use crate::data::epilogue::{Alone, Beside, Epilogue};
use crate::data::inputs::Inputs;
use crate::data::split_k::SplitK;
use crate::data::task::Task;
use crate::data::tile::{OperandTile, Tile};
use crate::data::tile_shape::TileShape;
use crate::hardware::special::CONSUMER_THREADS;
use crate::hardware::{barrier, fence, gpu_scope, mbarrier, memory, special, warp};
use crate::operations::gemv;
use crate::operations::in_band_flags;
use crate::operations::mma_sync;
use crate::operations::simt_consumer::SimtConsumer;
use crate::operations::staging::{buffer, parity};
use crate::operations::wgmma_accumulator::{self, Chunk, Pending, Sum, Wgmma};
use crate::role::Role;
use crate::shared_memory::{self, CHUNKS, SharedMemory};
use crate::simt::Simt;
use crate::sync::gate::Gate;
use crate::sync::ring::{Ring, Stage, scratch_pages};
use maco_abi::CONSUMERS;
#[cfg(target_arch = "nvptx64")]
pub use product::Product;

/// A consumer thread's state.
pub struct Consumer {
    smem: SharedMemory,
    ring: Ring,
    wgmma: Wgmma,
    /// Thread among the 256 consumers.
    thread: u32,
    /// The stage that the newest group of multiplications reads.
    reading: Stage,
    /// Chunks staged so far.
    staged: u32,
    /// The last chunks of a finished tile, packed: staged while the next tile is multiplied, so that no consumer waits for the
    /// store of the first ones.
    pending: Pending,
    /// How many chunks of `pending` are still to be staged; always the last ones.
    waiting: u32,
    /// Of the task that is run.
    pub gate: Gate,
}

impl Consumer {
    /// # Safety
    /// Made by consumer thread `thread` of a CTA whose shared memory is initialised.
    #[inline(always)]
    pub unsafe fn new(smem: SharedMemory, thread: u32) -> Consumer {
        Consumer {
            smem,
            ring: Ring::new(smem),
            wgmma: Wgmma::new(),
            thread,
            reading: Stage::NONE,
            staged: 0,
            pending: Pending::new(),
            waiting: 0,
            gate: Gate::open(smem),
        }
    }

    /// This thread, read anew: what is computed from it is then not kept in registers from one task to the next.
    #[inline(always)]
    fn again(&self) -> u32 {
        special::thread_again() - 128
    }

    /// This thread, from the one register that is kept: what is computed from it is not, be it the same in every step of every task.
    #[inline(always)]
    fn kept(&self) -> u32 {
        special::opaque(self.thread)
    }

    #[inline(always)]
    fn group(&self) -> u32 {
        self.kept() / 128
    }

    #[inline(always)]
    fn lane(&self) -> u32 {
        self.kept() % 32
    }

    /// Whether results wait to be staged.
    #[inline(always)]
    pub fn owes(&self) -> bool {
        self.waiting > 0
    }

    /// Stages everything that waits. Before a task that needs the registers.
    #[inline(always)]
    pub fn settle(&mut self) {
        // Asked so that the answer cannot be mixed with which chunk is next: nearly always there is none.
        if special::opaque(self.waiting) == 0 {
            return;
        }
        while self.waiting > 0 {
            self.stage_pending();
        }
    }

    /// Stages one chunk if its buffer is free already; called while the tensor cores are busy, or there is nothing else to do.
    #[inline(always)]
    pub fn stage_if_free(&mut self) {
        if self.waiting > 0 {
            let chunk = buffer(self.group(), self.staged);
            // SAFETY: an initialised barrier. Lanes may see it complete at different times, and they must act together.
            if warp::all(unsafe { mbarrier::test(self.smem.free(chunk), parity(self.staged) ^ 1) }) {
                self.stage_pending();
            }
        }
    }

    #[inline(always)]
    fn stage_pending(&mut self) {
        self.stage(self.pending.first());
        self.pending.next();
        self.waiting -= 1;
    }

    /// Waits until the buffer of the next chunk is free.
    #[inline(always)]
    fn wait_free(&self) -> u32 {
        let chunk = buffer(self.group(), self.staged);
        // SAFETY: an initialised barrier.
        unsafe { self.smem.wait(self.smem.free(chunk), parity(self.staged) ^ 1) };
        chunk
    }

    /// Chunks staged so far.
    #[inline(always)]
    pub fn staged(&self) -> u32 {
        self.staged
    }

    /// Waits until all that was staged has been sent: all staging memory is the consumers'.
    #[inline(always)]
    pub fn wait_sent(&self) {
        const { assert!(CHUNKS == 4) };
        if special::opaque(self.staged) == 0 {
            return;
        }
        let mut n = self.staged;
        while n < self.staged + CHUNKS / 2 {
            // The chunk that has this buffer next could be staged. Chunks of both warpgroups are sent together.
            // SAFETY: an initialised barrier.
            unsafe { self.smem.wait(self.smem.free(buffer(self.group(), n)), parity(n) ^ 1) };
            n += 1;
        }
    }

    /// Writes this warp's 16 rows of the next chunk and hands them to the store role.
    #[inline(always)]
    fn stage(&mut self, words: Chunk) {
        let chunk = self.wait_free();
        // SAFETY: the chunk is this warpgroup's once it is free, and this warp writes 16 rows of it.
        unsafe { wgmma_accumulator::write(self.smem.chunk(chunk), self.again(), words) };
        fence::proxy_async_shared();
        self.hand_over(chunk);
    }

    /// Hands this warp's share of the next chunk, which lies in buffer `chunk`, to the store role.
    #[inline(always)]
    fn hand_over(&mut self, chunk: u32) {
        self.staged += 1;
        warp::sync();
        // SAFETY: an initialised barrier; if the chunk holds anything, the warp's rows are written and fenced.
        unsafe { shared_memory::arrive(self.smem.staged(chunk), self.lane()) };
    }
}

impl Role for Consumer {
    const CALLS: bool = true;
    type Accumulator<const I: usize, const J: usize> = Sum;

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) -> Sum {
        self.wgmma.zeros::<I, J>()
    }

    #[inline(always)]
    fn mma<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: &mut Sum,
        a: OperandTile,
        b: OperandTile,
        task: Task,
    ) {
        self.multiply::<T, E, I, J>(TileShape::of(I, J), acc, a, b, task);
    }

    #[inline(always)]
    fn mma_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: (&mut Sum, &mut Sum),
        a: OperandTile,
        b: (OperandTile, OperandTile),
        task: Task,
    ) {
        self.multiply_pair::<T, E, I, J>(TileShape::of(I, J), acc, a, b, task);
    }

    #[inline(always)]
    fn store_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        (mut first, mut second): (Sum, Sum),
        _: Tile<E, I, J>,
        task: Task,
        f: impl Fn(f32, f32) -> f32,
    ) {
        self.wgmma.wait_all::<I, J>(&mut first);
        self.wgmma.wait_all::<I, J>(&mut second);
        let sum = wgmma_accumulator::combine::<I, J>(&first, &second, f);
        self.finish::<Alone<T, E>>(&sum, TileShape::of(I, J), SplitK::WHOLE, task, 0);
    }

    #[inline(always)]
    fn store<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        mut acc: Sum,
        _: Tile<E, I, J>,
        split: SplitK,
        task: Task,
    ) {
        self.wgmma.wait_all::<I, J>(&mut acc);
        self.finish::<Alone<T, E>>(&acc, TileShape::of(I, J), split, task, 0);
    }

    #[inline(always)]
    fn gemv<T: Epilogue, E: HalfElement, X: Inputs, const I: usize, const J: usize>(
        &mut self,
        x: Tile<E, I, 0>,
        w: Tile<E, J, 0>,
        inputs: X,
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(f32, X::Values) -> f32,
    ) {
        let (thread, lane) = (self.again(), self.lane());
        let smem = self.smem;
        let y = y.of::<T::Result<E>>();
        let put = |row: u32, col: u32, sum: f32, beside: Beside<T>| {
            let value = beside.finish(f(sum, inputs.at(row, col)));
            let at = y.pointer(row as i32, col as i32);
            // SAFETY: (of both) the position is inside the tile; tiles of one grid do not overlap.
            unsafe {
                // What is carried has 16 bits.
                if T::Result::<E>::BYTES == 2 {
                    let word = smem.word(at as u64);
                    if !word.is_null() {
                        gpu_scope::carry(word, smem.epoch() | pack::<T::Result<E>>(value, 0.0));
                    }
                }
                at.write(T::Result::<E>::element(value));
            }
        };
        let first = thread / (CONSUMERS / CONSUMER_THREADS);
        let places = || (first..(I * J) as u32).step_by(CONSUMER_THREADS as usize);
        let beside = |at: u32| Beside::<T>::read(task, y, (at / J as u32, at % J as u32));
        // Of a thread with one place, what stands beside it comes while operand A does.
        let alone = const { I * J <= CONSUMER_THREADS as usize };
        let ahead = if alone { Some(beside(first)) } else { None };
        let in_band = !smem.word(x.pointer(0, 0) as u64).is_null();
        if in_band {
            self.wait_sent();
        }
        let bulk_rows = x.is_bulk_copied() && w.is_bulk_copied();
        let bit = |condition: bool, bit: u32| if condition { bit } else { 0 };
        let word = self.staged | bit(in_band, gemv::IN_BAND_FLAGS) | bit(bulk_rows, gemv::BULK_ROWS);
        // SAFETY: all consumers run the task, which is published, and the same outline as the loader; a copy is not read behind the barriers of a
        // product.
        let packed = unsafe {
            let (base, shape, of_w) = (x.pointer(0, 0) as u64, gemv::pair(x.rows(), x.cols()), gemv::pair(w.rows(), w.cols()));
            gemv::sum::<E, I, J>(task, self.ring.packed(), smem.0, word, base, shape, x.row_stride(), of_w)
        };
        self.ring = Ring::unpack(smem, packed);
        if !bulk_rows {
            let x = if in_band { in_band_flags::copy(smem, x) } else { x };
            // Nothing comes through the ring.
            for at in places() {
                let (row, col) = (at / J as u32, at % J as u32);
                if row < y.rows() && col < y.cols() {
                    let (mut k, mut sum) = (0, 0.0);
                    while k < w.cols() {
                        sum += x.at(row, k) * w.at(col, k);
                        k += 1;
                    }
                    put(row, col, sum, ahead.unwrap_or_else(|| beside(at)));
                }
            }
            // The next task may have a copy of its operand A.
            barrier::sync_consumers();
            return;
        }
        let (stage, at_stage) = Ring::unpack_stage(smem, packed);
        for at in places() {
            let (row, col) = (at / J as u32, at % J as u32);
            if row < y.rows() && col < y.cols() {
                let (mut part, mut sum) = (0, 0.0);
                while part < mma_sync::PARTS {
                    // SAFETY: as above.
                    sum += f32::from_bits(unsafe { memory::load_shared(at_stage + ((part * J as u32 + col) * I as u32 + row) * 4) });
                    part += 1;
                }
                put(row, col, sum, ahead.unwrap_or_else(|| beside(at)));
            }
        }
        warp::sync();
        if shared_memory::arrives(lane) {
            // SAFETY: the warp no longer reads the stage.
            unsafe { self.ring.release(stage) };
        }
    }

    #[inline(always)]
    fn simt_consumer(&self) -> Option<SimtConsumer> {
        Some(SimtConsumer::consumers(self.ring.packed()))
    }

    #[inline(always)]
    fn ring(&self) -> u64 {
        self.ring.packed()
    }

    #[inline(always)]
    fn set_ring(&mut self, packed: u64) {
        self.ring = Ring::unpack(self.smem, packed);
    }

    #[inline(always)]
    fn simt<const SHARED: usize>(&mut self, early: bool, f: impl FnOnce(&mut Simt<'_, SHARED>)) {
        if SHARED > 0 {
            let pages = scratch_pages(SHARED);
            // SAFETY: all consumers run the same tasks as the loader.
            let (stage, at) = unsafe { self.ring.wait_full(pages) };
            // A stage that is not theirs may be copied into: what a body reads of its scratch may be an index.
            if wgmma_accumulator::agree(stage.is_some()) {
                wgmma_accumulator::simt(self.again(), &mut self.gate, at, f);
            }
            // The stage's next bytes come through the other proxy.
            fence::proxy_async_shared();
            warp::sync();
            if shared_memory::arrives(self.lane()) {
                // SAFETY: the warp has left the body.
                unsafe { self.ring.release(stage) };
            }
            return;
        }
        wgmma_accumulator::simt(self.again(), &mut self.gate, 0, f);
        // A reference on the CPU does not wait.
        // SAFETY: the gate is that of this task. A body may end without having waited.
        if early && cfg!(target_arch = "nvptx64") && unsafe { self.gate.pass() } {
            // SAFETY: the body has ended.
            unsafe { self.gate.end_first() };
        }
    }
}
