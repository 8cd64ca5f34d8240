//! What a call touches, as boxes of *tensor* coordinates that move with the tile coordinates.
//!
//! Dependencies do not belong here. A box is kept per tensor axis. Where a view has gaps (half of every head, say),
//! the interval is the hull: the plan may then order more than it must, never less.

use maco_abi::{AXES, RANK};

use std::ops::Range;

use super::split_k::SplitK;
use super::tile_order::TileOrder;
use super::tile_selection::Choice;
use crate::ir::{Call, View};
use crate::spec::{Access, Index, Param, TensorParam};

/// Regions of all tensor parameters of all calls.
#[derive(Default)]
pub(super) struct Regions {
    terms: Vec<Term>,
    all: Vec<Region>,
    /// First region of each call, and the end.
    first: Vec<u32>,
    /// Tiles along each grid axis of each call, 1 beyond the last axis.
    grids: Vec<[u32; AXES]>,
    /// Split-K of each call.
    parts: Vec<SplitK>,
    /// The order of the tiles of each call.
    orders: Vec<TileOrder>,
}

/// What a call touches of one argument.
#[derive(Clone)]
pub(super) struct Region {
    pub call: u32,
    /// Which tensor parameter of the call.
    pub operand: u32,
    pub tensor: u32,
    pub access: Access,
    /// Axes of the tensor.
    pub rank: u8,
    /// No element, or no tile.
    pub empty: bool,
    /// The tiles together touch every element between `lo` and `hi` of all axes.
    pub covers: bool,
    /// The elements of this tensor parameter of the call are the row indices, and the task reads no other rows.
    pub named: Option<u32>,
    /// Some axis has elements between `lo` and `hi` that no index stands for.
    pub gaps: bool,
    pub axes: [AxisRegion; RANK],
}

/// What the tiles touch along one tensor axis.
#[derive(Clone, Copy, Default)]
pub(super) struct AxisRegion {
    /// First coordinate that any tile touches.
    pub lo: u32,
    /// End of the coordinates that any tile touches.
    pub hi: u32,
    /// Smallest distance between the origins of two different tiles; `hi - lo` if all tiles touch the same.
    pub pitch: u32,
    /// Extent of a whole tile, halo included.
    pub span: u32,
    /// Bit g: the interval moves with grid axis g.
    pub drivers: u8,
    pub first_term: u32,
    pub terms: u8,
}

/// One view axis: indices `first..end` of it, chosen by one grid axis, `step` coordinates apart.
#[derive(Clone, Copy)]
struct Term {
    /// Grid axis, or [`WHOLE`].
    grid: u8,
    tile: u32,
    divisor: u32,
    before: u32,
    after: u32,
    extent: u32,
    step: u32,
}

const WHOLE: u8 = u8::MAX;

impl Term {
    fn new(index: Index, choice: &Choice, extent: u32, step: u32) -> Term {
        let whole = Term { grid: WHOLE, tile: 1, divisor: 1, before: 0, after: 0, extent, step };
        let tiled = |axis: u8| Term { grid: axis, tile: choice.tile[axis as usize], ..whole };
        match index {
            Index::All | Index::Data(_) => whole,
            Index::Tile(axis) => tiled(axis),
            Index::TileOver(axis, divisor) => Term { divisor, ..tiled(axis) },
            Index::Halo { axis, before, after } => Term { before, after, ..tiled(axis) },
        }
    }

    /// Indices that the tile at `coord` of its grid axis touches. Never empty when the extent is not 0.
    fn indices(&self, coord: u32) -> (u64, u64) {
        if self.grid == WHOLE {
            return (0, u64::from(self.extent));
        }
        let origin = u64::from(coord / self.divisor) * u64::from(self.tile);
        let end = (origin + u64::from(self.tile) + u64::from(self.after)).min(u64::from(self.extent));
        (origin.saturating_sub(u64::from(self.before)), end)
    }

    /// Indices of a whole tile, halo included.
    fn length(&self) -> u64 {
        if self.grid == WHOLE {
            return u64::from(self.extent);
        }
        (u64::from(self.tile) + u64::from(self.before) + u64::from(self.after)).min(u64::from(self.extent))
    }
}

impl Regions {
    pub fn with_capacity(calls: usize) -> Regions {
        Regions {
            terms: Vec::with_capacity(8 * calls),
            all: Vec::with_capacity(4 * calls),
            first: vec![0],
            grids: Vec::with_capacity(calls),
            parts: Vec::with_capacity(calls),
            orders: Vec::with_capacity(calls),
        }
    }

    /// Regions of the next call. It must have passed [`super::check::call`].
    pub fn add(&mut self, call: &Call, choice: &Choice) {
        let index = self.grids.len() as u32;
        self.grids.push(choice.grid);
        self.parts.push(choice.split_k);
        self.orders.push(choice.order);
        let parameters = call.task.params.iter().filter_map(tensor_of);
        for (operand, (param, view)) in parameters.zip(&call.operands).enumerate() {
            self.add_operand(index, operand as u32, call, param, view, choice);
        }
        self.first.push(self.all.len() as u32);
    }

