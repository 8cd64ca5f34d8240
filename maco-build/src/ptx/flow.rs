//! A function as a graph of statements: what may run after what, and which register comes from which. What must hold does not belong here.

use std::collections::{BTreeMap, BTreeSet};

use super::module::{Function, Statement};

/// Statements, and which may come next.
pub struct Flow<'a> {
    /// Those of the function, in its order.
    pub statements: &'a [Statement<'a>],
    next: Vec<Vec<usize>>,
    before: Vec<Vec<usize>>,
    /// The statements that write a register.
    writes: BTreeMap<&'a str, Vec<usize>>,
}

/// Which way a path goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it runs.
    Forward,
    /// Against it.
    Backward,
}

impl<'a> Flow<'a> {
    /// The graph of a function.
    pub fn new(function: &'a Function<'a>) -> Flow<'a> {
        let statements = &function.body[..];
        let labels: BTreeMap<&str, usize> =
            statements.iter().enumerate().filter_map(|(n, statement)| Some((statement.label()?, n))).collect();
        let at = |label: &str| labels.get(label).copied();
        let mut next = vec![Vec::new(); statements.len()];
        let mut writes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (n, statement) in statements.iter().enumerate() {
            let after = (n + 1 < statements.len()).then_some(n + 1);
            next[n] = match (statement.opcode(), statement.branch()) {
                ("ret" | "exit" | "trap", _) => vec![],
                _ if statement.last => vec![],
                // LLVM writes `bra.uni` where nothing decides.
                ("bra.uni", Some(label)) => at(label).into_iter().collect(),
                (_, Some(label)) => [at(label), after].into_iter().flatten().collect(),
                ("brx.idx", _) => {
                    let table = statement.text.rsplit_once(',').and_then(|(_, table)| at(table.trim()));
                    table.into_iter().flat_map(|table| targets(statements, table)).filter_map(at).collect()
                }
                _ => after.into_iter().collect(),
            };
            if let Some(register) = result(statement) {
                writes.entry(register).or_default().push(n);
            }
        }
        let mut before = vec![Vec::new(); statements.len()];
        for (n, next) in next.iter().enumerate() {
            next.iter().for_each(|&next| before[next].push(n));
        }
        Flow { statements, next, before, writes }
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
        let mut reached = Vec::new();
        while let Some(n) = open.pop() {
            if !std::mem::replace(&mut seen[n], true) {
                reached.push(n);
                if !end(&self.statements[n]) {
                    open.extend(&edges[n]);
                }
            }
        }
        reached
    }

    /// Whether every path from `from` meets `hit` before it meets `stop` or the end (the beginning) of the function. A trap ends everything.
    pub fn meets(&self, from: usize, way: Way, hit: impl Fn(&Statement<'_>) -> bool, stop: impl Fn(&Statement<'_>) -> bool) -> bool {
        let reached = self.reach(from, way, &hit);
        // Debugging labels after a jump have nothing before them, and never run.
        let ended = |n: usize| self.next[n].is_empty() && !self.statements[n].last && self.statements[n].opcode() != "trap";
        let edge = |n: usize| if way == Way::Forward { ended(n) } else { n == 0 };
        reached.iter().all(|&n| hit(&self.statements[n]) || (!stop(&self.statements[n]) && !edge(n)))
    }

    /// Whether some path from `from` meets `hit` before it meets `stop`.
    pub fn may_meet(&self, from: usize, way: Way, hit: impl Fn(&Statement<'_>) -> bool, stop: impl Fn(&Statement<'_>) -> bool) -> bool {
        self.reach(from, way, stop).into_iter().any(|n| hit(&self.statements[n]))
    }

    /// What a register is computed from, as text: two that are computed alike hold the same. Where that depends on the path, its name.
    pub fn value(&self, register: &'a str) -> String {
        self.value_to(register, 8)
    }

    fn value_to(&self, operand: &'a str, depth: u32) -> String {
        const PURE: [&str; 6] = ["add.", "mul.", "mad.", "shl.", "cvt", "ld.param"];
        let Some(&[n]) = self.writes.get(operand).map(Vec::as_slice) else { return operand.to_owned() };
        let statement = &self.statements[n];
        // Fields of the launch do not change while it runs; LLVM reads them by `ld.global`.
        let pure = PURE.iter().any(|start| statement.opcode().starts_with(start)) || statement.opcode().starts_with("ld.global.b64");
        if depth == 0 || !pure {
            return operand.to_owned();
        }
        let operands = operands(statement.text).skip(1).map(|operand| self.value_to(operand, depth - 1));
        format!("{}({})", statement.opcode(), operands.collect::<Vec<_>>().join(","))
    }

    /// The registers that a register is computed from, on any path; itself too. What is loaded comes from nowhere.
    pub fn sources(&self, register: &'a str) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        let mut open = vec![register];
        while let Some(register) = open.pop() {
            if found.insert(register) {
                let writes = self.writes.get(register).into_iter().flatten().map(|&n| &self.statements[n]);
                let computed = writes.filter(|statement| !statement.opcode().starts_with("ld."));
                open.extend(computed.flat_map(|statement| operands(statement.text).skip(1)).filter(|operand| operand.starts_with('%')));
            }
        }
        found
    }

    /// The numbers that an operand can be at a statement, if it is always one that is written there.
    pub fn constants(&self, at: usize, operand: &'a str) -> Option<BTreeSet<i64>> {
        if let Ok(number) = operand.parse() {
            return Some(BTreeSet::from([number]));
        }
        let defines = |statement: &Statement<'_>| result(statement) == Some(operand);
        let number = |statement: &Statement<'a>| {
            statement.opcode().starts_with("mov.").then(|| operands(statement.text).nth(1)?.parse().ok()).flatten()
        };
        let reached = self.reach(at, Way::Backward, defines);
        reached.into_iter().map(|n| &self.statements[n]).filter(|statement| defines(statement)).map(number).collect()
    }
}

/// The register that a statement writes, if it is one and not a vector.
pub fn result<'a>(statement: &Statement<'a>) -> Option<&'a str> {
    let written = !["st.", "red.", "bra", "@"].iter().any(|other| statement.text.starts_with(other));
    operands(statement.text).next().filter(|operand| written && operand.starts_with('%'))
}

/// The register in the `n`-th pair of brackets.
pub fn address<'a>(statement: &Statement<'a>, n: usize) -> Option<&'a str> {
    let inside = statement.text.split('[').nth(n + 1)?;
    inside.split([']', ',', '+']).next().map(str::trim)
}

/// Operands of an instruction, without brackets: vectors and offsets count as several.
pub fn operands(text: &str) -> impl Iterator<Item = &str> {
    let rest = text.split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
    rest.split([',', '[', ']', '{', '}', '+']).map(str::trim).filter(|operand| !operand.is_empty())
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
