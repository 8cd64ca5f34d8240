//! Dimensions as text, in the user's names: `2 * H + 1`.

use super::Text;
use super::dims::{Dim, Origin, Term};
use super::message::Names;

/// A dimension in the user's names; `inner` puts sums and products in parentheses.
pub(super) const fn write_dim(text: &mut Text, names: &Names<'_>, dim: Dim, inner: bool) {
    if dim.unknown() {
        text.push("?");
        return;
    }
    let row = &names.dims[dim.index()];
    match row.origin {
        Origin::Symbol(symbol) => text.push(names.symbols[symbol as usize]),
        Origin::Quotient(numerator, divisor) => {
            if inner {
                text.push("(");
            }
            write_dim(text, names, numerator, true);
            text.push(" / ");
            write_dim(text, names, divisor, true);
            if inner {
                text.push(")");
            }
        }
        Origin::Sum => {
            let terms = row.polynomial.terms();
            let simple = terms.is_empty() || (terms.len() == 1 && (terms[0].constant() || is_atom(&terms[0])));
            if inner && !simple {
                text.push("(");
            }
            if terms.is_empty() {
                text.push("0");
            }
            let mut n = 0;
            while n < terms.len() {
                write_term(text, names, &terms[n], n == 0);
                n += 1;
            }
            if inner && !simple {
                text.push(")");
            }
        }
    }
}

const fn is_atom(term: &Term) -> bool {
    term.factor == 1 && term.atoms[1] == u16::MAX
}

const fn write_term(text: &mut Text, names: &Names<'_>, term: &Term, first: bool) {
    let negative = term.factor < 0;
    match (first, negative) {
        (true, true) => text.push("-"),
        (true, false) => {}
        (false, true) => text.push(" - "),
        (false, false) => text.push(" + "),
    }
    let size = term.factor.unsigned_abs();
    let mut written = false;
    if size != 1 || term.constant() {
        text.push_number(size as i64);
        written = true;
    }
    let mut n = 0;
    while n < term.atoms.len() && term.atoms[n] != u16::MAX {
        if written {
            text.push(" * ");
        }
        write_dim(text, names, Dim(term.atoms[n]), true);
        written = true;
        n += 1;
    }
}
