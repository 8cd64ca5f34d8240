//! Rules for the PTX of a megakernel: what compiles and is still wrong or slow on the hardware.
//!
//! Registers and spills are not visible here: [`super::ptxas`] sees them.

use std::collections::{BTreeMap, BTreeSet};

use maco_abi::{BARRIER_PART, BARRIERS, THREADS, WARP};
use maco_ptx::{Function, Module, Statement};

use super::calls::{self, Inlined};
use super::flow::{Flow, Way};
use super::{Finding, Rules, protocol, tags};

/// Every broken rule of a PTX file.
pub fn check(ptx: &str, rules: &Rules) -> Vec<Finding> {
    let module = match Module::parse(ptx) {
        Ok(module) => module,
        Err(error) => return vec![Finding { function: "module".to_owned(), place: None, text: error.to_string() }],
    };
    let mut findings = Vec::new();
    version(&module, &mut findings);
    unresolved(&module, &mut findings);
    stray_tags(&module, &mut findings);
    let followed = protocol::followed(&module);
    let mut reached: BTreeMap<&str, &Function<'_>> = BTreeMap::new();
    for entry in module.functions.iter().filter(|function| function.entry) {
        let mut report = Report { module: &module, findings: &mut findings };
        let called = calls::reached(&module, entry);
        barriers(entry, &called, &mut report);
        if !called.iter().any(|callee| followed.contains(callee.name)) {
            paths(entry, &mut report);
        } else {
            let inlined = Inlined::new(&module, entry, &followed);
            inlined.stopped.iter().for_each(|call| {
                report.add(
                    call,
                    "the lint cannot follow this call: what has a part in the protocol does not call itself, nor is it called too often",
                )
            });
            paths(&inlined.function(), &mut report);
        }
        if protocol::concerns(entry) {
            reached.extend(called.into_iter().map(|callee| (callee.name, callee)));
        }
    }
    // Programs have PTX without comments, in which nobody sees what is inline assembly; it was looked at before.
    let marked = ptx.contains("// begin inline asm");
    let mut changing = Changing::default();
    for function in &module.functions {
        let mut report = Report { module: &module, findings: &mut findings };
        if !rules.allow_local_memory {
            local_memory(function, &mut report);
        }
        instructions(function, &mut report);
        let of_megakernel = protocol::concerns(function) || reached.contains_key(function.name);
        tags::check(function, of_megakernel, &mut report);
        if of_megakernel {
            pointers(function, &mut report);
        }
        cached_loads(function, &mut report);
        changing.look(function, of_megakernel && marked, &module);
        if !function.entry {
            waits(function, &mut report);
        }
        if reached.contains_key(function.name) {
            protocol::check_called(function, &mut report);
        }
    }
    // What else there is to say of these takes them for MACO's own.
    findings.retain(|finding| !changing.at.contains(&(finding.function.clone(), finding.place.clone())));
    findings.extend(changing.findings);
    findings
}

/// Rules about the paths of an entry, through what it calls too.
fn paths(entry: &Function<'_>, report: &mut Report<'_>) {
    waits(entry, report);
    if protocol::concerns(entry) {
        protocol::check(entry, report);
    }
}

fn waits(function: &Function<'_>, report: &mut Report<'_>) {
    acquire_polls(function, report);
    early_signals(function, report);
}

/// Where findings go.
pub(super) struct Report<'a> {
    module: &'a Module<'a>,
    findings: &'a mut Vec<Finding>,
}

impl Report<'_> {
    pub(super) fn add(&mut self, statement: &Statement<'_>, text: impl Into<String>) {
        self.add_to(statement.function, statement, text);
    }

    /// About a function as a whole, which has this statement, or what it calls has.
    pub(super) fn add_to(&mut self, function: &str, statement: &Statement<'_>, text: impl Into<String>) {
        let finding = Finding { function: function.to_owned(), place: self.module.place(statement), text: text.into() };
        // One line of Rust inlined a hundred times is one finding.
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }
}

