//! Bodies that multiply, on the tensor cores.

use super::body::{Body, NAMES, fill};
use super::element::Element;
use super::operations::{beside, pattern, tuple};
use super::signature::{Access, Input, Kind};

/// An operand of a GEMM: rows of the result, or its columns, and what is contracted.
struct Operand {
    name: String,
    /// Its second index is the grid's axis.
    is_across: bool,
}

impl Operand {
    /// Element (`kept`, `k`) in a reference.
    fn at(&self, kept: &str) -> String {
        if self.is_across { format!("{}.at(k, {kept})", self.name) } else { format!("{}.at({kept}, k)", self.name) }
    }
}

impl Body<'_> {
    fn operand(&mut self, axis: &str, size: &str, element: Element, is_across: bool) -> Operand {
        let (region, shape) = if is_across { (format!(".., {axis}"), ["K", size]) } else { (format!("{axis}, .."), [size, "K"]) };
        Operand { name: self.known(Kind::Operand, &region, element, &shape), is_across }
    }

    fn gemm_result(&mut self, element: Element) -> String {
        let access = if self.rng.one_of(4) { Access::Update } else { Access::Write };
        let y = self.param(access, Kind::GemmResult, "i, j".to_owned(), element, &["M", "N"]);
        self.params[y].name.clone()
    }

    /// The sum of a GEMM in a reference.
    fn sum(x: &Operand, w: &Operand) -> String {
        let steps = if x.is_across { format!("{}.rows", x.name) } else { format!("{}.cols", x.name) };
        format!("(0..{steps}).map(|k| {} * {}).sum::<f32>()", x.at("r"), w.at("c"))
    }

    /// GEMM: operands along K or across it, results of any element.
    pub fn gemm(&mut self) -> bool {
        self.tile = [self.rng.pick(&[64, 128]), self.rng.pick(&[128, 128, 256])];
        let (element, of_result) = (self.float(), self.float());
        let (across, down) = (self.rng.one_of(2), self.rng.one_of(2));
        let (x, w) = (self.operand("i", "M", element, across), self.operand("j", "N", element, down));
        let y = self.gemm_result(of_result);
        self.large = true;
        self.each(&y, "{0}", &[Self::sum(&x, &w)]);
        let (x, w) = (x.name, w.name);
        self.lines.push("let mut acc = cta.accumulator();".to_owned());
        self.lines.push(format!("for k in cta.steps({x}, {w}) {{"));
        self.lines.push(format!("    cta.mma(&mut acc, {x}.tile(k), {w}.tile(k));"));
        self.lines.push("}".to_owned());
        self.lines.push(format!("cta.store(acc, {y});"));
        true
    }

    /// Two GEMMs of one operand, and one result.
    pub fn pair(&mut self) -> bool {
        self.tile = self.rng.pick(&[[64, 128], [128, 128], [64, 256]]);
        let (element, of_result) = (self.float(), self.float());
        let (across, down) = (self.rng.one_of(2), self.rng.one_of(2));
        let x = self.operand("i", "M", element, across);
        let planes = self.params[0].plane;
        let [w, u] = [(); 2].map(|()| {
            let operand = self.operand("j", "N", element, down);
            // They have one type.
            if let Some(param) = self.params.last_mut() {
                param.plane = planes;
            }
            operand
        });
        let y = self.gemm_result(of_result);
        let formula = self.formula(2);
        self.each(&y, &formula, &[Self::sum(&x, &w), Self::sum(&x, &u)]);
        let text = fill(&formula, &["a".to_owned(), "b".to_owned()]);
        let (x, w, u) = (x.name, w.name, u.name);
        self.lines.push("let mut acc = cta.accumulator_pair();".to_owned());
        self.lines.push(format!("for k in cta.steps({x}, {w}) {{"));
        self.lines.push(format!("    cta.mma_pair(&mut acc, {x}.tile(k), ({w}.tile(k), {u}.tile(k)));"));
        self.lines.push("}".to_owned());
        self.lines.push(format!("cta.store_pair(acc, {y}, |a, b| {text});"));
        true
    }

    /// GEMV, by itself or with inputs beside its result.
    pub fn gemv(&mut self) -> bool {
        self.tile = [self.rng.pick(&[8, 16]), self.rng.pick(&[8, 16, 32])];
        let element = self.only.unwrap_or_else(|| self.one_of(&[Element::Bf16, Element::F16]));
        let (x, w) = (self.operand("i", "M", element, false), self.operand("j", "N", element, false));
        let y = self.gemm_result(element);
        let sum = Self::sum(&x, &w);
        let count = self.rng.pick(&[0, 0, 1, 2]);
        if count == 0 {
            self.large = true;
            self.each(&y, "{0}", &[sum]);
            self.lines.push(format!("cta.gemv({}, {}, {y});", x.name, w.name));
            return true;
        }
        let inputs: Vec<Input> = (0..count)
            .map(|_| {
                let kind = self.rng.pick(&[Kind::Main, Kind::Main, Kind::Vector]);
                self.new_input(kind)
            })
            .collect();
        let formula = self.formula(1 + count);
        let atoms: Vec<String> = [sum].into_iter().chain(inputs.iter().map(beside)).collect();
        self.each(&y, &formula, &atoms);
        let values = NAMES.iter().zip(&inputs).map(|(name, input)| input.element.value(name));
        let text = fill(&formula, &["sum".to_owned()].into_iter().chain(values).collect::<Vec<_>>());
        let names = tuple(&inputs.iter().map(|input| input.name.clone()).collect::<Vec<_>>());
        self.lines.push(format!("cta.gemv_with({}, {}, {names}, {y}, |sum, {}| {text});", x.name, w.name, pattern(count)));
        true
    }
}
