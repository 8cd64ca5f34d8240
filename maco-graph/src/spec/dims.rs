//! Symbolic dimensions in a normal form, interned: two dimensions are equal for all sizes exactly when their [`Dim`]s are.
//!
//! Normal form: a polynomial over atoms with integer factors. An atom is a symbol or an exact quotient that does not simplify;
//! quotients are opaque. What a quotient is worth does not belong here: sizes are known to `resolve` only.

/// An interned dimension: index of a [`DimRow`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Dim(pub(crate) u16);

impl Dim {
    /// Any dimension: stands where an error has been recorded, or where nothing is recorded at all.
    pub const UNKNOWN: Dim = Dim(u16::MAX);

    /// Equality, usable in const evaluation.
    pub const fn same(self, other: Dim) -> bool {
        self.0 == other.0
    }

    /// Whether an error was recorded where this came from.
    pub const fn unknown(self) -> bool {
        self.0 == u16::MAX
    }

    /// Index into the table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Factors of one term.
pub(super) const DEGREE: usize = 4;
/// Terms of one polynomial.
const TERMS: usize = 6;
/// No atom: sorts after all atoms.
pub(super) const NONE: u16 = u16::MAX;

/// `factor * atom * atom …`
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// Integer factor, not 0.
    pub factor: i64,
    /// Rows of the atoms in ascending order, then `u16::MAX`.
    pub atoms: [u16; DEGREE],
}

/// A sum of terms with distinct atoms, sorted by them.
#[derive(Clone, Copy, Debug)]
pub struct Polynomial {
    pub(super) terms: [Term; TERMS],
    pub(super) len: u8,
}

/// Where a row comes from.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// A dimension's name: index into the list of names.
    Symbol(u16),
    /// An exact quotient of two rows.
    Quotient(Dim, Dim),
    /// A polynomial over other rows.
    Sum,
}

/// One interned dimension.
#[derive(Clone, Copy, Debug)]
pub struct DimRow {
    /// Its normal form.
    pub polynomial: Polynomial,
    /// Where it comes from.
    pub origin: Origin,
}

impl DimRow {
    /// Fills unused capacity.
    pub const EMPTY: DimRow = DimRow { polynomial: Polynomial::ZERO, origin: Origin::Sum };
}

impl Term {
    const ZERO: Term = Term { factor: 0, atoms: [NONE; DEGREE] };

    /// How the atoms compare: negative, zero or positive.
    const fn order(&self, other: &Term) -> i32 {
        let mut n = 0;
        while n < DEGREE {
            if self.atoms[n] != other.atoms[n] {
                return if self.atoms[n] < other.atoms[n] { -1 } else { 1 };
            }
            n += 1;
        }
        0
    }

    /// Whether there is no atom.
    pub const fn constant(&self) -> bool {
        self.atoms[0] == NONE
    }

    /// Without one occurrence of `atom`; `None` when there is none.
    pub(super) const fn without(&self, atom: u16) -> Option<Term> {
        let mut out = Term { factor: self.factor, atoms: [NONE; DEGREE] };
        let (mut from, mut to, mut found) = (0, 0, false);
        while from < DEGREE {
            if !found && self.atoms[from] == atom {
                found = true;
            } else {
                out.atoms[to] = self.atoms[from];
                to += 1;
            }
            from += 1;
        }
        if found { Some(out) } else { None }
    }

    /// With one more atom, in order; `None` when there is no room.
    pub(super) const fn with(&self, atom: u16) -> Option<Term> {
        if self.atoms[DEGREE - 1] != NONE {
            return None;
        }
        let mut out = *self;
        let mut at = DEGREE - 1;
        while at > 0 && out.atoms[at - 1] > atom {
            out.atoms[at] = out.atoms[at - 1];
            at -= 1;
        }
        out.atoms[at] = atom;
        Some(out)
    }

