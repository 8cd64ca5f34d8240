//! A consumer's sums, and the tensor cores that make them, on the host: a thread is a whole warpgroup.
//!
//! Products are made as late as the waits allow, from the swizzled boxes in shared memory. So a stage that is given back too early, a
//! wrong page and a wrong phase all show in the numbers. Each element is the same sum in the same order as the role
//! [`super::alone::Alone`] makes, so that results are equal to the last bit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::gate::Gate;
use super::store::columns;
use crate::abi::BOX;
use crate::cta::Simt;
use crate::element::MmaElement;
use crate::hardware::{memory, scratch};
use crate::task::Elementwise;

const STEP: usize = BOX as usize;
const BOX_BYTES: u32 = BOX * BOX * 2;

/// A warpgroup's part of a sum: 64 rows, one after another.
pub type Sum = Rc<RefCell<Vec<f32>>>;

/// 64 rows of 64 columns.
pub type Chunk = Box<[u16]>;

/// Consumers that divide elements, and rows, among themselves: a thread each.
pub const ELEMENTWISE: u32 = 2;

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

/// The value of an element, from its bits.
pub fn value<E: MmaElement>() -> fn(u16) -> f32 {
    if E::BF16 { |bits| half::bf16::from_bits(bits).to_f32() } else { |bits| half::f16::from_bits(bits).to_f32() }
}

/// Products that were asked for and not made: groups, and what belongs to the next one.
pub struct Cores {
    groups: VecDeque<Vec<Product>>,
    open: Vec<Product>,
}

/// Adds to `sum` what the boxes at `a` and `b` hold when it is made.
struct Product {
    sum: Sum,
    a: Operand,
    b: Operand,
    value: fn(u16) -> f32,
}

/// Boxes of 64 × 64 elements, one after another along the kept axis.
#[derive(Clone, Copy)]
struct Operand {
    at: u32,
    /// How many rows or columns are kept.
    kept: usize,
    along_rows: bool,
}

impl Operand {
    /// Element `k` of kept row or column `n`.
    fn element(self, n: usize, k: usize) -> u16 {
        let (row, col) = if self.along_rows { (k, n % STEP) } else { (n % STEP, k) };
        let at = self.at + (n / STEP) as u32 * BOX_BYTES + (row * 2 * STEP + 2 * col) as u32;
        // SAFETY: inside a stage, which the caller of `multiply` promises to be full.
        unsafe { memory::load_element(memory::swizzled(at)) }
    }
}

impl Product {
    fn make(self) {
        let mut sum = self.sum.borrow_mut();
        let columns = self.b.kept;
        let gather = |operand: Operand| -> Vec<f32> {
            (0..STEP * operand.kept).map(|n| (self.value)(operand.element(n % operand.kept, n / operand.kept))).collect()
        };
        let (a, b) = (gather(self.a), gather(self.b));
        for (row, sums) in sum.chunks_exact_mut(columns).enumerate() {
            for (k, b) in b.chunks_exact(columns).enumerate() {
                let a = a[k * STEP + row];
                for (sum, b) in sums.iter_mut().zip(b) {
                    *sum += a * b;
                }
            }
        }
    }
}

impl Cores {
    pub fn new() -> Cores {
        Cores { groups: VecDeque::new(), open: Vec::new() }
    }

    /// All zero.
    pub fn zeros<const I: usize, const J: usize>(&self) -> Sum {
        Rc::new(RefCell::new(vec![0.0; STEP * columns(I, J)]))
    }

