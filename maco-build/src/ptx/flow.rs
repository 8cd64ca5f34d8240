//! A function as a graph of statements: what may run after what, and which register comes from which. What must hold does not belong here.

use std::collections::{BTreeMap, BTreeSet};

use maco_ptx::{Function, Statement};

/// How moves begin that [`super::calls`] writes for arguments and results.
pub const ARGUMENT: &str = "mov.param";

/// Statements, and which may come next.
pub struct Flow<'a> {
    /// Those of the function, in its order.
    pub statements: &'a [Statement<'a>],
    next: Edges,
    before: Edges,
    /// The statements that write a register.
    writes: BTreeMap<&'a str, Vec<usize>>,
}

/// Neighbours of each statement, all in one piece: rules walk hundreds of thousands of statements again and again.
struct Edges {
    /// Where those of a statement begin; they end where the next one's do.
    starts: Vec<u32>,
    all: Vec<u32>,
}

impl Edges {
    fn new(of: &[Vec<usize>]) -> Edges {
        let mut edges = Edges { starts: vec![0], all: Vec::new() };
        for own in of {
            edges.all.extend(own.iter().map(|&n| n as u32));
            edges.starts.push(edges.all.len() as u32);
        }
        edges
    }

    fn of(&self, n: usize) -> &[u32] {
        &self.all[self.starts[n] as usize..self.starts[n + 1] as usize]
    }

