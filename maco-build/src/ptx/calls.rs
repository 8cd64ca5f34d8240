//! Calls: what a function reaches, and its statements with those of other functions in the place of calls, as if they had been inlined. Which
//! functions are worth that does not belong here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::flow::{ARGUMENT, operands};
use maco_ptx::{Function, Module, Statement};

/// The functions that `from` calls, and what these call: each once.
pub fn reached<'a>(module: &'a Module<'a>, from: &'a Function<'a>) -> Vec<&'a Function<'a>> {
    let called = called(module, from);
    module.functions.iter().filter(|function| called.contains(function.name)).collect()
}

/// Their names, and those of functions that another file has.
pub fn called<'a>(module: &'a Module<'a>, from: &'a Function<'a>) -> BTreeSet<&'a str> {
    let functions = by_name(module);
    let (mut called, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(caller) = open.pop() {
        let new = callees(caller).filter(|name| called.insert(*name)).collect::<Vec<_>>();
        open.extend(new.into_iter().filter_map(|name| functions.get(name)));
    }
    called
}

/// Names of the functions that `is` accepts, and of those that call one of them.
pub fn leading_to<'a>(module: &'a Module<'a>, is: impl Fn(&Function<'_>) -> bool) -> BTreeSet<&'a str> {
    let calls: Vec<(&str, BTreeSet<&str>)> = module.functions.iter().map(|function| (function.name, callees(function).collect())).collect();
    let mut leading: BTreeSet<&str> = module.functions.iter().filter(|function| is(function)).map(|function| function.name).collect();
    loop {
        let more: Vec<&str> =
            calls.iter().filter(|(name, called)| !leading.contains(name) && !called.is_disjoint(&leading)).map(|(name, _)| *name).collect();
        if more.is_empty() {
            return leading;
        }
        leading.extend(more);
    }
}

fn callees<'a>(function: &'a Function<'a>) -> impl Iterator<Item = &'a str> {
    function.body.iter().filter_map(Statement::callee)
}

fn by_name<'a>(module: &'a Module<'a>) -> BTreeMap<&'a str, &'a Function<'a>> {
    module.functions.iter().map(|function| (function.name, function)).collect()
}

/// A function with others in the place of their calls.
pub struct Inlined<'a> {
    function: &'a Function<'a>,
    /// Statements, and in which words.
    said: Vec<(&'a Statement<'a>, Cow<'a, str>)>,
    /// Calls that stay: the function is being run already, or there are too many statements.
    pub stopped: Vec<&'a Statement<'a>>,
}

/// Statements at which following ends. Ten times what the largest entry has.
const MOST: usize = 2_000_000;

impl<'a> Inlined<'a> {
    /// `function` with those that `followed` names; what others do is seen where they are looked at by themselves.
    pub fn new(module: &'a Module<'a>, function: &'a Function<'a>, followed: &BTreeSet<&str>) -> Inlined<'a> {
        let mut inliner = Inliner { functions: by_name(module), followed, said: Vec::new(), stopped: Vec::new(), calls: 0 };
        inliner.run(function, &Call::default(), &mut vec![function.name]);
        Inlined { function, said: inliner.said, stopped: inliner.stopped }
    }

    /// As a function of its own. Statements still say where they come from.
    pub fn function(&self) -> Function<'_> {
        let body = self.said.iter().map(|(statement, words)| statement.says(words)).collect();
        Function { name: self.function.name, entry: self.function.entry, body, ..Function::default() }
    }
}

struct Inliner<'a, 'f> {
    functions: BTreeMap<&'a str, &'a Function<'a>>,
    followed: &'f BTreeSet<&'f str>,
    said: Vec<(&'a Statement<'a>, Cow<'a, str>)>,
    stopped: Vec<&'a Statement<'a>>,
    /// Calls so far.
    calls: usize,
}

/// One call: registers and labels of the function end with its mark, since those of another call are others.
#[derive(Default)]
struct Call {
    mark: String,
    /// What the caller gives: (parameter, bytes from its beginning) as they are written in the function, and the caller's operand.
    arguments: BTreeMap<String, String>,
}

impl<'a> Inliner<'a, '_> {
    fn run(&mut self, function: &'a Function<'a>, call: &Call, open: &mut Vec<&'a str>) {
        let words: Vec<Cow<'a, str>> = function.body.iter().map(|statement| words(statement, call)).collect();
        // The parameter in which the last call leaves its result, and the mark of that call.
        let mut result: Option<(&str, String)> = None;
        for (n, statement) in function.body.iter().enumerate() {
            let callee = statement.callee().filter(|name| self.followed.contains(name)).and_then(|name| self.functions.get(name).copied());
            let Some(callee) = callee else {
                let given = result.as_ref().and_then(|(name, mark)| taken(&words[n], name, mark));
                if statement.label().is_some() || statement.callee().is_some() {
                    result = None;
                }
                self.said.push((statement, given.map_or_else(|| words[n].clone(), Cow::Owned)));
                continue;
            };
            if open.contains(&callee.name) || self.said.len() > MOST {
                self.stopped.push(statement);
                self.said.push((statement, words[n].clone()));
                continue;
            }
            self.calls += 1;
            let mark = format!("~{}", self.calls);
            let inner = Call { arguments: arguments(statement, &function.body[..n], &words[..n], callee), mark: mark.clone() };
            result = statement.text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(name, _)| (name.trim(), mark.clone()));
            // Where the call stands: a label behind it. A predicated call is one that may not be made.
            if let Some(guard) = words[n].strip_prefix('@').and_then(|rest| rest.split_whitespace().next()) {
                let around = guard.strip_prefix('!').map_or_else(|| format!("!{guard}"), str::to_owned);
                self.said.push((statement, Cow::Owned(format!("@{around} bra $return{mark}"))));
            }
            open.push(callee.name);
            self.run(callee, &inner, open);
            open.pop();
            self.said.push((statement, Cow::Owned(format!("$return{mark}:"))));
        }
    }
}