    /// Asks for `sum += a · bᵀ` over one step.
    ///
    /// # Safety
    /// `a` and `b` are swizzled boxes in shared memory that stay until a wait says that the product is made.
    pub unsafe fn multiply<E: MmaElement, const I: usize, const J: usize>(&mut self, sum: &mut Sum, a: u32, b: u32, along: (bool, bool)) {
        self.open.push(Product {
            sum: sum.clone(),
            a: Operand { at: a, kept: STEP, along_rows: along.0 },
            b: Operand { at: b, kept: columns(I, J), along_rows: along.1 },
            value: value::<E>(),
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

    /// Makes the products of all groups.
    pub fn wait_all<const I: usize, const J: usize>(&mut self, _: &mut Sum) {
        self.groups.drain(..).flatten().for_each(Product::make);
    }
}

/// Up to two chunks that wait.
pub struct Pending(Vec<Chunk>);

impl Pending {
    pub fn new() -> Pending {
        Pending(Vec::new())
    }

    /// One of the two.
    pub fn chunk(&self, first: bool) -> Chunk {
        self.0[usize::from(!first)].clone()
    }
}

/// `f` of two sums, element by element.
pub fn combine<const I: usize, const J: usize>(a: &Sum, b: &Sum, f: impl Fn(f32, f32) -> f32) -> Sum {
    Rc::new(RefCell::new(a.borrow().iter().zip(b.borrow().iter()).map(|(&a, &b)| f(a, b)).collect()))
}

/// 64 columns from column `64 * number` of this warpgroup, after the epilogue `T`.
fn chunk<T: Elementwise, E: MmaElement>(sum: &Sum, number: usize) -> Chunk {
    let sum = sum.borrow();
    let columns = sum.len() / STEP;
    sum.chunks_exact(columns).flat_map(|row| row[number * STEP..][..STEP].iter().map(|&value| packed::<T, E>(value))).collect()
}

/// The first 64 columns of this warpgroup.
pub fn first<T: Elementwise, E: MmaElement>(sum: &Sum) -> Chunk {
    chunk::<T, E>(sum, 0)
}

/// The next 64 columns.
pub fn second<T: Elementwise, E: MmaElement>(sum: &Sum) -> Chunk {
    chunk::<T, E>(sum, 1)
}

/// The last 128 of 256 columns.
pub fn last<T: Elementwise, E: MmaElement>(sum: &Sum) -> Pending {
    Pending(vec![chunk::<T, E>(sum, 2), chunk::<T, E>(sum, 3)])
}

/// 64 rows of 64 columns of a sum that is added up from parts.
pub type Columns = Vec<f32>;

/// Elements of 64 rows of 64 columns.
const COLUMNS: usize = STEP * STEP;

/// Where the part of consumer thread `thread`, which stands for its warpgroup, lies in a chunk.
fn own(chunk: *const u32, thread: u32) -> *mut f32 {
    chunk.cast::<f32>().wrapping_add(thread as usize / 128 * COLUMNS).cast_mut()
}

/// Writes this warpgroup's part of `sum`, chunk after chunk from `at` on.
///
/// # Safety
/// `at` is the memory of a partial sum of an `I` × `J` tile.
pub unsafe fn keep<const I: usize, const J: usize>(sum: &Sum, at: *mut u32, thread: u32) {
    let sum = sum.borrow();
    for (chunk, first) in (0..columns(I, J)).step_by(STEP).enumerate() {
        let to = own(at.wrapping_add(2 * COLUMNS * chunk), thread);
        for (row, values) in sum.chunks_exact(columns(I, J)).enumerate() {
            // SAFETY: inside the partial sum, and nobody else's.
            unsafe { to.add(row * STEP).copy_from_nonoverlapping(values[first..].as_ptr(), STEP) };
        }
    }
}

/// No part yet.
pub fn nothing() -> Columns {
    vec![0.0; COLUMNS]
}

/// Adds this warpgroup's part of the chunk at `at` of a partial sum.
///
/// # Safety
/// `at` is a chunk that [`keep`] has written, and what it has written is visible.
pub unsafe fn add(sum: &mut Columns, at: *const u32, thread: u32) {
    // SAFETY: inside the chunk, which nobody writes any more.
    let partial = unsafe { std::slice::from_raw_parts(own(at, thread), COLUMNS) };
    sum.iter_mut().zip(partial).for_each(|(sum, value)| *sum += value);
}

/// 64 columns of a sum that was added up, after the epilogue `T`.
pub fn whole<T: Elementwise, E: MmaElement>(sum: &Columns) -> Chunk {
    sum.iter().map(|&value| packed::<T, E>(value)).collect()
}

/// An element is what `pack` puts into the low half.
fn packed<T: Elementwise, E: MmaElement>(value: f32) -> u16 {
    crate::element::pack::<E>(T::apply(value), 0.0) as u16
}

/// Writes 64 rows of 64 columns to the swizzled box at `at`.
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
