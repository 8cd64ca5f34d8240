//! Reductions along rows and columns.

use super::body::{Body, fill};
use super::element::Element;
use super::signature::{Access, Kind, State, Value};

impl Body<'_> {
    pub fn rows(&mut self) -> bool {
        let Some(result) = self.any_result() else { return false };
        if result.state != State::Write && self.rng.one_of(2) {
            return self.row_in_place(&result);
        }
        let Some(input) = self.input(false, Some(result.state)) else {
            return result.state == State::Write && self.fill_in(&result);
        };
        let (x, y) = (&input.tensor.clone(), self.tensor(&result));
        let row = if input.kind == Kind::Vector { "0" } else { "r" };
        let formula = self.formula(1);
        let at = fill(&formula, &[format!("{x}.at({row}, c)")]);
        // Of the input, and of the result.
        let (v, own) = (input.element.value("v"), result.element.value("v"));
        let text = fill(&formula, std::slice::from_ref(&v));
        let made = |text: &str| result.element.made(text);
        let (closure, reference) = match self.rng.below(6) {
            0 => (
                format!("{{ let sum = a.sum(|v| {v}); y.set(|_| {}) }}", made("small(sum)")),
                format!("let sum = {x}.sum({row}); row({y}, r, |_, _| small(sum));"),
            ),
            1 => (
                format!("{{ let top = a.max(|v| {v}); y.zip(a, |v| {}) }}", made(&format!("small({text} - top)"))),
                format!("let top = {x}.max({row}); row({y}, r, |_, c| small({at} - top));"),
            ),
            2 => (
                format!("{{ let a = a.elements(); y.set(|j| {}) }}", made(&fill(&formula, &[input.element.value("a.at(j + 1)")]))),
                format!("row({y}, r, |_, c| {});", fill(&formula, &[format!("{x}.at({row}, c + 1)")])),
            ),
            // What is kept has the place of the row that was read.
            3 if input.element == result.element => (
                format!(
                    "{{ let kept = y.zip_kept(a, |v| {}); let sum = kept.sum(|v| {own}); y.map(|v| {}) }}",
                    made(&text),
                    made(&format!("small({own} - sum)"))
                ),
                format!("row({y}, r, |_, c| {at}); let sum = {y}.sum(r); row({y}, r, |{y}, c| small({y}.at(r, c) - sum));"),
            ),
            4 => (
                format!(
                    "{{ let least = a.fold(9.0, |v| {v}, |a, b| if a < b {{ a }} else {{ b }}); y.zip(&a, |v| {}) }}",
                    made(&format!("small({text} + least)"))
                ),
                format!("let least = {x}.min({row}).min(9.0); row({y}, r, |_, c| small({at} + least));"),
            ),
            _ => (format!("y.zip(a, |v| {})", made(&text)), format!("row({y}, r, |_, c| {at});")),
        };
        self.reference.push(format!("for r in 0..{y}.rows {{ {reference} }}"));
        self.operation(format!("cta.rows({}, {}, |a, y| {closure})", input.name, result.name), Some(&result));
        true
    }

    fn row_in_place(&mut self, result: &Value) -> bool {
        let formula = self.formula(1);
        let y = self.tensor(result);
        self.reference.push(format!(
            "for r in 0..{y}.rows {{ let sum = {y}.sum(r); row({y}, r, |{y}, c| small({} - sum)); }}",
            fill(&formula, &[format!("{y}.at(r, c)")])
        ));
        let v = result.element.value("v");
        let text = result.element.made(&format!("small({} - sum)", fill(&formula, std::slice::from_ref(&v))));
        let body = format!("let sum = y.read().sum(|v| {v}); y.map(|v| {text})");
        self.operation(format!("cta.rows((), {}, |_, y| {{ {body} }})", result.name), Some(result));
        true
    }

    pub fn columns(&mut self) -> bool {
        if self.room() < 2 {
            return false;
        }
        let input = self.main_input();
        let element: Element = self.number();
        let y = self.param(Access::Write, Kind::Vector, self.col().to_owned(), element, &["N"]);
        let (y, x) = (self.params[y].name.clone(), input.tensor);
        let most = self.rng.one_of(2);
        let (start, combine) = if most { ("-99.0", "larger(a, b)") } else { ("0.0", "a + b") };
        self.reference
            .push(format!("each({y}, |_, _, c| small((0..{x}.rows).fold({start}, |a, r| {{ let b = 2.0 * {x}.at(r, c); {combine} }})));"));
        let (v, finish) = (input.element.value("v"), element.made("small(v)"));
        self.operation(format!("cta.columns({}, {y}, {start}, |v| 2.0 * {v}, |a, b| {combine}, |v| {finish})", input.name), None);
        true
    }
}
