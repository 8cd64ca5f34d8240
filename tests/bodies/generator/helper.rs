//! Operations of a body that move into a helper function, which takes `cta` and tiles.

use std::fmt::Write as _;
use std::ops::Range;

use super::Rng;
use super::body::{Body, WRONG};
use super::signature::{Access, Param};

/// A parameter of a helper, and what it is called with.
struct Given {
    /// `#[read(i, ..)] x0: Tensor<f32, M, N>`
    text: String,
    name: String,
    argument: String,
    /// The parameter of the task that it is of.
    of: usize,
    /// The same, if the helper returns it as written.
    returned: Option<usize>,
}

/// The kind of an operation's helper, by the text of its line.
fn kind(line: &str) -> Option<&'static str> {
    let (before, call) = line.split_once("cta.")?;
    if !before.is_empty() && !before.starts_with("let v") {
        return None;
    }
    Some(match call.split_once('(')?.0 {
        "zip" | "map" | "rows" => "Rows",
        "generate" | "blocks" | "sums" | "scatter" => "Tiles",
        "columns" | "transpose" => "Columns",
        "take" | "index_copy" | "index_add" => "Indexed",
        "gemv" | "gemv_with" => "Gemv",
        _ => return None,
    })
}

/// `v0` of `let v0 = ..`.
fn defined(line: &str) -> Option<&str> {
    line.strip_prefix("let ")?.split_once(" = ").map(|(name, _)| name)
}

impl Body<'_> {
    /// Moves some operations of a right body into a helper.
    pub fn outline(&mut self, rng: &mut Rng) {
        if self.lines[0].starts_with("let mut acc") {
            self.cta = "&mut Cta<Gemm>";
            return self.move_out(rng, 0..self.lines.len(), "Gemm");
        }
        let first = rng.below(self.lines.len());
        let Some(kind_of_all) = kind(&self.lines[first]) else { return };
        if kind_of_all == "Gemv" {
            self.cta = "Cta<Gemv>";
        }
        // A helper has operations of one kind.
        let mut end = first + 1;
        while end < self.lines.len() && kind(&self.lines[end]) == Some(kind_of_all) && !rng.one_of(3) {
            end += 1;
        }
        self.move_out(rng, first..end, kind_of_all);
    }

    /// Moves the last operation, which breaks a rule, into a helper; nothing if it is more than an operation.
    pub fn outline_wrong(&mut self, rng: &mut Rng) {
        let last = self.lines.len() - 1;
        if let Some(kind) = kind(&self.lines[last]) {
            self.move_out(rng, last..last + 1, kind);
        }
    }

    fn move_out(&mut self, rng: &mut Rng, range: Range<usize>, kind: &str) {
        let mut lines: Vec<String> = self.lines[range.clone()].to_vec();
        let is_wrong = lines.iter().any(|line| line.ends_with(WRONG));
        let mut given = self.given(&lines);
        for n in (1..given.len()).rev() {
            given.swap(n, rng.below(n + 1));
        }
        // What holds each result in the end.
        let mut values: Vec<(String, usize)> = Vec::new();
        for line in &mut lines {
            if let Some(value) = defined(line).and_then(|name| self.values.iter().find(|value| value.name == name)) {
                values.push((value.name.clone(), value.of));
            } else if line.starts_with("cta.") && !is_wrong {
                let of = given.iter().find_map(|given| given.returned.filter(|_| words(line).any(|word| word == given.name)));
                if let Some(of) = of {
                    let name = self.fresh('v');
                    *line = format!("let {name} = {line}");
                    values.push((name, of));
                }
            }
        }
        let results: Vec<usize> = given.iter().filter_map(|given| given.returned).collect();
        let holds = |of: usize| values.iter().rev().find(|value| value.1 == of).map(|(name, _)| name.clone()).unwrap_or_default();
        let returned = match results.as_slice() {
            [] => String::new(),
            // Its type is another mistake.
            _ if is_wrong => "unreachable!();".to_owned(),
            [one] => holds(*one),
            all => format!("({})", all.iter().map(|of| holds(*of)).collect::<Vec<_>>().join(", ")),
        };
        let by = lines.iter().any(|line| words(line).any(|word| word == "by"));
        let cta = if kind == "Gemv" { "Cta" } else { "&mut Cta" };
        let name = format!("{}_helper", self.name);
        let mut text = format!("#[maco::helper({kind})]\nfn {name}(\n    cta: {cta},\n");
        for given in &given {
            let _ = writeln!(text, "    {},", given.text);
        }
        if by {
            text.push_str("    by: f32,\n");
        }
        text.push_str(") {\n");
        for line in lines.iter().chain([&returned]).filter(|line| !line.is_empty()) {
            let _ = writeln!(text, "    {line}");
        }
        self.helper = text + "}\n\n";

        let mut arguments = vec!["cta".to_owned()];
        arguments.extend(given.iter().map(|given| given.argument.clone()));
        arguments.extend(by.then(|| "by".to_owned()));
        let call = format!("{name}({});", arguments.join(", "));
        let mut calls = vec![match returned.as_str() {
            "" | "unreachable!();" => call,
            returned => format!("let {returned} = {call}"),
        }];
        // What the body has called otherwise, and what a helper does not return since the body has it.
        for (value, of) in &values {
            let held = match given.iter().find(|given| given.argument != self.params[*of].name && given.of == *of) {
                _ if results.contains(of) => holds(*of),
                Some(written) => written.argument.clone(),
                None => self.params[*of].name.clone(),
            };
            if *value != held {
                calls.push(format!("let {value} = {held};"));
            }
        }
        self.lines.splice(range, calls);
    }

    /// The tiles that lines mention, and do not make.
    fn given(&self, lines: &[String]) -> Vec<Given> {
        let mut given: Vec<Given> = Vec::new();
        let own: Vec<&str> = lines.iter().filter_map(|line| defined(line)).collect();
        for word in lines.iter().flat_map(|line| words(line)) {
            if own.contains(&word) || given.iter().any(|given| given.name == word) {
                continue;
            }
            let parameter = self.params.iter().position(|param| param.name == word);
            let Some(of) = parameter.or_else(|| self.values.iter().find(|value| value.name == word).map(|value| value.of)) else {
                continue;
            };
            let param = &self.params[of];
            let is_value = parameter.is_none();
            let attribute = if is_value && param.access == Access::Write { "written" } else { param.access.attribute() };
            // What is updated goes by the parameter: a helper has no attribute for what an operation returned of it.
            let argument = if is_value && param.access != Access::Write { &param.name } else { word };
            let returned = (!is_value && param.access == Access::Write).then_some(of);
            let text = self.of_helper(param, attribute, word);
            given.push(Given { text, name: word.to_owned(), argument: argument.to_owned(), of, returned });
        }
        given
    }

    /// A parameter of a helper, whose dimensions are names.
    fn of_helper(&self, param: &Param, attribute: &str, name: &str) -> String {
        let dims: Vec<String> = param
            .dimensions()
            .into_iter()
            .map(|size| match size.as_str() {
                "N" if self.equal => "M".to_owned(),
                _ => size.chars().filter(char::is_ascii_alphanumeric).collect(),
            })
            .collect();
        let plane = if param.plane { "b, " } else { "" };
        format!("#[{attribute}({plane}{})] {name}: Tensor<{}, {}>", param.region, param.element.name(), dims.join(", "))
    }
}

/// Identifiers of a line.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}