    fn at(&self, n: usize) -> impl Iterator<Item = usize> {
        self.of(n).iter().map(|&n| n as usize)
    }
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
                ("ret" | "exit" | "trap", _) if statement.guard.is_none() => vec![],
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
        Flow { statements, next: Edges::new(&next), before: Edges::new(&before), writes }
    }

    /// Indices of the statements that `is` accepts.
    pub fn all(&self, is: impl Fn(&Statement<'_>) -> bool) -> Vec<usize> {
        (0..self.statements.len()).filter(|&n| is(&self.statements[n])).collect()
    }

    /// Statements that can come after `from` (before it), up to and with those that `end` accepts.
    pub fn reach(&self, from: usize, way: Way, end: impl Fn(&Statement<'_>) -> bool) -> Vec<usize> {
        let mut reached = Vec::new();
        self.reaches(from, way, end, |n| {
            reached.push(n);
            false
        });
        reached
    }

    /// Whether `found` accepts one of the statements of [`Flow::reach`]; it is asked about none behind that.
    pub fn reaches(&self, from: usize, way: Way, end: impl Fn(&Statement<'_>) -> bool, mut found: impl FnMut(usize) -> bool) -> bool {
        let edges = if way == Way::Forward { &self.next } else { &self.before };
        let mut seen = vec![false; self.statements.len()];
        let mut open: Vec<u32> = edges.of(from).to_vec();
        while let Some(n) = open.pop() {
            let n = n as usize;
            if !std::mem::replace(&mut seen[n], true) {
                if found(n) {
                    return true;
                }
                if !end(&self.statements[n]) {
                    open.extend(edges.of(n));
                }
            }
        }
        false
    }

    /// Whether every path from `from` meets `hit` before it meets `stop` or the end (the beginning) of the function. A trap ends everything.
    pub fn meets(&self, from: usize, way: Way, hit: impl Fn(&Statement<'_>) -> bool, stop: impl Fn(&Statement<'_>) -> bool) -> bool {
        // Debugging labels after a jump have nothing before them, and never run.
        let edge = |n: usize| if way == Way::Forward { self.ends(n) } else { n == 0 };
        let begins = way == Way::Backward && from == 0;
        !begins && !self.reaches(from, way, &hit, |n| !hit(&self.statements[n]) && (stop(&self.statements[n]) || edge(n)))
    }

    /// Whether the function ends there; a trap ends everything.
    fn ends(&self, n: usize) -> bool {
        let statement = &self.statements[n];
        (self.next.of(n).is_empty() || matches!(statement.opcode(), "ret" | "exit")) && !statement.last && statement.opcode() != "trap"
    }

    /// [`Flow::meets`] forward, along the paths that can be taken: where numbers that were written on a path decide at a branch, it goes one way only.
    /// Compilers let paths meet that part again at once, by a number that says where they came from.
    pub fn meets_known(&self, from: usize, hit: impl Fn(&Statement<'_>) -> bool, stop: impl Fn(&Statement<'_>) -> bool) -> bool {
        let deciding = self.deciding(from, |statement| hit(statement) || stop(statement));
        let mut open: Vec<(usize, Known<'a>)> = self.next.at(from).map(|n| (n, Known::default())).collect();
        let mut seen: BTreeSet<(usize, Known<'a>)> = open.iter().cloned().collect();
        while let Some((n, mut known)) = open.pop() {
            let statement = &self.statements[n];
            if hit(statement) {
                continue;
            }
            if stop(statement) || self.ends(n) {
                return false;
            }
            let taken = statement.branch().and(statement.guard).and_then(|guard| known.guard(guard));
            let always = |register: &str| self.always(register);
            known.run(statement, always);
            for next in self.next.at(n) {
                // Behind a branch comes what it jumps to, or else the next statement.
                let jumps = next != n + 1;
                let mut known = known.clone();
                known.0.retain(|name, _| deciding.get(&next).is_some_and(|deciding| deciding.contains(name)));
                if taken.is_none_or(|taken| taken == jumps) && seen.insert((next, known.clone())) {
                    open.push((next, known));
                }
            }
        }
        true
    }

    /// The number that a register has wherever it has one.
    fn always(&self, register: &str) -> Option<i64> {
        let Some(&[n]) = self.writes.get(register).map(Vec::as_slice) else { return None };
        let statement = &self.statements[n];
        if statement.guard.is_some() || !statement.opcode().starts_with("mov.") {
            None
        } else {
            operands(statement.text).nth(1)?.parse().ok()
        }
    }

    /// Of the statements between `from` and those that `end` accepts: the registers that decide at a branch behind them, if nothing is written to these before.
    fn deciding(&self, from: usize, end: impl Fn(&Statement<'_>) -> bool) -> BTreeMap<usize, BTreeSet<&'a str>> {
        let region = self.reach(from, Way::Forward, &end);
        let mut deciding: BTreeMap<usize, BTreeSet<&'a str>> = region.iter().map(|&n| (n, BTreeSet::new())).collect();
        let mut open: BTreeSet<usize> = region.iter().copied().collect();
        while let Some(n) = open.pop_last() {
            let statement = &self.statements[n];
            let behind = (!end(statement)).then(|| self.next.at(n)).into_iter().flatten();
            let mut before: BTreeSet<&'a str> = behind.filter_map(|next| deciding.get(&next)).flatten().copied().collect();
            if let Some(result) = result(statement)
                && before.remove(result)
                && Known::makes(statement)
            {
                before.extend(operands(statement.text).skip(1).filter(|operand| operand.starts_with('%')));
            }
            before.extend(statement.branch().and(statement.guard).map(|guard| guard.trim_start_matches('!')));
            if deciding.get(&n) != Some(&before) {
                deciding.insert(n, before);
                open.extend(self.before.at(n).filter(|before| deciding.contains_key(before)));
            }
        }
        deciding
    }

    /// Whether some path from `from` meets `hit` before it meets `stop`.
    pub fn may_meet(&self, from: usize, way: Way, hit: impl Fn(&Statement<'_>) -> bool, stop: impl Fn(&Statement<'_>) -> bool) -> bool {
        self.reaches(from, way, stop, |n| hit(&self.statements[n]))
    }

    /// What a register is computed from, as text: two that are computed alike hold the same. Where that depends on the path, its name.
    pub fn value(&self, register: &'a str) -> String {
        self.value_to(register, 8).unwrap_or_else(|| register.to_owned())
    }

    /// None where it depends on the path.
    fn value_to(&self, operand: &'a str, depth: u32) -> Option<String> {
        const PURE: [&str; 6] = ["add.", "mul.", "mad.", "shl.", "cvt", "ld.param"];
        let n = match self.writes.get(operand).map(Vec::as_slice) {
            None => return Some(operand.to_owned()),
            Some(&[n]) => n,
            Some(_) => return None,
        };
        let statement = &self.statements[n];
        // An argument is what the caller gives.
        if let (true, Some(given)) = (statement.opcode().starts_with(ARGUMENT), operands(statement.text).nth(1)) {
            return self.value_to(given, depth);
        }
        // Fields of the launch do not change while it runs; LLVM reads them by `ld.global`.
        let pure = PURE.iter().any(|start| statement.opcode().starts_with(start)) || statement.opcode().starts_with("ld.global.b64");
        if depth == 0 || !pure {
            return Some(operand.to_owned());
        }
        let operands = operands(statement.text).skip(1).map(|operand| self.value_to(operand, depth - 1));
        Some(format!("{}({})", statement.opcode(), operands.collect::<Option<Vec<_>>>()?.join(",")))
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

/// Numbers that registers have on a path; those that it wrote there.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Known<'a>(BTreeMap<&'a str, i64>);

impl<'a> Known<'a> {
    fn value(&self, operand: &str) -> Option<i64> {
        operand.parse().ok().or_else(|| self.0.get(operand).copied())
    }

    /// Whether a predicate holds.
    fn guard(&self, guard: &str) -> Option<bool> {
        let (name, negated) = guard.strip_prefix('!').map_or((guard, false), |name| (name, true));
        self.value(name).map(|value| (value != 0) != negated)
    }

    /// What is known behind a statement.
    fn run(&mut self, statement: &Statement<'a>, always: impl Fn(&str) -> Option<i64>) {
        let Some(result) = result(statement) else { return };
        let made = if statement.guard.is_some() { None } else { self.made(statement, always) };
        match made {
            Some(value) => self.0.insert(result, value),
            None => self.0.remove(result),
        };
    }

    /// Whether [`Known::made`] can tell what a statement makes.
    fn makes(statement: &Statement<'_>) -> bool {
        ["mov.", "setp.eq.", "setp.ne.", "not.pred", "and.pred", "or.pred", "selp."]
            .iter()
            .any(|start| statement.opcode().starts_with(start))
    }

    /// What a statement makes of what is known.
    fn made(&self, statement: &Statement<'a>, always: impl Fn(&str) -> Option<i64>) -> Option<i64> {
        let operands: Vec<&str> = operands(statement.text).skip(1).collect();
        let value = |n: usize| operands.get(n).and_then(|operand| self.value(operand).or_else(|| always(operand)));
        let truth = |n: usize| Some(value(n)? != 0);
        let mut parts = statement.opcode().split('.');
        let made = match (parts.next()?, parts.next().unwrap_or_default()) {
            ("mov", _) => value(0)?,
            ("setp", "eq") => (value(0)? == value(1)?).into(),
            ("setp", "ne") => (value(0)? != value(1)?).into(),
            ("not", "pred") => (!truth(0)?).into(),
            ("and", "pred") if [truth(0), truth(1)].contains(&Some(false)) => 0,
            ("and", "pred") => (truth(0)? && truth(1)?).into(),
            ("or", "pred") if [truth(0), truth(1)].contains(&Some(true)) => 1,
            ("or", "pred") => (truth(0)? || truth(1)?).into(),
            ("selp", _) => value(if truth(2)? { 0 } else { 1 })?,
            _ => return None,
        };
        Some(made)
    }
}

/// The register that a statement writes, if it is one and not a vector.
pub fn result<'a>(statement: &Statement<'a>) -> Option<&'a str> {
    let written = !["st.", "red.", "bra", "@"].iter().any(|other| statement.text.starts_with(other));
    // What is in brackets is an address.
    let written = written && !statement.text[statement.opcode().len()..].trim_start().starts_with('[');
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

/// The labels of a table of branch targets, which has a label itself.
fn targets<'a>(statements: &'a [Statement<'a>], table: usize) -> impl Iterator<Item = &'a str> {
    let listed = statements.get(table + 1).filter(|statement| statement.opcode() == ".branchtargets");
    listed.into_iter().flat_map(|statement| statement.operands().split(',')).map(str::trim)
}