/// Tensor maps in global memory need `fence.proxy.tensormap`, which is PTX 8.3.
fn version(module: &Module<'_>, findings: &mut Vec<Finding>) {
    if module.version < (8, 3) {
        let (major, minor) = module.version;
        let text = format!("PTX {major}.{minor}, but 8.3 is needed; is `-C target-feature=+ptx86` missing?");
        findings.push(Finding { function: "module".to_owned(), place: None, text });
    }
}

fn unresolved(module: &Module<'_>, findings: &mut Vec<Finding>) {
    findings.extend(module.missing().map(|name| Finding {
        function: name.to_owned(),
        place: None,
        text: "called but not defined: link-time optimisation did not see it, or it is a function of the host".to_owned(),
    }));
}

fn stray_tags(module: &Module<'_>, findings: &mut Vec<Finding>) {
    findings.extend(module.stray.iter().map(|(line, tag)| Finding {
        function: "module".to_owned(),
        place: None,
        text: format!("the tag `{tag}` in line {line} stands at no instruction"),
    }));
}

fn local_memory(function: &Function<'_>, report: &mut Report<'_>) {
    for statement in function.body.iter().filter(|statement| statement.text.starts_with(".local")) {
        let bytes = statement.text.rsplit_once('[').and_then(|(_, size)| size.strip_suffix(']')).unwrap_or("some");
        let text = format!(
            "{bytes} bytes of local memory, which is as slow as global memory: an array is indexed by a value or a loop that is not \
             unrolled, or its address escapes; index it with constants"
        );
        report.add(statement, text);
    }
}

fn instructions(function: &Function<'_>, report: &mut Report<'_>) {
    for statement in &function.body {
        let opcode = statement.opcode();
        let has = |qualifiers: &[&str]| opcode.split('.').any(|part| qualifiers.contains(&part));
        if opcode.starts_with("multimem") {
            report.add(statement, "`multimem` needs NVLink multicast, which MACO does not use");
        } else if opcode == "fence.proxy.async" && !statement.allows("fence.proxy.async") {
            report.add(statement, "`fence.proxy.async` without a state space is a fence of the whole GPU; say `.global` or `.shared::cta`");
        } else if (opcode.starts_with("atom.") || opcode.starts_with("red."))
            && !has(&["relaxed", "acquire", "release", "acq_rel", "async"])
        {
            let text = format!(
                "`{opcode}` has no ordering: read-modify-writes of `core::sync::atomic` lose theirs on the GPU; use MACO's counters"
            );
            report.add(statement, text);
        }
    }
}

/// What is called so is seen by no rule.
fn pointers(function: &Function<'_>, report: &mut Report<'_>) {
    for statement in function.body.iter().filter(|statement| statement.callee().is_none()) {
        if statement.opcode() == "call" || statement.opcode().starts_with("call.") {
            report.add(statement, "a call through a pointer, which the lint cannot follow: call a function by its name, or a generic one");
        }
    }
}

/// `ld.global.nc` may return what was there before another CTA wrote it. The compiler makes it from `&T`; tables in `static`s are fine.
fn cached_loads(function: &Function<'_>, report: &mut Report<'_>) {
    let mut definitions: Option<BTreeMap<&str, &str>> = None;
    for statement in &function.body {
        if statement.opcode().starts_with("ld.global.nc") && !statement.allows("ld.global.nc") {
            let definitions = definitions.get_or_insert_with(|| self::definitions(function));
            if !reads_a_static(statement.text, definitions) {
                let text = "a load through the read-only cache (`ld.global.nc`): a reference to memory that other CTAs may write; use raw-pointer views";
                report.add(statement, text);
            }
        }
    }
}

/// What bodies change that is no tile, or what they call: others see the value or do not, and roles go different ways.
#[derive(Default)]
struct Changing {
    findings: Vec<Finding>,
    /// Functions and places of these instructions.
    at: BTreeSet<(String, Option<String>)>,
}

