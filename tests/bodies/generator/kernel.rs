//! Megakernels that call right tasks, and their references.

use std::fmt::Write as _;

use super::body::{Body, NAMES, fill};
use super::element::Element;
use super::operations::Operation;
use super::signature::{Access, Kind, Layout, Param, State};
use super::view::{View, extents, number, views};
use super::{Made, Rng};

/// Tasks of a megakernel.
pub const CALLS: usize = 4;

/// Dimensions of megakernels.
const DIMENSIONS: [&str; 5] = ["M", "N", "K", "V", "B"];

/// A tensor of a megakernel.
struct Tensor {
    name: String,
    element: Element,
    shape: Vec<String>,
    /// What makes it: `In`, `InOut`, or a call.
    role: Role,
    /// Its last use is a read of all of it.
    read_last: bool,
    /// Sums of its elements need not be exact.
    large: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    In,
    InOut,
    Out,
    Temp,
}

/// A task that calls know.
struct Task {
    name: String,
    params: Vec<Param>,
    scalar: bool,
    planes: bool,
    /// `where M == N`.
    equal: bool,
    large: bool,
    /// What it does may be done in parts.
    splits: bool,
}

impl Task {
    fn of(body: &Body<'_>) -> Task {
        Task {
            name: body.name.clone(),
            params: body.params.clone(),
            scalar: body.scalar,
            planes: body.planes,
            equal: body.equal,
            large: body.large,
            // Neither grids of three axes nor helpers do.
            splits: !body.planes && body.lines.iter().any(|line| line.starts_with("cta.store(")),
        }
    }
}

/// `size` with its dimensions replaced.
fn renamed(size: &str, names: &[(char, &str)]) -> String {
    let of = |letter| names.iter().find(|(from, _)| *from == letter).map(|(_, to)| (*to).to_owned());
    size.chars().map(|letter| of(letter).unwrap_or_else(|| letter.to_string())).collect()
}

#[derive(Default)]
struct Program {
    tensors: Vec<Tensor>,
    calls: Vec<String>,
    reference: String,
}

impl Program {
    fn tensor(&mut self, element: Element, shape: &[String], role: Role) -> usize {
        let letter = match role {
            Role::In => 'a',
            Role::InOut => 's',
            Role::Out | Role::Temp => 'r',
        };
        let name = format!("{letter}{}", self.tensors.len());
        self.tensors.push(Tensor { name, element, shape: shape.to_vec(), role, read_last: false, large: false });
        self.tensors.len() - 1
    }

    /// Which tensor a call gets for a parameter, not one of `taken`, and which view of it.
    fn bind(&mut self, rng: &mut Rng, param: &Param, shape: &[String], taken: &[usize]) -> (usize, View) {
        let all: Vec<View> = views(shape).into_iter().filter(|view| view.may_be(param.kind)).collect();
        let small = matches!(param.kind, Kind::Operand | Kind::Small);
        let fits = |n: usize, tensor: &Tensor| {
            let of_kind = tensor.element == param.element && !taken.contains(&n) && !(small && tensor.large);
            of_kind
                && match param.access {
                    Access::Read => true,
                    Access::Update => tensor.role != Role::In,
                    Access::Write => false,
                }
        };
        let mut old: Vec<(usize, View)> = Vec::new();
        for (n, tensor) in self.tensors.iter().enumerate().filter(|(n, tensor)| fits(*n, tensor)) {
            old.extend(all.iter().filter(|view| view.whole == tensor.shape).map(|view| (n, view.clone())));
        }
        let (chosen, view) = if !old.is_empty() && rng.below(3) > 0 {
            rng.pick(&old)
        } else {
            let view = if rng.one_of(2) { rng.pick(&all) } else { View::identity(shape) };
            let role = match param.access {
                Access::Read => Role::In,
                // The rest stays.
                Access::Write if view.is_all => Role::Out,
                Access::Write | Access::Update => Role::InOut,
            };
            (self.tensor(param.element, &view.whole, role), view)
        };
        self.tensors[chosen].read_last = param.access == Access::Read && view.is_all;
        (chosen, view)
    }