    fn add_operand(&mut self, call: u32, operand: u32, call_of: &Call, param: &TensorParam, view: &View, choice: &Choice) {
        let mut region = Region {
            call,
            operand,
            tensor: view.tensor,
            access: param.access,
            rank: view.offset.len() as u8,
            empty: choice.grid.contains(&0) || view.axes.iter().any(|axis| axis.extent == 0),
            covers: true,
            named: named(call_of, param, view),
            gaps: false,
            axes: [AxisRegion::default(); RANK],
        };
        let mut driven = 0u8;
        for axis in 0..view.offset.len() {
            let first_term = self.terms.len();
            for (view_axis, &index) in view.axes.iter().zip(param.region) {
                if usize::from(view_axis.axis) == axis {
                    self.terms.push(Term::new(index, choice, view_axis.extent as u32, view_axis.step as u32));
                }
            }
            let terms = &self.terms[first_term..];
            let (mut reach, mut span, mut pitch, mut drivers) = (0u64, 1u64, u64::MAX, 0u8);
            for term in terms {
                let step = u64::from(term.step);
                reach += u64::from(term.extent).saturating_sub(1) * step;
                span += term.length().saturating_sub(1) * step;
                if term.grid != WHOLE && choice.grid[usize::from(term.grid)] > 1 && step > 0 {
                    pitch = pitch.min(u64::from(term.tile) * step);
                    let bit = 1 << term.grid;
                    region.covers &= driven & bit == 0;
                    driven |= bit;
                    drivers |= bit;
                }
            }
            let gaps = !dense(terms);
            region.gaps |= gaps;
            region.covers &= !gaps;
            let lo = view.offset[axis];
            region.axes[axis] = AxisRegion {
                lo: lo as u32,
                hi: (lo + reach + 1) as u32,
                pitch: pitch.min(reach + 1) as u32,
                span: span.min(reach + 1) as u32,
                drivers,
                first_term: first_term as u32,
                terms: (self.terms.len() - first_term) as u8,
            };
        }
        // Which rows it touches is not known, so it does not cover the box.
        region.covers &= region.named.is_none();
        self.all.push(region);
    }

    /// Region number `index`.
    pub fn get(&self, index: u32) -> &Region {
        &self.all[index as usize]
    }

    /// Numbers of the regions of call `call`, one per tensor parameter.
    pub fn range(&self, call: u32) -> Range<u32> {
        self.first[call as usize]..self.first[call as usize + 1]
    }

    /// The regions of call `call`.
    pub fn of(&self, call: u32) -> &[Region] {
        let range = self.range(call);
        &self.all[range.start as usize..range.end as usize]
    }

    /// All regions, call after call.
    pub fn all(&self) -> &[Region] {
        &self.all
    }

    /// Tiles along each grid axis of call `call`.
    pub fn grid(&self, call: u32) -> [u32; AXES] {
        self.grids[call as usize]
    }

    /// Calls `each` with the coordinates of every tile of call `call`, in task order.
    pub fn for_each_tile(&self, call: u32, each: impl FnMut([u32; AXES])) {
        self.orders[call as usize].for_each_tile(self.grid(call), each);
    }

    /// Has the tiles of call `call` come in another order, behind [`Regions::add`].
    pub fn set_order(&mut self, call: u32, order: TileOrder) {
        self.orders[call as usize] = order;
    }

    /// Split-K of call `call`. Each part touches all that its tile does.
    pub fn split_k(&self, call: u32) -> SplitK {
        self.parts[call as usize]
    }

    /// Calls `each` with the interval of every combination of the coordinates that drive `axis`, last grid axis fastest.
    pub fn intervals(&self, region: &Region, axis: usize, mut each: impl FnMut(u32, u32)) {
        let along = &region.axes[axis];
        let terms = &self.terms[along.first_term as usize..][..usize::from(along.terms)];
        let grid = self.grid(region.call).map(u64::from);
        let limit = |g: usize| if along.drivers & (1 << g) != 0 { grid[g] as u32 } else { 1 };
        for c0 in 0..limit(0) {
            for c1 in 0..limit(1) {
                for c2 in 0..limit(2) {
                    let coord = [c0, c1, c2];
                    let (mut lo, mut last) = (u64::from(along.lo), u64::from(along.lo));
                    for term in terms {
                        let (first, end) = term.indices(coord.get(usize::from(term.grid)).copied().unwrap_or(0));
                        lo += first * u64::from(term.step);
                        last += (end - 1) * u64::from(term.step);
                    }
                    each(lo as u32, last as u32 + 1);
                }
            }
        }
    }

