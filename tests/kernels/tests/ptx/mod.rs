//! PTX as a graph of statements, and what must hold on every path through it. Which rules there are does not belong here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use maco_build::ptx::module::{Function, Module, Statement};

/// One entry of the embedded device code.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The megakernel or task set: `product` of `maco_product_15a7d8663a0b7782`.
    pub name: String,
    /// The whole file that holds it.
    pub text: String,
}

/// Every entry that the build script left under `out`, whether in one file or in many; none without device code.
pub fn entries(out: &Path) -> BTreeMap<String, Entry> {
    let mut found = BTreeMap::new();
    for file in files(out) {
        let text = fs::read_to_string(&file).expect("PTX is text");
        for function in Module::parse(&text).functions {
            let Some((name, _hash)) = function.name.strip_prefix("maco_").and_then(|name| name.rsplit_once('_')) else { continue };
            let entry = Entry { name: name.to_owned(), text: only(&text, function.name) };
            found.insert(function.name.to_owned(), entry);
        }
    }
    found
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => path.extension().is_some_and(|end| end == "ptx").then_some(path).into_iter().collect(),
        })
        .collect()
}

/// The head of a module and one entry of it.
fn only(text: &str, entry: &str) -> String {
    const MARK: &str = ".visible .entry ";
    let head = &text[..text.find(MARK).unwrap_or(text.len())];
    let start = text.find(&format!("{MARK}{entry}(")).expect("the parser has seen it");
    let end = text[start + 1..].find(MARK).map_or(text.len(), |end| start + 1 + end);
    format!("{head}{}", &text[start..end])
}

impl Entry {
    pub fn module(&self) -> Module<'_> {
        Module::parse(&self.text)
    }

    /// Directives between the parameters and the body.
    pub fn bounds(&self) -> Vec<&str> {
        let entry = self.text.find(".entry ").map_or("", |at| &self.text[at..]);
        let head = entry.split_once('{').map_or("", |(head, _)| head);
        head.lines()
            .map(str::trim)
            .filter(|line| line.starts_with(".max") || line.starts_with(".min") || line.starts_with(".req"))
            .collect()
    }
}

/// Statements, and which may come next.
pub struct Flow<'a> {
    pub statements: &'a [Statement<'a>],
    next: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
}

/// Which way a path goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Forward,
    Backward,
}

impl<'a> Flow<'a> {
    pub fn new(function: &'a Function<'a>) -> Flow<'a> {
        let statements = &function.body[..];
        let labels: BTreeMap<&str, usize> =
            statements.iter().enumerate().filter_map(|(n, statement)| Some((statement.label()?, n))).collect();
        let at = |label: &str| *labels.get(label).unwrap_or_else(|| panic!("no label {label} in {}", function.name));
        let mut next = vec![Vec::new(); statements.len()];
        for (n, statement) in statements.iter().enumerate() {
            let after = (n + 1 < statements.len()).then_some(n + 1);
            next[n] = match (statement.opcode(), statement.branch()) {
                ("ret" | "exit" | "trap", _) => vec![],
                // LLVM writes `bra.uni` where nothing decides.
                ("bra.uni", Some(label)) => vec![at(label)],
                (_, Some(label)) => [Some(at(label)), after].into_iter().flatten().collect(),
                ("brx.idx", _) => {
                    let table = statement.text.rsplit_once(',').map_or("", |(_, table)| table.trim());
                    targets(statements, at(table)).into_iter().map(at).collect()
                }
                _ => after.into_iter().collect(),
            };
        }
        let mut before = vec![Vec::new(); statements.len()];
        for (n, next) in next.iter().enumerate() {
            next.iter().for_each(|&next| before[next].push(n));
        }
        Flow { statements, next, before }
    }

    /// Indices of the statements that `is` accepts.
    pub fn all(&self, is: impl Fn(&Statement<'_>) -> bool) -> Vec<usize> {
        (0..self.statements.len()).filter(|&n| is(&self.statements[n])).collect()
    }

    /// Statements that can come after `from` (before it), up to and with those that `end` accepts.
    pub fn reach(&self, from: usize, way: Way, end: impl Fn(&Statement<'_>) -> bool) -> Vec<usize> {
        let edges = if way == Way::Forward { &self.next } else { &self.before };
        let mut seen = vec![false; self.statements.len()];
        let mut open = edges[from].clone();
        while let Some(n) = open.pop() {
            if !std::mem::replace(&mut seen[n], true) && !end(&self.statements[n]) {
                open.extend(&edges[n]);
            }
        }
        (0..seen.len()).filter(|&n| seen[n]).collect()
    }

    /// Whether every path from `from` meets `hit` before it meets `stop` or the end (the beginning) of the function.
    pub fn meets(&self, from: usize, way: Way, hit: impl Fn(&Statement<'_>) -> bool, stop: impl Fn(&Statement<'_>) -> bool) -> bool {
        let reached = self.reach(from, way, &hit);
        // Debugging labels after a jump have nothing before them, and never run.
        let edge = |n: usize| if way == Way::Forward { self.next[n].is_empty() } else { n == 0 };
        reached.iter().all(|&n| hit(&self.statements[n]) || (!stop(&self.statements[n]) && !edge(n)))
    }
}

/// The labels of a table of branch targets, which LLVM writes over several lines.
fn targets<'a>(statements: &'a [Statement<'a>], table: usize) -> Vec<&'a str> {
    let lines =
        statements[table + 1..].iter().take_while(|statement| statement.text.starts_with(['.', '$']) && statement.label().is_none());
    lines
        .flat_map(|line| line.text.trim_start_matches(".branchtargets").split(','))
        .map(str::trim)
        .filter(|label| !label.is_empty())
        .collect()
}