impl Changing {
    /// - Statics that are written, wherever: one that nothing writes is a constant. SIMT bodies have none either: a launch would begin with what the last one left.
    /// - Atomics of `core` in code of a megakernel, whatever they are called in the source and wherever their address comes from. MACO's own are inline assembly.
    fn look(&mut self, function: &Function<'_>, of_megakernel: bool, module: &Module<'_>) {
        let globals = module.variables.iter().filter(|variable| variable.space == ".global");
        let variables: BTreeSet<&str> = globals.map(|variable| variable.name).collect();
        let mut definitions: Option<BTreeMap<&str, &str>> = None;
        // Of the user's: the last line before it that is not in `core`.
        let mut near = None;
        for statement in &function.body {
            let place = module.place(statement);
            if place.as_ref().is_some_and(|place| !place.contains("/library/core/src/")) {
                near.clone_from(&place);
            }
            let opcode = statement.opcode();
            let writes = ["st.", "atom.", "red."].iter().any(|start| opcode.starts_with(start)) && !opcode.starts_with("st.param");
            let elsewhere = opcode.split('.').any(|part| part.starts_with("shared") || part == "local");
            let atomic = of_megakernel && of_core(statement);
            if elsewhere || !(writes || atomic) {
                continue;
            }
            let definitions = definitions.get_or_insert_with(|| self::definitions(function));
            let text = if let Some(name) = variable(address(statement.text), &variables, definitions, 16).filter(|_| writes) {
                let name = name.trim_end_matches("_$_0");
                format!(
                    "MACO0101: a static is written, `{name}`: its value is seen by some threads of a task only, and stays for the next launch; values go from one operation \
                     to the next in tiles"
                )
            } else if atomic {
                format!(
                    "MACO0101: an atomic of `core` (`{opcode}`): its value is seen by some threads of a task only, which then go another way than the others; values go from \
                     one operation to the next in tiles"
                )
            } else {
                continue;
            };
            let finding = Finding { function: function.name.to_owned(), place: near.clone().or_else(|| place.clone()), text };
            self.at.insert((finding.function.clone(), place));
            // One line of Rust inlined a hundred times is one finding.
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
    }
}

/// An access of `core::sync::atomic`, of global memory or of any.
fn of_core(statement: &Statement<'_>) -> bool {
    let opcode = statement.opcode();
    let has = |qualifiers: &[&str]| opcode.split('.').any(|part| qualifiers.contains(&part));
    let changes = opcode.starts_with("atom.") || opcode.starts_with("red.");
    let access = opcode.starts_with("ld.") || opcode.starts_with("st.");
    !statement.inline && statement.tag.is_none() && (changes && !has(&["async"]) || access && has(&["relaxed", "acquire", "release"]))
}

/// The variable of the module that an address is in.
fn variable<'a>(operand: &'a str, variables: &BTreeSet<&str>, definitions: &BTreeMap<&str, &'a str>, depth: u32) -> Option<&'a str> {
    if variables.contains(operand) {
        return Some(operand);
    }
    let instruction = definitions.get(operand).filter(|instruction| depth > 0 && !instruction.starts_with("ld."))?;
    let mut sources = instruction.split_whitespace().skip(2).map(|word| word.trim_end_matches([',', ';']));
    sources.find_map(|source| variable(source, variables, definitions, depth - 1))
}

/// Register → the instruction that writes it (PTX of LLVM is nearly in SSA form).
fn definitions<'a>(function: &Function<'a>) -> BTreeMap<&'a str, &'a str> {
    let register =
        |text: &'a str| text.split_whitespace().nth(1).map(|word| word.trim_end_matches(',')).filter(|word| word.starts_with('%'));
    function.body.iter().filter_map(|statement| Some((register(statement.text)?, statement.text))).collect()
}

/// Is the address a symbol, or computed from one?
fn reads_a_static(load: &str, definitions: &BTreeMap<&str, &str>) -> bool {
    let address = address(load);
    is_symbol(address) || comes_from_a_symbol(address, definitions, 16)
}

/// The register or symbol between brackets.
fn address(statement: &str) -> &str {
    statement.split_once('[').and_then(|(_, rest)| rest.split([']', '+']).next()).unwrap_or_default().trim()
}

