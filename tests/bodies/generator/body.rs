//! One task: a signature, and operations one after another.
//!
//! What operations do does not belong here: see `operations.rs`.

use std::fmt::Write as _;

use super::Rng;
use super::element::Element;
use super::signature::{Access, Input, Kind, Layout, Param, State, Value, apart};

/// As many tensors as a task may have.
const MOST: usize = 6;

/// A task while it is written.
pub struct Body<'a> {
    pub rng: &'a mut Rng,
    pub name: String,
    pub layout: Layout,
    /// Each task has one plane.
    pub planes: bool,
    /// `where M == N`.
    pub equal: bool,
    /// All numbers have this element.
    pub only: Option<Element>,
    /// Else each parameter has one of these: of few there are tensors that a later call can read.
    pub elements: Vec<Element>,
    /// Rows and columns of a tile, where the grid has the axis.
    pub tile: [u32; 2],
    pub params: Vec<Param>,
    pub values: Vec<Value>,
    /// The body's statements.
    pub lines: Vec<String>,
    /// The same on whole planes.
    pub reference: Vec<String>,
    /// What its signature says of `cta`.
    pub cta: &'static str,
    /// A function that it calls.
    pub helper: String,
    /// Whether it takes the number `by`.
    pub scalar: bool,
    /// What it writes may be large.
    pub large: bool,
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
            planes: false,
            equal: false,
            only: None,
            elements: Element::NUMBERS.to_vec(),
            tile,
            params: Vec::new(),
            values: Vec::new(),
            lines: Vec::new(),
            reference: Vec::new(),
            cta: "&mut Cta",
            helper: String::new(),
            scalar: false,
            large: false,
            count: 0,
        }
    }

    pub fn any_layout(rng: &mut Rng) -> Layout {
        rng.pick(&Layout::ALL)
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

    pub fn fresh(&mut self, letter: char) -> String {
        self.count += 1;
        format!("{letter}{}", self.count - 1)
    }

    /// Of a new parameter that holds numbers.
    pub fn number(&mut self) -> Element {
        self.only.unwrap_or_else(|| self.rng.pick(&self.elements))
    }

    /// The same, of numbers that are added.
    pub fn float(&mut self) -> Element {
        self.only.unwrap_or_else(|| self.one_of(&Element::FLOATS))
    }

    /// One of these, and of the body's if there is one.
    pub fn one_of(&mut self, elements: &[Element]) -> Element {
        let own: Vec<Element> = self.elements.iter().copied().filter(|element| elements.contains(element)).collect();
        self.rng.pick(if own.is_empty() { elements } else { &own })
    }

    /// A new parameter, at a place among the others.
    pub fn param(&mut self, access: Access, kind: Kind, region: String, element: Element, shape: &[&str]) -> usize {
        let name = self.fresh(access.letter());
        let mut shape: Vec<String> = shape.iter().map(|size| (*size).to_owned()).collect();
        if self.equal {
            for size in shape.iter_mut().filter(|size| *size == "M" || *size == "N") {
                *size = self.rng.pick(&["M", "N"]).to_owned();
            }
        }
        let plane = self.planes && (access != Access::Read || kind.has_planes() && self.rng.below(3) > 0);
        self.params.push(Param { name, access, region, element, shape, kind, plane, wrong: false });
        self.params.len() - 1
    }

    pub fn of_kind(&mut self, access: Access, kind: Kind) -> usize {
        let element = if kind == Kind::Ids { Element::U32 } else { self.number() };
        self.of_element(access, kind, element)
    }

    pub fn of_element(&mut self, access: Access, kind: Kind, element: Element) -> usize {
        let (row, col) = (self.row(), self.col());
        match kind {
            Kind::Main => self.param(access, kind, format!("{row}, {col}"), element, &["M", "N"]),
            Kind::Vector => self.param(access, kind, col.to_owned(), element, &["N"]),
            Kind::PerRow | Kind::Ids => self.param(access, kind, row.to_owned(), element, &["M"]),
            Kind::Turned => self.param(access, kind, format!("{col}, {row}"), element, &["N", "M"]),
            Kind::Halo([before, after, left, right]) => {
                let halo = |index: &str, before, after| {
                    if index == ".." { index.to_owned() } else { format!("{index} + -{before}..={after}") }
                };
                let region = format!("{}, {}", halo(row, before, after), halo(col, left, right));
                self.param(access, kind, region, element, &["M", "N"])
            }
            Kind::Everything => self.param(access, kind, ".., ..".to_owned(), element, &["K", "V"]),
            Kind::Over(by) => {
                let rows = format!("{{ M / {by} }}");
                self.param(access, kind, format!("i / {by}, {col}"), element, &[&rows, "N"])
            }
            Kind::Table | Kind::Other | Kind::Small | Kind::Operand | Kind::GemmResult => unreachable!("made where it is used"),
        }
    }

    /// A new parameter that only its operation knows: its name.
    pub fn other(&mut self, region: &str, element: Element, shape: &[&str]) -> String {
        let param = self.param(Access::Read, Kind::Other, region.to_owned(), element, shape);
        self.params[param].name.clone()
    }

    pub fn input_of(&self, param: usize) -> Input {
        let Param { name, kind, element, .. } = &self.params[param];
        Input { name: name.clone(), tensor: name.clone(), element: *element, kind: *kind, state: State::Read }
    }

    /// A new input of this kind; one of the whole region is a value from then on.
    pub fn new_input(&mut self, kind: Kind) -> Input {
        let element = self.number();
        self.new_input_of(kind, element)
    }

    pub fn new_input_of(&mut self, kind: Kind, element: Element) -> Input {
        let param = self.of_element(Access::Read, kind, element);
        let input = self.input_of(param);
        if kind == Kind::Main {
            self.values.push(Value { name: input.name.clone(), of: param, element, state: State::Read });
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

    fn input_of_value(&self, value: Value) -> Input {
        let Value { name, of, element, state } = value;
        Input { name, tensor: self.params[of].name.clone(), element, kind: Kind::Main, state }
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
            return Some(self.input_of_value(value));
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
        self.input_of_value(value)
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
        let element = self.number();
        self.fresh_result_of(element)
    }

    pub fn fresh_result_of(&mut self, element: Element) -> Option<Value> {
        if self.room() == 0 {
            return None;
        }
        let of = self.of_element(Access::Write, Kind::Main, element);
        Some(Value { name: self.params[of].name.clone(), of, element, state: State::Write })
    }

    /// What holds values, and may be written in part.
    pub fn held_result(&mut self) -> Option<Value> {
        self.held_result_of(&Element::NUMBERS)
    }

    /// The same, of one of these elements.
    pub fn held_result_of(&mut self, elements: &[Element]) -> Option<Value> {
        let is_held = |value: &&Value| matches!(value.state, State::Update | State::Written(_)) && elements.contains(&value.element);
        let values: Vec<Value> = self.values.iter().filter(is_held).cloned().collect();
        if !values.is_empty() && (self.room() == 0 || self.rng.one_of(2)) {
            return Some(self.rng.pick(&values));
        }
        if self.room() == 0 {
            return None;
        }
        let element = self.only.unwrap_or_else(|| self.one_of(elements));
        Some(self.new_update_of(element))
    }

    pub fn new_update(&mut self) -> Value {
        let element = self.number();
        self.new_update_of(element)
    }

    fn new_update_of(&mut self, element: Element) -> Value {
        let of = self.of_element(Access::Update, Kind::Main, element);
        let value = Value { name: self.params[of].name.clone(), of, element, state: State::Update };
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
        self.values.push(Value { name, state, ..result.clone() });
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
            self.count_up();
        }
    }

    /// Writes what no other operation knows.
    pub fn count_up(&mut self) {
        let value = self.new_update();
        let (a, name) = (value.element.value("a"), &value.name);
        self.reference.push(format!("each({name}, |{name}, r, c| small({name}.at(r, c) + 1.0));"));
        self.operation(format!("cta.map({name}, |a| {})", value.element.made(&format!("small({a} + 1.0)"))), Some(&value));
    }

    /// The source of the task.
    pub fn task(&self) -> String {
        let [rows, cols] = self.tile;
        let mut tile = match self.layout {
            Layout::Elements => format!("i = {rows}, j = {cols}"),
            Layout::Rows => format!("i = {rows}"),
            Layout::Columns => format!("j = {cols}"),
        };
        if self.planes {
            tile = format!("b = 1, {tile}");
        }
        let names = |dimension: &str| self.params.iter().any(|param| param.shape.iter().any(|size| size == dimension));
        let equal = if self.equal && names("M") && names("N") { ", where M == N" } else { "" };
        let mut text = format!("{}#[maco::task(tile({tile}){equal})]\npub fn {}(\n    cta: {},\n", self.helper, self.name, self.cta);
        for param in &self.params {
            let _ = writeln!(text, "    {}{}", param.text(), if param.wrong { WRONG } else { "" });
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
