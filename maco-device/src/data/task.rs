//! What a role sees of one task, and how generated code is called.

use crate::abi::{
    BULK_ROWS, CONCURRENT_PARTS, Descriptor, ELEMENTWISE_PROLOGUE, Launch, NO_MAP, OPERANDS, PARTS_SHIFT, RMSNORM_PROLOGUE, View,
};
use crate::data::element::Element;
use crate::data::epilogue::Epilogue;
#[cfg(target_arch = "nvptx64")]
use crate::data::epilogue::Identity;
use crate::data::split_k::SplitK;
use crate::data::tile::Tile;
use crate::role::Role;
use crate::simt::tensor_copies::Mapped;

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
/// Words of a descriptor.
const COORD: usize = core::mem::offset_of!(Descriptor, coord) / 4;
const FLAGS: usize = core::mem::offset_of!(Descriptor, flags) / 4;
/// In its upper half.
const SPLIT: usize = core::mem::offset_of!(Descriptor, split) / 4;
const _: () = assert!(core::mem::offset_of!(Descriptor, flags) % 4 == 0 && core::mem::offset_of!(Descriptor, split) % 4 == 2);
const _: () = assert!(core::mem::offset_of!(Descriptor, op) == 0 && core::mem::offset_of!(Descriptor, scalar) == 2);

/// A task in flight. Another thread writes the slot between tasks: nothing of it is behind a reference.
#[derive(Clone, Copy)]
pub struct Task {
    place: Place,
    launch: *const Launch,
}

/// A norm of rows: see [`crate::Cta::rmsnorm`].
#[derive(Clone, Copy)]
pub(crate) struct Norm<E> {
    /// One for each column.
    pub(crate) weights: Tile<E, 1, 0>,
    /// Added to the mean square.
    pub(crate) epsilon: f32,
}

/// Where a slot is: in shared memory on a GPU.
#[cfg(not(target_arch = "nvptx64"))]
pub type Place = *const Slot;
/// Where a slot is: in shared memory on a GPU.
#[cfg(target_arch = "nvptx64")]
pub type Place = u32;

impl Task {
    /// Not what a task needs of the launch: few need anything, and a pointer to the launch costs no register.
    ///
    /// # Safety
    /// The slot stays valid and unchanged, and the launch live, for as long as the value is used.
    #[inline(always)]
    pub unsafe fn new(place: Place, launch: *const Launch) -> Task {
        Task { place, launch }
    }

    /// Word `at` of the slot.
    #[inline(always)]
    fn word(self, at: usize) -> u32 {
        // SAFETY: `new` promises a valid slot, and callers stay inside it.
        unsafe {
            #[cfg(target_arch = "nvptx64")]
            return crate::ptx::memory::read_shared(self.place + at as u32 * 4);
            #[cfg(not(target_arch = "nvptx64"))]
            self.place.cast::<u32>().add(at).read()
        }
    }

    /// Its index in the plan.
    #[doc(hidden)]
    #[inline(always)]
    pub fn index(self) -> u32 {
        self.word(core::mem::offset_of!(Descriptor, task) / 4)
    }

    /// Whether what it reads comes through the ring, wherever it can.
    #[inline(always)]
    pub(crate) fn streams(self) -> bool {
        self.word(FLAGS) & BULK_ROWS as u32 != 0
    }

    /// Tile coordinate along one grid axis.
    #[inline(always)]
    pub fn coord(self, axis: usize) -> i32 {
        // A literal below 3 in generated code.
        self.word(COORD + if axis < 3 { axis } else { 0 }) as i32
    }

    /// Its part of its tile's sum.
    #[inline(always)]
    pub(crate) fn split_k(self) -> SplitK {
        // How long others that began at the same time may take to end.
        const LOOKS: u32 = 16;
        let split = self.word(SPLIT) >> 16;
        let parts = split >> PARTS_SHIFT;
        SplitK {
            part: split & ((1 << PARTS_SHIFT) - 1),
            parts: if parts == 0 { 1 } else { parts },
            first: self.word(COORD + 2),
            looks: if self.word(FLAGS) & CONCURRENT_PARTS as u32 != 0 { LOOKS } else { 0 },
            launch: self.launch,
        }
    }

