//! A thread among those that share elementwise and row operations: all consumers of a CTA, or one thread of a CPU.
//!
//! What is computed does not belong here. The same code runs on every device; only the numbers of threads and lanes differ.

use crate::data::element::Element;
use crate::data::inputs::Inputs;
use crate::data::lane_pairs;
use crate::data::row::{RowInputs, RowOutputs};
use crate::data::task::Task;
use crate::data::tile::{BlockAddresses, Tile};
use crate::hardware::special::CONSUMER_THREADS;
use crate::hardware::{barrier, special, warp};
use crate::operations::grid_stride::GridStride;
use crate::operations::order::Mapping;
use crate::operations::row_stages::{self, Stages};
use crate::shared_memory::SharedMemory;
use crate::sync::ring::Ring;
use maco_abi::CONSUMERS;

/// Blocks of eight elements that a thread has on their way before it needs the first, each of this many accesses of 16 bytes.
const fn together(accesses: u32) -> u32 {
    match accesses {
        0..=2 => 4,
        3 | 4 => 2,
        _ => 1,
    }
}

/// How consumers divide a tile that is all there, and comes through the ring in stages of a page.
#[derive(Clone, Copy)]
struct Whole {
    /// Threads side by side, each with a block of eight columns, and below one another.
    across: u32,
    down: u32,
    /// Blocks of a thread in a stage.
    blocks: u32,
    stages: u32,
}

impl Whole {
    /// Of `rows` × `cols` elements of at most `bytes` bytes; no stages if that does not come out even.
    const fn of(rows: usize, cols: usize, bytes: u32) -> Whole {
        let none = Whole { across: 1, down: 1, blocks: 0, stages: 0 };
        let (rows, cols) = (rows as u32, cols as u32);
        let across = cols / 8;
        if cfg!(not(target_arch = "nvptx64"))
            || !across.is_power_of_two()
            || across > CONSUMER_THREADS
            || !cols.is_multiple_of(8)
            || bytes == 0
        {
            return none;
        }
        let (stage, down) = (Stages::of_elements(cols * bytes).rows, CONSUMER_THREADS / across);
        let stage = if stage < rows { stage } else { rows };
        if stage == 0 || !stage.is_multiple_of(down) || !rows.is_multiple_of(stage) {
            return none;
        }
        Whole { across, down, blocks: stage / down, stages: rows / stage }
    }

    const fn is_some(self) -> bool {
        self.stages > 0
    }
}

/// A thread among those that share.
#[derive(Clone, Copy)]
pub struct SimtConsumer {
    /// This thread.
    pub thread: u32,
    /// How many there are.
    pub threads: u32,
    /// Lanes of a warp: consecutive threads whose registers can be exchanged.
    pub lanes: u32,
    /// Where it is in the ring, for tasks that stream.
    pub ring: Ring,
}

/// Of this CTA.
#[inline(always)]
pub(crate) fn consumers_memory() -> SharedMemory {
    SharedMemory(special::place_again().1)
}

impl SimtConsumer {
    /// What a consumer thread has, which is at `ring` in the ring. Its number is read anew: what is computed from it is not kept in registers
    /// from one task to the next.
    #[inline(always)]
    pub fn consumers(ring: u64) -> SimtConsumer {
        let thread = (special::thread_again() - 128) / (CONSUMERS / CONSUMER_THREADS);
        SimtConsumer { thread, threads: CONSUMER_THREADS, lanes: warp::LANES, ring: Ring::unpack(consumers_memory(), ring) }
    }

    /// Barrier of all threads that share the work; what each wrote before it, all see behind it (PTX ISA §9.7.13.1 `bar.sync`).
    #[inline(always)]
    pub(crate) fn sync(self) {
        if self.threads > 1 {
            barrier::sync_operations();
        }
    }

    /// Gives the stages `held` back, when the whole warp has read them.
    #[inline(always)]
    pub(crate) fn release(self, held: u32) {
        warp::sync();
        // SAFETY: no lane reads them any more.
        unsafe { self.ring.release_all(held, self.lane()) };
    }

    #[inline(always)]
    pub(crate) fn lane(self) -> u32 {
        self.thread % self.lanes
    }

