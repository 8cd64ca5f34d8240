//! Megakernels that call right tasks, and their references.

use std::fmt::Write as _;

use super::body::{Access, Body, Kind, NAMES, Operation, Param, State, fill};
use super::{Made, Rng};

/// Tasks of a megakernel.
const CALLS: usize = 4;

/// A tensor of a megakernel.
struct Tensor {
    name: String,
    element: &'static str,
    /// Of the view that calls get.
    shape: Vec<String>,
    /// What makes it: `In`, `InOut`, or a call.
    role: Role,
    /// Calls get one half of it along this axis: 0 is the first.
    half: Option<(usize, usize)>,
    /// Its last use is a read.
    read_last: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    In,
    InOut,
    Out,
    Temp,
}

impl Tensor {
    /// The shape of all of it.
    fn whole(&self) -> Vec<String> {
        let double = |(axis, size): (usize, &String)| match self.half {
            Some((along, _)) if along == axis => format!("{{ 2 * {size} }}"),
            _ => size.clone(),
        };
        self.shape.iter().enumerate().map(double).collect()
    }

    /// What a call gets.
    fn argument(&self) -> String {
        let Some((axis, half)) = self.half else { return self.name.clone() };
        let size = &self.shape[axis];
        let range = if half == 0 { format!("0..{size}") } else { format!("{size}..2 * {size}") };
        format!("{}.slice({axis}, {range})", self.name)
    }

    /// The same in a reference.
    fn part(&self) -> String {
        let Some((axis, half)) = self.half else { return format!("{}.clone()", self.name) };
        let size = number(&self.shape[axis]);
        let from = if half == 0 { "0" } else { &size };
        format!("{}.slice({axis}, {from}, {size})", self.name)
    }

    /// Stores what a call has made in a reference.
    fn store(&self, from: &str) -> String {
        let Some((axis, half)) = self.half else { return format!("{} = {from};", self.name) };
        let first = if half == 0 { "0".to_owned() } else { number(&self.shape[axis]) };
        format!("{}.store({axis}, {first}, &{from});", self.name)
    }

    /// Rows and columns in a reference: vectors are one row.
    fn extents(&self) -> String {
        let sizes: Vec<String> = self.whole().iter().map(|size| number(size)).collect();
        match &sizes[..] {
            [one] => format!("1, {one}"),
            _ => sizes.join(", "),
        }
    }
}

/// `{ 2 * M }` as an expression of a reference.
fn number(size: &str) -> String {
    let text = size.to_lowercase().replace("{ ", "(").replace(" }", ")");
    text.replace("((", "(").replace("))", ")")
}

/// With M and N exchanged.
fn turned(size: &str) -> String {
    size.chars()
        .map(|letter| match letter {
            'M' => 'N',
            'N' => 'M',
            other => other,
        })
        .collect()
}

#[derive(Default)]
struct Program {
    tensors: Vec<Tensor>,
    calls: Vec<String>,
    reference: String,
}

impl Program {
    fn tensor(&mut self, element: &'static str, shape: &[String], role: Role, half: Option<(usize, usize)>) -> usize {
        let letter = match role {
            Role::In => 'a',
            Role::InOut => 's',
            Role::Out | Role::Temp => 'r',
        };
        let name = format!("{letter}{}", self.tensors.len());
        self.tensors.push(Tensor { name, element, shape: shape.to_vec(), role, half, read_last: false });
        self.tensors.len() - 1
    }

    /// Which tensor a call gets for a parameter, not one of `taken`.
    fn bind(&mut self, rng: &mut Rng, param: &Param, shape: &[String], taken: &[usize]) -> usize {
        let fits = |(n, tensor): &(usize, &Tensor)| {
            let kind = tensor.shape == shape && tensor.element == param.element && !taken.contains(n);
            kind && match param.access {
                Access::Read => true,
                Access::Update => tensor.role != Role::In,
                Access::Write => false,
            }
        };
        let old: Vec<usize> = self.tensors.iter().enumerate().filter(fits).map(|(n, _)| n).collect();
        let half = rng.one_of(4).then(|| (rng.below(shape.len()), rng.below(2)));
        let chosen = match param.access {
            _ if !old.is_empty() && rng.below(3) > 0 => rng.pick(&old),
            // Halves of numbers of rows, and of quarters, show nothing new.
            Access::Read => self.tensor(param.element, shape, Role::In, half.filter(|_| !shape.iter().any(|size| size.contains('{')))),
            // The other half stays.
            Access::Write if half.is_some() => self.tensor(param.element, shape, Role::InOut, half),
            Access::Write => self.tensor(param.element, shape, Role::Out, None),
            Access::Update => self.tensor(param.element, shape, Role::InOut, half),
        };
        self.tensors[chosen].read_last = param.access == Access::Read;
        chosen
    }

    fn call(&mut self, rng: &mut Rng, name: &str, params: &[Param], scalar: bool, turn: bool) {
        let mut taken: Vec<usize> = Vec::new();
        // Results last: what is read may be a result of another call, which this one would overwrite.
        for param in params {
            let shape: Vec<String> = param.shape.iter().map(|size| if turn { turned(size) } else { size.clone() }).collect();
            let tensor = self.bind(rng, param, &shape, &taken);
            taken.push(tensor);
        }
        let mut arguments: Vec<String> = taken.iter().map(|&n| self.tensors[n].argument()).collect();
        if scalar {
            arguments.push("by".to_owned());
        }
        self.calls.push(format!("{name}({});", arguments.join(", ")));
        let mut text = String::from("    {\n");
        let mut passed = Vec::new();
        for (param, &n) in params.iter().zip(&taken) {
            let by = if param.access == Access::Read { "" } else { "mut " };
            let _ = writeln!(text, "        let {by}{} = {};", param.name, self.tensors[n].part());
            passed.push(format!("&{by}{}", param.name));
        }
        let _ = writeln!(text, "        {name}({}, by);", passed.join(", "));
        for (param, &n) in params.iter().zip(&taken) {
            if param.access != Access::Read {
                let _ = writeln!(text, "        {}", self.tensors[n].store(&param.name));
            }
        }
        self.reference += &text;
        self.reference += "    }\n";
    }