    /// The tile of operand `operand` whose origin is element (`plane`, `row`, `col`).
    #[inline(always)]
    pub fn tile<E: Element, const R: usize, const C: usize>(self, operand: usize, plane: i32, row: i32, col: i32) -> Tile<E, R, C> {
        let operand = if operand < OPERANDS { operand } else { 0 };
        // SAFETY: `new` promises a valid slot.
        #[cfg(not(target_arch = "nvptx64"))]
        let view = unsafe { (&raw const (*self.place).views).cast::<View>().add(operand).read() };
        #[cfg(target_arch = "nvptx64")]
        let view = {
            let at = self.place + (core::mem::offset_of!(Slot, views) + operand * size_of::<View>()) as u32;
            // SAFETY: as above; views lie at 32-byte boundaries.
            let ([low, high, rows, cols], [row_stride, col_stride, plane_stride, map]) =
                unsafe { (crate::ptx::memory::read_shared4(at), crate::ptx::memory::read_shared4(at + 16)) };
            View { base: low as u64 | (high as u64) << 32, rows, cols, row_stride, col_stride, plane_stride, map }
        };
        Tile::new(view, plane, row, col)
    }

    /// The same of an operand that the body copies in boxes.
    #[inline(always)]
    pub fn mapped<E: Element, const R: usize, const C: usize, const ROWS: usize, const SWIZZLE: usize>(
        self,
        operand: usize,
        plane: i32,
        row: i32,
        col: i32,
    ) -> Mapped<E, R, C, ROWS, SWIZZLE> {
        let tile = self.tile(operand, plane, row, col);
        #[cfg(target_arch = "nvptx64")]
        {
            // SAFETY: `new` promises a live launch.
            Mapped::new(tile, unsafe { (*self.launch).maps })
        }
        #[cfg(not(target_arch = "nvptx64"))]
        Mapped::new(tile)
    }

    /// The norm that the task makes of its factor, if it does.
    #[inline(always)]
    pub(crate) fn norm<E: Element>(self) -> Option<Norm<E>> {
        if self.word(FLAGS) & RMSNORM_PROLOGUE as u32 == 0 {
            return None;
        }
        let weights: Tile<E, 1, 0> = self.tile(OPERANDS - 1, 0, 0, 0);
        Some(Norm { weights, epsilon: f32::from_bits(weights.view.map) })
    }

    /// The number of what the task makes of its factor: not 0, and that of no norm by other weights or another epsilon, nor of another map; 0 if it
    /// makes nothing.
    #[inline(always)]
    pub(crate) fn prologue(self) -> u32 {
        if self.word(FLAGS) & (RMSNORM_PROLOGUE | ELEMENTWISE_PROLOGUE) as u32 == 0 {
            return 0;
        }
        self.word((core::mem::offset_of!(Slot, views) + (OPERANDS - 1) * size_of::<View>() + core::mem::offset_of!(View, plane_stride)) / 4)
    }

    /// What is mapped before the task, which is [`ELEMENTWISE_PROLOGUE`], multiplies it; by which instance; and how the slot of that begins.
    #[inline(always)]
    pub(crate) fn elementwise_prologue<E: Element>(self) -> (Tile<E, 0, 0>, u32, u32) {
        let Tile { view, .. } = self.tile::<E, 0, 0>(OPERANDS - 1, 0, 0, 0);
        // See `abi::elementwise_prologue`.
        let (axis, most) = (view.col_stride >> 8 & 0xff, view.col_stride & 0xff);
        let first = self.coord(axis as usize) as u32 * most;
        let rows = if view.rows - first < most { view.rows - first } else { most };
        let base = view.base + first as u64 * view.row_stride as u64 * E::BYTES as u64;
        let x = View { base, rows, col_stride: 1, plane_stride: 0, map: NO_MAP, ..view };
        (Tile::new(x, 0, 0, 0), view.map, view.col_stride & 0xffff_0000)
    }

    /// The plane that element `at` of operand `by` names, or -1, of which every element is zero, if there is none of that number. How many
    /// there are is where the view of a tensor of three axes has its [`View::plane_stride`].
    #[inline(always)]
    pub fn plane(self, by: usize, at: i32) -> i32 {
        let by: Tile<u32, 1, 1> = self.tile(by, 0, 0, at);
        if by.cols() == 0 {
            return -1;
        }
        // SAFETY: the position is inside a live tensor, which nobody writes while a task reads it.
        let name = unsafe { by.pointer(0, 0).read() };
        if name < by.view.plane_stride { name as i32 } else { -1 }
    }

