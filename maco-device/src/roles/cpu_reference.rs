//! CPU reference: loader, consumer and store in one thread. It is the default without a GPU, and the oracle with one.

use crate::data::element::{Element, HalfElement, MmaElement};
use crate::data::epilogue::{Beside, Epilogue, Scalars};
use crate::data::inputs::Inputs;
use crate::data::split_k::{INCOMPLETE, SplitK};
use crate::data::task::Task;
use crate::data::tile::{OperandTile, Tile};
use crate::data::tile_shape::TileShape;
use crate::hardware::scratch;
use crate::operations::index_add::{NOTHING, TERMS};
use crate::operations::simt_consumer::SimtConsumer;
use crate::role::Role;
use crate::simt::Simt;
use crate::simt::warp::SimtWarp;
use crate::sync::ring::Ring;
use maco_abi::{self as abi, BOX};

/// One thread has all the work that consumers share, and no ring.
const ALL: SimtConsumer = SimtConsumer { thread: 0, threads: 1, lanes: 1, ring: Ring::NONE };

/// A thread that plays every role, with its scratch memory.
#[derive(Default)]
pub struct CpuReference {
    a: Vec<f32>,
    b: Vec<f32>,
}

/// Elements of a step.
const fn step<E: Element>() -> usize {
    abi::columns(E::BYTES) as usize
}

/// Copies the elements of one step of an operand to `out[k][n]` (`by_step`) or `out[n][k]`, zero outside the tensor and of a plane that is not there.
fn gather<E: MmaElement>(parts: &OperandTile, n: usize, by_step: bool, out: &mut Vec<f32>) {
    out.clear();
    out.resize(n * step::<E>(), 0.0);
    if parts.plane < 0 {
        return;
    }
    let v = &parts.view;
    let (rows, cols) = if parts.along_rows { (step::<E>(), n) } else { (n, step::<E>()) };
    for r in 0..rows.min((v.rows as i64 - parts.row as i64).max(0) as usize) {
        for c in 0..cols.min((v.cols as i64 - parts.col as i64).max(0) as usize) {
            let offset = parts.plane as i64 * v.plane_stride as i64
                + (parts.row as i64 + r as i64) * v.row_stride as i64
                + (parts.col as i64 + c as i64) * v.col_stride as i64;
            // SAFETY: row and column are inside the view, which the plan made from a live tensor.
            let value = unsafe { (v.base as *const E).offset(offset as isize).read() }.operand();
            let (kept, k) = if parts.along_rows { (c, r) } else { (r, c) };
            out[if by_step { k * n + kept } else { kept * step::<E>() + k }] = value;
        }
    }
}

/// Writes a part of the sum of an `I` × `J` tile, row by row; once all others are there, calls `each` with those elements of the whole sum that
/// nobody else adds up, some of a row at a time, and the number of the first one.
///
/// # Safety
/// The launch of `split` is live, which is one of several parts; called once for a task.
unsafe fn fix_up<const I: usize, const J: usize>(acc: &[f32], split: SplitK, mut each: impl FnMut(usize, &[f32])) {
    let chunks = TileShape::of(I as u32, J as u32).own_columns() / BOX;
    // SAFETY: the plan keeps this memory for the part alone, and nobody reads it before all parts have arrived.
    unsafe { split.chunk(split.part, chunks, 0).cast::<f32>().copy_from_nonoverlapping(acc.as_ptr(), acc.len()) };
    // SAFETY: passed on from the caller; all is written.
    let mut owners = unsafe { split.arrive(chunks) };
    if owners == INCOMPLETE {
        // SAFETY: as above.
        owners = unsafe { split.leave(chunks) };
    }
    while owners != 0 {
        let owner = split.next(owners);
        owners &= !(1 << owner);
        // SAFETY: as above: all parts have arrived, so nobody writes partial sums any more.
        let partial = |n: u32| unsafe { core::slice::from_raw_parts(split.chunk(split.nth(owner, n), chunks, 0).cast::<f32>(), I * J) };
        let owned = split.owned(owner, chunks);
        // What consumers have of a chunk, so that each element's parts are added in the same order as theirs.
        for (chunk, group) in (owned.first..owned.end).flat_map(|chunk| [(chunk, 0), (chunk, 1)]) {
            let (top, left) = TileShape::of(I as u32, J as u32).position(group, chunk * BOX);
            for row in top as usize..top as usize + BOX as usize {
                let at = row * J + left as usize;
                let some = |n: u32| &partial(n)[at..at + BOX as usize];
                let mut sum = some(0).to_vec();
                for n in 1..split.parts {
                    sum.iter_mut().zip(some(n)).for_each(|(sum, value)| *sum += value);
                }
                each(at, &sum);
            }
        }
    }
}

/// Writes the elements of a tile of `J` columns from element `first` on, after the epilogue `T`.
fn put<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(task: Task, y: Tile<E, I, J>, first: usize, sums: &[f32]) {
    for (at, &sum) in (first..).zip(sums) {
        let (row, col) = (at / J, at % J);
        if row < y.rows() as usize && col < y.cols() as usize {
            // SAFETY: the position is inside the tile; tiles of one grid do not overlap, and each element of one is written once.
            unsafe {
                y.pointer(row as i32, col as i32).write(E::element(Beside::<T>::read(task, y, (row as u32, col as u32)).finish(sum)))
            };
        }
    }
}

impl Role for CpuReference {
    type Accumulator<const I: usize, const J: usize> = Vec<f32>;

