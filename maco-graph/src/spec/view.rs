//! Rectangular views of tensors as const data: slices, splits and transpositions with symbolic extents.

use maco_abi::RANK;

use super::dims::Dim;
use super::fault::FaultKind;
use super::recorder::Recorder;

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

/// Views of views.
impl Recorder<'_> {
    /// `array[index]`
    pub const fn at(&mut self, array: &[View], name: &'static str, index: usize, site: u32) -> View {
        if index < array.len() {
            return array[index];
        }
        let len = array.len() as u64;
        self.fault(site, "", "", FaultKind::Index { array: name, index: index as u64, len });
        View::NONE
    }

    /// `x.slice(axis, start..end)`; `None` is the beginning or the end.
    pub const fn slice(&mut self, view: View, axis: usize, start: Option<Dim>, end: Option<Dim>, site: u32) -> View {
        let whole = self.extent(&view, axis);
        let start = match start {
            Some(start) => start,
            None => self.constant(0, site),
        };
        let end = match end {
            Some(end) => end,
            None => whole,
        };
        let extent = self.sub(end, start, site);
        let beyond = self.sub(end, whole, site);
        let backwards = self.sub(start, end, site);
        let step = if axis < view.rank as usize { view.axes[axis].step } else { Dim::UNKNOWN };
        let shift = self.mul(start, step, site);
        let tensor_axis = if axis < view.rank as usize { view.axes[axis].axis as usize } else { 0 };
        let offset = self.add(view.offset[tensor_axis], shift, site);
        if view.none() || !self.has(&view, axis, site) {
            return View::NONE;
        }
        if self.positive(beyond) || self.positive(backwards) {
            let tensor = self.name(&view);
            self.fault(site, "", "", FaultKind::Slice { tensor, start, end, extent: whole });
            return View::NONE;
        }
        let mut out = view;
        out.axes[axis].extent = extent;
        out.offset[tensor_axis] = offset;
        out
    }

    /// `x.split(axis, n)`: the axis becomes `n` groups of equal size.
    pub const fn split(&mut self, view: View, axis: usize, groups: Dim, site: u32) -> View {
        let whole = self.extent(&view, axis);
        let inner = self.div(whole, groups, site);
        let step = if axis < view.rank as usize { view.axes[axis].step } else { Dim::UNKNOWN };
        let outer_step = self.mul(inner, step, site);
        if view.none() || !self.has(&view, axis, site) {
            return View::NONE;
        }
        if view.rank as usize == RANK {
            self.fault(site, "", "", FaultKind::Limit { what: "axes", found: RANK as u64 + 1, limit: RANK as u64 });
            return View::NONE;
        }
        let mut out = view;
        out.rank += 1;
        let mut n = view.rank as usize;
        while n > axis + 1 {
            out.axes[n] = view.axes[n - 1];
            n -= 1;
        }
        let tensor_axis = view.axes[axis].axis;
        out.axes[axis] = Axis { axis: tensor_axis, step: outer_step, extent: groups };
        out.axes[axis + 1] = Axis { axis: tensor_axis, step, extent: inner };
        out
    }

    /// `x.swap(a, b)`: two axes change places.
    pub const fn swapped(&mut self, view: View, a: usize, b: usize, site: u32) -> View {
        if view.none() || !self.has(&view, a, site) || !self.has(&view, b, site) {
            return View::NONE;
        }
        let mut out = view;
        out.axes[a] = view.axes[b];
        out.axes[b] = view.axes[a];
        out
    }

    /// `x.t()`: the last two axes change places.
    pub const fn transposed(&mut self, view: View, site: u32) -> View {
        let last = view.rank as usize;
        if last < 2 { self.swapped(view, 0, 1, site) } else { self.swapped(view, last - 2, last - 1, site) }
    }

    const fn extent(&self, view: &View, axis: usize) -> Dim {
        if axis < view.rank as usize { view.axes[axis].extent } else { Dim::UNKNOWN }
    }

    const fn has(&mut self, view: &View, axis: usize, site: u32) -> bool {
        if axis < view.rank as usize {
            return true;
        }
        let tensor = self.name(view);
        self.fault(site, "", "", FaultKind::Axis { tensor, axis: axis as u64, rank: view.rank as u32 });
        false
    }
}
