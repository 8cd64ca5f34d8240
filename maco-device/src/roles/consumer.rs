//! The consumers: two warpgroups that run GEMMs, GEMVs and elementwise operations.

use crate::abi::{self, BOX, CONSUMERS, ROW_BYTES};
use crate::data::element::{Element, HalfElement, MmaElement, MmaFormat, pack};
use crate::data::epilogue::{Beside, Epilogue};
use crate::data::inputs::Inputs;
use crate::data::split_k::{INCOMPLETE, OwnedChunks, SplitK};
use crate::data::task::Task;
use crate::data::tile::{OperandTile, Tile};
use crate::hardware::special::CONSUMER_THREADS;
use crate::hardware::{barrier, fence, gpu_scope, mbarrier, memory, special, warp};
use crate::operations::gemv;
use crate::operations::in_band_flags;
use crate::operations::mma_sync;
use crate::operations::simt_consumer::SimtConsumer;
use crate::operations::staging::{buffer, columns, parity};
use crate::operations::wgmma_accumulator::{self, Chunk, Pending, Sum, Turning, Wgmma};
use crate::role::Role;
use crate::shared_memory::{self, CHUNKS, SharedMemory};
use crate::simt::Simt;
use crate::sync::gate::Gate;
use crate::sync::ring::{Ring, Stage, pages, scratch_pages};

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

impl Consumer {
    /// The next stage of `pages`, full. If it is still to come, what this warp reads is given back as soon as it has been multiplied, not
    /// when the next one is: that is a stage more on its way, when loads are what all wait for.
    #[inline(always)]
    fn next_stage(&mut self, pages: u32) -> (Stage, u32) {
        // SAFETY: all consumers run the same outline as the loader.
        if warp::all(unsafe { self.ring.is_full(pages) }) {
            return self.ring.take(pages);
        }
        self.wgmma.wait_newest();
        self.give_back();
        // SAFETY: as above.
        unsafe { self.ring.wait_full(pages) }
    }

    /// Gives back the stage that this warp has read, if there is one.
    #[inline(always)]
    fn give_back(&mut self) {
        if shared_memory::arrives(self.lane()) {
            // SAFETY: the group that read it is complete for this warp.
            unsafe { self.ring.release(self.reading) };
        }
        self.reading = Stage::NONE;
    }

    /// The products of `stage` have been asked for: closes their group, and gives the stage before back.
    #[inline(always)]
    fn multiplied(&mut self, stage: Stage) {
        self.wgmma.commit();
        self.stage_if_free();
        self.wgmma.wait_older();
        self.give_back();
        self.reading = stage;
    }

    /// All products are made: gives the last stage back, and stages what waits.
    #[inline(always)]
    fn end(&mut self) {
        self.give_back();
        self.settle();
    }

    /// Stages a whole sum, or keeps its end for the next tile's time.
    #[inline(always)]
    fn put<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(&mut self, sum: &Sum, task: Task) {
        const { assert!(CHUNKS == 4, "two chunks of a warpgroup find room, and two more can wait") };
        let chunks = columns(I, J) as u32 / abi::columns(E::BYTES);
        let thread = self.again();
        if const { T::ROLLED && T::WORDS == 0 && E::BYTES == 2 } {
            let (mut turning, mut n) = (Turning::of(sum), 0);
            let last = loop {
                let words = turning.front::<T, E, I, J>(n, task, thread);
                // Opaque, or each turn would be written out.
                n = special::opaque(n + 1);
                if n <= 2 {
                    self.stage(words.clone());
                }
                if n >= chunks {
                    break words;
                }
                turning.turn(words);
            };
            if chunks > 2 {
                self.pending = Pending::of(turning.behind(), last);
                self.waiting = 2;
            }
            return;
        }
        macro_rules! chunk {
            ($n:literal) => {
                wgmma_accumulator::chunk::<T, E, I, J, $n>(sum, task, thread)
            };
        }
        macro_rules! stage {
            ($($n:literal)*) => {$(
                if $n < 2 && $n < chunks || $n + 2 < chunks {
                    self.stage(chunk!($n));
                }
            )*};
        }
        stage!(0 1 2 3 4 5);
        if chunks > 2 {
            self.pending = match chunks {
                4 => Pending::of(chunk!(2), chunk!(3)),
                _ => Pending::of(chunk!(6), chunk!(7)),
            };
            self.waiting = 2;
        }
    }