    fn call(&mut self, rng: &mut Rng, task: &Task) {
        let mut names: Vec<(char, &str)> = match (task.equal, rng.below(3)) {
            (true, 0) => vec![('M', "N")],
            (true, _) => vec![('N', "M")],
            (false, 0) => vec![('M', "N"), ('N', "M")],
            (false, _) => Vec::new(),
        };
        // Planes may be halves of rows and columns.
        if task.planes && rng.one_of(3) {
            names.push(('B', "2"));
        }
        let mut bound: Vec<(usize, View)> = Vec::new();
        // Results last: what is read may be a result of another call, which this one would overwrite.
        for param in &task.params {
            let shape: Vec<String> = param.dimensions().iter().map(|size| renamed(size, &names)).collect();
            let taken: Vec<usize> = bound.iter().map(|(tensor, _)| *tensor).collect();
            bound.push(self.bind(rng, param, &shape, &taken));
        }
        let mut arguments: Vec<String> = bound.iter().map(|(n, view)| format!("{}{}", self.tensors[*n].name, view.suffix)).collect();
        if task.scalar {
            arguments.push("by".to_owned());
        }
        let parts = if task.splits && rng.one_of(2) { ".split_k(2)" } else { "" };
        self.calls.push(format!("{}({}){parts};", task.name, arguments.join(", ")));
        let mut text = String::from("    {\n");
        let (mut planes, mut passed) = (String::new(), Vec::new());
        let count = number(&renamed("B", &names));
        for (param, (n, view)) in task.params.iter().zip(&bound) {
            let (name, by) = (&param.name, if param.access == Access::Read { "" } else { "mut " });
            let extents = extents(&param.dimensions().iter().map(|size| renamed(size, &names)).collect::<Vec<_>>());
            let _ = writeln!(text, "        let {by}{name} = {}.view({extents}, {});", self.tensors[*n].name, view.place());
            if param.plane {
                let _ = writeln!(planes, "            let {by}{name}_of = {name}.plane(p, {count});");
            }
            passed.push(format!("&{by}{name}{}", if param.plane { "_of" } else { "" }));
        }
        let call = format!("{}({}, by);", task.name, passed.join(", "));
        if task.planes {
            let _ = writeln!(text, "        for p in 0..{count} {{\n{planes}            {call}");
            for param in task.params.iter().filter(|param| param.access != Access::Read) {
                let _ = writeln!(text, "            {0}.set_plane(p, {count}, &{0}_of);", param.name);
            }
            text += "        }\n";
        } else {
            let _ = writeln!(text, "        {call}");
        }
        let large = task.large || bound.iter().any(|(n, _)| self.tensors[*n].large);
        for (param, (n, view)) in task.params.iter().zip(&bound) {
            if param.access != Access::Read {
                self.tensors[*n].large |= large;
                let _ = writeln!(text, "        {}.store(&{}, {});", self.tensors[*n].name, param.name, view.place());
            }
        }
        self.reference += &text;
        self.reference += "    }\n";
    }

