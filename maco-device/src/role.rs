//! The role trait: each role runs a task's body, and says what each operation means to it.

use crate::data::element::{Element, HalfElement, MmaElement};
use crate::data::epilogue::Epilogue;
use crate::data::inputs::Inputs;
use crate::data::row::{RowInputs, RowOutputs};
use crate::data::split_k::SplitK;
use crate::data::task::Task;
use crate::data::tile::{OperandTile, Tile};
use crate::operations::simt_consumer::SimtConsumer;
use crate::simt::Simt;
use crate::simt::warp::SimtWarp;
use maco_abi::MapIndex;

/// Which instances of a task run the same code, as a role.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// None: each has its own.
    None,
    /// All of one body: what a role does goes neither by the epilogue nor, when it runs, by a tile's shape as the types say it.
    Bodies,
    /// Of GEMMs those of one body, whose sums have as many registers: how they end is not in the body's code.
    Loops,
    /// Of GEMVs those of one body and one epilogue, beside GEMMs. Where there are GEMVs alone, their time is that of the launch, and each has its own code: shared
    /// code took 3.5 % longer (docs/decisions/0054-gemms-of-all-tiles-share-code.md).
    Gemvs,
}

/// A role: what it has no part in, it leaves as it is here. Work without tensor cores is done by roles that have a [`SimtConsumer`] of it; [`Role::mma`],
/// [`Role::store`] and those of pairs must agree on the ring.
pub trait Role: Sized {
    /// Whether bodies without tensor cores are functions of their own, run by [`SimtConsumer::consumers`].
    const CALLS: bool = false;

    /// Which instances have the same code.
    const SHARING: Sharing = Sharing::None;

    /// Rows and columns of the tile of the GEMM or GEMV that is run next; `None`: as its code says.
    #[inline(always)]
    fn set_tile(&mut self, _: Option<(u32, u32)>) {}

    /// A body begins that is a function of its own, or calls one: no GEMM's results wait to be staged.
    #[inline(always)]
    fn begin_function(&mut self) {}

    /// Whether elements of its result have four bytes, behind [`Role::set_tile`].
    #[inline(always)]
    fn set_four_bytes(&mut self, _: bool) {}

    /// Rows of the tile of a GEMM or GEMV, whose code says `rows`.
    #[inline(always)]
    fn tile_rows(&self, rows: u32) -> i32 {
        rows as i32
    }

    /// Columns of the tile of a GEMM or GEMV, whose code says `columns`.
    #[inline(always)]
    fn tile_columns(&self, columns: u32) -> i32 {
        columns as i32
    }

    /// Where a sum lives: registers of a consumer, nothing for the others.
    type Accumulator<const I: usize, const J: usize>;

    /// A task's tile coordinate along one grid axis.
    #[inline(always)]
    fn coord(&self, task: Task, axis: usize) -> i32 {
        task.coord(axis)
    }

    /// All zero.
    fn zeros<const I: usize, const J: usize>(&mut self) -> Self::Accumulator<I, J>;

    /// Of `count` steps of a contraction, at least one, of what these tensor maps describe, those that this role goes through; what can be done
    /// once for all of them is done here.
    #[inline(always)]
    fn steps(&mut self, _a: MapIndex, _b: MapIndex, count: u32) -> u32 {
        count
    }

