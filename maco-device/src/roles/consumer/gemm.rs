//! The main loop of a GEMM: stages of the ring go through the tensor cores into a sum.

use super::Consumer;
use crate::data::element::{MmaElement, MmaFormat};
use crate::data::epilogue::Epilogue;
#[cfg(target_arch = "nvptx64")]
use crate::data::epilogue::Epilogues;
#[cfg(target_arch = "nvptx64")]
use crate::data::split_k::SplitK;
use crate::data::task::Task;
use crate::data::tile::OperandTile;
#[cfg(target_arch = "nvptx64")]
use crate::data::tile::Tile;
use crate::data::tile_shape::TileShape;
use crate::hardware::{barrier, fence, warp};
use crate::operations::wgmma_accumulator::{self, Sum};
#[cfg(target_arch = "nvptx64")]
use crate::role::{Role, Sharing};
use crate::shared_memory;
use crate::sync::ring::{Stage, pages};
use maco_abi::ROW_BYTES;

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
    pub(super) fn give_back(&mut self) {
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

    /// One step: see [`Role::mma`](crate::role::Role::mma). `I` and `J` say how many registers the sum has, `shape` which tile it is.
    #[inline(always)]
    pub(super) fn multiply<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        shape: TileShape,
        acc: &mut Sum,
        a: OperandTile,
        b: OperandTile,
        task: Task,
    ) {
        let group = self.group();
        let (stage, shared) = self.next_stage(pages(shape.rows() + shape.columns()));
        self.turn::<E>(shared, shape.rows(), shape.columns(), (a.along_rows, b.along_rows));
        self.map_operand_a::<T, E>(shared, shape.rows(), a, task);
        let (at_a, at_b) = halves(shape, group);
        // SAFETY: whole warpgroups run the outline; the stage is full and stays until `release`; `acc` is not touched before the wait.
        unsafe { self.wgmma.multiply::<E, I, J>(acc, shared + at_a, shared + at_b, (a.along_rows, b.along_rows)) };
        self.multiplied(stage);
    }

    /// One step of two GEMMs: see [`Role::mma_pair`](crate::role::Role::mma_pair).
    #[inline(always)]
    pub(super) fn multiply_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        shape: TileShape,
        acc: (&mut Sum, &mut Sum),
        a: OperandTile,
        b: (OperandTile, OperandTile),
        task: Task,
    ) {
        let group = self.group();
        let (stage, shared) = self.next_stage(pages(shape.rows() + 2 * shape.columns()));
        self.turn::<E>(shared, shape.rows(), 2 * shape.columns(), (a.along_rows, b.0.along_rows));
        self.map_operand_a::<T, E>(shared, shape.rows(), a, task);
        let (at_a, at_b) = halves(shape, group);
        // SAFETY: as in `multiply`.
        unsafe {
            self.wgmma.multiply::<E, I, J>(acc.0, shared + at_a, shared + at_b, (a.along_rows, b.0.along_rows));
            let second = shared + at_b + shape.columns() * ROW_BYTES;
            self.wgmma.multiply::<E, I, J>(acc.1, shared + at_a, second, (a.along_rows, b.1.along_rows));
        }
        self.multiplied(stage);
    }

    /// Transposes those operands of a full stage at `shared` that the tensor cores do not take as they lie: of tf32, all whose contraction
    /// runs along the rows. `a` and `b` are all rows or columns that each keeps.
    #[inline(always)]
    fn turn<E: MmaElement>(&self, shared: u32, a: u32, b: u32, along: (bool, bool)) {
        if E::MMA_FORMAT != MmaFormat::Tf32 || !(along.0 || along.1) {
            return;
        }
        let (first, end) = (if along.0 { 0 } else { a }, if along.1 { a + b } else { a });
        // SAFETY: the stage is full and stays until `release`; all consumers turn the same blocks of it, each its own.
        unsafe { wgmma_accumulator::turn(shared + first * ROW_BYTES, (end - first) / wgmma_accumulator::BLOCK, self.again()) };
        // The tensor cores read through the other proxy, what all warps have written.
        fence::proxy_async_shared();
        barrier::sync_consumers();
    }

    /// Applies the elementwise prologue to the `rows` rows or columns of operand A that lie in a full stage at `shared`, in place: each element
    /// becomes what a task of its own would have written. What lies behind the contraction's end stays zero.
    #[inline(always)]
    fn map_operand_a<T: Epilogue, E: MmaElement>(&self, shared: u32, rows: u32, a: OperandTile, task: Task) {
        if !T::MAPS_OPERAND_A {
            return;
        }
        // What is tf32 has been turned.
        let across = a.along_rows && E::MMA_FORMAT != MmaFormat::Tf32;
        // SAFETY: the stage is full and stays until `release`; all consumers run the prologue on the same rows of it, each its own part.
        unsafe { wgmma_accumulator::map_operand_a::<T, E>(shared, rows, across, a.left(), task, self.again()) };
        // The tensor cores read through the other proxy, what all warps have written.
        fence::proxy_async_shared();
        barrier::sync_consumers();
    }
}