    /// One row for each warp at a time.
    #[inline(always)]
    pub fn rows<X: RowInputs, Y: RowOutputs>(&mut self, inputs: X, y: Y, task: Task, f: impl Fn(X::Rows, &mut Y::Rows)) {
        let (stages, rows) = (if self.ring.is_some() { row_stages::row_stages(inputs, y, task) } else { Stages::NONE }, y.count());
        // Of rows that are all in shared memory, and written by whole blocks, nothing is asked any more.
        if stages.any() & inputs.near(stages.singles(rows)) & y.wide() {
            self.rows_of::<true, _, _>(inputs, y, stages, &f);
        } else {
            self.rows_of::<false, _, _>(inputs, y, stages, &f);
        }
    }

    #[inline(always)]
    fn rows_of<const NEAR: bool, X: RowInputs, Y: RowOutputs>(
        &mut self,
        inputs: X,
        y: Y,
        stages: Stages,
        f: &impl Fn(X::Rows, &mut Y::Rows),
    ) {
        let (rows, any) = (y.count(), NEAR || stages.any());
        let (warps, own) = (self.threads / self.lanes, self.thread / self.lanes);
        let (mut inputs, mut singles) = (inputs, 0);
        if if NEAR { X::SINGLES > 0 } else { stages.singles(rows) } {
            // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
            inputs = unsafe { inputs.singles_arrived::<NEAR>(&mut self.ring, &mut singles) };
        }
        let mut first = 0;
        while first < rows {
            let (mut now, mut count, mut held) = (inputs, rows, 0);
            if any {
                count = stages.next(first, rows);
                // SAFETY: as above.
                now = unsafe { inputs.arrived::<NEAR>(&mut self.ring, stages.pages, first, &mut held) };
            }
            // The first of them that is this warp's.
            let mut row = (own + warps - first % warps) % warps;
            while row < count {
                f(now.row::<NEAR>(row, self.lane(), self.lanes), &mut y.row::<NEAR>(first + row, self.lane(), self.lanes));
                row += warps;
            }
            first += count;
            if any {
                self.release(if first < rows { held } else { held | singles });
            }
        }
    }

