//! What a role sees of one task: its descriptor, tiles and scalars. How generated code is called does not belong here.

use crate::channel::RankView;
use crate::data::element::Element;
use crate::data::split_k::SplitK;
use crate::data::tile::Tile;
use maco_abi::{
    BULK_ROWS, CONCURRENT_PARTS, Descriptor, ELEMENTWISE_PROLOGUE, Gates, Launch, Messages, OPERANDS, PUSHED_TILES, Part, PushedTiles,
    RMSNORM_PROLOGUE, Ranks, RmsNormPrologue, Slot, ViewEntry,
};

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
    slot: SlotAddress,
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
pub type SlotAddress = *const Slot;
/// Where a slot is: in shared memory on a GPU.
#[cfg(target_arch = "nvptx64")]
pub type SlotAddress = u32;

impl Task {
    /// Not what a task needs of the launch: few need anything, and a pointer to the launch costs no register.
    ///
    /// # Safety
    /// The slot stays valid and unchanged, and the launch live, for as long as the value is used.
    #[inline(always)]
    pub unsafe fn new(slot: SlotAddress, launch: *const Launch) -> Task {
        Task { slot, launch }
    }

    /// Word `at` of the slot.
    #[inline(always)]
    fn word(self, at: usize) -> u32 {
        // SAFETY: `new` promises a valid slot, and callers stay inside it.
        unsafe {
            #[cfg(target_arch = "nvptx64")]
            return crate::ptx::memory::read_shared(self.slot + at as u32 * 4);
            #[cfg(not(target_arch = "nvptx64"))]
            self.slot.cast::<u32>().add(at).read()
        }
    }

    /// Its index in the plan.
    #[doc(hidden)]
    #[inline(always)]
    pub fn index(self) -> u32 {
        self.word(core::mem::offset_of!(Descriptor, task) / 4)
    }

    /// Its instance, read anew: a register through a whole body is worth more.
    #[inline(always)]
    pub(crate) fn op(self) -> u32 {
        self.word(0) & 0xffff
    }

    /// Whether what it reads comes through the ring, wherever it can.
    #[inline(always)]
    pub(crate) fn has_bulk_rows(self) -> bool {
        self.word(FLAGS) & BULK_ROWS.mask() != 0
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
        let Part { part, parts } = Part::decode(self.word(SPLIT) >> 16);
        SplitK {
            part,
            parts: if parts == 0 { 1 } else { parts },
            first: self.word(COORD + 2),
            looks: if self.word(FLAGS) & CONCURRENT_PARTS.mask() != 0 { LOOKS } else { 0 },
            launch: self.launch,
        }
    }

    /// The tile of operand `operand` whose origin is element (`plane`, `row`, `col`).
    #[inline(always)]
    pub fn tile<E: Element, const R: usize, const C: usize>(self, operand: usize, plane: i32, row: i32, col: i32) -> Tile<E, R, C> {
        let operand = if operand < OPERANDS { operand } else { 0 };
        let tile = Tile::new(self.entry(operand).as_view(), plane, row, col);
        #[cfg(not(target_arch = "nvptx64"))]
        let tile = tile.of_parameter(operand as u32);
        tile
    }

    /// Entry `number` of the call's views, which there is.
    #[inline(always)]
    fn entry(self, number: usize) -> ViewEntry {
        // SAFETY: `new` promises a valid slot.
        #[cfg(not(target_arch = "nvptx64"))]
        return unsafe { (&raw const (*self.slot).views).cast::<ViewEntry>().add(number).read() };
        #[cfg(target_arch = "nvptx64")]
        {
            let at = self.slot + (core::mem::offset_of!(Slot, views) + number * size_of::<ViewEntry>()) as u32;
            // SAFETY: as above; entries lie at 32-byte boundaries.
            let ([a, b, c, d], [e, f, g, h]) = unsafe { (crate::ptx::memory::read_shared4(at), crate::ptx::memory::read_shared4(at + 16)) };
            ViewEntry::decode([a, b, c, d, e, f, g, h])
        }
    }