/// Where the parts of both operands lie in a stage that warpgroup `group` multiplies; 64 rows or columns are 8 KiB in both majors.
#[inline(always)]
fn halves(shape: TileShape, group: u32) -> (u32, u32) {
    let a = if shape.tall { group * 64 * ROW_BYTES } else { 0 };
    let b = if shape.tall { 0 } else { group * (shape.columns() / 2) * ROW_BYTES };
    (a, shape.rows() * ROW_BYTES + b)
}

/// A consumer that runs the body of a GEMM with one sum, of whatever tile: how the body ends is one code for all GEMMs of a kernel.
#[cfg(target_arch = "nvptx64")]
pub struct GemmConsumer<'a> {
    consumer: &'a mut Consumer,
    shape: TileShape,
    sum: Sum,
    /// Whether the body has stored its sum.
    made: bool,
}

#[cfg(target_arch = "nvptx64")]
impl<'a> GemmConsumer<'a> {
    /// A GEMM of a tile of this shape, which begins.
    #[inline(always)]
    pub fn new(consumer: &'a mut Consumer, shape: TileShape) -> GemmConsumer<'a> {
        GemmConsumer { consumer, shape, sum: wgmma_accumulator::begin(), made: false }
    }

    /// The body has ended: writes the tile of `task`, which has this shape.
    #[inline(always)]
    pub fn end<P: Epilogues>(self, task: Task, shape: TileShape) {
        if self.made {
            self.consumer.finish::<P>(&self.sum, shape, task.split_k(), task);
        }
    }

    /// The tile's shape: what the registers of its sum, those of an `I` × `J` tile, do not say is asked for.
    #[inline(always)]
    fn shape<const I: usize, const J: usize>(&self) -> TileShape {
        let own = TileShape::of(I as u32, J as u32);
        if own.own_columns() == 128 { TileShape { tall: self.shape.tall, wide: !self.shape.tall } } else { own }
    }
}

#[cfg(target_arch = "nvptx64")]
impl Role for GemmConsumer<'_> {
    const SHARING: Sharing = Sharing::Loops;
    type Accumulator<const I: usize, const J: usize> = Sum;

    #[inline(always)]
    fn tile_rows(&self, rows: u32) -> i32 {
        let _ = rows;
        self.shape.rows() as i32
    }

    #[inline(always)]
    fn tile_columns(&self, columns: u32) -> i32 {
        let _ = columns;
        self.shape.columns() as i32
    }

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) -> Sum {
        self.sum
    }

    #[inline(always)]
    fn mma<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: &mut Sum,
        a: OperandTile,
        b: OperandTile,
        task: Task,
    ) {
        let shape = self.shape::<I, J>();
        self.consumer.multiply::<T, E, I, J>(shape, acc, a, b, task);
    }

    #[inline(always)]
    fn mma_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: (&mut Sum, &mut Sum),
        a: OperandTile,
        b: (OperandTile, OperandTile),
        task: Task,
    ) {
        let shape = self.shape::<I, J>();
        self.consumer.multiply_pair::<T, E, I, J>(shape, acc, a, b, task);
    }

    #[inline(always)]
    fn store<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(&mut self, mut acc: Sum, _: Tile<E, I, J>, _: SplitK, _: Task) {
        self.consumer.wgmma.wait_all::<I, J>(&mut acc);
        wgmma_accumulator::keep_registers::<I, J>(&mut self.sum, &acc);
        self.made = true;
    }

    #[inline(always)]
    fn store_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        (mut first, mut second): (Sum, Sum),
        _: Tile<E, I, J>,
        _: Task,
        f: impl Fn(f32, f32) -> f32,
    ) {
        self.consumer.wgmma.wait_all::<I, J>(&mut first);
        self.consumer.wgmma.wait_all::<I, J>(&mut second);
        wgmma_accumulator::keep_registers::<I, J>(&mut self.sum, &wgmma_accumulator::combine::<I, J>(&first, &second, f));
        self.made = true;
    }
}
