//! Arithmetic over dimensions while a body is replayed, and the views that need it.
//!
//! The normal form is in `dims.rs`.

use super::dims::{self, Dim, DimRow, Origin, Polynomial};
use super::fault::FaultKind;
use super::bindings::representative;
use super::{NO_SITE, RANK, Recorder, View, ViewAxis};

impl Recorder<'_> {
    /// Declares the body's `N` dimensions; `equal` are the pairs that `where` makes one.
    pub const fn dimensions<const N: usize>(&mut self, equal: &'static [(u8, u8)]) -> [Dim; N] {
        self.state.equal = equal;
        let mut dims = [Dim::UNKNOWN; N];
        let mut n = 0;
        while n < N {
            let row = self.state.counts.dims;
            dims[n] = self.append(DimRow { polynomial: Polynomial::atom(row as u16), origin: Origin::Symbol(n as u16) }, NO_SITE);
            n += 1;
        }
        let mut n = 0;
        while n < N {
            dims[n] = dims[representative(equal, n as u8) as usize];
            n += 1;
        }
        dims
    }

    /// A number.
    pub const fn constant(&mut self, number: u64, site: u32) -> Dim {
        if number > i64::MAX as u64 {
            self.state.counts.dims += self.state.counting as usize;
            self.fault(site, "", "", FaultKind::Complicated);
            return Dim::UNKNOWN;
        }
        self.intern(Some(Polynomial::constant(number as i64)), site)
    }

    /// 0 and 1, which every view needs.
    pub(super) const fn units(&mut self, site: u32) -> (Dim, Dim) {
        if self.state.units.0.unknown() {
            self.state.units = (self.constant(0, site), self.constant(1, site));
            if self.state.counting {
                // Counted once.
                self.state.units = (Dim(0), Dim(0));
            }
        }
        self.state.units
    }

    /// `left + right`
    pub const fn add(&mut self, left: Dim, right: Dim, site: u32) -> Dim {
        match self.both(left, right) {
            Some((left, right)) => self.intern(dims::add(self.dims, &left, &right), site),
            None => Dim::UNKNOWN,
        }
    }

    /// `left - right`
    pub const fn sub(&mut self, left: Dim, right: Dim, site: u32) -> Dim {
        match self.both(left, right) {
            Some((left, right)) => self.intern(dims::sub(self.dims, &left, &right), site),
            None => Dim::UNKNOWN,
        }
    }

    /// `left * right`
    pub const fn mul(&mut self, left: Dim, right: Dim, site: u32) -> Dim {
        match self.both(left, right) {
            Some((left, right)) => self.intern(dims::mul(self.dims, &left, &right), site),
            None => Dim::UNKNOWN,
        }
    }

    /// `left / right`, which has to be exact when sizes are known.
    pub const fn div(&mut self, left: Dim, right: Dim, site: u32) -> Dim {
        // A quotient, its numerator and divisor, the product of nested divisors.
        self.state.counts.dims += if self.state.counting { 4 } else { 0 };
        let Some((left, right)) = self.both(left, right) else { return Dim::UNKNOWN };
        if let Some(0) = right.number() {
            self.fault(site, "", "", FaultKind::DivisionByZero);
            return Dim::UNKNOWN;
        }
        let (left, right) = match self.flattened(&left, &right) {
            Some(flat) => flat,
            None => (left, right),
        };
        match dims::div(&left, &right) {
            None => self.intern(None, site),
            Some((whole, None)) => self.intern(Some(whole), site),
            Some((whole, Some((numerator, divisor)))) => {
                let numerator = self.intern(Some(numerator), site);
                let divisor = self.intern(Some(divisor), site);
                let quotient = self.quotient(numerator, divisor, site);
                if quotient.unknown() {
                    return quotient;
                }
                let quotient = self.dims[quotient.index()].polynomial;
                self.intern(dims::add(self.dims, &whole, &quotient), site)
            }
        }
    }

    /// `(a / b) / c` as `a / (b * c)`.
    const fn flattened(&self, left: &Polynomial, right: &Polynomial) -> Option<(Polynomial, Polynomial)> {
        if let [term] = left.terms()
            && term.factor == 1
            && !term.constant()
            && term.atoms[1] == u16::MAX
            && let Origin::Quotient(numerator, divisor) = self.dims[term.atoms[0] as usize].origin
            && let Some(divisor) = dims::mul(self.dims, &self.dims[divisor.index()].polynomial, right)
        {
            return Some((self.dims[numerator.index()].polynomial, divisor));
        }
        None
    }

    /// Whether `dim` is positive wherever every symbol is.
    const fn positive(&mut self, dim: Dim) -> bool {
        !dim.unknown() && self.dims[dim.index()].polynomial.positive()
    }

    const fn both(&mut self, left: Dim, right: Dim) -> Option<(Polynomial, Polynomial)> {
        if self.state.counting {
            self.state.counts.dims += 1;
            return None;
        }
        if left.unknown() || right.unknown() {
            return None;
        }
        Some((self.dims[left.index()].polynomial, self.dims[right.index()].polynomial))
    }

    const fn intern(&mut self, polynomial: Option<Polynomial>, site: u32) -> Dim {
        if self.state.counting {
            self.state.counts.dims += 1;
            return Dim::UNKNOWN;
        }
        let Some(polynomial) = polynomial else {
            self.fault(site, "", "", FaultKind::Complicated);
            return Dim::UNKNOWN;
        };
        let mut n = 0;
        while n < self.state.counts.dims {
            if self.dims[n].polynomial.same(&polynomial) {
                return Dim(n as u16);
            }
            n += 1;
        }
        self.append(DimRow { polynomial, origin: Origin::Sum }, site)
    }

    const fn quotient(&mut self, numerator: Dim, divisor: Dim, site: u32) -> Dim {
        let mut n = 0;
        while n < self.state.counts.dims {
            if let Origin::Quotient(a, b) = self.dims[n].origin
                && a.same(numerator)
                && b.same(divisor)
            {
                return Dim(n as u16);
            }
            n += 1;
        }
        let row = self.state.counts.dims as u16;
        self.append(DimRow { polynomial: Polynomial::atom(row), origin: Origin::Quotient(numerator, divisor) }, site)
    }

    const fn append(&mut self, row: DimRow, site: u32) -> Dim {
        let index = self.state.counts.dims;
        if !self.state.counting && (index >= self.dims.len() || index >= u16::MAX as usize) {
            self.fault(site, "", "", FaultKind::Limit { what: "different dimensions", found: index as u64 + 1, limit: index as u64 });
            return Dim::UNKNOWN;
        }
        self.state.counts.dims += 1;
        if self.state.counting {
            return Dim::UNKNOWN;
        }
        self.dims[index] = row;
        Dim(index as u16)
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
        out.axes[axis] = ViewAxis { axis: tensor_axis, step: outer_step, extent: groups };
        out.axes[axis + 1] = ViewAxis { axis: tensor_axis, step, extent: inner };
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
