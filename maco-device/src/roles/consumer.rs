//! The consumers: two warpgroups that run GEMMs, GEMVs and elementwise operations.

mod finish;
mod gemm;

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
use crate::operations::rmsnorm_prologue;
use crate::operations::simt_consumer::SimtConsumer;
use crate::operations::staging::{Staged, buffer, parity};
use crate::operations::wgmma_accumulator::{self, Chunk, Pending, Sum, Wgmma};
use crate::role::{Role, Sharing};
use crate::shared_memory::{self, CHUNKS, SharedMemory};
use crate::simt::Simt;
use crate::sync::gate::Gate;
use crate::sync::ring::{Ring, Stage, scratch_pages};
#[cfg(target_arch = "nvptx64")]
pub use gemm::GemmConsumer;
use maco_abi::CONSUMERS;

/// A consumer thread's state.
pub struct Consumer {
    smem: SharedMemory,
    ring: Ring,
    wgmma: Wgmma,
    /// Among the 256 consumers.
    thread: u32,
    /// The stage that the newest group of multiplications reads.
    reading: Stage,
    /// Chunks staged so far, and how many of `pending` are still to be staged: always the last ones.
    staged: Staged,
    /// The last chunks of a finished tile, packed: staged while the next tile is multiplied, so that no consumer waits for the
    /// store of the first ones.
    pending: Pending,
    /// Of the task that is run.
    pub gate: Gate,
    /// Rows and columns of its tile, if it is a GEMV whose code is for several.
    tile: Option<(u32, u32)>,
}

impl Consumer {
    /// # Safety
    /// Made by a consumer thread of a CTA whose shared memory is initialised.
    #[inline(always)]
    pub unsafe fn new(smem: SharedMemory) -> Consumer {
        Consumer {
            smem,
            ring: Ring::new(smem),
            wgmma: Wgmma::new(),
            thread: special::thread() - 128,
            reading: Stage::NONE,
            staged: Staged::NOTHING,
            pending: Pending::new(),
            gate: Gate::open(smem, 0),
            tile: None,
        }
    }

    /// This thread among the 256 consumers, read anew: what is computed from it is then not kept in registers from one task to the next. `ptxas` keeps the number
    /// itself in one register, which is enough.
    #[inline(always)]
    fn again(&self) -> u32 {
        special::opaque(self.thread)
    }

    #[inline(always)]
    fn group(&self) -> u32 {
        self.again() / 128
    }

    #[inline(always)]
    fn lane(&self) -> u32 {
        self.again() % 32
    }

    /// This warp among the consumers.
    #[inline(always)]
    pub fn warp(&self) -> u32 {
        self.again() / 32
    }

    /// Whether results wait to be staged.
    #[inline(always)]
    pub fn owes(&self) -> bool {
        self.staged.owes()
    }

    /// Stages everything that waits. Before a task that needs the registers.
    #[inline(always)]
    pub fn settle(&mut self) {
        // Asked so that the answer cannot be mixed with which chunk is next: nearly always there is none.
        if special::opaque(self.staged.waiting()) == 0 {
            return;
        }
        while self.staged.owes() {
            self.stage_pending();
        }
    }

    /// Stages one chunk if its buffer is free already; called while the tensor cores are busy, or there is nothing else to do.
    #[inline(always)]
    pub fn stage_if_free(&mut self) {
        if self.staged.owes() {
            let staged = self.staged.count();
            let chunk = buffer(self.group(), staged);
            // SAFETY: an initialised barrier. Lanes may see it complete at different times, and they must act together.
            if warp::all(unsafe { mbarrier::test(self.smem.free(chunk), parity(staged) ^ 1) }) {
                self.stage_pending();
            }
        }
    }

    #[inline(always)]
    fn stage_pending(&mut self) {
        self.stage(self.pending.first());
        self.pending.next();
        self.staged.took_one();
    }

    /// Waits until the buffer of the next chunk is free.
    #[inline(always)]
    fn wait_free(&self) -> u32 {
        // What is computed from it here is not kept from one place that waits to the next.
        let staged = special::opaque(self.staged.count());
        let chunk = buffer(self.group(), staged);
        // SAFETY: an initialised barrier.
        unsafe { self.smem.wait(self.smem.free(chunk), parity(staged) ^ 1) };
        chunk
    }