    /// `self / divisor` when it is a term again.
    pub(super) const fn divide(&self, divisor: &Term) -> Option<Term> {
        if divisor.factor == 0 || self.factor % divisor.factor != 0 {
            return None;
        }
        let mut out = *self;
        out.factor = self.factor / divisor.factor;
        let mut n = 0;
        while n < DEGREE && divisor.atoms[n] != NONE {
            match out.without(divisor.atoms[n]) {
                Some(next) => out = next,
                None => return None,
            }
            n += 1;
        }
        Some(out)
    }
}

impl Polynomial {
    /// 0
    pub const ZERO: Polynomial = Polynomial { terms: [Term::ZERO; TERMS], len: 0 };

    /// A number.
    pub const fn constant(number: i64) -> Polynomial {
        let mut out = Polynomial::ZERO;
        if number != 0 {
            out.terms[0].factor = number;
            out.len = 1;
        }
        out
    }

    /// One atom.
    pub const fn atom(row: u16) -> Polynomial {
        let mut out = Polynomial::constant(1);
        out.terms[0].atoms[0] = row;
        out
    }

    pub(super) const fn term(term: Term) -> Polynomial {
        let mut out = Polynomial::ZERO;
        if term.factor != 0 {
            out.terms[0] = term;
            out.len = 1;
        }
        out
    }

    /// Its terms.
    pub const fn terms(&self) -> &[Term] {
        self.terms.split_at(self.len as usize).0
    }

    /// The number, when it is one.
    pub const fn number(&self) -> Option<i64> {
        match self.terms() {
            [] => Some(0),
            [term] if term.constant() => Some(term.factor),
            _ => None,
        }
    }

    /// Structural equality: equality of all values, since the form is normal.
    pub const fn same(&self, other: &Polynomial) -> bool {
        if self.len != other.len {
            return false;
        }
        let mut n = 0;
        while n < self.len as usize {
            if self.terms[n].factor != other.terms[n].factor || self.terms[n].order(&other.terms[n]) != 0 {
                return false;
            }
            n += 1;
        }
        true
    }

    /// Whether it is greater than 0 wherever every symbol is at least 1.
    pub const fn positive(&self) -> bool {
        let mut n = 0;
        while n < self.len as usize {
            if self.terms[n].factor < 0 {
                return false;
            }
            n += 1;
        }
        self.len > 0
    }

    /// Whether it is at least 0 wherever every symbol is.
    pub const fn non_negative(&self) -> bool {
        self.len == 0 || self.positive()
    }

    /// Inserts a term; `None` when there is no room or the numbers overflow.
    pub(super) const fn plus_term(&self, term: Term) -> Option<Polynomial> {
        let mut out = *self;
        let mut at = 0;
        while at < out.len as usize {
            let order = term.order(&out.terms[at]);
            if order == 0 {
                let Some(factor) = out.terms[at].factor.checked_add(term.factor) else { return None };
                out.terms[at].factor = factor;
                if factor == 0 {
                    while at + 1 < out.len as usize {
                        out.terms[at] = out.terms[at + 1];
                        at += 1;
                    }
                    out.len -= 1;
                    out.terms[out.len as usize] = Term::ZERO;
                }
                return Some(out);
            }
            if order < 0 {
                break;
            }
            at += 1;
        }
        if term.factor == 0 {
            return Some(out);
        }
        if out.len as usize == TERMS {
            return None;
        }
        let mut last = out.len as usize;
        while last > at {
            out.terms[last] = out.terms[last - 1];
            last -= 1;
        }
        out.terms[at] = term;
        out.len += 1;
        Some(out)
    }

    /// Sum without simplification of quotients.
    pub(super) const fn plus(&self, other: &Polynomial) -> Option<Polynomial> {
        let mut out = *self;
        let mut n = 0;
        while n < other.len as usize {
            match out.plus_term(other.terms[n]) {
                Some(next) => out = next,
                None => return None,
            }
            n += 1;
        }
        Some(out)
    }

    pub(super) const fn negated(&self) -> Polynomial {
        let mut out = *self;
        let mut n = 0;
        while n < out.len as usize {
            out.terms[n].factor = out.terms[n].factor.wrapping_neg();
            n += 1;
        }
        out
    }
}