    /// Scalar argument `n`.
    #[inline(always)]
    pub fn scalar<S: Scalar>(self, n: usize) -> S {
        let first = self.word(0) >> 16;
        // SAFETY: `new` promises a live launch; the plan gave this call as many scalars as its task has.
        let bits = unsafe { ((*self.launch).scalars as *const u32).add(first as usize + n).read() };
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
    /// Which argument of a call is a result of another element than the signature says, if it is one; [`usize::MAX`]: none is.
    const RESULT: usize = usize::MAX;
    /// The instances whose bodies one warp runs, as [`Filter::MASK`]; of a task, all or none. What that takes, no other kernel has in its code.
    const WARP_TASKS: u128 = 0;
    /// The instances that map one tensor, value by value, to one of the same element of two bytes, and do nothing else, as [`Filter::MASK`].
    const ELEMENTWISE: u128 = 0;
    /// The instances that are products of few rows and nothing else, which may make such a map of their factor.
    const GEMVS: u128 = 0;
    /// Runs instance `slot` as role `R` with fused epilogue `T`; instances outside `F` cost no code.
    fn dispatch<R: Role, T: Epilogue, F: Filter>(role: &mut R, task: Task, slot: u32);
}

/// [`Callable::WARP_TASKS`] of callee `C`, whose first instance is `base`, as that of its caller.
pub const fn warp_tasks<C: Callable>(base: u32) -> u128 {
    of_caller::<C>(C::WARP_TASKS, base)
}

/// The same of [`Callable::ELEMENTWISE`].
pub const fn elementwise<C: Callable>(base: u32) -> u128 {
    of_caller::<C>(C::ELEMENTWISE, base)
}

/// The same of [`Callable::GEMVS`].
pub const fn gemvs<C: Callable>(base: u32) -> u128 {
    of_caller::<C>(C::GEMVS, base)
}

/// Whether products of `C` make maps of their factors, of the instances in `mask`: what the planner goes by, and who has the code for it.
/// Beside tasks of one warp there are none. What a consumer asks about those before a body keeps all predicates busy, so one question more costs a register in
/// every body, and the products of the largest tiles have none to spare.
pub const fn fuses_elementwise_prologues<C: Callable>(mask: u128) -> bool {
    C::WARP_TASKS == 0 && C::ELEMENTWISE & mask != 0 && C::GEMVS & mask != 0
}

const fn of_caller<C: Callable>(instances: u128, base: u32) -> u128 {
    let own = if C::SLOTS < u128::BITS { instances & ((1 << C::SLOTS) - 1) } else { instances };
    if base < u128::BITS { own << base } else { 0 }
}

/// Most instances of a megakernel: the bits of [`Filter::MASK`].
pub const INSTANCES: u32 = u128::BITS;

/// Runs instance `slot` of a whole megakernel: one jump, however many callables there are and however deep they are nested. Every
/// arm is compiled for its own instance alone.
///
/// `slot` is an instance of `C`: what a plan for `C` puts into a descriptor.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub fn dispatch<C: Callable, R: Role, F: Filter>(role: &mut R, task: Task, slot: u32) {
    macro_rules! jump {
        ($($n:literal)*) => {
            match slot {
                $($n => if const { $n < C::SLOTS && F::MASK >> $n & 1 != 0 } {
                    C::dispatch::<R, Identity, Only<$n>>(role, task, $n)
                } else if const { $n >= C::SLOTS } {
                    // SAFETY: the plan numbers the instances of `C`. A jump without bounds is a jump less.
                    unsafe { core::hint::unreachable_unchecked() }
                })*
                // SAFETY: as above; there are no more than these.
                _ => unsafe { core::hint::unreachable_unchecked() },
            }
        };
    }
    jump!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127);
}

/// Instance `N`.
#[cfg(target_arch = "nvptx64")]
enum Only<const N: u32> {}

#[cfg(target_arch = "nvptx64")]
impl<const N: u32> Filter for Only<N> {
    const MASK: u128 = 1 << N;
}

/// The instances a megakernel uses, known at compile time.
pub trait Filter {
    /// Bit `n`: instance `n` is used.
    const MASK: u128;
}

/// What is used of a callee whose first instance is `BASE`.
pub struct After<F, const BASE: u32>(core::marker::PhantomData<F>);

impl<F: Filter, const BASE: u32> Filter for After<F, BASE> {
    const MASK: u128 = if BASE < u128::BITS { F::MASK >> BASE } else { 0 };
}

/// Every instance.
pub enum All {}

impl Filter for All {
    const MASK: u128 = u128::MAX;
}
