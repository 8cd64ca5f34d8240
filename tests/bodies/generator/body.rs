//! One task: a signature, and operations one after another.

use std::fmt::Write as _;

use super::Rng;

/// As many tensors as a task may have.
const MOST: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Update,
}

impl Access {
    fn attribute(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Update => "update",
        }
    }
}

/// How a parameter lies to the result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Element beside element.
    Main,
    /// One row, for every row.
    Vector,
    /// One element for each row.
    PerRow,
    /// Rows are columns.
    Turned,
    /// With rows above and below, columns before and after.
    Halo([u32; 4]),
    /// All of another tensor.
    Everything,
    /// One row for a group of so many.
    Over(u32),
    /// Numbers of rows, one for each row.
    Ids,
    /// Rows that numbers name.
    Table,
    /// What only its own operation knows.
    Other,
}

#[derive(Clone, Debug)]
pub struct Param {
    pub name: String,
    pub access: Access,
    pub region: String,
    pub element: &'static str,
    /// M, N, K, V, or `{ M / 4 }`.
    pub shape: Vec<String>,
    pub kind: Kind,
    /// The rule is broken here.
    pub wrong: bool,
}

/// What a body may do with a value, as decision 43 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Read,
    /// Nothing has written it yet.
    Write,
    Update,
    /// What an operation returned, and of which.
    Written(Access),
}

/// Whether an operation may read `input` by row while it writes `result`.
pub fn apart(input: State, result: State) -> bool {
    let of_write = |state| matches!(state, State::Write | State::Written(Access::Write));
    match input {
        State::Read => true,
        _ if of_write(input) => !of_write(result) || result == State::Write,
        _ => of_write(result),
    }
}

/// A tile of the whole region that a name in the body stands for.
#[derive(Clone, Debug)]
pub struct Value {
    pub name: String,
    /// The parameter that it is of.
    pub of: usize,
    pub state: State,
}

/// What an operation reads.
#[derive(Clone, Debug)]
pub struct Input {
    pub name: String,
    pub tensor: String,
    pub kind: Kind,
    pub state: State,
}

/// Which axes the grid has: rows and columns of what a task writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Elements,
    Rows,
    Columns,
}

/// What right bodies call on their `cta`.
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
}

impl Operation {
    pub const ALL: [Operation; 12] = [
        Operation::Zip,
        Operation::Rows,
        Operation::Transpose,
        Operation::IndexAdd,
        Operation::Generate,
        Operation::Scatter,
        Operation::Take,
        Operation::Columns,
        Operation::Map,
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
            _ => &[Elements, Rows, Columns],
        }
    }
}

/// A task while it is written.
pub struct Body<'a> {
    pub rng: &'a mut Rng,
    pub name: String,
    pub layout: Layout,
    /// Rows and columns of a tile, where the grid has the axis.
    pub tile: [u32; 2],
    pub params: Vec<Param>,
    pub values: Vec<Value>,
    /// The body's statements.
    pub lines: Vec<String>,
    /// The same on whole tensors.
    pub reference: Vec<String>,
    /// Whether it takes the number `by`.
    pub scalar: bool,
    count: usize,
}

/// What closures call their values: not `c`, which is the column.
pub const NAMES: [&str; 4] = ["a", "b", "d", "e"];

impl<'a> Body<'a> {
    pub fn new(rng: &'a mut Rng, name: String, layout: Layout) -> Body<'a> {
        let rows = rng.pick(&[4, 8, 16, 24, 1, 1]);
        let tile = [rows, rng.pick(&[8, 16, 64, 24])];
        Body {
            rng,
            name,
            layout,
            tile,
            params: Vec::new(),
            values: Vec::new(),
            lines: Vec::new(),
            reference: Vec::new(),
            scalar: false,
            count: 0,
        }
    }

    pub fn any_layout(rng: &mut Rng) -> Layout {
        rng.pick(&[Layout::Elements, Layout::Rows, Layout::Columns])
    }

    /// The index of rows.
    pub fn row(&self) -> &'static str {
        if self.layout == Layout::Columns { ".." } else { "i" }
    }

