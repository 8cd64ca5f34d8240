//! Arithmetic over dimensions while a body is replayed.
//!
//! The normal form is in `dims.rs`, its rules in `quotient.rs`.

use super::bindings::representative;
use super::dims::{Dim, DimRow, Origin, Polynomial};
use super::fault::FaultKind;
use super::quotient;
use super::{NO_SITE, Recorder};

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
            Some((left, right)) => self.intern(quotient::add(self.dims, &left, &right), site),
            None => Dim::UNKNOWN,
        }
    }

    /// `left - right`
    pub const fn sub(&mut self, left: Dim, right: Dim, site: u32) -> Dim {
        match self.both(left, right) {
            Some((left, right)) => self.intern(quotient::sub(self.dims, &left, &right), site),
            None => Dim::UNKNOWN,
        }
    }

    /// `left * right`
    pub const fn mul(&mut self, left: Dim, right: Dim, site: u32) -> Dim {
        match self.both(left, right) {
            Some((left, right)) => self.intern(quotient::mul(self.dims, &left, &right), site),
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
        match quotient::div(&left, &right) {
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
                self.intern(quotient::add(self.dims, &whole, &quotient), site)
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
            && let Some(divisor) = quotient::mul(self.dims, &self.dims[divisor.index()].polynomial, right)
        {
            return Some((self.dims[numerator.index()].polynomial, divisor));
        }
        None
    }

    /// Whether `dim` is positive wherever every symbol is.
    pub(super) const fn positive(&mut self, dim: Dim) -> bool {
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
