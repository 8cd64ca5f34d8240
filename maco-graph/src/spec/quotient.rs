//! Arithmetic on normal forms, where exact quotients simplify: `H / 2 + H / 2` is `H`, `(H / R) * R` is `H`.
//!
//! The forms themselves are in `dims.rs`.

use super::dims::{DEGREE, DimRow, NONE, Origin, Polynomial, Term};

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