fn comes_from_a_symbol(register: &str, definitions: &BTreeMap<&str, &str>, depth: u32) -> bool {
    let Some(instruction) = definitions.get(register).filter(|instruction| depth > 0 && !instruction.starts_with("ld.")) else {
        return false;
    };
    let mut sources = instruction.split_whitespace().skip(2).map(|word| word.trim_end_matches(','));
    sources.any(|source| is_symbol(source) || comes_from_a_symbol(source, definitions, depth - 1))
}

fn is_symbol(operand: &str) -> bool {
    operand.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$')
}

/// Every acquire load of a wider scope than the CTA's empties the SM's L1 cache: a poll loads relaxed and fences once, when it has seen its value.
/// Of `.cta` scope it is an ordinary load (SASS of `ld.acquire.cta.shared::cta`, ptxas 13.0: `LDS`).
fn acquire_polls(function: &Function<'_>, report: &mut Report<'_>) {
    const WORK: [&str; 9] = ["st.", "red.", "atom.", "bar.", "barrier.", "cp.", "wgmma.", "mbarrier.arrive", "call"];
    for (first, last) in loops(function) {
        let body = &function.body[first..=last];
        if body.iter().any(|statement| WORK.iter().any(|work| statement.text.starts_with(work))) {
            continue; // a loop that does more than poll
        }
        let acquires = |opcode: &str| opcode.starts_with("ld.acquire") && !opcode.starts_with("ld.acquire.cta.");
        for statement in body.iter().filter(|statement| acquires(statement.opcode()) && !statement.allows("ld.acquire")) {
            report.add(
                statement,
                "`ld.acquire` in a loop that polls empties the L1 cache at every turn; poll with `ld.relaxed`, then `fence.acquire`",
            );
        }
    }
}

/// First and last statement of every loop: a label and a later jump back to it.
fn loops(function: &Function<'_>) -> Vec<(usize, usize)> {
    let labels: BTreeMap<&str, usize> =
        function.body.iter().enumerate().filter_map(|(index, statement)| Some((statement.label()?, index))).collect();
    let jumps = function.body.iter().enumerate().filter_map(|(index, statement)| Some((*labels.get(statement.branch()?)?, index)));
    jumps.filter(|(label, jump)| label < jump).collect()
}

/// `wait_group.read` waits until the source may be overwritten, not until the data has arrived: a signal on a path behind it is a race.
fn early_signals(function: &Function<'_>, report: &mut Report<'_>) {
    const READ: fn(&Statement<'_>) -> bool = |statement| statement.opcode().starts_with("cp.async.bulk.wait_group.read");
    if !function.body.iter().any(READ) {
        return;
    }
    let flow = Flow::new(function);
    let arrived = |statement: &Statement<'_>| statement.opcode().starts_with("cp.async.bulk.wait_group") && !READ(statement);
    // A fence of the kind comes before relaxed signals; those of mbarriers are arrivals of a CTA's own threads.
    let signals = |statement: &Statement<'_>| {
        let opcode = statement.opcode();
        let ordered = opcode.split('.').any(|part| part == "release" || part == "acq_rel");
        let own = opcode.starts_with("mbarrier.") || opcode.starts_with("fence.mbarrier_init") || opcode.starts_with("barrier.cluster");
        ordered && !own || statement.tag.is_some_and(|tag| tag.starts_with("signal."))
    };
    let mut early = BTreeSet::new();
    for read in flow.all(READ) {
        let reached = flow.reach(read, Way::Forward, |statement| arrived(statement) || READ(statement) || signals(statement));
        early.extend(reached.into_iter().filter(|&at| signals(&flow.statements[at])));
    }
    for at in early {
        report.add(
            &flow.statements[at],
            "a signal after `cp.async.bulk.wait_group.read`, which does not wait for the data to arrive; use `wait_group`",
        );
    }
}