    /// One step of a contraction, whose `a` is mapped by what `T` says.
    #[inline(always)]
    fn mma<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        _acc: &mut Self::Accumulator<I, J>,
        _a: OperandTile,
        _b: OperandTile,
        _task: Task,
    ) {
    }

    /// The end of a contraction, or of a part of it. Operands of the epilogue are those of `task`, which writes `y`.
    #[inline(always)]
    fn store<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        _acc: Self::Accumulator<I, J>,
        _y: Tile<E, I, J>,
        _split: SplitK,
        _task: Task,
    ) {
    }

    /// One step of two contractions with the same `a`.
    #[inline(always)]
    fn mma_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        _acc: (&mut Self::Accumulator<I, J>, &mut Self::Accumulator<I, J>),
        _a: OperandTile,
        _b: (OperandTile, OperandTile),
        _task: Task,
    ) {
    }

    /// The end of two contractions, which become one result.
    #[inline(always)]
    fn store_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        _acc: (Self::Accumulator<I, J>, Self::Accumulator<I, J>),
        _y: Tile<E, I, J>,
        _task: Task,
        _f: impl Fn(f32, f32) -> f32,
    ) {
    }

    /// What this role does of work without tensor cores; what it has done to the ring comes back by [`Role::set_ring`].
    #[inline(always)]
    fn simt_consumer(&self) -> Option<SimtConsumer> {
        None
    }

    /// Where this role is in the ring, for bodies that are functions of their own: see `Ring::packed`.
    #[inline(always)]
    fn ring(&self) -> u64 {
        0
    }

    /// Where it is behind such a body.
    #[inline(always)]
    fn set_ring(&mut self, _: u64) {}

    /// `y = f(inputs)`. If `task` streams, whoever has a part in it agrees on the ring: see `row_stages.rs`.
    #[inline(always)]
    fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        if let Some(mut consumer) = self.simt_consumer() {
            consumer.zip(inputs, y, task, f);
            self.set_ring(consumer.ring.packed());
        }
    }

    /// Row by row. If `task` streams, whoever has a part in it agrees on the ring: see `row_stages.rs`.
    #[inline(always)]
    fn rows<X: RowInputs, Y: RowOutputs>(&mut self, inputs: X, y: Y, task: Task, f: impl Fn(X::Rows, &mut Y::Rows)) {
        if let Some(mut consumer) = self.simt_consumer() {
            consumer.rows(inputs, y, task, f);
            self.set_ring(consumer.ring.packed());
        }
    }

    /// Rows of a table that indices name. If `task` streams, whoever has a part in it agrees on the ring: see `gather_rows.rs`.
    #[inline(always)]
    fn take<E: Element, const R: usize, const C: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
        &mut self,
        ids: Tile<u32, R, C>,
        table: Tile<E, A, B>,
        y: Tile<E, I, J>,
        task: Task,
    ) {
        if let Some(mut consumer) = self.simt_consumer() {
            consumer.take(ids, table, y, task);
            self.set_ring(consumer.ring.packed());
        }
    }

    /// Rows written where data say. If `task` streams, whoever has a part in it agrees on the ring: see `scatter.rs`.
    #[inline(always)]
    fn index_copy<E: Element, const J: usize>(&mut self, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) {
        if let Some(mut consumer) = self.simt_consumer() {
            consumer.index_copy(ids, x, y, task);
            self.set_ring(consumer.ring.packed());
        }
    }

    /// Rows added where data say; the ring as in [`Role::index_copy`].
    #[inline(always)]
    fn index_add<E: Element<Value = f32>, const J: usize>(&mut self, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) {
        if let Some(mut consumer) = self.simt_consumer() {
            consumer.index_add(ids, x, y, task);
            self.set_ring(consumer.ring.packed());
        }
    }

    /// Reductions over columns. If `task` streams, whoever has a part in it agrees on the ring: see `column_reduction.rs`.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn columns<X: Element, E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        x: Tile<X, R, C>,
        y: Tile<E, I, J>,
        task: Task,
        start: f32,
        f: impl Fn(X::Value) -> f32,
        combine: impl Fn(f32, f32) -> f32,
        finish: impl Fn(f32) -> E::Value,
    ) {
        if let Some(mut consumer) = self.simt_consumer() {
            if !consumer.tma_columns(x, y, task, start, &f, &combine, &finish) {
                consumer.columns(x, y, start, f, combine, finish);
            }
            self.set_ring(consumer.ring.packed());
        }
    }

    /// `y = xᵀ`; the ring as in [`Role::columns`].
    #[inline(always)]
    fn transpose<E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        x: Tile<E, R, C>,
        y: Tile<E, I, J>,
        task: Task,
    ) {
        if let Some(mut consumer) = self.simt_consumer() {
            if !consumer.tma_transpose(x, y, task) {
                consumer.transpose(x, y);
            }
            self.set_ring(consumer.ring.packed());
        }
    }

    /// A GEMV: `y = f(x · wᵀ, inputs)` for few rows of `x`. Whoever has a part in it agrees on the ring.
    #[inline(always)]
    fn gemv<T: Epilogue, E: HalfElement, X: Inputs, const I: usize, const J: usize>(
        &mut self,
        _x: Tile<E, I, 0>,
        _w: Tile<E, J, 0>,
        _inputs: X,
        _y: Tile<E, I, J>,
        _task: Task,
        _f: impl Fn(f32, X::Values) -> f32,
    ) {
    }

    /// By position.
    #[inline(always)]
    fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
        if let Some(consumer) = self.simt_consumer() {
            consumer.generate(inputs, y, f);
        }
    }

    /// An `unsafe` SIMT body; `early`: it begins before its inputs are there, and waits for them itself. One with scratch does not, and whoever
    /// has a part in it agrees on the ring.
    #[inline(always)]
    fn simt<const SHARED: usize>(&mut self, _early: bool, _f: impl FnOnce(&mut Simt<'_, SHARED>)) {}

    /// One of a single warp: whoever runs the task is that warp.
    #[inline(always)]
    fn simt_warp(&mut self, _early: bool, _f: impl FnOnce(&mut SimtWarp<'_>)) {}
}