    /// The megakernel, and the function that runs it.
    fn finish(mut self, name: &str, outside: bool, made: &mut Made) {
        for tensor in &mut self.tensors {
            // What nothing reads any more is a result.
            if tensor.role == Role::Out && tensor.read_last {
                tensor.role = Role::Temp;
            }
        }
        // A dimension is one of a parameter; of `{ 2 * V }` alone V is not known.
        for dimension in DIMENSIONS {
            let is_named = |tensor: &Tensor| tensor.role != Role::Temp && tensor.shape.iter().any(|size| size == dimension);
            let is_used = self.tensors.iter().any(|tensor| tensor.shape.iter().any(|size| size.contains(dimension)));
            if is_used && !self.tensors.iter().any(is_named) {
                self.tensor(Element::F32, &[dimension.to_owned()], Role::In);
            }
        }
        let (mut signature, mut body) = (String::new(), String::new());
        for tensor in &self.tensors {
            let shape = format!("<{}, {}>", tensor.element.name(), tensor.shape.join(", "));
            let _ = match tensor.role {
                Role::Temp => writeln!(body, "    let {} = temp::{shape}();", tensor.name),
                role => {
                    let role = match role {
                        Role::In => "In",
                        Role::InOut => "InOut",
                        _ => "Out",
                    };
                    writeln!(signature, "    {}: {role}{shape},", tensor.name)
                }
            };
        }
        for call in &self.calls {
            let _ = writeln!(body, "    {call}");
        }
        let _ = write!(made.kernels, "\n#[maco::megakernel]\npub fn {name}(\n    by: f32,\n{signature}) {{\n{body}}}\n");

        let mut text = format!(
            "\npub fn {name}(setup: &Setup) {{\n    let [m, n, k, v, b] = setup.sizes;\n    let by = 2.0;\n    let _ = (m, n, k, v, b);\n"
        );
        let _ = writeln!(text, "    let mut numbers = Numbers::new();");
        for tensor in &self.tensors {
            let (name, extents, element) = (&tensor.name, extents(&tensor.shape), tensor.element.name());
            let (by, how) = match (tensor.role, tensor.element) {
                (Role::In, Element::U32) => ("", format!("numbers.indices({extents})")),
                (Role::In, _) => ("", format!("numbers.matrix({extents})")),
                (Role::InOut, _) => ("mut ", format!("numbers.matrix({extents})")),
                _ => ("mut ", format!("Matrix::nothing({extents})")),
            };
            let _ = writeln!(text, "    let {by}{name} = {how}.of::<{element}>();");
            if tensor.role == Role::InOut {
                let _ = writeln!(text, "    let {name}_before = {name}.clone();");
            }
        }
        text += &self.reference;
        // A tensor is named in the megakernel's shapes or not at all.
        let dims: Vec<String> = DIMENSIONS
            .into_iter()
            .filter(|dim| signature.contains(dim))
            .map(|dim| format!("{dim}: {} as u64", dim.to_lowercase()))
            .collect();
        let _ = writeln!(text, "    let dims = kernels::{name}::Dims {{ {} }};", dims.join(", "));
        let _ = writeln!(text, "    setup.each_plan(|options| kernels::{name}::plan_with(&setup.device, dims, options), |plan, what| {{");
        let mut passed = vec!["by".to_owned()];
        let mut compared = String::new();
        for tensor in self.tensors.iter().filter(|tensor| tensor.role != Role::Temp) {
            let (name, element) = (&tensor.name, tensor.element.name());
            let shape: Vec<String> = tensor.shape.iter().map(|size| format!("{} as u64", number(size))).collect();
            let (by, from) = match tensor.role {
                Role::In => ("", name.clone()),
                Role::InOut => ("mut ", format!("{name}_before")),
                _ => ("mut ", format!("Matrix::nothing({}).of::<{element}>()", extents(&tensor.shape))),
            };
            let _ = writeln!(text, "        let {by}{name}_there = {from}.upload::<{element}, _>(&setup.device, [{}]);", shape.join(", "));
            passed.push(format!("&{by}{name}_there"));
            if tensor.role != Role::In {
                let _ = writeln!(compared, "        {name}.compare(&{name}_there, \"{name}\", what);");
            }
        }
        let _ = writeln!(text, "        let ran = plan.run({});", passed.join(", "));
        let check = if outside { "setup.is_outside(ran, what)" } else { "setup.has_run(ran, what)" };
        let _ = write!(text, "        if {check} {{\n            return;\n        }}\n{compared}    }});\n}}\n");
        made.checks += &text;
        made.names.push(name.to_owned());
    }
}