    /// The index of columns.
    pub fn col(&self) -> &'static str {
        if self.layout == Layout::Rows { ".." } else { "j" }
    }

    pub fn room(&self) -> usize {
        MOST - self.params.len().min(MOST)
    }

    fn fresh(&mut self, letter: char) -> String {
        self.count += 1;
        format!("{letter}{}", self.count - 1)
    }

    /// A new parameter, at a place among the others.
    pub fn param(&mut self, access: Access, kind: Kind, region: String, element: &'static str, shape: &[&str]) -> usize {
        let letter = match access {
            Access::Read => 'x',
            Access::Write => 'y',
            Access::Update => 't',
        };
        let name = self.fresh(letter);
        let shape = shape.iter().map(|size| (*size).to_owned()).collect();
        self.params.push(Param { name, access, region, element, shape, kind, wrong: false });
        self.params.len() - 1
    }

    pub fn of_kind(&mut self, access: Access, kind: Kind) -> usize {
        let (row, col) = (self.row(), self.col());
        match kind {
            Kind::Main => self.param(access, kind, format!("{row}, {col}"), "f32", &["M", "N"]),
            Kind::Vector => self.param(access, kind, col.to_owned(), "f32", &["N"]),
            Kind::PerRow => self.param(access, kind, row.to_owned(), "f32", &["M"]),
            Kind::Turned => self.param(access, kind, format!("{col}, {row}"), "f32", &["N", "M"]),
            Kind::Halo([before, after, left, right]) => {
                let halo = |index: &str, before, after| {
                    if index == ".." { index.to_owned() } else { format!("{index} + -{before}..={after}") }
                };
                let region = format!("{}, {}", halo(row, before, after), halo(col, left, right));
                self.param(access, kind, region, "f32", &["M", "N"])
            }
            Kind::Everything => self.param(access, kind, ".., ..".to_owned(), "f32", &["K", "V"]),
            Kind::Over(by) => {
                let rows = format!("{{ M / {by} }}");
                self.param(access, kind, format!("i / {by}, {col}"), "f32", &[&rows, "N"])
            }
            Kind::Ids => self.param(access, kind, row.to_owned(), "u32", &["M"]),
            Kind::Table | Kind::Other => unreachable!("made where it is used"),
        }
    }

    pub fn input_of(&self, param: usize) -> Input {
        let Param { name, kind, .. } = &self.params[param];
        Input { name: name.clone(), tensor: name.clone(), kind: *kind, state: State::Read }
    }

    /// A new input of this kind; one of the whole region is a value from then on.
    pub fn new_input(&mut self, kind: Kind) -> Input {
        let param = self.of_kind(Access::Read, kind);
        let input = self.input_of(param);
        if kind == Kind::Main {
            self.values.push(Value { name: input.name.clone(), of: param, state: State::Read });
        }
        input
    }

    pub fn any_halo(&mut self) -> Kind {
        let mut margin = || self.rng.below(3) as u32;
        let [mut before, after, mut left, right] = [margin(), margin(), margin(), margin()];
        if self.layout == Layout::Columns {
            before = 0;
        }
        if self.layout == Layout::Rows {
            left = 0;
        }
        // Without any it is the region itself.
        if before + after + left + right == 0 {
            return Kind::Halo(if self.layout == Layout::Columns { [0, 0, 1, 0] } else { [1, 0, 0, 0] });
        }
        Kind::Halo(if self.layout == Layout::Columns {
            [0, 0, left, right.max(u32::from(left == 0))]
        } else if self.layout == Layout::Rows {
            [before, after.max(u32::from(before == 0)), 0, 0]
        } else {
            [before, after, left, right]
        })
    }

    /// An input for one operation: a value of the body, or a new parameter.
    pub fn input(&mut self, by_position: bool, result: Option<State>) -> Option<Input> {
        let values: Vec<Value> = self
            .values
            .iter()
            .filter(|value| value.state != State::Write && result.is_none_or(|result| apart(value.state, result)))
            .cloned()
            .collect();
        if !values.is_empty() && (self.room() == 0 || self.rng.below(3) > 0) {
            let value = self.rng.pick(&values);
            let tensor = self.params[value.of].name.clone();
            return Some(Input { name: value.name, tensor, kind: Kind::Main, state: value.state });
        }
        if self.room() == 0 {
            return None;
        }
        let kind = match self.rng.below(if by_position { 9 } else { 3 }) {
            0 | 1 => Kind::Main,
            2 => Kind::Vector,
            3 => Kind::PerRow,
            4 => Kind::Turned,
            5 => self.any_halo(),
            6 => Kind::Everything,
            _ if self.layout != Layout::Columns && self.tile[0] == 1 => Kind::Over(4),
            _ => self.any_halo(),
        };
        Some(self.new_input(kind))
    }

    /// An input of the whole region: a value of the body that may be read, or a new parameter.
    pub fn main_input(&mut self) -> Input {
        let values: Vec<Value> = self.values.iter().filter(|value| value.state != State::Write).cloned().collect();
        if values.is_empty() || self.rng.one_of(3) {
            return self.new_input(Kind::Main);
        }
        let value = self.rng.pick(&values);
        Input { tensor: self.params[value.of].name.clone(), name: value.name, kind: Kind::Main, state: value.state }
    }

    pub fn inputs(&mut self, most: usize, by_position: bool, result: Option<State>) -> Vec<Input> {
        let wanted = 1 + self.rng.below(most);
        let mut inputs: Vec<Input> = Vec::new();
        for _ in 0..wanted {
            if let Some(input) = self.input(by_position, result) {
                inputs.push(input);
            }
        }
        inputs
    }

    /// What an operation may write: nothing has written it yet.
    pub fn fresh_result(&mut self) -> Option<Value> {
        if self.room() == 0 {
            return None;
        }
        let of = self.of_kind(Access::Write, Kind::Main);
        Some(Value { name: self.params[of].name.clone(), of, state: State::Write })
    }

    /// What holds values, and may be written in part.
    pub fn held_result(&mut self) -> Option<Value> {
        let values: Vec<Value> =
            self.values.iter().filter(|value| matches!(value.state, State::Update | State::Written(_))).cloned().collect();
        if !values.is_empty() && (self.room() == 0 || self.rng.one_of(2)) {
            return Some(self.rng.pick(&values));
        }
        if self.room() == 0 {
            return None;
        }
        Some(self.new_update())
    }

    pub fn new_update(&mut self) -> Value {
        let of = self.of_kind(Access::Update, Kind::Main);
        let value = Value { name: self.params[of].name.clone(), of, state: State::Update };
        self.values.push(value.clone());
        value
    }

    pub fn any_result(&mut self) -> Option<Value> {
        if self.rng.below(3) > 0 && self.room() > 0 { self.fresh_result() } else { self.held_result() }
    }

    /// The statement of an operation, and what it returns as a value.
    pub fn operation(&mut self, call: String, result: Option<&Value>) {
        let Some(result) = result else {
            self.lines.push(format!("{call};"));
            return;
        };
        let name = self.fresh('v');
        self.lines.push(format!("let {name} = {call};"));
        let state = State::Written(self.params[result.of].access);
        self.values.push(Value { name, of: result.of, state });
    }

    /// A formula of `count` values that stand as `{0}`, `{1}` in it: integers of integers.
    pub fn formula(&mut self, count: usize) -> String {
        let mut text = String::new();
        for n in 0..count {
            let by = self.rng.pick(&["", "2.0 * ", "3.0 * ", "-"]);
            let _ = write!(text, "{}{by}{{{n}}}", if n == 0 { "" } else { " + " });
        }
        match self.rng.below(5) {
            0 => text.push_str(" + 1.0"),
            1 if count == 2 => text = "larger({0}, {1})".to_owned(),
            2 => {
                self.scalar = true;
                text.push_str(" + by");
            }
            _ => {}
        }
        format!("small({text})")
    }

    pub fn tuple(names: &[String]) -> String {
        if let [one] = names { one.clone() } else { format!("({})", names.join(", ")) }
    }

    fn names(inputs: &[Input]) -> String {
        Self::tuple(&inputs.iter().map(|input| input.name.clone()).collect::<Vec<_>>())
    }

    pub fn pattern(count: usize) -> String {
        Self::tuple(&NAMES[..count].iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    /// The reference of what goes element by element: `formula` of what `at` says of each input.
    fn each(&mut self, result: &str, formula: &str, atoms: &[String]) {
        self.reference.push(format!("each({result}, |{result}, r, c| {});", fill(formula, atoms)));
    }

    /// What a reference reads of an input beside element (r, c).
    fn beside(input: &Input) -> String {
        let row = if input.kind == Kind::Vector { "0" } else { "r" };
        format!("{}.at({row}, c)", input.tensor)
    }

    /// Any operation that this grid may have, and that keeps the rules; false if there is no room for it.
    pub fn right(&mut self) -> bool {
        let operation = self.rng.pick(&Operation::ALL);
        operation.layouts().contains(&self.layout) && self.one(operation)
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
        }
    }

    pub fn zip(&mut self) -> bool {
        let Some(result) = self.any_result() else { return false };
        let inputs = self.inputs(3, false, None);
        if inputs.is_empty() {
            return self.fill_in(&result);
        }
        let formula = self.formula(inputs.len());
        let (names, pattern) = (Self::names(&inputs), Self::pattern(inputs.len()));
        let text = fill(&formula, &NAMES.map(str::to_owned));
        let atoms: Vec<String> = inputs.iter().map(Self::beside).collect();
        self.each(&self.params[result.of].name.clone(), &formula, &atoms);
        self.operation(format!("cta.zip({names}, {}, |{pattern}| {text})", result.name), Some(&result));
        true
    }

    /// A result that nothing has written yet, and that there is nothing for.
    fn fill_in(&mut self, result: &Value) -> bool {
        assert!(result.state == State::Write, "what holds values can be read");
        let tensor = self.params[result.of].name.clone();
        self.each(&tensor, "3.0", &[]);
        self.operation(format!("cta.generate((), {}, |_, _, _| 3.0)", result.name), Some(result));
        true
    }

    pub fn map(&mut self) -> bool {
        let Some(result) = self.held_result() else { return false };
        let formula = self.formula(1);
        let tensor = self.params[result.of].name.clone();
        self.each(&tensor, &formula, &[format!("{tensor}.at(r, c)")]);
        self.operation(format!("cta.map({}, |a| {})", result.name, fill(&formula, &["a".to_owned()])), Some(&result));
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
            Kind::Main | Kind::Table | Kind::Other | Kind::Ids => [["r", "c"]; 2],
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
            sides[0].push(text);
            sides[1].push(reference);
        }
        let (names, pattern) = (Self::names(&inputs), Self::pattern(inputs.len()));
        self.each(&self.params[result.of].name.clone(), &formula, &sides[1]);
        let text = fill(&formula, &sides[0]);
        self.operation(format!("cta.generate({names}, {}, |{pattern}, r, c| {text})", result.name), Some(&result));
        true
    }

    pub fn blocks(&mut self) -> bool {
        let Some(result) = self.fresh_result() else { return false };
        let Some(input) = self.input(false, None) else { return self.fill_in(&result) };
        let formula = self.formula(1);
        let row = if input.kind == Kind::Vector { "0" } else { "r" };
        self.each(&self.params[result.of].name.clone(), &formula, &[Self::beside(&input)]);
        let text = fill(&formula, &["v".to_owned()]);
        let call = format!("cta.blocks({}, {}, |a, r, c| a.at8({row}, c).map(|v| {text}))", input.name, result.name);
        self.operation(call, Some(&result));
        true
    }

    pub fn transpose(&mut self) -> bool {
        let Some(result) = self.fresh_result() else { return false };
        if self.room() == 0 {
            return self.fill_in(&result);
        }
        let input = self.new_input(Kind::Turned);
        self.each(&self.params[result.of].name.clone(), "{0}", &[format!("{}.at(c, r)", input.tensor)]);
        self.operation(format!("cta.transpose({}, {})", input.name, result.name), Some(&result));
        true
    }

    pub fn rows(&mut self) -> bool {
        let Some(result) = self.any_result() else { return false };
        let y = self.params[result.of].name.clone();
        let value = |text: &str| fill(text, &["v".to_owned()]);
        if result.state != State::Write && self.rng.one_of(2) {
            // In place.
            let formula = self.formula(1);
            self.reference.push(format!(
                "for r in 0..{y}.rows {{ let sum = {y}.sum(r); row({y}, r, |{y}, c| small({} - sum)); }}",
                fill(&formula, &[format!("{y}.at(r, c)")])
            ));
            let text = value(&formula);
            let body = format!("let sum = y.read().sum(|v| v); y.map(|v| small({text} - sum))");
            self.operation(format!("cta.rows((), {}, |_, y| {{ {body} }})", result.name), Some(&result));
            return true;
        }
        let Some(input) = self.input(false, Some(result.state)) else {
            return if result.state == State::Write { self.fill_in(&result) } else { false };
        };
        let x = &input.tensor.clone();
        let row = if input.kind == Kind::Vector { "0" } else { "r" };
        let formula = self.formula(1);
        let at = fill(&formula, &[format!("{x}.at({row}, c)")]);
        let text = value(&formula);
        let (closure, reference) = match self.rng.below(6) {
            0 => (
                "{ let sum = a.sum(|v| v); y.set(|_| small(sum)) }".to_owned(),
                format!("let sum = {x}.sum({row}); row({y}, r, |_, _| small(sum));"),
            ),
            1 => (
                format!("{{ let top = a.max(|v| v); y.zip(a, |v| small({text} - top)) }}"),
                format!("let top = {x}.max({row}); row({y}, r, |_, c| small({at} - top));"),
            ),
            2 => (
                format!("{{ let a = a.elements(); y.set(|j| {}) }}", fill(&formula, &["a.at(j + 1)".to_owned()])),
                format!("row({y}, r, |_, c| {});", fill(&formula, &[format!("{x}.at({row}, c + 1)")])),
            ),
            3 => (
                format!("{{ let kept = y.zip_kept(a, |v| {text}); let sum = kept.sum(|v| v); y.map(|v| small(v - sum)) }}"),
                format!("row({y}, r, |_, c| {at}); let sum = {y}.sum(r); row({y}, r, |{y}, c| small({y}.at(r, c) - sum));"),
            ),
            4 => (format!("y.zip(a, |v| {text})"), format!("row({y}, r, |_, c| {at});")),
            _ => (
                format!("{{ let least = a.fold(9.0, |v| v, |a, b| if a < b {{ a }} else {{ b }}); y.zip(&a, |v| small({text} + least)) }}"),
                format!("let least = {x}.min({row}).min(9.0); row({y}, r, |_, c| small({at} + least));"),
            ),
        };
        self.reference.push(format!("for r in 0..{y}.rows {{ {reference} }}"));
        self.operation(format!("cta.rows({}, {}, |a, y| {closure})", input.name, result.name), Some(&result));
        true
    }

    pub fn columns(&mut self) -> bool {
        if self.room() < 2 {
            return false;
        }
        let input = self.main_input();
        let y = self.param(Access::Write, Kind::Vector, self.col().to_owned(), "f32", &["N"]);
        let (y, x) = (self.params[y].name.clone(), input.tensor);
        let most = self.rng.one_of(2);
        let (start, combine) = if most { ("-99.0", "larger(a, b)") } else { ("0.0", "a + b") };
        self.reference
            .push(format!("each({y}, |_, _, c| small((0..{x}.rows).fold({start}, |a, r| {{ let b = 2.0 * {x}.at(r, c); {combine} }})));"));
        self.operation(format!("cta.columns({}, {y}, {start}, |v| 2.0 * v, |a, b| {combine}, |v| small(v))", input.name), None);
        true
    }

    pub fn take(&mut self) -> bool {
        if self.room() < 3 {
            return false;
        }
        let ids = self.of_kind(Access::Read, Kind::Ids);
        let ids = self.params[ids].name.clone();
        let table = self.param(Access::Read, Kind::Table, format!("{ids}[i], {}", self.col()), "f32", &["V", "N"]);
        let table = self.params[table].name.clone();
        let Some(result) = self.fresh_result() else { return false };
        self.each(&self.params[result.of].name.clone(), "{0}", &[format!("{table}.at({ids}.at(0, r) as isize, c)")]);
        self.operation(format!("cta.take({ids}, {table}, {})", result.name), Some(&result));
        true
    }

    pub fn scatter(&mut self) -> bool {
        if self.room() < 3 {
            return false;
        }
        let Some(result) = self.held_result() else { return false };
        let [ids, x] = ["u32", "f32"].map(|element| {
            let param = self.param(Access::Read, Kind::Other, "i, ..".to_owned(), element, &["M", "K"]);
            self.params[param].name.clone()
        });
        let y = &self.params[result.of].name;
        self.reference
            .push(format!("for r in 0..{x}.rows {{ for k in 0..{x}.cols {{ {y}.put(r, {ids}.at(r, k) as isize, {x}.at(r, k)); }} }}"));
        self.operation(format!("cta.scatter({ids}, {x}, {})", result.name), Some(&result));
        true
    }

    pub fn indexed(&mut self, method: &str) -> bool {
        if self.room() < 3 {
            return false;
        }
        let Some(result) = self.held_result() else { return false };
        let ids = self.param(Access::Read, Kind::Other, "..".to_owned(), "u32", &["K"]);
        let x = self.param(Access::Read, Kind::Other, ".., j".to_owned(), "f32", &["K", "N"]);
        let [ids, x] = [ids, x].map(|param| self.params[param].name.clone());
        let y = self.params[result.of].name.clone();
        let old = if method == "index_add" { format!("{y}.at(to, c) + ") } else { String::new() };
        self.reference.push(format!(
            "for k in 0..{x}.rows {{ for c in 0..{x}.cols {{ let to = {ids}.at(0, k) as isize; let v = {old}{x}.at(k, c); {y}.put(to, c, v); }} }}"
        ));
        self.operation(format!("cta.{method}({ids}, {x}, {})", result.name), Some(&result));
        true
    }

    pub fn sums(&mut self) -> bool {
        if self.room() < 3 {
            return false;
        }
        let Some(result) = self.fresh_result() else { return false };
        let ids = self.param(Access::Read, Kind::Other, "i, ..".to_owned(), "u32", &["M", "K"]);
        let x = self.param(Access::Read, Kind::Other, ".., ..".to_owned(), "f32", &["V", "N"]);
        let [ids, x] = [ids, x].map(|param| self.params[param].name.clone());
        let sum = format!("(0..{ids}.cols).map(|k| 2.0 * {x}.at({ids}.at(r, k) as isize, c)).sum::<f32>()");
        self.each(&self.params[result.of].name.clone(), "{0}", &[sum]);
        let call = format!("cta.sums({ids}, {x}, {}, {ids}.cols(), |ids, r, k| (ids.at(r, k) as i32, 2.0))", result.name);
        self.operation(call, Some(&result));
        true
    }

    /// So many operations that keep the rules.
    pub fn operations(&mut self, count: usize) {
        let mut done = 0;
        for _ in 0..count * 8 {
            if done < count && self.right() {
                done += 1;
            }
        }
        // A task without a result is no task.
        if !self.params.iter().any(|param| param.access != Access::Read) {
            let value = self.new_update();
            self.reference.push(format!("each({0}, |{0}, r, c| small({0}.at(r, c) + 1.0));", value.name));
            self.operation(format!("cta.map({}, |a| small(a + 1.0))", value.name), Some(&value));
        }
    }

    /// The source of the task.
    pub fn task(&self) -> String {
        let [rows, cols] = self.tile;
        let tile = match self.layout {
            Layout::Elements => format!("i = {rows}, j = {cols}"),
            Layout::Rows => format!("i = {rows}"),
            Layout::Columns => format!("j = {cols}"),
        };
        let mut text = format!("#[maco::task(tile({tile}))]\npub fn {}(\n    cta: &mut Cta,\n", self.name);
        for Param { name, access, region, element, shape, wrong, .. } in &self.params {
            let mark = if *wrong { WRONG } else { "" };
            let _ = writeln!(text, "    #[{}({region})] {name}: Tensor<{element}, {}>,{mark}", access.attribute(), shape.join(", "));
        }
        if self.scalar {
            text.push_str("    by: f32,\n");
        }
        text.push_str(") {\n");
        for line in &self.lines {
            let _ = writeln!(text, "    {line}");
        }
        text + "}\n"
    }

    /// The source of its reference.
    pub fn function(&self) -> String {
        let mut text = format!("fn {}(", self.name);
        for Param { name, access, .. } in &self.params {
            let _ = write!(text, "{name}: &{}Matrix, ", if *access == Access::Read { "" } else { "mut " });
        }
        text.push_str("by: f32) {\n    let _ = by;\n");
        for line in &self.reference {
            let _ = writeln!(text, "    {line}");
        }
        text + "}\n"
    }
}

/// Marks the line of a broken rule.
pub const WRONG: &str = " // wrong";

/// `formula` with its `{0}`, `{1}` replaced.
pub fn fill(formula: &str, atoms: &[String]) -> String {
    let mut text = formula.to_owned();
    for (n, atom) in atoms.iter().enumerate() {
        text = text.replace(&format!("{{{n}}}"), atom);
    }
    text
}