/// A named barrier that is passed with different numbers of threads, in whatever function, never opens, or opens for the wrong ones.
fn barriers(entry: &Function<'_>, called: &[&Function<'_>], report: &mut Report<'_>) {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    for statement in called.iter().copied().chain([entry]).flat_map(|function| &function.body) {
        let opcode = statement.opcode();
        let of_the_cta =
            opcode.strip_prefix("bar.").or_else(|| opcode.strip_prefix("barrier.")).map(|kind| kind.trim_start_matches("cta."));
        if !of_the_cta.is_some_and(|kind| ["sync", "arrive", "red"].iter().any(|name| kind.starts_with(name))) {
            continue;
        }
        let operands: Vec<Option<u32>> = statement.text[opcode.len()..].split(',').map(|operand| operand.trim().parse().ok()).collect();
        // Numbers in registers are not known here.
        let [Some(id), rest @ ..] = &*operands else { continue };
        let Some(count) = rest.first().copied().unwrap_or(Some(THREADS)) else { continue };
        if *id >= BARRIERS || count == 0 || !count.is_multiple_of(WARP) || count > THREADS {
            report.add(
                statement,
                format!("barrier {id} for {count} threads: there are {BARRIERS} barriers, and threads come in warps, at most {THREADS}"),
            );
        }
        // Of SIMT bodies, which meet before they begin: two of them may use one with different numbers.
        let of_bodies = protocol::concerns(entry) && *id >= BARRIER_PART;
        let before = *counts.entry(*id).or_insert(count);
        if before != count && !of_bodies {
            report.add(
                statement,
                format!("barrier {id} is used with {before} threads and with {count}; give the two uses different barriers"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lint(body: &str) -> Vec<String> {
        let ptx = format!(".version 8.6\n.target sm_90a\n.visible .entry mlp(\n)\n{{\n.loc 1 3 1\n{body}\nret;\n}}\n.file 1 \"k.rs\"\n");
        check(&ptx, &Rules::default()).iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    fn one(body: &str, word: &str) {
        let found = lint(body);
        assert!(found.len() == 1 && found[0].contains(word), "{found:?}");
        assert!(found[0].starts_with("k.rs:3: ") && found[0].ends_with("(in `mlp`)"), "{found:?}");
    }

    #[track_caller]
    fn none(body: &str) {
        assert_eq!(lint(body), Vec::<String>::new());
    }

    #[test]
    fn statics_are_not_written() {
        let lint = |body: &str| {
            let ptx = format!(
                ".version 8.6\n.target sm_90a\n.global .align 4 .b8 seen[4];\n.visible .entry mlp(\n)\n{{\n.loc 1 3 1\n{body}\nret;\n}}\n.file 1 \"k.rs\"\n"
            );
            check(&ptx, &Rules::default()).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for body in [
            "st.relaxed.sys.global.b32 [seen], %r1;",
            "atom.relaxed.gpu.global.add.u32 %r1, [seen], 1;",
            "mov.b64 %rd1, seen;\nadd.s64 %rd2, %rd1, %rd9;\nst.global.b32 [%rd2+4], %r1;",
            "mov.b64 %rd1, seen;\ncvta.global.u64 %rd2, %rd1;\nred.relaxed.gpu.add.u32 [%rd2], 1;",
        ] {
            let found = lint(body);
            assert!(found.len() == 1 && found[0].contains("MACO0101: a static is written, `seen`"), "{body}: {found:?}");
        }
        for body in [
            "ld.global.b32 %r1, [seen];",
            "mov.b64 %rd1, seen;\nld.global.b64 %rd2, [%rd1];\nst.global.b32 [%rd2], %r1;",
            "st.shared.b32 [maco_shared], %r1;",
            "st.global.b32 [%rd2], %r1;",
        ] {
            assert_eq!(lint(body), Vec::<String>::new(), "{body}");
        }
    }

    #[test]
    fn atomics_of_core_are_not_used() {
        let lint = |entry: &str, inline: bool, text: &str| {
            let (begin, end) = if inline { ("// begin inline asm", "// end inline asm") } else { ("", "") };
            let ptx = format!(
                ".version 8.6\n.target sm_90a\n.func counted(.param .b64 p)\n{{\n.loc 1 7 5\n// begin inline asm\n// end inline asm\nld.param.b64 %rd1, [p];\n.loc 2 90 1\n{begin}\n{text}\n{end}\nret;\n}}\n\
                 .visible .entry {entry}(\n)\n{{\n.loc 1 3 1\ncall.uni counted, (%rd1);\nret;\n}}\n\
                 .file 1 \"k.rs\"\n.file 2 \"/rust/library/core/src/sync/atomic.rs\"\n"
            );
            let found = check(&ptx, &Rules::default()).into_iter().filter(|finding| finding.function == "counted");
            found.map(|finding| finding.to_string()).collect::<Vec<_>>()
        };
        // As LLVM writes loads, stores, `swap`, `fetch_add` and `compare_exchange`, of all orders.
        for text in [
            "ld.relaxed.sys.b32 %r1, [%rd1];",
            "ld.acquire.sys.global.b32 %r1, [%rd1];",
            "st.relaxed.sys.b32 [%rd1], 5;",
            "st.release.sys.b32 [%rd1], 5;",
            "atom.exch.b32 %r1, [%rd1], 5;",
            "atom.global.add.u32 %r1, [%rd1], 1;",
            "red.relaxed.gpu.add.u32 [%rd1], 1;",
            "atom.acq_rel.sys.cas.b32 %r1, [%rd1], 5, 6;",
        ] {
            let found = lint("maco_k", false, text);
            // It is all that is said of it, at the line of the user's before it.
            let one =
                found.len() == 1 && found[0].starts_with("k.rs:7: MACO0101: an atomic of `core`") && found[0].ends_with("(in `counted`)");
            assert!(one, "{text}: {found:?}");
            assert!(!lint("maco_k", true, text).iter().any(|found| found.contains("MACO0101")), "{text}");
            assert!(!lint("k", false, text).iter().any(|found| found.contains("MACO0101")), "{text}");
        }
        assert_eq!(lint("maco_k", false, "st.global.b32 [%rd1], %r1;"), [""; 0]);
    }

    #[test]
    fn old_ptx() {
        let found = check(".version 8.0\n", &Rules::default());
        assert!(found.len() == 1 && found[0].text.contains("PTX 8.0"), "{found:?}");
    }

    #[test]
    fn undefined_functions() {
        let found = check(".version 8.6\n.extern .func panic\n(\n)\n;\n", &Rules::default());
        assert!(found.len() == 1 && found[0].function == "panic", "{found:?}");
    }

    #[test]
    fn local_arrays() {
        let depot = ".local .align 16 .b8 \t__local_depot0[512];";
        one(depot, "512 bytes of local memory");
        let allowed = Rules { allow_local_memory: true };
        assert_eq!(check(&format!(".version 8.6\n.entry k()\n{{\n{depot}\n}}"), &allowed), []);
    }

    #[test]
    fn multicast() {
        one("multimem.red.relaxed.sys.global.add.u32 [%rd1], %r1;", "multimem");
    }

    #[test]
    fn whole_gpu_proxy_fences() {
        one("fence.proxy.async;", ".shared::cta");
        none("fence.proxy.async.global;");
        none("// maco:allow(fence.proxy.async)\nfence.proxy.async;");
    }

    #[test]
    fn atomics_that_lost_their_ordering() {
        one("atom.global.add.u32 %r1, [%rd1], 1;", "no ordering");
        none("atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1;\nred.release.gpu.global.add.u32 [%rd1], 1;");
    }

    #[test]
    fn loads_of_tensors_through_the_read_only_cache() {
        one("ld.param.b64 %rd1, [mlp_param_0];\ncvta.to.global.u64 %rd2, %rd1;\nld.global.nc.b32 %r1, [%rd2+4];", "read-only cache");
        none("ld.global.nc.b32 %r1, [table+4];");
        none("mov.b64 %rd1, table;\nadd.s64 %rd2, %rd1, %rd9;\nld.global.nc.b32 %r1, [%rd2];");
        none("// maco:allow(ld.global.nc)\nld.global.nc.b32 %r1, [%rd2];");
    }

    /// A table that all consumers raise: they meet before and behind that, and fence it.
    #[test]
    fn functions_with_a_table_meet() {
        const BODY: [&str; 7] = [
            "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2;",
            "st.shared.b32 [%r3], 0;",
            "bar.sync 5, 256;",
            "// maco: table.raise\nred.relaxed.cta.shared.max.u32 [%r3], %r4;",
            "bar.sync 5, 256;",
            "ld.shared.b32 %r5, [%r3];\nfence.proxy.async.shared::cta;",
            "mbarrier.arrive.shared::cta.b64 _, [%r1];",
        ];
        let found = |left_out: &[usize]| -> Vec<String> {
            let lines: Vec<&str> = (0..BODY.len()).filter(|n| !left_out.contains(n)).map(|n| BODY[n]).collect();
            let ptx = format!(
                ".version 8.6\n.func body(\n)\n{{\n{}\nret;\n}}\n.visible .entry maco_mlp_0(\n)\n{{\ncall.uni body, (p);\nret;\n}}\n",
                lines.join("\n")
            );
            check(&ptx, &Rules::default()).into_iter().filter(|finding| finding.function == "body").map(|finding| finding.text).collect()
        };
        assert_eq!(found(&[]), [""; 0]);
        for (left_out, text) in [(2, "still clear"), (4, "may not have raised"), (5, "may be overtaken")] {
            let texts = found(&[left_out]);
            assert!(texts.iter().any(|found| found.contains(text)), "without {}: {texts:?}", BODY[left_out]);
        }
    }

    #[test]
    fn acquire_in_a_poll() {
        one("$L1:\nld.acquire.gpu.global.u32 %r1, [%rd1];\nsetp.lt.u32 %p1, %r1, 4;\n@%p1 bra $L1;", "ld.relaxed");
        none("$L1:\nld.acquire.gpu.global.u32 %r1, [%rd1];\nst.global.b32 [%rd2], %r1;\n@%p1 bra $L1;");
        none("ld.acquire.gpu.global.u32 %r1, [%rd1];");
    }

    #[test]
    fn signals_before_the_data_has_arrived() {
        one("cp.async.bulk.wait_group.read 0;\nred.release.gpu.global.add.u32 [%rd1], 1;", "wait_group");
        none("cp.async.bulk.wait_group.read 0;\ncp.async.bulk.wait_group 0;\nred.release.gpu.global.add.u32 [%rd1], 1;");
        for signal in [
            "st.release.sys.global.u32 [%rd1], 1;",
            "fence.release.sys;",
            "fence.acq_rel.sys;",
            "// maco: signal.sys\nst.release.sys.global.u32 [%rd1], %r1;",
        ] {
            one(&format!("cp.async.bulk.wait_group.read 0;\n{signal}"), "wait_group");
            // Behind a branch, and round a loop.
            one(&format!("cp.async.bulk.wait_group.read 0;\n@%p1 bra $OUT;\ncp.async.bulk.wait_group 0;\n$OUT:\n{signal}"), "wait_group");
            one(&format!("$AGAIN:\n@%p1 bra $FIRST;\n{signal}\n$FIRST:\ncp.async.bulk.wait_group.read 0;\n@%p2 bra $AGAIN;"), "wait_group");
            none(&format!("$AGAIN:\ncp.async.bulk.wait_group.read 0;\ncp.async.bulk.wait_group 0;\n{signal}\n@%p2 bra $AGAIN;"));
        }
        none("cp.async.bulk.wait_group.read 0;\nmbarrier.arrive.release.cta.shared::cta.b64 _, [%r1];");
    }

    #[test]
    fn barriers_with_two_counts() {
        one("bar.sync 1, 256;\nbar.sync 1, 128;", "256 threads and with 128");
        one("bar.sync 1, 200;", "warps");
        one("bar.sync 16, 32;", "16 barriers");
        none("bar.sync 0;\nbar.sync 1, 256;\nbar.arrive 2, 384;\nbar.sync 2, 384;\nbar.warp.sync -1;");
    }
}