    fn zeros<const I: usize, const J: usize>(&mut self) -> Vec<f32> {
        vec![0.0; I * J]
    }

    /// Adds one product after another in the order of the contraction: the sum does not depend on the tile.
    fn mma<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: &mut Vec<f32>,
        a: OperandTile,
        b: OperandTile,
        task: Task,
    ) {
        gather::<E>(&a, I, false, &mut self.a);
        if T::MAPS_OPERAND_A {
            let (scalars, left) = (Scalars::of::<T>(task), a.left().max(0) as usize);
            let f = T::first(&scalars);
            for values in self.a.chunks_exact_mut(step::<E>()) {
                values.iter_mut().take(left).for_each(|value| *value = E::element(f(*value)).operand());
            }
        }
        gather::<E>(&b, J, true, &mut self.b);
        let rows = if a.along_rows { (a.view.cols as i64 - a.col as i64) as usize } else { (a.view.rows as i64 - a.row as i64) as usize };
        for (sums, a) in acc.chunks_exact_mut(J).zip(self.a.chunks_exact(step::<E>())).take(rows) {
            for (&a, b) in a.iter().zip(self.b.chunks_exact(J)) {
                for (sum, &b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
        }
    }

    fn store<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: Vec<f32>,
        y: Tile<E, I, J>,
        split: SplitK,
        task: Task,
    ) {
        if split.parts > 1 {
            // SAFETY: the task runs, so its launch is live; a body that can be split stores once.
            unsafe { fix_up::<I, J>(&acc, split, |first, sums| put::<T, E, I, J>(task, y, first, sums)) };
        } else {
            put::<T, E, I, J>(task, y, 0, &acc);
        }
    }

    fn mma_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: (&mut Vec<f32>, &mut Vec<f32>),
        a: OperandTile,
        b: (OperandTile, OperandTile),
        task: Task,
    ) {
        self.mma::<T, E, I, J>(acc.0, a, b.0, task);
        self.mma::<T, E, I, J>(acc.1, a, b.1, task);
    }

    fn store_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        (mut acc, other): (Vec<f32>, Vec<f32>),
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(f32, f32) -> f32,
    ) {
        acc.iter_mut().zip(other).for_each(|(sum, other)| *sum = f(*sum, other));
        put::<T, E, I, J>(task, y, 0, &acc);
    }

    /// Adds one product after another in the order of the contraction.
    fn gemv<T: Epilogue, E: HalfElement, X: Inputs, const I: usize, const J: usize>(
        &mut self,
        x: Tile<E, I, 0>,
        w: Tile<E, J, 0>,
        inputs: X,
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(f32, X::Values) -> f32,
    ) {
        // Operand A of an RMSNorm prologue has in-band flags, and here nothing has.
        assert!(task.norm::<E>().is_none(), "one thread has no RMSNorm prologue");
        let y = y.of::<T::Result<E>>();
        for row in 0..y.rows() {
            for col in 0..y.cols() {
                let mut sum = 0.0;
                for k in 0..w.cols() {
                    sum += x.at(row, k) * w.at(col, k);
                }
                let value = Beside::<T>::read(task, y, (row, col)).finish(f(sum, inputs.at(row, col)));
                // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                unsafe { y.pointer(row as i32, col as i32).write(T::Result::<E>::element(value)) };
            }
        }
    }

    fn simt_consumer(&self) -> Option<SimtConsumer> {
        Some(ALL)
    }

    /// Row by row of y, with the indices of each in their order.
    fn index_add<E: Element<Value = f32>, const J: usize>(&mut self, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, _: Task) {
        let mut named: Vec<(u32, u32)> = (0..ids.cols()).map(|i| (ids.at(0, i), i)).filter(|&(row, _)| row < y.rows()).collect();
        named.sort_unstable();
        for same in named.chunk_by(|a, b| a.0 == b.0) {
            let row = same[0].0;
            let mut totals = vec![NOTHING; y.cols() as usize];
            let mut parts: Vec<f32> = (0..y.cols()).map(|col| y.at(row, col)).collect();
            for terms in same.chunks(TERMS as usize) {
                for &(_, i) in terms {
                    (0..).zip(&mut parts).for_each(|(col, part)| *part += x.at(i, col));
                }
                totals.iter_mut().zip(&parts).for_each(|(total, part)| *total += part);
                parts.fill(NOTHING);
            }
            for (col, total) in (0..).zip(totals) {
                // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                unsafe { y.pointer(row as i32, col).write(E::element(total)) };
            }
        }
    }

    fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        _: Task,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        for row in 0..y.rows() {
            for col in 0..y.cols() {
                // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                unsafe { y.pointer(row as i32, col as i32).write(E::element(f(inputs.at(row, col)))) };
            }
        }
    }

    fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
        let readers = inputs.readers(false);
        for row in 0..y.rows() as i32 {
            for col in 0..y.cols() as i32 {
                // SAFETY: the position is inside the tile.
                unsafe { y.pointer(row, col).write(E::element(f(&readers, row, col))) };
            }
        }
    }

    fn simt<const SHARED: usize>(&mut self, _early: bool, f: impl FnOnce(&mut Simt<'_, SHARED>)) {
        f(&mut Simt { thread: 0, threads: 1, gate: None, scratch: scratch::NOWHERE });
    }

    fn simt_warp(&mut self, _early: bool, f: impl FnOnce(&mut SimtWarp<'_>)) {
        f(&mut SimtWarp::new());
    }
}