    /// The megakernel, and the function that runs it.
    fn finish(mut self, rng: &mut Rng, name: &str, outside: bool, made: &mut Made) {
        for tensor in &mut self.tensors {
            // What nothing reads any more is a result.
            if tensor.role == Role::Out && tensor.read_last && rng.below(3) > 0 {
                tensor.role = Role::Temp;
            }
        }
        let (mut signature, mut body) = (String::new(), String::new());
        for tensor in &self.tensors {
            let shape = format!("<{}, {}>", tensor.element, tensor.whole().join(", "));
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
            "\npub fn {name}(setup: &Setup) {{\n    let [m, n, k, v] = setup.sizes;\n    let by = 2.0;\n    let _ = (m, n, k, v);\n"
        );
        let _ = writeln!(text, "    let mut numbers = Numbers::new();");
        for tensor in &self.tensors {
            let (name, extents) = (&tensor.name, tensor.extents());
            let (by, how) = match (tensor.role, tensor.element) {
                (Role::In, "u32") => ("", format!("numbers.indices({extents})")),
                (Role::In, _) => ("", format!("numbers.matrix({extents})")),
                (Role::InOut, _) => ("mut ", format!("numbers.matrix({extents})")),
                _ => ("mut ", format!("Matrix::nothing({extents})")),
            };
            let _ = writeln!(text, "    let {by}{name} = {how};");
            if tensor.role == Role::InOut {
                let _ = writeln!(text, "    let {name}_before = {name}.clone();");
            }
        }
        text += &self.reference;
        // A tensor is named in the megakernel's shapes or not at all.
        let dims: Vec<String> = ["M", "N", "K", "V"]
            .into_iter()
            .filter(|dim| signature.contains(dim))
            .map(|dim| format!("{dim}: {} as u64", dim.to_lowercase()))
            .collect();
        let _ = writeln!(text, "    let dims = kernels::{name}::Dims {{ {} }};", dims.join(", "));
        let _ = writeln!(text, "    setup.each_plan(|options| kernels::{name}::plan_with(&setup.device, dims, options), |plan, what| {{");
        let mut passed = vec!["by".to_owned()];
        let mut compared = String::new();
        for tensor in self.tensors.iter().filter(|tensor| tensor.role != Role::Temp) {
            let (name, rank) = (&tensor.name, tensor.shape.len());
            let (by, from) = match tensor.role {
                Role::In => ("", name.clone()),
                Role::InOut => ("mut ", format!("{name}_before")),
                _ => ("mut ", format!("Matrix::nothing({})", tensor.extents())),
            };
            let _ = writeln!(text, "        let {by}{name}_there = {from}.upload::<{}>(&setup.device, {rank});", tensor.element);
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
    for number in 0..CALLS {
        // Each operation in turn, so that a few seeds have all of them.
        let operation = Operation::ALL[(seed as usize * CALLS + number) % Operation::ALL.len()];
        let layout = rng.pick(operation.layouts());
        let count = rng.below(3);
        let mut body = Body::new(rng, format!("{name}_{number}"), layout);
        assert!(body.one(operation), "there is room for the first");
        body.operations(count);
        made.kernels += &format!("\n{}", body.task());
        made.checks += &format!("\n{}", body.function());
        made.right += 1;
        let (task, params, scalar) = (body.name.clone(), body.params.clone(), body.scalar);
        // Some are called twice, on other tensors.
        for _ in 0..1 + rng.below(2) {
            let turn = rng.one_of(3);
            program.call(rng, &task, &params, scalar, turn);
        }
    }
    program.finish(rng, name, false, made);
}

/// A megakernel of a body that reads beside its region.
pub fn outside(rng: &mut Rng, name: &str, made: &mut Made) {
    let layout = Body::any_layout(rng);
    let mut body = Body::new(rng, format!("{name}_task"), layout);
    let [rows, cols] = body.tile;
    let halo = body.rng.one_of(2).then(|| body.any_halo());
    let input = body.new_input(halo.unwrap_or(Kind::Main));
    let own = body.new_input(Kind::Main);
    let [before, after, left, right] = if let Kind::Halo(halo) = input.kind { halo.map(i64::from) } else { [0; 4] };
    // Beyond the margin on one side of an axis that the grid has.
    let along_rows = match layout {
        super::body::Layout::Elements => body.rng.one_of(2),
        super::body::Layout::Rows => true,
        super::body::Layout::Columns => false,
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
    let y = body.params[result.of].name.clone();
    body.reference.push(format!("each({y}, |_, r, c| {});", fill(formula, &[expected, format!("{}.at(r, c)", own.tensor)])));
    let text = fill(formula, &[read, "b.at(r, c)".to_owned()]);
    body.operation(format!("cta.generate(({}, {}), {y}, |(a, b), r, c| {text})", input.name, own.name), Some(&result));
    made.kernels += &format!("\n{}", body.task());
    made.checks += &format!("\n{}", body.function());
    made.outside += 1;
    let (task, params) = (body.name.clone(), body.params.clone());
    let mut program = Program::default();
    program.call(rng, &task, &params, false, false);
    program.finish(rng, name, true, made);
}