    /// Chunks staged so far.
    #[inline(always)]
    pub fn staged(&self) -> u32 {
        self.staged.count()
    }

    /// Waits until all that was staged has been sent: all staging memory is the consumers'.
    #[inline(always)]
    pub fn wait_sent(&self) {
        const { assert!(CHUNKS == 4) };
        if special::opaque(self.staged.count()) == 0 {
            return;
        }
        let (mut n, end) = (self.staged.count(), self.staged.count() + CHUNKS / 2);
        while n < end {
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
        self.staged.add();
        warp::sync();
        // SAFETY: an initialised barrier; if the chunk holds anything, the warp's rows are written and fenced.
        unsafe { shared_memory::arrive(self.smem.staged(chunk), self.lane()) };
    }
}

impl Role for Consumer {
    const CALLS: bool = true;
    const SHARING: Sharing = Sharing::Gemvs;
    type Accumulator<const I: usize, const J: usize> = Sum;

    #[inline(always)]
    fn set_tile(&mut self, tile: Option<(u32, u32)>) {
        self.tile = tile;
    }

    /// Nothing waits: said here, its registers are free for the functions that such a body calls.
    #[inline(always)]
    fn begin_function(&mut self) {
        self.pending = Pending::new();
    }

    #[inline(always)]
    fn tile_rows(&self, rows: u32) -> i32 {
        self.tile.map_or(rows, |(rows, _)| rows) as i32
    }

    #[inline(always)]
    fn tile_columns(&self, columns: u32) -> i32 {
        self.tile.map_or(columns, |(_, columns)| columns) as i32
    }

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
        self.multiply::<T, E, I, J>(TileShape::of(I as u32, J as u32), acc, a, b, task);
    }