    /// The launch's table of tensor maps.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn tensor_maps(self) -> u64 {
        // SAFETY: `new` promises a live launch.
        unsafe { (*self.launch).tensor_maps }
    }

    /// The task's RMSNorm prologue, if it has one.
    #[inline(always)]
    pub(crate) fn norm<E: Element>(self) -> Option<Norm<E>> {
        if self.word(FLAGS) & RMSNORM_PROLOGUE.mask() == 0 {
            return None;
        }
        let prologue = self.entry(OPERANDS - 1).as_rmsnorm();
        Some(Norm { weights: Tile::new(prologue.view(), 0, 0, 0), epsilon: f32::from_bits(prologue.epsilon) })
    }

    /// The number of the task's prologue: not 0, and that of no RMSNorm prologue with other weights or another epsilon, nor of another elementwise
    /// prologue; 0 if it has none.
    #[inline(always)]
    pub(crate) fn prologue(self) -> u32 {
        if self.word(FLAGS) & RMSNORM_PROLOGUE.with(ELEMENTWISE_PROLOGUE).mask() == 0 {
            return 0;
        }
        // Both records have it in the same place.
        const NUMBER: usize =
            core::mem::offset_of!(Slot, views) + (OPERANDS - 1) * size_of::<ViewEntry>() + core::mem::offset_of!(RmsNormPrologue, number);
        self.word(NUMBER / 4)
    }

    /// What is mapped before the task, which is [`ELEMENTWISE_PROLOGUE`], multiplies it; by which instance; and how the slot of that begins.
    #[inline(always)]
    pub(crate) fn elementwise_prologue<E: Element>(self) -> (Tile<E, 0, 0>, u32, u32) {
        let prologue = self.entry(OPERANDS - 1).as_elementwise();
        let x = prologue.view(self.coord(prologue.axis.into()) as u32, E::BYTES);
        (Tile::new(x, 0, 0, 0), prologue.instance, Descriptor::head(0, prologue.scalar))
    }

    /// The plane that element `at` of operand `by` names, or -1, of which every element is zero, if there is none of that number. How many
    /// there are is where the view of a tensor of three axes has its [`maco_abi::View::plane_stride`].
    #[inline(always)]
    pub fn plane(self, by: usize, at: i32) -> i32 {
        let by: Tile<u32, 1, 1> = self.tile(by, 0, 0, at);
        if by.cols() == 0 {
            return -1;
        }
        // SAFETY: the position is inside a live tensor, which nobody writes while a task reads it.
        let name = unsafe { by.pointer(0, 0).read() };
        if name < by.view.names() { name as i32 } else { -1 }
    }

    /// The ranks of the launch, and where the messages of this task's call lie, which is a collective.
    #[inline(always)]
    pub(crate) fn ranks(self) -> (RankView, Messages) {
        // SAFETY: `new` promises a live launch; nobody writes its tables while it runs.
        let ranks = unsafe { (*self.launch).ranks as *const Ranks };
        if ranks.is_null() {
            return (RankView::SINGLE, Messages::default());
        }
        // SAFETY: as above; the plan keeps the memory of all ranks mapped while it lives.
        let view = unsafe { RankView::new(ranks.read(), self.launch_number()) };
        (view, self.entry(OPERANDS - 1).as_messages())
    }

    /// The gates of this task's call, whose chunks NCCL exchanges.
    #[inline(always)]
    pub(crate) fn gates(self) -> Gates {
        self.entry(OPERANDS - 1).as_gates()
    }

    /// Whether the task sends its tile to other ranks: [`Task::pushed`].
    #[inline(always)]
    pub(crate) fn pushes(self) -> bool {
        self.word(FLAGS) & PUSHED_TILES.mask() != 0
    }

    /// The ranks of the launch, and the tiles of an all-reduce of which this task, a GEMM that [pushes](Task::pushes), makes some. Read anew: registers through a whole body
    /// are worth more.
    #[inline(always)]
    pub(crate) fn pushed(self) -> (RankView, PushedTiles) {
        (self.ranks().0, self.entry(OPERANDS - 1).as_pushed())
    }

    /// The number of the launch, of which 16 bits count: those of [`maco_abi::State::left`], which all executors have still to leave.
    #[inline(always)]
    fn launch_number(self) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        return (crate::shared_memory::SharedMemory(crate::ptx::special::place_again().1).epoch() >> 16).wrapping_sub(1);
        // SAFETY: as above; the state is a live plan's.
        #[cfg(not(target_arch = "nvptx64"))]
        unsafe {
            crate::hardware::gpu_scope::load_relaxed(&raw const (*((*self.launch).state as *const maco_abi::State)).left) >> 16
        }
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