    /// Adds a part to a tile's sum, and stages the chunks of the whole sum that this CTA adds up, or one that is none: see [`crate::data::split_k`]. The store
    /// role learns from a word beside the first ones whose they are.
    ///
    /// # Safety
    /// `split` is one of several parts, of a live launch; all consumers call.
    #[inline(always)]
    unsafe fn fix_up<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(&mut self, part: &Sum, split: SplitK, task: Task) {
        let chunks = columns(I, J) as u32 / BOX;
        // Chunks of the store role in one of the sum.
        let each = BOX / abi::columns(E::BYTES);
        let own = split.owned(split.part, chunks);
        // What others add up; of a task that does not look for them, all.
        let stays = if split.looks > 0 { own } else { OwnedChunks::NONE };
        // SAFETY: the plan keeps this memory for the part alone.
        unsafe { wgmma_accumulator::keep::<I, J>(part, split.chunk(split.part, chunks, 0), stays, self.again()) };
        // A second one moves up when the first is staged.
        let (mut sum, then) = wgmma_accumulator::owned::<I, J>(part, own.first);
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
                self.stage(wgmma_accumulator::whole::<T, E, I, J, 0>(&sum, each * chunk, task, self.again()));
                if each > 1 {
                    self.stage(wgmma_accumulator::whole::<T, E, I, J, 1>(&sum, each * chunk, task, self.again()));
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
            unsafe { memory::store_shared(self.smem.owners(self.staged), found) };
        }
        warp::sync();
        // Behind this, all see what the parts have written, since the thread that has seen them arrive has acquired it.
        barrier::sync_consumers();
        // SAFETY: as above.
        unsafe { memory::load_shared(self.smem.owners(self.staged)) }
    }
}

/// Byte offset of warpgroup `group`'s half of an operand tile; 64 rows or columns are 8 KiB in both majors.
const fn half(split: bool, kept: usize, group: u32) -> u32 {
    if split { group * (kept as u32 / 2) * ROW_BYTES } else { 0 }
}

impl Consumer {
    /// Transposes those operands of a full stage at `shared` that the tensor cores do not take as they lie: of tf32, all whose contraction
    /// runs along the rows. `b` are all rows or columns that `b` keeps.
    #[inline(always)]
    fn turn<E: MmaElement, const I: usize>(&self, shared: u32, b: u32, along: (bool, bool)) {
        if E::MMA_FORMAT != MmaFormat::Tf32 || !(along.0 || along.1) {
            return;
        }
        let a = I as u32;
        let (first, end) = (if along.0 { 0 } else { a }, if along.1 { a + b } else { a });
        // SAFETY: the stage is full and stays until `release`; all consumers turn the same blocks of it, each its own.
        unsafe { wgmma_accumulator::turn(shared + first * ROW_BYTES, (end - first) / wgmma_accumulator::BLOCK, self.again()) };
        // The tensor cores read through the other proxy, what all warps have written.
        fence::proxy_async_shared();
        barrier::sync_consumers();
    }
}

impl Consumer {
    /// Applies the elementwise prologue to the `I` rows or columns of operand A that lie in a full stage at `shared`, in place: each element
    /// becomes what a task of its own would have written. What lies behind the contraction's end stays zero.
    #[inline(always)]
    fn map_operand_a<T: Epilogue, E: MmaElement, const I: usize>(&self, shared: u32, a: OperandTile, task: Task) {
        if !T::MAPS_OPERAND_A {
            return;
        }
        // What is tf32 has been turned.
        let across = a.along_rows && E::MMA_FORMAT != MmaFormat::Tf32;
        // SAFETY: the stage is full and stays until `release`; all consumers run the prologue on the same rows of it, each its own part.
        unsafe { wgmma_accumulator::map_operand_a::<T, E, I>(shared, across, a.left(), task, self.again()) };
        // The tensor cores read through the other proxy, what all warps have written.
        fence::proxy_async_shared();
        barrier::sync_consumers();
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
        let group = self.group();
        let (stage, shared) = self.next_stage(pages(I, J));
        self.turn::<E, I>(shared, J as u32, (a.along_rows, b.along_rows));
        self.map_operand_a::<T, E, I>(shared, a, task);
        let (at_a, at_b) = (shared + half(I == 128, I, group), shared + I as u32 * ROW_BYTES + half(I == 64, J, group));
        // SAFETY: whole warpgroups run the outline; the stage is full and stays until `release`; `acc` is not touched before the wait.
        unsafe { self.wgmma.multiply::<E, I, J>(acc, at_a, at_b, (a.along_rows, b.along_rows)) };
        self.multiplied(stage);
    }

    #[inline(always)]
    fn mma_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: (&mut Sum, &mut Sum),
        a: OperandTile,
        b: (OperandTile, OperandTile),
        task: Task,
    ) {
        let group = self.group();
        let (stage, shared) = self.next_stage(pages(I, 2 * J));
        self.turn::<E, I>(shared, 2 * J as u32, (a.along_rows, b.0.along_rows));
        self.map_operand_a::<T, E, I>(shared, a, task);
        let (at_a, at_b) = (shared + half(I == 128, I, group), shared + I as u32 * ROW_BYTES + half(I == 64, J, group));
        // SAFETY: as in `mma`.
        unsafe {
            self.wgmma.multiply::<E, I, J>(acc.0, at_a, at_b, (a.along_rows, b.0.along_rows));
            self.wgmma.multiply::<E, I, J>(acc.1, at_a, at_b + J as u32 * ROW_BYTES, (a.along_rows, b.1.along_rows));
        }
        self.multiplied(stage);
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
        self.end();
        self.put::<T, E, I, J>(&wgmma_accumulator::combine::<I, J>(&first, &second, f), task);
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
        self.end();
        if split.parts > 1 {
            // SAFETY: the task runs, so its launch is live.
            unsafe { self.fix_up::<T, E, I, J>(&acc, split, task) };
            return;
        }
        self.put::<T, E, I, J>(&acc, task);
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
