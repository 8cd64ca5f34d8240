//! The accumulator and the WGMMA instructions of a consumer, on the host: a thread is a whole warpgroup.
//!
//! Products are made as late as the waits allow, from the swizzled boxes in shared memory. So a stage that is given back too early, a wrong page and a wrong phase
//! all show in the numbers. Each element is summed in the same order as in `roles/cpu_reference.rs`, so that both are equal to the last bit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::data::element::{MmaElement, MmaFormat, pack};
use crate::data::epilogue::{Anchor, Epilogue, NO_AXIS, Scalars, Source, inside};
use crate::data::split_k::OwnedChunks;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::data::tile_shape::TileShape;
use crate::hardware::{memory, scratch};
use crate::simt::Simt;
use crate::sync::gate::Gate;
use maco_abi::{self as abi, BOX, ROW_BYTES};

/// Rows of a warpgroup, and of a chunk.
const ROWS: usize = BOX as usize;

/// A warpgroup's part of a sum: 64 rows, one after another.
pub type Sum = Rc<RefCell<Vec<f32>>>;

/// 64 rows of 128 bytes.
pub type Chunk = Box<[u16]>;

/// Rows, and columns, of a block that [`turn`] transposes.
pub const BLOCK: u32 = 32;

/// Runs the reference of a SIMT body, which is for one thread and has memory of its own.
pub fn simt<const SHARED: usize>(thread: u32, gate: &mut Gate, _scratch: u32, f: impl FnOnce(&mut Simt<'_, SHARED>)) {
    if thread == 0 {
        f(&mut Simt { thread, threads: 1, gate: Some(gate), scratch: scratch::NOWHERE });
    }
}

/// Whether this consumer has seen the scratch of a body that begins: only one of them runs it.
pub fn agree(seen: bool) -> bool {
    seen
}

/// The element of an operand that lies at `at`.
///
/// # Safety
/// `at` is an aligned element of this CTA's shared memory, which nobody writes.
pub unsafe fn element_at<E: MmaElement>(at: u32) -> f32 {
    // SAFETY: passed on from the caller.
    unsafe {
        match E::MMA_FORMAT {
            MmaFormat::Bf16 => half::bf16::from_bits(memory::load_element(at)).to_f32(),
            MmaFormat::F16 => half::f16::from_bits(memory::load_element(at)).to_f32(),
            MmaFormat::Tf32 => f32::from_bits(memory::load_shared(at)),
        }
    }
}

/// Products that were asked for and not made: groups, and what belongs to the next one.
pub struct Wgmma {
    groups: VecDeque<Vec<Product>>,
    open: Vec<Product>,
}

/// Adds to `sum` what the boxes at `a` and `b` hold when it is made.
struct Product {
    sum: Sum,
    a: Operand,
    b: Operand,
    /// Elements of the step.
    step: usize,
    element_at: unsafe fn(u32) -> f32,
}

/// Boxes, one after another along the kept axis.
#[derive(Clone, Copy)]
struct Operand {
    at: u32,
    /// How many rows or columns are kept.
    kept: usize,
    /// Of elements of two bytes.
    along_rows: bool,
}

impl Operand {
    /// Where element `k` of `step` of kept row or column `n` lies.
    fn place(self, n: usize, k: usize, step: usize) -> u32 {
        let row = if self.along_rows { n / step * step + k } else { n };
        let col = if self.along_rows { n % step } else { k };
        memory::swizzled(self.at + row as u32 * ROW_BYTES + col as u32 * (ROW_BYTES / step as u32))
    }
}

impl Product {
    fn make(self) {
        let mut sum = self.sum.borrow_mut();
        let (columns, step) = (self.b.kept, self.step);
        let gather = |operand: Operand| -> Vec<f32> {
            // SAFETY: inside a stage, which the caller of `multiply` promises to be full.
            let element = |n: usize| unsafe { (self.element_at)(operand.place(n % operand.kept, n / operand.kept, step)) };
            (0..step * operand.kept).map(element).collect()
        };
        let (a, b) = (gather(self.a), gather(self.b));
        for (row, sums) in sum.chunks_exact_mut(columns).enumerate() {
            for (k, b) in b.chunks_exact(columns).enumerate() {
                let a = a[k * ROWS + row];
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
        }
    }
}

impl Wgmma {
    pub fn new() -> Wgmma {
        Wgmma { groups: VecDeque::new(), open: Vec::new() }
    }

    /// All zero.
    pub fn zeros<const I: usize, const J: usize>(&self) -> Sum {
        Rc::new(RefCell::new(vec![0.0; ROWS * TileShape::of(I as u32, J as u32).own_columns() as usize]))
    }

    /// Asks for `sum += a · bᵀ` over one step.
    ///
    /// # Safety
    /// `a` and `b` are swizzled boxes in shared memory that stay until a wait says that the product is made.
    pub unsafe fn multiply<E: MmaElement, const I: usize, const J: usize>(&mut self, sum: &mut Sum, a: u32, b: u32, along: (bool, bool)) {
        // What is tf32 has been turned.
        let lies = E::MMA_FORMAT != MmaFormat::Tf32;
        self.open.push(Product {
            sum: sum.clone(),
            a: Operand { at: a, kept: ROWS, along_rows: along.0 && lies },
            b: Operand { at: b, kept: TileShape::of(I as u32, J as u32).own_columns() as usize, along_rows: along.1 && lies },
            step: abi::columns(E::BYTES) as usize,
            element_at: element_at::<E>,
        });
    }

    /// Closes the group of what was asked for.
    pub fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Makes the products of all groups but the newest.
    pub fn wait_older(&mut self) {
        while self.groups.len() > 1 {
            self.groups.pop_front().into_iter().flatten().for_each(Product::make);
        }
    }

    /// Makes the products of all groups; more will be added to their sums.
    pub fn wait_newest(&mut self) {
        self.groups.drain(..).flatten().for_each(Product::make);
    }

    /// Makes the products of all groups.
    pub fn wait_all<const I: usize, const J: usize>(&mut self, _: &mut Sum) {
        self.groups.drain(..).flatten().for_each(Product::make);
    }
}

/// No chunk.
pub fn empty() -> Chunk {
    Chunk::default()
}

/// Up to two chunks that wait.
pub struct Pending(Vec<Chunk>);

impl Pending {
    pub fn new() -> Pending {
        Pending(Vec::new())
    }

    /// The first and the second one.
    pub fn of(first: Chunk, second: Chunk) -> Pending {
        Pending(vec![first, second])
    }

    /// The one that waits longest.
    pub fn first(&self) -> Chunk {
        self.0[0].clone()
    }

    /// The other one comes first now.
    pub fn next(&mut self) {
        self.0.remove(0);
    }
}

/// `f` of two sums, element by element.
pub fn combine<const I: usize, const J: usize>(a: &Sum, b: &Sum, f: impl Fn(f32, f32) -> f32) -> Sum {
    Rc::new(RefCell::new(a.borrow().iter().zip(b.borrow().iter()).map(|(&a, &b)| f(a, b)).collect()))
}

/// One element of a result.
struct Element {
    task: Task,
    anchor: Anchor,
    place: [i32; 3],
}

impl Source for Element {
    type Elements = f32;

    fn tensor<O: MmaElement>(&self, n: usize) -> f32 {
        let [plane, row, col] = self.place;
        let tile: Tile<O, 0, 0> = self.task.tile(self.anchor.tensors + n, plane, 0, 0);
        let (row, col) = (inside(row, tile.view.rows), inside(col, tile.view.cols));
        // SAFETY: inside a live tensor, which nobody writes while the task runs.
        unsafe { tile.pointer(row, col).read() }.value()
    }

    fn element<O: MmaElement>(element: &f32, _: usize) -> f32 {
        *element
    }

    fn scalar(&self, n: usize) -> f32 {
        self.task.scalar(self.anchor.scalars + n)
    }
}

/// Chunk `own` of the 64 rows of `sum`, after the epilogue `T`; the `number`-th of this warpgroup's part of the tile that `task` makes.
fn packed<T: Epilogue, E: MmaElement>(sum: &[f32], own: usize, number: usize, shape: TileShape, task: Task, thread: u32) -> Chunk {
    let each = abi::columns(E::BYTES) as usize;
    let at = |axis: usize| if axis == NO_AXIS { 0 } else { task.coord(axis) };
    let [plane, down, across] = T::ANCHOR.axes;
    let value = |row: usize, col: usize, value: f32| {
        let (first, left) = shape.position(thread / 128, (number * each + col) as u32);
        let place = [at(plane), at(down) * shape.rows() as i32 + first + row as i32, at(across) * shape.columns() as i32 + left];
        let operands = T::read(&Element { task, anchor: T::ANCHOR, place });
        T::apply::<Element>(value, &operands, 0)
    };
    let rows = sum.chunks_exact(sum.len() / ROWS).enumerate();
    let values = rows.flat_map(|(row, values)| {
        let columns = values[own * each..][..each].iter().enumerate();
        columns.map(|(col, &one)| value(row, col, one)).collect::<Vec<f32>>()
    });
    if E::MMA_FORMAT == MmaFormat::Tf32 {
        return values.flat_map(|value| [value.to_bits() as u16, (value.to_bits() >> 16) as u16]).collect();
    }
    // An element is what `pack` puts into the low half.
    values.map(|value| pack::<E>(value, 0.0) as u16).collect()
}

/// Chunk `N` of this warpgroup's columns.
pub fn chunk<T: Epilogue, E: MmaElement, const N: usize>(sum: &Sum, shape: TileShape, task: Task, thread: u32) -> Chunk {
    packed::<T, E>(&sum.borrow(), N, N, shape, task, thread)
}

/// A sum whose chunks are asked for one after another.
pub struct Turning(Sum, Chunk);

impl Turning {
    pub fn of(sum: &Sum) -> Turning {
        Turning(sum.clone(), Chunk::default())
    }

    /// [`chunk`] `number`.
    pub fn front<T: Epilogue, E: MmaElement>(&self, number: u32, shape: TileShape, task: Task, thread: u32) -> Chunk {
        packed::<T, E>(&self.0.borrow(), number as usize, number as usize, shape, task, thread)
    }

    /// Keeps what was made of the last one.
    pub fn turn(&mut self, words: Chunk) {
        self.1 = words;
    }

    /// What is kept.
    pub fn behind(&self) -> Chunk {
        self.1.clone()
    }
}

/// 64 rows of 64 columns of a sum that is added up from parts.
pub type Columns = Vec<f32>;

/// Elements of 64 rows of 64 columns.
const COLUMNS: usize = ROWS * WIDTH;
/// Columns of a sum that is added up.
const WIDTH: usize = BOX as usize;

/// Where the part of consumer thread `thread`, which stands for its warpgroup, lies in a chunk.
fn own(chunk: *const u32, thread: u32) -> *mut f32 {
    chunk.cast::<f32>().wrapping_add(thread as usize / 128 * COLUMNS).cast_mut()
}

/// Writes this warpgroup's part of `sum`, chunk after chunk from `at` on, but none that is `owned`.
///
/// # Safety
/// `at` is the memory of a partial sum of a tile of this shape.
pub unsafe fn keep(sum: &Sum, shape: TileShape, at: *mut u32, owned: OwnedChunks, thread: u32) {
    for chunk in (0..shape.own_columns() as usize / WIDTH).filter(|&chunk| !owned.has(chunk as u32)) {
        // SAFETY: passed on from the caller.
        unsafe { keep_columns(&chunk_of(sum, shape, chunk), at.wrapping_add(2 * COLUMNS * chunk), thread) };
    }
}

/// Writes this warpgroup's part of one chunk.
///
/// # Safety
/// `at` is the memory of a chunk of a partial sum.
pub unsafe fn keep_columns(sum: &Columns, at: *mut u32, thread: u32) {
    // SAFETY: inside the chunk, and nobody else's.
    unsafe { own(at, thread).copy_from_nonoverlapping(sum.as_ptr(), COLUMNS) };
}

/// This warpgroup's part of chunk `chunk` of a sum.
fn chunk_of(sum: &Sum, shape: TileShape, chunk: usize) -> Columns {
    sum.borrow().chunks_exact(shape.own_columns() as usize).flat_map(|row| &row[chunk * WIDTH..][..WIDTH]).copied().collect()
}

/// Chunk `first` of a sum, and the one behind it if there is one.
pub fn owned(sum: &Sum, shape: TileShape, first: u32) -> (Columns, Columns) {
    let last = shape.own_columns() as usize / WIDTH - 1;
    let chunk = |chunk: u32| chunk_of(sum, shape, last.min(chunk as usize));
    (chunk(first), chunk(first + 1))
}

/// No part yet.
pub fn nothing() -> Columns {
    vec![-0.0; COLUMNS]
}

/// Chunks that [`add`] adds.
pub const ADDED: u32 = 2;

/// Adds this warpgroup's part of chunks of partial sums, one after the other: of those that `at` has from 0 on, `count` or [`ADDED`].
///
/// # Safety
/// Chunks that [`keep`] has written, and what it has written is visible.
pub unsafe fn add(sum: &mut Columns, at: impl Fn(u32) -> *const u32, count: u32, thread: u32) {
    for n in 0..count.min(ADDED) {
        // SAFETY: inside the chunk, which nobody writes any more.
        let partial = unsafe { std::slice::from_raw_parts(own(at(n), thread), COLUMNS) };
        sum.iter_mut().zip(partial).for_each(|(sum, value)| *sum += value);
    }
}

/// Chunk `N` of 64 columns of a sum that was added up, which begin with chunk `first` of this warpgroup's part.
pub fn whole<T: Epilogue, E: MmaElement, const N: usize>(sum: &Columns, first: u32, shape: TileShape, task: Task, thread: u32) -> Chunk {
    packed::<T, E>(sum, N, first as usize + N, shape, task, thread)
}

/// Writes a chunk to the swizzled box at `at`.
///
/// # Safety
/// The box is this warpgroup's.
#[allow(clippy::boxed_local, reason = "on a GPU it is an array in registers")]
pub unsafe fn write(at: u32, _: u32, chunk: Chunk) {
    for (n, &element) in chunk.iter().enumerate() {
        // SAFETY: passed on from the caller.
        unsafe { memory::store_element(memory::swizzled(at + 2 * n as u32), element) };
    }
}

/// Applies the elementwise prologue of operand A to `rows` rows of 128 bytes at `at`, with the 128-byte swizzle, in place. Rows are rows of the operand, and
/// columns are the contraction's; `across`: the other way round, 64 columns of the operand after another. The contraction goes on for `left` elements.
/// Each warpgroup has every second row.
///
/// # Safety
/// The rows are the consumers', and nobody else's until they meet.
pub unsafe fn map_operand_a<T: Epilogue, E: MmaElement>(at: u32, rows: u32, across: bool, left: i32, task: Task, thread: u32) {
    let (scalars, step) = (Scalars::of::<T>(task), abi::columns(E::BYTES));
    let f = T::first(&scalars);
    for row in (thread / 128..rows).step_by(2) {
        for col in 0..step {
            if (if across { row % step } else { col }) as i32 >= left {
                continue;
            }
            let place = memory::swizzled(at + row * ROW_BYTES + col * E::BYTES);
            // SAFETY: elements of the rows.
            unsafe {
                let value = E::element(f(element_at::<E>(place))).operand();
                match E::MMA_FORMAT {
                    MmaFormat::Tf32 => memory::store_shared(place, value.to_bits()),
                    _ => memory::store_element(place, pack::<E>(value, 0.0) as u16),
                }
            }
        }
    }
}

/// Transposes `blocks` blocks of 32 × 32 elements of `f32` in place, which lie at `at` with the 128-byte swizzle. Each warpgroup has every
/// second.
///
/// # Safety
/// The blocks are the consumers', and nobody else's until they meet.
pub unsafe fn turn(at: u32, blocks: u32, thread: u32) {
    for block in (thread / 128..blocks).step_by(2) {
        let place = |row: u32, col: u32| memory::swizzled(at + (block * BLOCK + row) * ROW_BYTES + col * 4);
        for row in 0..BLOCK {
            for col in 0..row {
                // SAFETY: words of the block.
                unsafe {
                    let (lower, upper) = (memory::load_shared(place(row, col)), memory::load_shared(place(col, row)));
                    memory::store_shared(place(row, col), upper);
                    memory::store_shared(place(col, row), lower);
                }
            }
        }
    }
}
