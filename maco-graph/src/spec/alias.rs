//! One tensor twice in one call: whether the views are apart for all sizes.

use maco_abi::RANK;

use super::bindings::Formal;
use super::dims::{Dim, Polynomial};
use super::fault::FaultKind;
use super::quotient;
use super::{Recorder, View};

impl Recorder<'_> {
    /// One tensor twice in one call, written at least once: the views must be apart for all sizes.
    pub(super) const fn aliases(&mut self, formals: &[Formal], views: &[View], sites: &[u32], count: usize) {
        let mut b = 1;
        while b < count {
            let mut a = 0;
            while a < b {
                if views[a].tensor == views[b].tensor && views[a].tensor != u32::MAX {
                    self.alias(formals, views, sites, a, b);
                }
                a += 1;
            }
            b += 1;
        }
    }

    const fn alias(&mut self, formals: &[Formal], views: &[View], sites: &[u32], a: usize, b: usize) {
        let (first, second) = (&formals[a], &formals[b]);
        if (first.access.writes() || second.access.writes()) && !self.apart(&views[a], &views[b]) {
            let (writer, other, at) = if second.access.writes() { (second, first, b) } else { (first, second, a) };
            let tensor = self.name(&views[at]);
            self.fault(sites[at], writer.task, writer.name, FaultKind::Aliased { tensor, other: other.name });
        }
    }

    /// Whether two views of one tensor share no element for any sizes.
    const fn apart(&self, a: &View, b: &View) -> bool {
        let mut axis = 0;
        while axis < RANK {
            if let (Some((a_start, a_end)), Some((b_start, b_end))) = (self.range_of(a, axis), self.range_of(b, axis))
                && (self.before(&a_end, &b_start) || self.before(&b_end, &a_start))
            {
                return true;
            }
            axis += 1;
        }
        false
    }

    const fn before(&self, a: &Polynomial, b: &Polynomial) -> bool {
        match quotient::sub(self.dims, b, a) {
            Some(difference) => difference.non_negative(),
            None => false,
        }
    }

    /// First element and end of what a view touches along one axis of its tensor.
    const fn range_of(&self, view: &View, axis: usize) -> Option<(Polynomial, Polynomial)> {
        let mut extents = [Polynomial::ZERO; RANK];
        let mut steps = [Polynomial::ZERO; RANK];
        let (mut parts, mut n) = (0, 0);
        while n < view.rank as usize {
            let part = &view.axes[n];
            if part.axis as usize == axis {
                let (Some(extent), Some(step)) = (self.polynomial(part.extent), self.polynomial(part.step)) else { return None };
                extents[parts] = extent;
                steps[parts] = step;
                parts += 1;
            }
            n += 1;
        }
        let Some(start) = self.polynomial(view.offset[axis]) else { return None };
        // The two halves of a split are one range again.
        if parts == 2 {
            let mut order = 0;
            while order < 2 {
                let (outer, inner) = (order, 1 - order);
                if let Some(span) = quotient::mul(self.dims, &extents[inner], &steps[inner])
                    && span.same(&steps[outer])
                    && let Some(extent) = quotient::mul(self.dims, &extents[outer], &extents[inner])
                {
                    (extents[0], steps[0], parts) = (extent, steps[inner], 1);
                    break;
                }
                order += 1;
            }
        }
        if parts != 1 {
            return None;
        }
        let Some(length) = quotient::mul(self.dims, &extents[0], &steps[0]) else { return None };
        match quotient::add(self.dims, &start, &length) {
            Some(end) => Some((start, end)),
            None => None,
        }
    }

    const fn polynomial(&self, dim: Dim) -> Option<Polynomial> {
        if dim.unknown() { None } else { Some(self.dims[dim.index()].polynomial) }
    }
}
