//! Calls: what a function reaches, and its statements with those of other functions in the place of calls, as if they had been inlined. Which
//! functions are worth that does not belong here.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use maco_ptx::{Function, Module, Statement};

use super::flow::{ARGUMENT, operands};

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
        let words: Vec<Cow<'a, str>> = function.body.iter().map(|statement| words(statement, function, call)).collect();
        // Where the last call leaves its result: what it is here, and what there, with the mark of that call.
        let mut result: Option<(&str, String)> = None;
        for (n, statement) in function.body.iter().enumerate() {
            let callee = statement.callee().filter(|name| self.followed.contains(name)).and_then(|name| self.functions.get(name).copied());
            let Some(callee) = callee else {
                let given = result.as_ref().and_then(|(here, there)| taken(&words[n], here, there));
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
            let here = statement.text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(name, _)| name.trim());
            result = here.zip(callee.results.first()).map(|(here, there)| (here, format!("%{}{mark}", there.name)));
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

/// A statement of a function with its predicate, as it reads in one call.
fn words<'a>(statement: &'a Statement<'a>, function: &Function<'_>, call: &Call) -> Cow<'a, str> {
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
        // The whole result.
        (opcode, Some(slot)) if opcode.starts_with("st.param.b") && function.results.first().is_some_and(|result| result.name == slot) => {
            let value = operands(statement.text).last().unwrap_or_default();
            format!("{ARGUMENT}{} %{slot}, {value}", &opcode["st.param".len()..])
        }
        _ => statement.text.to_owned(),
    };
    Cow::Owned(marked(&format!("{guard}{text}"), mark))
}

/// What is in the first pair of brackets.
fn slot(text: &str) -> Option<&str> {
    text.split_once('[')?.1.split_once(']').map(|(slot, _)| slot.trim())
}

