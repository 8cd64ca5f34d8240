//! What right bodies call on their `cta`, and the operations that go element by element.
//!
//! Kinds of bodies are a place for another module beside `rows`, `indexed` and `gemm`; helpers that take `cta` are in `helper.rs`.

use super::body::{Body, NAMES, fill};
use super::element::Element;
use super::signature::{Access, Input, Kind, Layout, State, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Zip,
    Map,
    Generate,
    Blocks,
    Transpose,
    Rows,
    Columns,
    Take,
    Scatter,
    IndexCopy,
    IndexAdd,
    Sums,
    Gemm,
    Pair,
    Gemv,
}

impl Operation {
    /// As those of a few seeds come.
    pub const ALL: [Operation; 15] = [
        Operation::Zip,
        Operation::Rows,
        Operation::Transpose,
        Operation::Gemm,
        Operation::IndexAdd,
        Operation::Generate,
        Operation::Scatter,
        Operation::Gemv,
        Operation::Take,
        Operation::Columns,
        Operation::Map,
        Operation::Pair,
        Operation::Sums,
        Operation::Blocks,
        Operation::IndexCopy,
    ];

    /// The grids of bodies that have it here.
    pub fn layouts(self) -> &'static [Layout] {
        use Layout::{Columns, Elements, Rows};
        match self {
            Operation::Rows | Operation::Scatter | Operation::Sums => &[Rows],
            Operation::Columns | Operation::IndexCopy | Operation::IndexAdd => &[Columns],
            Operation::Take => &[Elements, Rows],
            Operation::Gemm | Operation::Pair | Operation::Gemv => &[Elements],
            _ => &Layout::ALL,
        }
    }

    /// Whether no other operation may be in its body.
    pub fn is_alone(self) -> bool {
        matches!(self, Operation::Gemm | Operation::Pair | Operation::Gemv)
    }
}