/// A statement with its predicate, as it reads in one call.
fn words<'a>(statement: &'a Statement<'a>, call: &Call) -> Cow<'a, str> {
    let guard = statement.guard.map_or_else(String::new, |guard| format!("@{guard} "));
    if call.mark.is_empty() {
        return if guard.is_empty() { Cow::Borrowed(statement.text) } else { Cow::Owned(format!("{guard}{}", statement.text)) };
    }
    let Call { mark, arguments } = call;
    let text = match (statement.opcode(), slot(statement.text)) {
        ("ret", _) => {
            return Cow::Owned(format!("{}{}$return{mark}", marked(&guard, mark), if guard.is_empty() { "bra.uni " } else { "bra " }));
        }
        (opcode, Some(slot)) if opcode.starts_with("ld.param.") => {
            let register = operands(statement.text).next().unwrap_or_default();
            match arguments.get(slot).filter(|_| register.starts_with('%')) {
                // The caller's operand has its marks.
                Some(given) => {
                    return Cow::Owned(format!(
                        "{}{ARGUMENT}{} {register}{mark}, {given}",
                        marked(&guard, mark),
                        &opcode["ld.param".len()..]
                    ));
                }
                // Of this call alone.
                None => statement.text.replacen(slot, &format!("{slot}{mark}"), 1),
            }
        }
        (opcode, Some(slot)) if opcode.starts_with("st.param.") && slot.starts_with("func_retval") && !statement.text.contains('{') => {
            let value = operands(statement.text).last().unwrap_or_default();
            format!("{ARGUMENT}{} %{}, {value}", &opcode["st.param".len()..], slot.replace('+', "_"))
        }
        _ => statement.text.to_owned(),
    };
    Cow::Owned(marked(&format!("{guard}{text}"), mark))
}

/// What is in the first pair of brackets.
fn slot(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(slot, _)| slot.trim())
}

/// The load of a result, as a move from where the function has left it.
fn taken(words: &str, name: &str, mark: &str) -> Option<String> {
    let slot = slot(words).filter(|_| words.starts_with("ld.param."))?;
    let at = slot.strip_prefix(name).filter(|rest| rest.is_empty() || rest.starts_with('+'))?;
    let register = operands(words).next().filter(|register| register.starts_with('%'))?;
    // As the function names its own: `func_retval0` for `retval0`.
    let kind = words.split_whitespace().next()?.strip_prefix("ld.param")?;
    (!words.contains('{')).then(|| format!("{ARGUMENT}{kind} {register}, %func_{name}{}{mark}", at.replace('+', "_")))
}

/// What a call gives: stores to the parameters that it names, before it in the same block.
fn arguments(call: &Statement<'_>, before: &[Statement<'_>], words: &[Cow<'_, str>], callee: &Function<'_>) -> BTreeMap<String, String> {
    let names: Vec<&str> =
        call.text.rsplit_once('(').map_or("", |(_, names)| names).trim_end_matches(')').split(',').map(str::trim).collect();
    let mut arguments = BTreeMap::new();
    for (statement, words) in before.iter().zip(words).rev() {
        if statement.label().is_some() || statement.branch().is_some() || statement.callee().is_some() {
            break;
        }
        if !statement.opcode().starts_with("st.param.") || statement.guard.is_some() || statement.text.contains('{') {
            continue;
        }
        let (Some(slot), Some(value)) = (slot(statement.text), operands(words).last()) else { continue };
        let (name, at) = slot.split_at(slot.find('+').unwrap_or(slot.len()));
        if let Some(n) = names.iter().position(|other| *other == name) {
            arguments.entry(format!("{}_param_{n}{at}", callee.name)).or_insert_with(|| value.to_owned());
        }
    }
    arguments
}

/// The text with a mark at the end of every register and label.
fn marked(text: &str, mark: &str) -> String {
    let of_word = |c: char| c.is_ascii_alphanumeric() || "_$%.".contains(c);
    let mut marked = String::with_capacity(text.len() + 4 * mark.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if of_word(first) { rest.find(|c| !of_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (word, behind) = rest.split_at(length);
        marked.push_str(word);
        if word.starts_with(['%', '$']) {
            marked.push_str(mark);
        }
        rest = behind;
    }
    marked
}
