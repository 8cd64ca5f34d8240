//! What a role sees of one task, and how generated code is called.

use crate::abi::{Descriptor, OPERANDS, View};
use crate::element::Element;
use crate::role::Role;
use crate::tile::Tile;

/// A descriptor with its views beside it: what the controller puts into shared memory, 256 bytes.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// The task.
    pub descriptor: Descriptor,
    /// Views of its tensor parameters.
    pub views: [View; OPERANDS],
}

const _: () = assert!(size_of::<Slot>() == 256);

/// A task in flight. Only raw pointers: another thread writes the slot between tasks.
#[derive(Clone, Copy)]
pub struct Task {
    slot: *const Slot,
    scalars: *const u32,
}

impl Task {
    /// # Safety
    /// `slot` stays valid and unchanged, and `scalars` (the table of [`crate::abi::Launch`]) valid, for as long as the value is used.
    #[inline(always)]
    pub unsafe fn new(slot: *const Slot, scalars: *const u32) -> Task {
        Task { slot, scalars }
    }

    /// Its index in the plan.
    #[doc(hidden)]
    #[inline(always)]
    pub fn index(self) -> u32 {
        // SAFETY: `new` promises a valid slot.
        unsafe { (&raw const (*self.slot).descriptor.task).read() }
    }

    /// Tile coordinate along one grid axis.
    #[inline(always)]
    pub fn coord(self, axis: usize) -> i32 {
        // SAFETY: `new` promises a valid slot; `axis` is a literal below 3 in generated code and checked otherwise.
        unsafe { (&raw const (*self.slot).descriptor.coord).cast::<i32>().add(if axis < 3 { axis } else { 0 }).read() }
    }

    /// The tile of operand `operand` whose origin is element (`plane`, `row`, `col`).
    #[inline(always)]
    pub fn tile<E: Element, const R: usize, const C: usize>(self, operand: usize, plane: i32, row: i32, col: i32) -> Tile<E, R, C> {
        // SAFETY: `new` promises a valid slot.
        let view = unsafe { (&raw const (*self.slot).views).cast::<View>().add(if operand < OPERANDS { operand } else { 0 }).read() };
        Tile::new(view, plane, row, col)
    }

    /// Scalar argument `n`.
    #[inline(always)]
    pub fn scalar<S: Scalar>(self, n: usize) -> S {
        // SAFETY: `new` promises a valid slot and table; the plan gave this call as many scalars as its task has.
        let bits = unsafe { self.scalars.add((*self.slot).descriptor.scalar as usize + n).read() };
        S::from_bits(bits)
    }
}

/// A type of scalar argument.
pub trait Scalar: Copy {
    /// From the bits in the table.
    fn from_bits(bits: u32) -> Self;
    /// The bits for the table.
    fn to_bits(self) -> u32;
}

impl Scalar for f32 {
    #[inline(always)]
    fn from_bits(bits: u32) -> f32 {
        f32::from_bits(bits)
    }
    #[inline(always)]
    fn to_bits(self) -> u32 {
        f32::to_bits(self)
    }
}

impl Scalar for u32 {
    #[inline(always)]
    fn from_bits(bits: u32) -> u32 {
        bits
    }
    #[inline(always)]
    fn to_bits(self) -> u32 {
        self
    }
}

impl Scalar for i32 {
    #[inline(always)]
    fn from_bits(bits: u32) -> i32 {
        bits as i32
    }
    #[inline(always)]
    fn to_bits(self) -> u32 {
        self as u32
    }
}

/// Anything a megakernel calls: a task, or a group of calls. The macros implement it.
pub trait Callable {
    /// Instances: the dense numbers `0..SLOTS`.
    const SLOTS: u32;
    /// Runs instance `slot` as role `R` with fused epilogue `T`; instances outside `F` cost no code.
    fn dispatch<R: Role, T: Elementwise, F: Filter>(role: &mut R, task: Task, slot: u32);
}

/// The instances a megakernel uses, known at compile time.
pub trait Filter {
    /// Bit `n`: instance `n` is used.
    const MASK: u128;
}

/// Every instance.
pub enum All {}

impl Filter for All {
    const MASK: u128 = u128::MAX;
}

/// A function on one value, fusable into the epilogue of a call.
#[diagnostic::on_unimplemented(
    message = "MACO0018: `{Self}` is not element-wise, so `.then(..)` cannot fuse it",
    label = "not an element-wise task",
    note = "`.then(..)` takes `#[maco::task(elementwise)] fn f(v: f32) -> f32`; call any other task on its own line"
)]
pub trait Elementwise {
    /// The function.
    fn apply(value: f32) -> f32;
}

/// No epilogue.
pub enum Identity {}

impl Elementwise for Identity {
    #[inline(always)]
    fn apply(value: f32) -> f32 {
        value
    }
}

/// First `A`, then `B`.
pub struct Then<A, B>(core::marker::PhantomData<(A, B)>);

impl<A: Elementwise, B: Elementwise> Elementwise for Then<A, B> {
    #[inline(always)]
    fn apply(value: f32) -> f32 {
        B::apply(A::apply(value))
    }
}