    /// Makes `blocks` blocks of eight elements, those of one thread, of what is at `addresses`, and stores them to `to`.
    #[inline(always)]
    fn each_block<const NEAR: bool, X: Inputs, E: Element>(
        self,
        _: X,
        addresses: X::Addresses,
        to: BlockAddresses<E>,
        blocks: u32,
        spreads: bool,
        f: &impl Fn(X::Values) -> E::Value,
    ) {
        let mut next = 0;
        while next < blocks {
            // Behind the last one a thread makes that once more and writes it again: a branch for each would leave none beside it.
            let at = |n: u32| if next + n < blocks { next + n } else { blocks - 1 };
            macro_rules! all {
                ($($n:literal)*) => {
                    // SAFETY: eight columns inside all tiles, at a multiple of eight columns of aligned rows.
                    [$(if const { $n < together(X::ACCESSES) } { unsafe { X::block::<NEAR>(addresses, at($n)) } } else { X::Blocks::default() }),*]
                };
            }
            // All loads before the first is needed.
            let loaded = all!(0 1 2 3);
            let make = |blocks: X::Blocks| {
                let v = X::open(blocks);
                [f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])]
            };
            let put = |n: u32, values: [E::Value; 8]| {
                let to = to.nth(at(n));
                if spreads {
                    // SAFETY: the blocks of the warp's lanes, all of one row inside the tile: as below.
                    unsafe { E::spread(to, self.lane(), E::close(values)) };
                } else {
                    // SAFETY: eight columns inside the tile, at a multiple of eight columns of aligned rows; nobody else writes them.
                    unsafe { E::store8(to, values) };
                }
            };
            // Two at a time: there are two warps for each scheduler, and what one block takes is the time until its operations have ended.
            if const { together(X::ACCESSES) > 1 } {
                let values = (make(loaded[0]), make(loaded[1]));
                put(0, values.0);
                put(1, values.1);
            } else {
                put(0, make(loaded[0]));
            }
            if const { together(X::ACCESSES) > 2 } && next + 2 < blocks {
                let values = (make(loaded[2]), make(loaded[3]));
                put(2, values.0);
                put(3, values.1);
            }
            next += const { together(X::ACCESSES) };
        }
    }

    /// How [`SimtConsumer::zip`] shares out elements where nothing comes through the ring.
    #[inline(always)]
    pub fn zip_mapping<X: Inputs, E: Element, const I: usize, const J: usize>(self, inputs: X, y: Tile<E, I, J>) -> Mapping {
        let (rows, cols) = (y.rows(), y.cols());
        let blocks = inputs.wide() & y.wide() & inputs.covers(rows, cols);
        Mapping::Elements { rows, cols, blocks, spreads: blocks & self.spreads::<E>(cols & !7) }
    }

    /// Whether lanes of a warp exchange halves of their blocks, of rows with so many columns in whole blocks: where it has whole rows of its blocks.
    #[inline(always)]
    fn spreads<E: Element>(self, whole: u32) -> bool {
        E::SPREADS && self.lanes == lane_pairs::BLOCKS && whole.is_multiple_of(lane_pairs::ELEMENTS)
    }

    /// `y = f(inputs)`: threads side by side along a row, each with blocks of eight columns, one below the other.
    #[inline(always)]
    pub fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        let (rows, cols) = (y.rows(), y.cols());
        if rows == 0 || cols == 0 {
            return;
        }
        let stages = row_stages::element_stages(inputs, y, task);
        if const { Whole::of(I, J, X::BYTES).is_some() } && stages.any() & (rows == I as u32) & (cols == J as u32) {
            return self.zip_whole(inputs, y, f);
        }
        // Where blocks of eight end. A tile that reads less than it writes is rare.
        let whole = if inputs.wide() & y.wide() & inputs.covers(rows, cols) { cols & !7 } else { 0 };
        let across = (whole / 8).next_power_of_two().min(self.threads);
        let down = self.threads >> across.trailing_zeros();
        // Where a warp has whole rows of its blocks, it writes them together.
        let spreads = self.spreads::<E>(whole);
        let mut own = self.thread & (across - 1);
        if spreads {
            own = own - self.lane() + lane_pairs::block(self.lane());
        }
        let col = own * 8;
        // A thread's blocks are one below the other, or in rows that are longer than all threads' blocks side by side.
        let long = whole > across * 8;
        let step = if long { (0, across * 8) } else { (down, 0) };
        let mut first = 0;
        while first < rows && whole > 0 {
            let (mut now, mut count, mut held) = (inputs, rows, 0);
            if stages.any() {
                count = stages.next(first, rows);
                // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
                now = unsafe { inputs.arrived(&mut self.ring, stages.pages, cols, &mut held) };
            }
            let mut row = self.thread >> across.trailing_zeros();
            while row < count {
                let blocks = if long {
                    (whole - col).div_ceil(across * 8)
                } else if col < whole {
                    (count - row + down - 1) >> down.trailing_zeros()
                } else {
                    0
                };
                let to = y.block_addresses::<false>((first + row, if spreads { col - col % lane_pairs::ELEMENTS } else { col }), step);
                if stages.any() {
                    self.each_block::<true, _, _>(now, now.addresses::<true>((row, col), step), to, blocks, spreads, &f);
                } else {
                    self.each_block::<false, _, _>(now, now.addresses::<false>((row, col), step), to, blocks, spreads, &f);
                }
                row += if long { down } else { count };
            }
            if stages.any() {
                self.release(held);
            }
            first += count;
        }
        if whole < cols {
            // What is no whole block, or lies in no order that has any.
            let walk = GridStride::new(self.threads, cols - whole);
            let mut at = walk.start(self.thread);
            while at.0 < rows {
                // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                unsafe { y.pointer(at.0 as i32, (whole + at.1) as i32).write(E::element(f(inputs.at(at.0, whole + at.1)))) };
                at = walk.next(at);
            }
        }
    }

    /// The same of a tile that is all there, and comes through the ring: all that [`SimtConsumer::zip`] reckons is a constant.
    #[inline(always)]
    fn zip_whole<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        let whole = const { Whole::of(I, J, X::BYTES) };
        let spreads = const { E::SPREADS && (J as u32).is_multiple_of(lane_pairs::ELEMENTS) };
        let (mut own, row) = (self.thread % whole.across, self.thread / whole.across);
        if spreads {
            own = own - self.lane() + lane_pairs::block(self.lane());
        }
        let (col, step) = (own * 8, (whole.down, 0));
        let mut to = y.block_addresses::<false>((row, if spreads { col - col % lane_pairs::ELEMENTS } else { col }), step);
        // In a register: a loop, whatever a tile's size.
        let mut stages = special::opaque(whole.stages);
        loop {
            let mut held = 0;
            // SAFETY: all consumers run the task; the loader reckons the same stages from the same tiles.
            let now = unsafe { inputs.arrived(&mut self.ring, 1, J as u32, &mut held) };
            self.each_block::<true, _, _>(now, now.addresses::<true>((row, col), step), to, whole.blocks, spreads, &f);
            self.release(held);
            stages -= 1;
            if stages == 0 {
                break;
            }
            to = to.from(whole.blocks);
        }
    }
}