/// The load of a result, which is `here` in the caller, as a move from `there`, where the function has left it.
fn taken(words: &str, here: &str, there: &str) -> Option<String> {
    let kind = words.split_whitespace().next()?.strip_prefix("ld.param").filter(|_| slot(words) == Some(here))?;
    let register = operands(words).next().filter(|register| register.starts_with('%') && !words.contains('{'))?;
    Some(format!("{ARGUMENT}{kind} {register}, {there}"))
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
        if let Some(parameter) = names.iter().position(|other| *other == name).and_then(|n| callee.parameters.get(n)) {
            arguments.entry(format!("{}{at}", parameter.name)).or_insert_with(|| value.to_owned());
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

#[cfg(test)]
mod tests {
    use crate::ptx::Rules;
    use crate::ptx::lint::check;

    /// What the lint says about functions, each with a body; the entry calls the first, with these statements around that.
    fn about_functions(functions: &[(&str, &str)], before: &str, behind: &str) -> Vec<(String, String)> {
        let called: String =
            functions.iter().map(|(name, body)| format!(".func {name}(\n.param .b64 {name}_param_0\n)\n{{\n{body}\nret;\n}}\n")).collect();
        let ptx = format!(
            ".version 8.6\n{called}.visible .entry maco_mlp_0(\n)\n{{\n{before}\ncall.uni {}, (p);\n{behind}\nret;\n}}\n",
            functions[0].0
        );
        check(&ptx, &Rules::default()).into_iter().map(|finding| (finding.function, finding.text)).collect()
    }

    /// Also in a function that a function calls; not in one that nobody calls.
    #[test]
    fn tensor_cores_and_registers_stay_in_entries() {
        for (statement, why) in [
            ("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%r48}, %rd17, %rd18, p;", "serialises"),
            ("wgmma.fence.sync.aligned;", "serialises"),
            ("setmaxnreg.dec.sync.aligned.u32 72;", "entries only"),
        ] {
            let outer = ("outer", "call.uni (r), inner, (p);");
            let found = |functions: &[(&str, &str)]| {
                let about = about_functions(functions, "", "");
                about.into_iter().filter(|(_, text)| text.contains("belongs into the entry")).collect::<Vec<_>>()
            };
            let found_inside = found(&[outer, ("inner", statement)]);
            assert!(matches!(&found_inside[..], [(name, text)] if name == "inner" && text.contains(why)), "{statement}: {found_inside:?}");
            assert_eq!(found(&[outer, ("other", statement)]), [], "{statement}");
        }
    }

    /// A function may take a stage of the ring and give it back, and meets between operations; its scopes are those of the CTA.
    #[test]
    fn functions_have_stages() {
        let found =
            |statement: &str| about_functions(&[("body", statement)], "", "").into_iter().filter(|(name, _)| name == "body").count();
        for (statement, findings) in [
            ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;", 0),
            ("mbarrier.arrive.shared::cta.b64 _, [%r1];", 0),
            ("bar.sync 1, 256;", 0),
            ("mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64 %p1, [%r1], %r2;", 1),
            ("mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%r1];", 1),
            ("mbarrier.init.shared::cta.b64 [%r1], 1;", 1),
            ("mbarrier.init.shared::cta.b64 [%r1], 1;\nfence.mbarrier_init.release.cluster;", 0),
            ("ld.relaxed.cta.global.u32 %r1, [%rd1];", 1),
        ] {
            assert_eq!(found(statement), findings, "{statement}");
        }
    }

    /// What a function needs may stand in its caller, on every way to it, and what its caller needs in a function.
    #[test]
    fn a_fence_counts_across_a_call() {
        const SIGNAL: &str = "// maco: signal.gpu\nred.relaxed.gpu.global.add.u32 [%rd6], %r17;";
        const RELEASE: &str = "fence.release.gpu;";
        let overtaken = |functions: &[(&str, &str)], before: &str, behind: &str| -> Vec<String> {
            let found = about_functions(functions, before, behind);
            found.into_iter().filter(|(_, text)| text.contains("may overtake")).map(|(name, _)| name).collect()
        };
        assert_eq!(overtaken(&[("signal", SIGNAL)], "", ""), ["signal"]);
        assert_eq!(overtaken(&[("signal", SIGNAL)], RELEASE, ""), [""; 0]);
        assert_eq!(overtaken(&[("release", RELEASE)], "", SIGNAL), [""; 0]);
        assert_eq!(overtaken(&[("release", &format!("@%p1 bra $BY;\n{RELEASE}\n$BY:"))], "", SIGNAL), ["maco_mlp_0"]);
        assert_eq!(overtaken(&[("release", &format!("@%p1 ret;\n{RELEASE}"))], "", SIGNAL), ["maco_mlp_0"]);
        assert_eq!(overtaken(&[("outer", "call.uni signal, ();"), ("signal", SIGNAL)], RELEASE, ""), [""; 0]);
        // One of two calls.
        assert_eq!(overtaken(&[("signal", SIGNAL)], RELEASE, &format!("{RELEASE}\ncall.uni signal, (p);")), [""; 0]);
        const WAIT: &str = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;";
        assert_eq!(overtaken(&[("signal", SIGNAL)], RELEASE, &format!("{WAIT}\ncall.uni signal, (p);")), ["signal"]);
        // What the caller gives: 0 empties a place.
        let store = "ld.param.b64 %r1, [store_param_0];\n// maco: message.gpu\nst.relaxed.gpu.global.u32 [%rd1], %r1;";
        assert_eq!(overtaken(&[("store", store)], "st.param.b64 [p], 0;", ""), [""; 0]);
        assert_eq!(overtaken(&[("store", store)], "st.param.b64 [p], 7;", ""), ["store"]);
        // One that may not be made.
        assert_eq!(overtaken(&[("none", "")], "@%p1 call.uni release, ();", SIGNAL), ["maco_mlp_0"]);
    }

    #[test]
    fn a_function_of_the_protocol_that_calls_itself_is_refused() {
        let found = |body: &str| about_functions(&[("body", body)], "", "").iter().any(|(_, text)| text.contains("cannot follow"));
        assert!(found("fence.release.gpu;\ncall.uni body, ();"));
        assert!(!found("call.uni body, ();"));
    }

    #[test]
    fn a_call_through_a_pointer_is_refused() {
        let found = |body: &str| {
            about_functions(&[("body", body)], "", "").into_iter().filter(|(_, text)| text.contains("through a pointer")).count()
        };
        assert_eq!([found("call (r), %rd1, (p), prototype;"), found("call.uni (r), other, (p);")], [1, 0]);
    }

    #[test]
    fn a_barrier_has_one_count_in_all_functions() {
        let found = |before: &str| about_functions(&[("body", "bar.sync 1, 256;")], before, "");
        let counts = |found: &[(String, String)]| found.iter().any(|(_, text)| text.contains("256 threads and with 128"));
        assert!(counts(&found("bar.sync 1, 128;")) && !counts(&found("bar.sync 1, 256;")));
    }

    #[test]
    fn a_poll_in_a_function_is_a_poll() {
        let found = |before: &str, behind: &str| {
            let load = "// begin inline asm\nld.acquire.gpu.global.u32 %r1, [%rd1];\n// end inline asm\nfence.acquire.gpu;";
            about_functions(&[("look", load)], before, behind).iter().any(|(_, text)| text.contains("empties the L1 cache"))
        };
        assert!(found("$L1:", "@%p1 bra $L1;") && !found("", ""));
    }
}