    #[inline(always)]
    fn mma_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: (&mut Sum, &mut Sum),
        a: OperandTile,
        b: (OperandTile, OperandTile),
        task: Task,
    ) {
        self.multiply_pair::<T, E, I, J>(TileShape::of(I as u32, J as u32), acc, a, b, task);
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
        self.finish::<Alone<T, E>>(&sum, TileShape::of(I as u32, J as u32), SplitK::WHOLE, task);
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
        self.finish::<Alone<T, E>>(&acc, TileShape::of(I as u32, J as u32), split, task);
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
        /// No thread has more than two places.
        const AHEAD: bool = 2 * CONSUMER_THREADS >= 16 * 32;
        let (thread, lane) = (self.again(), self.lane());
        let smem = self.smem;
        let (rows, columns) = self.tile.unwrap_or((I as u32, J as u32));
        // In one register while products are made.
        let tile = special::opaque(rows | columns << 8);
        let y = y.of::<T::Result<E>>().unsized_tile();
        let is_inside = |row: u32, col: u32| row < y.rows() && col < y.cols();
        let put = |at: *mut T::Result<E>, (row, col): (u32, u32), sum: f32, beside: Beside<T>| {
            let value = beside.finish(f(sum, inputs.at(row, col)));
            // SAFETY: (of both) the position is inside the tile; tiles of one grid do not overlap.
            unsafe {
                // Elements with in-band flags have 16 bits.
                if T::Result::<E>::BYTES == 2 {
                    let word = smem.word(at as u64);
                    if !word.is_null() {
                        gpu_scope::carry(word, smem.epoch() | pack::<T::Result<E>>(value, 0.0));
                    }
                }
                at.write(T::Result::<E>::element(value));
            }
        };
        // 8, 16 or 32 columns: nothing is divided.
        let place = |at: u32, columns: u32| match columns {
            8 => (at / 8, at % 8),
            16 => (at / 16, at % 16),
            _ => (at / 32, at % 32),
        };
        // Where element `at` is written, null if it is outside, and what stands beside it.
        let spot = |at: u32| {
            let (row, col) = place(at, columns);
            let inside = at < rows * columns && is_inside(row, col);
            let to = if inside { y.pointer(row as i32, col as i32) } else { core::ptr::null_mut() };
            (special::same_pointer(to), Beside::<T>::read(task, y, (row, col)))
        };
        let first = thread / (CONSUMERS / CONSUMER_THREADS);
        // Of a thread with one place or two, what stands beside them comes while operand A does; and where it writes is known before products take all registers:
        // what is known of the result would take more.
        let ahead = if AHEAD {
            let one = spot(first);
            let other = if columns > 16 { spot(first + CONSUMER_THREADS) } else { (core::ptr::null_mut(), one.1) };
            Some([one, other])
        } else {
            None
        };
        let bulk_rows = x.is_bulk_copied() && w.is_bulk_copied();
        let (x, w) = (x.part(rows), w.part(columns));
        let x = if smem.word(x.pointer(0, 0) as u64).is_null() {
            x
        } else {
            self.wait_sent();
            let shape = gemv::pair(x.rows(), x.cols());
            // SAFETY: all consumers run the task, which is published, and have met since the last product; the copy is not read behind the barriers of this one.
            unsafe {
                if in_band_flags::receive::<E>(task, smem.0, x.pointer(0, 0) as u64, shape, x.row_stride(), self.staged()) != 0 {
                    // All consumers come here, who have received it together.
                    rmsnorm_prologue::make::<E>(task, smem.chunk(0), x.rows(), x.cols());
                }
            }
            in_band_flags::copy(smem, x)
        };
        let (mut stage, mut at_stage) = (Stage::NONE, 0);
        // Where nothing comes through the ring.
        let read = |at: u32| {
            let (row, col) = place(at, columns);
            let (mut n, mut sum) = (0, 0.0);
            while n < w.cols() {
                sum += x.at(row, n) * w.at(col, n);
                n += 1;
            }
            sum
        };
        let mut sums = [0.0; 2];
        if bulk_rows {
            // SAFETY: all consumers run the task, which is published, and the same outline as the loader.
            let packed = unsafe {
                let (base, shape, of_w) = (x.pointer(0, 0) as u64, gemv::pair(x.rows(), x.cols()), gemv::pair(w.rows(), w.cols()));
                let ring = self.ring.packed();
                macro_rules! sum {
                    ($($rows:literal $columns:literal),*) => {
                        match (rows, columns) {
                            $(($rows, $columns) => gemv::sum::<E, $rows, $columns>(ring, smem.0, base, shape, x.row_stride(), of_w),)*
                            _ => ring,
                        }
                    };
                }
                sum!(8 8, 8 16, 8 32, 16 8, 16 16, 16 32)
            };
            self.ring = Ring::unpack(smem, packed);
            (stage, at_stage) = Ring::unpack_stage(smem, packed);
        } else if let Some([one, other]) = ahead {
            // Here, and not where they are needed: else what is known of the operands would be in registers while products are made.
            let read = |at: u32, to: *mut T::Result<E>| if to.is_null() { 0.0 } else { read(at) };
            sums = [read(first, one.0), read(first + CONSUMER_THREADS, other.0)];
        }
        let first = self.again() / (CONSUMERS / CONSUMER_THREADS);
        let tile = special::opaque(tile);
        let (rows, columns) = (tile & 0xff, tile >> 8);
        let end = |at: u32, (to, beside): (*mut T::Result<E>, Beside<T>), mut sum: f32| {
            if to.is_null() {
                return;
            }
            let (row, col) = place(at, columns);
            let mut part = 0;
            while bulk_rows && part < mma_sync::PARTS {
                // SAFETY: the parts of this task, until the stage is released.
                sum += f32::from_bits(unsafe { memory::load_shared(at_stage + ((part * columns + col) * rows + row) * 4) });
                part += 1;
            }
            put(to, (row, col), sum, beside);
        };
        if let Some([one, other]) = ahead {
            end(first, one, sums[0]);
            end(first + CONSUMER_THREADS, other, sums[1]);
        } else {
            for at in (first..rows * columns).step_by(CONSUMER_THREADS as usize) {
                end(at, spot(at), if bulk_rows { 0.0 } else { read(at) });
            }
        }
        if !bulk_rows {
            // The next task may have a copy of its operand A.
            barrier::sync_consumers();
            return;
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
        if early && cfg!(target_arch = "nvptx64") && unsafe { self.gate.pass(self.warp()) } {
            // SAFETY: the body has ended.
            unsafe { self.gate.end_first() };
        }
    }
}
