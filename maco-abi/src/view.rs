//! Views of tensors in memory, and their tensor maps.

/// [`View::map`] of a view without a tensor map.
pub const NO_MAP: u32 = u32::MAX;
/// Bit of [`View::map`]: no task of the graph writes the tensor.
pub const UNWRITTEN: u32 = 1 << 31;

/// A rectangular view of a tensor in memory, 32 bytes. Rank 1 is one row; axes before the last two are folded into planes.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Address of element (0, 0, 0): device memory on a GPU, host memory on the CPU.
    pub base: u64,
    /// Rows of a plane.
    pub rows: u32,
    /// Columns of a plane.
    pub cols: u32,
    /// Elements from one row to the next.
    pub row_stride: u32,
    /// Elements from one column to the next; 1 unless transposed. Of the input of an elementwise prologue: see [`crate::elementwise_prologue`].
    pub col_stride: u32,
    /// Elements from one plane to the next. Of a tensor of one axis whose elements name planes of other tensors: how many planes there are. Of the last view of a task with
    /// [`crate::RMSNORM_PROLOGUE`] or [`crate::ELEMENTWISE_PROLOGUE`]: the number of the prologue, a multiple of eight above 0.
    pub plane_stride: u32,
    /// Index into [`Launch::maps`], perhaps with [`UNWRITTEN`], or [`NO_MAP`]. Of the weights of an RMSNorm prologue: the bits of epsilon, an `f32`. Of the input of an
    /// elementwise prologue: the prologue's instance.
    pub map: u32,
}

/// A `CUtensorMap`: 128 opaque bytes at a 64-byte boundary, encoded by the driver.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap(pub [u64; 16]);

/// [`View::col_stride`] of operand A of a GEMV with an [`ELEMENTWISE_PROLOGUE`]: `scalar` is the first entry of the prologue's scalars in [`Launch::scalars`], `axis`
/// the grid axis of the GEMV's rows, `rows` the rows of its tiles.
pub const fn elementwise_prologue(scalar: u16, axis: u8, rows: u8) -> u32 {
    (scalar as u32) << 16 | (axis as u32) << 8 | rows as u32
}

const _: () = {
    assert!(size_of::<View>() == 32);
    assert!(size_of::<TensorMap>() == 128);
};