impl Body<'_> {
    fn names(inputs: &[Input]) -> String {
        tuple(&inputs.iter().map(|input| input.name.clone()).collect::<Vec<_>>())
    }

    /// The reference of what goes element by element: `formula` of what `at` says of each input.
    pub fn each(&mut self, result: &str, formula: &str, atoms: &[String]) {
        self.reference.push(format!("each({result}, |{result}, r, c| {});", fill(formula, atoms)));
    }

    /// The tensor that a value is of.
    pub fn tensor(&self, value: &Value) -> String {
        self.params[value.of].name.clone()
    }

    /// Any operation that this grid may have, and that keeps the rules; false if there is no room for it.
    pub fn right(&mut self) -> bool {
        let operation = self.rng.pick(&Operation::ALL);
        !operation.is_alone() && operation.layouts().contains(&self.layout) && self.one(operation)
    }

    /// This operation.
    pub fn one(&mut self, operation: Operation) -> bool {
        match operation {
            Operation::Zip => self.zip(),
            Operation::Map => self.map(),
            Operation::Generate => self.generate(),
            Operation::Blocks => self.blocks(),
            Operation::Transpose => self.transpose(),
            Operation::Rows => self.rows(),
            Operation::Columns => self.columns(),
            Operation::Take => self.take(),
            Operation::Scatter => self.scatter(),
            Operation::IndexCopy => self.indexed("index_copy"),
            Operation::IndexAdd => self.indexed("index_add"),
            Operation::Sums => self.sums(),
            Operation::Gemm => self.gemm(),
            Operation::Pair => self.pair(),
            Operation::Gemv => self.gemv(),
        }
    }

    pub fn zip(&mut self) -> bool {
        let Some(result) = self.any_result() else { return false };
        let inputs = self.inputs(3, false, None);
        if inputs.is_empty() {
            return self.fill_in(&result);
        }
        let formula = self.formula(inputs.len());
        let values: Vec<String> = NAMES.iter().zip(&inputs).map(|(name, input)| input.element.value(name)).collect();
        let text = result.element.made(&fill(&formula, &values));
        let atoms: Vec<String> = inputs.iter().map(beside).collect();
        self.each(&self.tensor(&result), &formula, &atoms);
        let (names, pattern) = (Self::names(&inputs), pattern(inputs.len()));
        self.operation(format!("cta.zip({names}, {}, |{pattern}| {text})", result.name), Some(&result));
        true
    }

    /// A result that nothing has written yet, and that there is nothing for.
    pub fn fill_in(&mut self, result: &Value) -> bool {
        assert!(result.state == State::Write, "what holds values can be read");
        self.each(&self.tensor(result), "3.0", &[]);
        let text = result.element.made("3.0");
        self.operation(format!("cta.generate((), {}, |_, _, _| {text})", result.name), Some(result));
        true
    }

    pub fn map(&mut self) -> bool {
        let Some(result) = self.held_result() else { return false };
        let formula = self.formula(1);
        let tensor = self.tensor(&result);
        self.each(&tensor, &formula, &[format!("{tensor}.at(r, c)")]);
        let text = result.element.made(&fill(&formula, &[result.element.value("a")]));
        self.operation(format!("cta.map({}, |a| {text})", result.name), Some(&result));
        true
    }

    /// What is read by position of an input in a body and in a reference.
    fn by_position(&mut self, name: &str, input: &Input) -> [String; 2] {
        let (tensor, [rows, cols]) = (&input.tensor, self.tile);
        let (own_row, own_col) = (self.layout != Layout::Columns, self.layout != Layout::Rows);
        let [row, col] = match input.kind {
            Kind::Main if own_row && self.rng.one_of(3) => {
                return [
                    format!("{name}.at({} - r, c)", rows - 1),
                    format!("{tensor}.at(r / {rows} * {rows} + {} - r % {rows}, c)", rows - 1),
                ];
            }
            Kind::Main if own_col && self.rng.one_of(3) => {
                return [
                    format!("{name}.at(r, {} - c)", cols - 1),
                    format!("{tensor}.at(r, c / {cols} * {cols} + {} - c % {cols})", cols - 1),
                ];
            }
            Kind::Vector => [["0", "c"]; 2],
            Kind::PerRow => [["0", "r"]; 2],
            Kind::Turned => [["c", "r"]; 2],
            Kind::Over(by) => return [format!("{name}.at(0, c)"), format!("{tensor}.at(r / {by}, c)")],
            Kind::Everything => {
                let own = |own: bool, name: &str, size: u32| if own { format!("{name} % {size}") } else { name.to_owned() };
                return [format!("{name}.at(r, c)"), format!("{tensor}.at({}, {})", own(own_row, "r", rows), own(own_col, "c", cols))];
            }
            Kind::Halo([before, after, left, right]) => {
                let (down, along) = (self.rng.below((before + after + 1) as usize), self.rng.below((left + right + 1) as usize));
                let moved = |name: &str, by: i64| if by == 0 { name.to_owned() } else { format!("{name} + {by}") };
                return [
                    format!("{name}.at({}, {})", moved("r", down as i64), moved("c", along as i64)),
                    format!("{tensor}.at({}, {})", moved("r", down as i64 - i64::from(before)), moved("c", along as i64 - i64::from(left))),
                ];
            }
            _ => [["r", "c"]; 2],
        };
        [format!("{name}.at({}, {})", row[0], row[1]), format!("{tensor}.at({}, {})", col[0], col[1])]
    }

    pub fn generate(&mut self) -> bool {
        let Some(result) = self.fresh_result() else { return false };
        let inputs = self.inputs(3, true, None);
        if inputs.is_empty() {
            return self.fill_in(&result);
        }
        let formula = self.formula(inputs.len());
        let mut sides = [Vec::new(), Vec::new()];
        for (name, input) in NAMES.iter().zip(&inputs) {
            let [text, reference] = self.by_position(name, input);
            sides[0].push(input.element.value(&text));
            sides[1].push(reference);
        }
        let (names, pattern) = (Self::names(&inputs), pattern(inputs.len()));
        self.each(&self.tensor(&result), &formula, &sides[1]);
        let text = result.element.made(&fill(&formula, &sides[0]));
        self.operation(format!("cta.generate({names}, {}, |{pattern}, r, c| {text})", result.name), Some(&result));
        true
    }

    pub fn blocks(&mut self) -> bool {
        let Some(result) = self.fresh_result() else { return false };
        let Some(input) = self.input(false, None) else { return self.fill_in(&result) };
        let formula = self.formula(1);
        let row = if input.kind == Kind::Vector { "0" } else { "r" };
        self.each(&self.tensor(&result), &formula, &[beside(&input)]);
        let text = result.element.made(&fill(&formula, &[input.element.value("v")]));
        let call = format!("cta.blocks({}, {}, |a, r, c| a.at8({row}, c).map(|v| {text}))", input.name, result.name);
        self.operation(call, Some(&result));
        true
    }

    pub fn transpose(&mut self) -> bool {
        let Some(result) = self.fresh_result() else { return false };
        if self.room() == 0 {
            return self.fill_in(&result);
        }
        let input = self.new_input_of(Kind::Turned, result.element);
        self.each(&self.tensor(&result), "{0}", &[format!("{}.at(c, r)", input.tensor)]);
        self.operation(format!("cta.transpose({}, {})", input.name, result.name), Some(&result));
        true
    }

    /// An input that only its operation knows: its name.
    pub fn known(&mut self, kind: Kind, region: &str, element: Element, shape: &[&str]) -> String {
        let param = self.param(Access::Read, kind, region.to_owned(), element, shape);
        self.params[param].name.clone()
    }
}

/// `a`, or `(a, b)`.
pub fn tuple(names: &[String]) -> String {
    if let [one] = names { one.clone() } else { format!("({})", names.join(", ")) }
}

pub fn pattern(count: usize) -> String {
    tuple(&NAMES[..count].iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
}

/// What a reference reads of an input beside element (r, c).
pub fn beside(input: &Input) -> String {
    let row = if input.kind == Kind::Vector { "0" } else { "r" };
    format!("{}.at({row}, c)", input.tensor)
}
