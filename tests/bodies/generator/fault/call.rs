//! Right bodies in wrong calls.

use std::fmt::Write as _;

use super::super::Rng;
use super::super::body::{Body, WRONG};
use super::super::element::Element;
use super::super::signature::{Access, Kind, Param};
use super::Fault::{self, *};

/// A megakernel around one call.
struct Call {
    params: Vec<Param>,
    arguments: Vec<String>,
    /// What each parameter is of, `In<f32, M, N>`.
    declared: Vec<String>,
    /// Statements before the call.
    first: String,
    /// What stands around it.
    around: [String; 2],
    /// The line that is wrong; the call, if nobody says.
    wrong: Option<String>,
}

impl Call {
    /// A parameter of the whole region with this access.
    fn main(&self, access: Access) -> Option<usize> {
        self.params.iter().position(|param| param.kind == Kind::Main && param.access == access)
    }

    fn written(&self) -> Option<usize> {
        self.main(Access::Write).or_else(|| self.main(Access::Update))
    }

    fn of(&self, n: usize, role: &str, shape: &str) -> String {
        format!("{role}<{}, {shape}>", self.params[n].element.name())
    }

    /// Breaks the rule; nothing if there is no parameter for it.
    fn break_rule(&mut self, rng: &mut Rng, fault: Fault) -> Option<()> {
        match fault {
            Aliased => {
                let (x, y) = (self.main(Access::Read)?, self.written()?);
                self.arguments[x] = self.arguments[y].clone();
                self.declared[x] = self.of(x, "In", "M, N");
            }
            Overlaps => {
                let (x, y) = (self.main(Access::Read)?, self.written()?);
                let (axis, size) = rng.pick(&[(0, "M"), (1, "N")]);
                let both = [format!(".slice({axis}, 1..{size} + 1)"), format!(".slice({axis}, 0..{size})")];
                let name = self.arguments[y].clone();
                let late = rng.below(2);
                self.arguments[x] = format!("{name}{}", both[late]);
                self.arguments[y] = format!("{name}{}", both[1 - late]);
                self.declared[y] = self.of(y, "InOut", if axis == 0 { "{ 2 * M }, N" } else { "M, { 2 * N }" });
            }
            ReadsNothing => {
                let of = if rng.one_of(2) { self.main(Access::Update) } else { None };
                let x = of.or_else(|| self.main(Access::Read))?;
                // An `Out` that nothing writes breaks another rule.
                if self.params[x].access == Access::Read {
                    self.first = format!("    let nothing = temp::<{}, M, N>();\n", self.params[x].element.name());
                    self.arguments[x] = "nothing".to_owned();
                } else {
                    self.declared[x] = self.of(x, "Out", "M, N");
                }
            }
            ReadByNobody => {
                let y = self.main(Access::Write)?;
                let line = format!("    let nothing = temp::<{}, M, N>();", self.params[y].element.name());
                self.first = format!("{line}\n");
                self.arguments[y] = "nothing".to_owned();
                self.wrong = Some(line);
            }
            OtherRank => {
                let x = self.main(Access::Read)?;
                self.declared[x] = self.of(x, "In", rng.pick(&["N", "2, M, N"]));
            }
            Shape => {
                let x = self.main(Access::Read)?;
                if self.params.iter().filter(|param| param.shape == ["M", "N"]).count() < 2 {
                    return None;
                }
                self.declared[x] = self.of(x, "In", rng.pick(&["M, Q", "Q, N", "N, M", "M, { 2 * N }"]));
            }
            NotEqual => {}
            OtherTensor => {
                let x = self.main(Access::Read).or_else(|| self.written())?;
                let other = rng.pick(&Element::NUMBERS.map(|of| if of == self.params[x].element { Element::U32 } else { of }));
                let role = if self.params[x].access == Access::Read { "In" } else { "InOut" };
                self.declared[x] = format!("{role}<{}, M, N>", other.name());
            }
            Arguments => {
                if rng.one_of(2) {
                    self.arguments.pop();
                } else {
                    self.arguments.push("by".to_owned());
                }
            }
            NotANumber => {
                let last = self.arguments.len() - 1;
                self.arguments[last] = self.arguments[rng.below(last)].clone();
            }
            WritesIn => {
                let y = self.written()?;
                self.declared[y] = self.of(y, "In", "M, N");
            }
            UnknownDimension => {
                let x = self.main(Access::Read)?;
                let line = format!("    let unknown = temp::<{}, M, Q>();", self.params[x].element.name());
                self.first = format!("{line}\n");
                self.arguments[x] = "unknown".to_owned();
                self.wrong = Some(line);
            }
            SliceOutside => {
                let x = self.main(Access::Read)?;
                let view = rng.pick(&[".slice(0, 1..M + 1)", ".slice(1, 1..N + 1)", ".slice(2, 0..M)", ".swap(0, 2)", ".slice(0, 8..4)"]);
                self.arguments[x].push_str(view);
            }
            Condition => {
                let condition = rng.pick(&["M > 64", "by == 1.0", "N > M"]);
                self.around = [format!("    if {condition} {{\n"), "    }\n".to_owned()];
                self.wrong = Some(format!("    if {condition} {{"));
            }
            other => unreachable!("{other:?} is in no call"),
        }
        Some(())
    }
}

/// A right body in a wrong call.
pub fn call(rng: &mut Rng, fault: Fault) -> Option<String> {
    let layout = Body::any_layout(rng);
    let count = 1 + rng.below(3);
    let mut body = Body::new(rng, "task".to_owned(), layout);
    body.only = Some(body.rng.pick(&Element::FLOATS));
    body.equal = fault == NotEqual;
    body.operations(count);
    if fault == NotANumber {
        body.scalar = true;
    }
    let (mut task, params, scalar) = (body.task(), body.params, body.scalar);
    if fault == NotEqual {
        // One tensor of both, to say which is which.
        let both = |param: &Param| param.shape == ["M", "N"] || param.shape == ["N", "M"];
        if !task.contains("where") || !params.iter().all(|param| both(param) || param.shape.len() == 1) {
            return None;
        }
    }
    let arguments = params.iter().map(|param| param.name.clone()).chain(scalar.then(|| "by".to_owned())).collect();
    let declared = params
        .iter()
        .map(|param| {
            let role = if param.access == Access::Read { "In" } else { "InOut" };
            format!("{role}<{}, {}>", param.element.name(), param.dimensions().join(", "))
        })
        .collect();
    let mut call = Call { params, arguments, declared, first: String::new(), around: Default::default(), wrong: None };
    call.break_rule(rng, fault)?;
    task.push_str("\n#[maco::megakernel]\npub fn kernel(\n    by: f32,\n");
    let mut text = task;
    for (param, of) in call.params.iter().zip(&call.declared) {
        let _ = writeln!(text, "    {}: {of},", param.name);
    }
    let [before, after] = &call.around;
    let _ = writeln!(text, ") {{\n{}{before}    task({});\n{after}}}", call.first, call.arguments.join(", "));
    let wrong = call.wrong.unwrap_or_else(|| format!("    task({});", call.arguments.join(", ")));
    Some(text.replacen(&format!("\n{wrong}\n"), &format!("\n{wrong}{WRONG}\n"), 1))
}