    /// Weights that turn a tile coordinate into the index of [`Regions::intervals`]' combination.
    pub fn weights(&self, region: &Region, axis: usize) -> [u32; AXES] {
        let grid = self.grid(region.call);
        let mut weights = [0; AXES];
        let mut weight = 1;
        for g in (0..AXES).rev() {
            if region.axes[axis].drivers & (1 << g) != 0 {
                weights[g] = weight;
                weight *= grid[g];
            }
        }
        weights
    }

    /// Whether no element belongs to both regions. May say no when it cannot tell.
    pub fn disjoint(&self, a: &Region, b: &Region) -> bool {
        if a.tensor != b.tensor || a.empty || b.empty {
            return true;
        }
        let rank = usize::from(a.rank);
        if (0..rank).any(|axis| a.axes[axis].hi <= b.axes[axis].lo || b.axes[axis].hi <= a.axes[axis].lo) {
            return true;
        }
        (a.gaps || b.gaps) && (0..rank).any(|axis| self.spans_disjoint(&a.axes[axis], &b.axes[axis]))
    }

    fn spans_disjoint(&self, a: &AxisRegion, b: &AxisRegion) -> bool {
        let (a, b) = (self.spans(a), self.spans(b));
        let (mut i, mut j) = (0, 0);
        while i < a.len() && j < b.len() {
            if a[i].1 <= b[j].0 {
                i += 1;
            } else if b[j].1 <= a[i].0 {
                j += 1;
            } else {
                return false;
            }
        }
        true
    }

    /// Intervals of coordinates that some index of the view stands for, ascending; the hull when there are too many.
    fn spans(&self, along: &AxisRegion) -> Vec<(u32, u32)> {
        const MOST: usize = 1 << 12;
        let mut terms = self.terms[along.first_term as usize..][..usize::from(along.terms)].to_vec();
        terms.sort_by_key(|term| term.step);
        let mut length = 1u32;
        let mut starts = vec![along.lo];
        for term in terms.iter().filter(|term| term.extent > 1) {
            if starts.len() == 1 && term.step <= length {
                length += (term.extent - 1) * term.step;
                continue;
            }
            if starts.len().saturating_mul(term.extent as usize) > MOST {
                return vec![(along.lo, along.hi)];
            }
            starts = (0..term.extent).flat_map(|n| starts.iter().map(move |start| start + n * term.step)).collect();
        }
        starts.sort_unstable();
        starts.into_iter().map(|start| (start, start + length)).collect()
    }
}

/// The tensor parameter whose elements are the indices of the rows of `param` that a task reads, if that is guaranteed. Only the author of an
/// `unsafe` body can guarantee it: a safe body may read whatever it was given.
fn named(call: &Call, param: &TensorParam, view: &View) -> Option<u32> {
    if !call.task.is_simt() {
        return None;
    }
    let [Index::Data(by), rest @ ..] = param.region else { return None };
    let naming = call.task.params.iter().filter_map(tensor_of).nth(usize::from(*by))?;
    let rows = view.axes.first().is_some_and(|axis| axis.axis == 0 && axis.step == 1);
    let once = view.axes.iter().skip(1).all(|axis| axis.axis != 0);
    let whole = rest.iter().all(|index| *index == Index::All);
    let simple = matches!(naming.region, [Index::Tile(_) | Index::All] | [Index::Tile(_) | Index::All, Index::All]);
    (param.access == Access::Read && rows && once && whole && simple).then_some(u32::from(*by))
}

/// Whether the indices of `terms` stand for consecutive coordinates.
fn dense(terms: &[Term]) -> bool {
    // Grow an interval from the smallest step up: a step beyond its length leaves a gap.
    let mut length = 1u64;
    let mut below = None;
    loop {
        let next = terms.iter().filter(|term| term.extent > 1 && below.is_none_or(|step| term.step > step)).map(|term| term.step).min();
        let Some(step) = next else { return true };
        if u64::from(step) > length {
            return false;
        }
        for term in terms.iter().filter(|term| term.step == step) {
            length += u64::from(term.extent.saturating_sub(1)) * u64::from(step);
        }
        below = Some(step);
    }
}

/// Whether two indices of `view` stand for one element.
pub(super) fn overlaps_itself(view: &View) -> bool {
    let mut axes: Vec<_> = view.axes.iter().filter(|axis| axis.extent > 1).collect();
    axes.sort_by_key(|axis| (axis.axis, axis.step));
    axes.chunk_by(|a, b| a.axis == b.axis).any(|group| {
        let mut length = 1u64;
        group.iter().any(|axis| {
            let overlap = axis.step < length;
            length += (axis.extent - 1) * axis.step;
            overlap
        })
    })
}

/// The tensor parameter in `param`, if it is one.
pub(super) fn tensor_of(param: &Param) -> Option<&TensorParam> {
    match param {
        Param::Tensor(tensor) => Some(tensor),
        Param::Scalar { .. } => None,
    }
}