/// A megakernel of right bodies.
pub fn right(rng: &mut Rng, seed: u64, name: &str, made: &mut Made) {
    let mut program = Program::default();
    let elements = [rng.pick(&Element::NUMBERS), rng.pick(&Element::FLOATS)];
    for number in 0..CALLS {
        // Each operation in turn, so that a few seeds have all of them.
        let operation = Operation::ALL[(seed as usize * CALLS + number) % Operation::ALL.len()];
        let layout = rng.pick(operation.layouts());
        let (planes, equal, count) = (rng.one_of(4), rng.one_of(5), rng.below(3));
        let mut body = Body::new(rng, format!("{name}_{number}"), layout);
        (body.planes, body.equal, body.elements) = (planes, equal, elements.to_vec());
        assert!(body.one(operation), "there is room for the first");
        if !operation.is_alone() {
            body.operations(count);
        }
        // By numbers of its own: which operations there are does not depend on it.
        let mut own = Rng::new(seed, 2000 + number as u64);
        if own.one_of(2) {
            body.outline(&mut own);
        }
        made.kernels += &format!("\n{}", body.task());
        made.checks += &format!("\n{}", body.function());
        made.right += 1;
        let task = Task::of(&body);
        // Some are called twice, on other tensors.
        for _ in 0..1 + rng.below(2) {
            program.call(rng, &task);
        }
    }
    program.finish(name, false, made);
}

/// A megakernel of a body that reads beside its region.
pub fn outside(rng: &mut Rng, name: &str, made: &mut Made) {
    let layout = Body::any_layout(rng);
    let mut body = Body::new(rng, format!("{name}_task"), layout);
    body.only = Some(body.rng.pick(&Element::FLOATS));
    let [rows, cols] = body.tile;
    let halo = body.rng.one_of(2).then(|| body.any_halo());
    let input = body.new_input(halo.unwrap_or(Kind::Main));
    let own = body.new_input(Kind::Main);
    let [before, after, left, right] = if let Kind::Halo(halo) = input.kind { halo.map(i64::from) } else { [0; 4] };
    // Beyond the margin on one side of an axis that the grid has.
    let along_rows = match layout {
        Layout::Elements => body.rng.one_of(2),
        Layout::Rows => true,
        Layout::Columns => false,
    };
    let beyond = |rng: &mut Rng, before: i64, after: i64| {
        let far = rng.below(3) as i64;
        if rng.one_of(2) { -before - 1 - far } else { after + 1 + far }
    };
    let (down, along) = if along_rows { (beyond(body.rng, before, after), 0) } else { (0, beyond(body.rng, left, right)) };
    let bounds = |index: &str, at: &str, size: u32, [before, after]: [i64; 2]| {
        if index == ".." {
            "(0, isize::MAX)".to_owned()
        } else {
            format!("({at} / {size} * {size} - {before}, {at} / {size} * {size} + {})", i64::from(size) + after)
        }
    };
    let expected = format!(
        "{}.within(r + {down}, c + {along}, {}, {})",
        input.tensor,
        bounds(body.row(), "r", rows, [before, after]),
        bounds(body.col(), "c", cols, [left, right])
    );
    let position = |name: &str, by: i64| if by < 0 { format!("{name} - {}", -by) } else { format!("{name} + {by}") };
    let read = format!("{}.at({}, {})", NAMES[0], position("r", down + before), position("c", along + left));
    let formula = "small({0} + 2.0 * {1})";
    let result = body.fresh_result().unwrap_or_else(|| unreachable!("two of six parameters are taken"));
    assert!(result.state == State::Write);
    let y = body.tensor(&result);
    body.each(&y, formula, &[expected, format!("{}.at(r, c)", own.tensor)]);
    let text = fill(formula, &[read, "b.at(r, c)".to_owned()]);
    body.operation(format!("cta.generate(({}, {}), {y}, |(a, b), r, c| {text})", input.name, own.name), Some(&result));
    made.kernels += &format!("\n{}", body.task());
    made.checks += &format!("\n{}", body.function());
    made.outside += 1;
    let task = Task::of(&body);
    let mut program = Program::default();
    program.call(rng, &task);
    program.finish(name, true, made);
}
