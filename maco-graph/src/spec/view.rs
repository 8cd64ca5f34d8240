//! Rectangular views of tensors as const data: slices, splits and transpositions with symbolic extents.

use super::dims::Dim;

/// Most axes of a tensor or view.
pub const RANK: usize = 4;

/// One axis of a view.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Axis of the tensor.
    pub axis: u8,
    /// Tensor elements per index.
    pub step: Dim,
    /// Number of indices.
    pub extent: Dim,
}

/// A view as a value: what `x`, `up[2]`, `qkv.slice(1, 0..H)` are while a body is replayed.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Row of the tensor.
    pub tensor: u32,
    /// Axes in use.
    pub rank: u8,
    /// Axes of the view, outermost first.
    pub axes: [Axis; RANK],
    /// First element along each axis of the tensor.
    pub offset: [Dim; RANK],
}

impl View {
    /// A view of nothing: stands where an error has been recorded, or while calls are only counted.
    pub const NONE: View = View {
        tensor: u32::MAX,
        rank: 0,
        axes: [Axis { axis: 0, step: Dim::UNKNOWN, extent: Dim::UNKNOWN }; RANK],
        offset: [Dim::UNKNOWN; RANK],
    };

    /// Whether it is [`View::NONE`].
    pub const fn none(&self) -> bool {
        self.tensor == u32::MAX
    }

    /// Whether both show the same elements in the same order.
    pub const fn same(&self, other: &View) -> bool {
        if self.tensor != other.tensor || self.rank != other.rank {
            return false;
        }
        let mut n = 0;
        while n < self.rank as usize {
            let (a, b) = (&self.axes[n], &other.axes[n]);
            if a.axis != b.axis || !a.step.same(b.step) || !a.extent.same(b.extent) {
                return false;
            }
            n += 1;
        }
        let mut n = 0;
        while n < RANK {
            if !self.offset[n].same(other.offset[n]) {
                return false;
            }
            n += 1;
        }
        true
    }
}
