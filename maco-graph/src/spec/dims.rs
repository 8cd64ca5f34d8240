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
const DEGREE: usize = 4;
/// Terms of one polynomial.
const TERMS: usize = 6;
/// No atom: sorts after all atoms.
const NONE: u16 = u16::MAX;

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
    terms: [Term; TERMS],
    len: u8,
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
    const fn without(&self, atom: u16) -> Option<Term> {
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
    const fn with(&self, atom: u16) -> Option<Term> {
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
    const fn divide(&self, divisor: &Term) -> Option<Term> {
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

    const fn term(term: Term) -> Polynomial {
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
    const fn plus_term(&self, term: Term) -> Option<Polynomial> {
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
    const fn plus(&self, other: &Polynomial) -> Option<Polynomial> {
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

    const fn negated(&self) -> Polynomial {
        let mut out = *self;
        let mut n = 0;
        while n < out.len as usize {
            out.terms[n].factor = out.terms[n].factor.wrapping_neg();
            n += 1;
        }
        out
    }
}

/// `None`: too many terms, too high a degree, or numbers beyond 64 bits.
type Bounded = Option<Polynomial>;

/// `left + right`
pub(super) const fn add(rows: &[DimRow], left: &Polynomial, right: &Polynomial) -> Bounded {
    match left.plus(right) {
        Some(sum) => simplify(rows, &sum),
        None => None,
    }
}

/// `left - right`
pub(super) const fn sub(rows: &[DimRow], left: &Polynomial, right: &Polynomial) -> Bounded {
    add(rows, left, &right.negated())
}

/// A factor may have grown to a multiple of a quotient's divisor: `H / 2 + H / 2` is `H`.
const fn simplify(rows: &[DimRow], sum: &Polynomial) -> Bounded {
    let one = Term { factor: 1, atoms: [NONE; DEGREE] };
    let mut out = Polynomial::ZERO;
    let mut n = 0;
    while n < sum.len as usize {
        let Some(product) = times(rows, &sum.terms[n], &one) else { return None };
        let Some(next) = out.plus(&product) else { return None };
        out = next;
        n += 1;
    }
    Some(out)
}

/// `left * right`
pub(super) const fn mul(rows: &[DimRow], left: &Polynomial, right: &Polynomial) -> Bounded {
    let mut out = Polynomial::ZERO;
    let mut l = 0;
    while l < left.len as usize {
        if let Some((rest, numerator)) = cancels(rows, &left.terms[l], right) {
            let Some(product) = mul(rows, &Polynomial::term(rest), &numerator) else { return None };
            let Some(next) = out.plus(&product) else { return None };
            out = next;
        } else {
            let mut r = 0;
            while r < right.len as usize {
                let product = match cancels(rows, &right.terms[r], &Polynomial::term(left.terms[l])) {
                    Some((rest, numerator)) => mul(rows, &Polynomial::term(rest), &numerator),
                    None => times(rows, &left.terms[l], &right.terms[r]),
                };
                let Some(product) = product else { return None };
                let Some(next) = out.plus(&product) else { return None };
                out = next;
                r += 1;
            }
        }
        l += 1;
    }
    simplify(rows, &out)
}

/// `term * factor` when `term` holds a quotient by exactly `factor`: the rest of the term and the quotient's numerator.
const fn cancels(rows: &[DimRow], term: &Term, factor: &Polynomial) -> Option<(Term, Polynomial)> {
    let mut n = 0;
    while n < DEGREE && term.atoms[n] != NONE {
        if let Origin::Quotient(numerator, divisor) = rows[term.atoms[n] as usize].origin
            && rows[divisor.index()].polynomial.same(factor)
            && let Some(rest) = term.without(term.atoms[n])
        {
            return Some((rest, rows[numerator.index()].polynomial));
        }
        n += 1;
    }
    None
}

/// The product of two terms, with quotients whose divisor is a factor of the rest multiplied out.
const fn times(rows: &[DimRow], left: &Term, right: &Term) -> Bounded {
    let Some(factor) = left.factor.checked_mul(right.factor) else { return None };
    let mut product = *left;
    product.factor = factor;
    let mut n = 0;
    while n < DEGREE && right.atoms[n] != NONE {
        match product.with(right.atoms[n]) {
            Some(next) => product = next,
            None => return None,
        }
        n += 1;
    }
    let mut n = 0;
    while n < DEGREE && product.atoms[n] != NONE {
        let atom = product.atoms[n];
        if let Origin::Quotient(numerator, divisor) = rows[atom as usize].origin
            && let [divisor] = rows[divisor.index()].polynomial.terms()
            && let Some(rest) = product.without(atom)
            && let Some(rest) = rest.divide(divisor)
        {
            return mul(rows, &Polynomial::term(rest), &rows[numerator.index()].polynomial);
        }
        n += 1;
    }
    Some(Polynomial::term(product))
}

/// `left / right` split into the part that divides for all sizes, and what is left as numerator and divisor of an opaque quotient.
pub(super) const fn div(left: &Polynomial, right: &Polynomial) -> Option<(Polynomial, Option<(Polynomial, Polynomial)>)> {
    if left.same(right) {
        return Some((Polynomial::constant(1), None));
    }
    let [divisor] = right.terms() else {
        return Some((Polynomial::ZERO, if left.len == 0 { None } else { Some((*left, *right)) }));
    };
    let (mut whole, mut rest) = (Polynomial::ZERO, Polynomial::ZERO);
    let mut n = 0;
    while n < left.len as usize {
        let term = left.terms[n];
        let target = match term.divide(divisor) {
            Some(quotient) => whole.plus_term(quotient),
            None => rest.plus_term(term),
        };
        let Some(target) = target else { return None };
        if term.divide(divisor).is_some() {
            whole = target;
        } else {
            rest = target;
        }
        n += 1;
    }
    if rest.len == 0 {
        return Some((whole, None));
    }
    let (rest, divisor) = reduced(&rest, divisor);
    Some((whole, Some((rest, Polynomial::term(divisor)))))
}

/// Numerator and divisor without their common numbers and atoms.
const fn reduced(numerator: &Polynomial, divisor: &Term) -> (Polynomial, Term) {
    let (mut numerator, mut divisor) = (*numerator, *divisor);
    let mut common = divisor.factor.unsigned_abs();
    let mut n = 0;
    while n < numerator.len as usize {
        common = gcd(common, numerator.terms[n].factor.unsigned_abs());
        n += 1;
    }
    if common > 1 && common <= i64::MAX as u64 {
        divisor.factor /= common as i64;
        let mut n = 0;
        while n < numerator.len as usize {
            numerator.terms[n].factor /= common as i64;
            n += 1;
        }
    }
    let mut a = 0;
    while a < DEGREE && divisor.atoms[a] != NONE {
        let atom = divisor.atoms[a];
        let mut out = numerator;
        let mut everywhere = true;
        let mut n = 0;
        while n < numerator.len as usize {
            match numerator.terms[n].without(atom) {
                Some(term) => out.terms[n] = term,
                None => everywhere = false,
            }
            n += 1;
        }
        match divisor.without(atom) {
            Some(next) if everywhere => {
                numerator = out;
                divisor = next;
            }
            _ => a += 1,
        }
    }
    (numerator, divisor)
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
