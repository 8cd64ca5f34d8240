//! PTX text as functions and instructions: as much structure as the lints need, and no more.

use std::collections::{BTreeMap, BTreeSet};

/// A PTX file.
#[derive(Debug, Default)]
pub struct Module<'a> {
    /// `.version`, as (major, minor).
    pub version: (u32, u32),
    /// Functions that are called but not defined: `.extern .func`.
    pub missing: Vec<&'a str>,
    /// Entries and functions with a body.
    pub functions: Vec<Function<'a>>,
    files: BTreeMap<u32, &'a str>,
    /// Functions that never return: `.noreturn`.
    endless: BTreeSet<&'a str>,
}

/// A function with a body.
#[derive(Debug)]
pub struct Function<'a> {
    /// Its symbol.
    pub name: &'a str,
    /// `.entry`, not `.func`.
    pub entry: bool,
    /// Statements, labels and directives of the body, in order.
    pub body: Vec<Statement<'a>>,
}

/// One statement.
#[derive(Clone, Debug)]
pub struct Statement<'a> {
    /// The symbol of the function it is in.
    pub function: &'a str,
    /// Without predicate, comments and the final semicolon; a label keeps its colon.
    pub text: &'a str,
    /// The first word: every rule asks for it.
    opcode: &'a str,
    /// The predicate under which it runs, as it is written: `%p1`, or `!%p1`.
    pub guard: Option<&'a str>,
    /// What a comment `// maco:allow(…)` on this line or alone on the line before permits.
    pub allowed: Option<&'a str>,
    /// A call of a function that never returns, as of a panic.
    pub last: bool,
    /// `.loc`: file number and line.
    place: Option<(u32, u32)>,
}

impl<'a> Statement<'a> {
    fn new(function: &'a str, whole: &'a str, allowed: Option<&'a str>, place: Option<(u32, u32)>) -> Statement<'a> {
        let text = unpredicated(whole);
        let guard = whole.strip_prefix('@').and_then(|rest| rest.split_whitespace().next());
        Statement { function, text, opcode: text.split_whitespace().next().unwrap_or_default(), guard, allowed, last: false, place }
    }

    /// The same statement in other words, with its predicate.
    pub(super) fn says<'b>(&self, whole: &'b str) -> Statement<'b>
    where
        'a: 'b,
    {
        let said = Statement::new(self.function, whole, self.allowed, self.place);
        Statement { last: self.last && said.opcode == self.opcode, ..said }
    }

    /// The function that this statement calls; not through a pointer.
    pub fn callee(&self) -> Option<&'a str> {
        let is_call = self.opcode == "call" || self.opcode.starts_with("call.");
        let rest = self.text.strip_prefix(self.opcode).filter(|_| is_call)?.trim_start();
        let rest = rest.strip_prefix('(').and_then(|result| result.split_once(')')).map_or(rest, |(_, rest)| rest);
        let name = rest.trim_start_matches([',', ' ', '\t', '\n']).split([',', ';', ' ', '\t', '\n']).next()?;
        (!name.is_empty() && !name.starts_with('%')).then_some(name)
    }

    /// `ld.global.b32` of `ld.global.b32 %r1, [%rd2]`.
    pub fn opcode(&self) -> &'a str {
        self.opcode
    }

    /// The label this statement is.
    pub fn label(&self) -> Option<&'a str> {
        self.text.strip_suffix(':')
    }

    /// The label this statement jumps to.
    pub fn branch(&self) -> Option<&'a str> {
        self.opcode().starts_with("bra").then(|| self.text.split_whitespace().nth(1)).flatten()
    }

    /// Does the source permit `what` here?
    pub fn allows(&self, what: &str) -> bool {
        self.allowed == Some(what)
    }
}

impl<'a> Module<'a> {
    /// Reads PTX as LLVM writes it: one statement on a line, but for inline assembly and its vectors.
    pub fn parse(ptx: &'a str) -> Module<'a> {
        let mut module = Module::default();
        let mut reader = Reader { ptx, ..Reader::default() };
        for line in ptx.lines() {
            reader.line(line, &mut module);
        }
        for function in &mut module.functions {
            mark_last(&mut function.body, &module.endless);
        }
        module
    }

    /// `file:line` of the Rust source behind a statement.
    pub fn place(&self, statement: &Statement<'_>) -> Option<String> {
        let (file, line) = statement.place?;
        Some(format!("{}:{line}", self.files.get(&file)?))
    }
}

/// State between lines.
#[derive(Default)]
struct Reader<'a> {
    ptx: &'a str,
    /// A statement whose vector goes on in the next line.
    begun: Option<&'a str>,
    depth: u32,
    header: Option<&'a str>,
    /// Whether the header is an entry's.
    entry: bool,
    allowed: Option<&'a str>,
    place: Option<(u32, u32)>,
}

impl<'a> Reader<'a> {
    fn line(&mut self, line: &'a str, module: &mut Module<'a>) {
        let (code, comment) = line.split_once("//").map_or((line, None), |(code, comment)| (code, Some(comment)));
        let code = code.trim();
        let allowed = comment.and_then(|comment| comment.split_once("maco:allow(")?.1.split_once(')').map(|(what, _)| what));
        if code.is_empty() {
            // Comments between the permission and its statement are the compiler's.
            self.allowed = allowed.or(self.allowed);
            return;
        }
        self.allowed = allowed.or(self.allowed.take());
        if self.depth == 0 {
            self.outside(code, module)
        } else {
            self.inside(code, module)
        }
        if self.begun.is_none() {
            self.allowed = None;
        }
    }

    fn outside(&mut self, code: &'a str, module: &mut Module<'a>) {
        if let Some(version) = code.strip_prefix(".version ") {
            let mut numbers = version.split('.').map(|number| number.trim().parse().unwrap_or(0));
            module.version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        } else if let Some(rest) = code.strip_prefix(".file") {
            let mut words = rest.split('"');
            if let (Some(Ok(number)), Some(path)) = (words.next().map(|number| number.trim().parse()), words.next()) {
                module.files.insert(number, path);
            }
        }
        if code.contains(".func") || code.contains(".entry") {
            self.header = Some(symbol(code));
            self.entry = code.contains(".entry");
            if code.contains(".extern") {
                module.missing.push(symbol(code));
                self.header = None;
            }
        }
        if let (Some(name), true) = (self.header, code.starts_with(".noreturn")) {
            module.endless.insert(name);
        }
        if code.ends_with(';') {
            self.header = None; // a declaration
        }
        if code.contains('{') && self.header.is_some() {
            self.depth = 1;
            self.place = None;
            let name = self.header.take().unwrap_or_default();
            module.functions.push(Function { name, entry: self.entry, body: Vec::new() });
        }
    }

    fn inside(&mut self, code: &'a str, module: &mut Module<'a>) {
        let offset = |part: &str| part.as_ptr() as usize - self.ptx.as_ptr() as usize;
        let code = self.begun.take().map_or(code, |begun| &self.ptx[offset(begun)..offset(code) + code.len()]);
        if vector_is_open(code) {
            self.begun = Some(code);
            return;
        }
        if let Some(place) = code.strip_prefix(".loc").filter(|rest| rest.starts_with(char::is_whitespace)) {
            let mut numbers = place.split_whitespace().map_while(|number| number.trim_end_matches(',').parse().ok());
            self.place = numbers.next().zip(numbers.next());
            return;
        }
        let Some(function) = module.functions.last_mut() else { return };
        for part in split(code) {
            match part {
                "{" => self.depth += 1,
                "}" => self.depth -= 1,
                text => function.body.push(Statement::new(function.name, text, self.allowed, self.place)),
            }
        }
    }
}

/// Finds the calls of functions that never return. LLVM writes a call with parameters over several lines, of which the second has the name.
fn mark_last(body: &mut [Statement<'_>], endless: &BTreeSet<&str>) {
    for n in 0..body.len() {
        let called = body[n..].iter().take(2).flat_map(|statement| statement.text.split([',', ' ', '\t']));
        body[n].last = body[n].opcode().starts_with("call") && called.into_iter().any(|word| endless.contains(word));
    }
}

/// The name in `.visible .entry name(` or `.func (.param .b32 x) name(`.
pub(super) fn symbol(code: &str) -> &str {
    let after = code.split_once(".entry").or_else(|| code.split_once(".func")).map_or(code, |(_, after)| after).trim_start();
    let after = after.strip_prefix('(').and_then(|result| result.split_once(')')).map_or(after, |(_, after)| after).trim_start();
    after.split(['(', ' ', ';', '{']).next().unwrap_or(after)
}

/// Whether the last statement of the text is in the middle of a vector: inline assembly writes one register on a line.
fn vector_is_open(code: &str) -> bool {
    let last = code.rsplit(';').next().unwrap_or_default().trim_start_matches(|c: char| "{}".contains(c) || c.is_whitespace());
    last.matches('{').count() > last.matches('}').count()
}

/// Statements of a line, with the braces of scopes (not those of vectors) on their own.
fn split(code: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for text in code.split_inclusive([';', ':']) {
        // A colon ends a label only at the end of a word: `shared::cta` has two.
        let mut text = text.trim();
        while let Some(rest) = text.strip_prefix(['{', '}']) {
            parts.push(&text[..1]);
            text = rest.trim_start();
        }
        if !text.is_empty() {
            parts.push(text);
        }
    }
    join_colons(code, parts)
}

/// Undoes the cut at colons that end no label.
fn join_colons<'a>(code: &'a str, parts: Vec<&'a str>) -> Vec<&'a str> {
    let mut joined: Vec<&'a str> = Vec::with_capacity(parts.len());
    let offset = |part: &str| part.as_ptr() as usize - code.as_ptr() as usize;
    for part in parts {
        match joined.last_mut() {
            Some(last) if last.ends_with(':') && !is_label(last) => *last = &code[offset(last)..offset(part) + part.len()],
            _ => joined.push(part),
        }
    }
    joined.into_iter().map(|part| part.strip_suffix(';').unwrap_or(part).trim_end()).filter(|part| !part.is_empty()).collect()
}

fn is_label(text: &str) -> bool {
    let name = text.trim_end_matches(':');
    text.len() - name.len() == 1 && !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_$%".contains(&c))
}

fn unpredicated(text: &str) -> &str {
    match text.strip_prefix('@') {
        Some(rest) => rest.split_once(char::is_whitespace).map_or(rest, |(_, instruction)| instruction.trim_start()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
.version 8.6
.target sm_90a
.extern .func (.param .b32 r) missing
(
	.param .b64 a
)
;
.func helper
(
	.param .b32 a
)
;
.visible .entry mlp(
	.param .u64 p
)
{
	.reg .b32 	%r<2>;
	.loc	2 7 5
$L__BB0_1:
	// begin inline asm
	{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], %r2; selp.u32 %r0, 1, 0, p;}
	// end inline asm
	@%p1 bra 	$L__BB0_1;
	// begin inline asm
	{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {
%r1
, %r2
}, %rd2, %rd3, p, 1, 1, 0, 0;}
	// end inline asm
	// maco:allow(fence.proxy.async)
	fence.proxy.async;
	ld.global.v2.b32 	{%r1, %r2}, [%rd1];
	ret;
	call.uni helper, ();
	call.uni 
	panics, 
	(
	param0
	);
}
.func panics(.param .b64 a)
.noreturn
{
	trap;
}
	.file	2 "/user/src/kernels.rs"
"#;

    #[test]
    fn statements_come_out_whole() {
        let module = Module::parse(TEXT);
        assert_eq!(module.version, (8, 6));
        assert_eq!(module.missing, ["missing"]);
        let [entry, _] = &*module.functions else { panic!("{:?}", module.functions) };
        assert_eq!(entry.name, "mlp");
        let texts: Vec<&str> = entry.body.iter().map(|statement| statement.text).collect();
        assert_eq!(
            texts,
            [
                ".reg .b32 \t%r<2>",
                "$L__BB0_1:",
                ".reg .pred p",
                "mbarrier.try_wait.parity.shared::cta.b64 p, [%r1], %r2",
                "selp.u32 %r0, 1, 0, p",
                "bra \t$L__BB0_1",
                ".reg .pred p",
                "setp.eq.u32 p, 0, 0",
                "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {\n%r1\n, %r2\n}, %rd2, %rd3, p, 1, 1, 0, 0",
                "fence.proxy.async",
                "ld.global.v2.b32 \t{%r1, %r2}, [%rd1]",
                "ret",
                "call.uni helper, ()",
                "call.uni",
                "panics,",
                "(",
                "param0",
                ")"
            ]
        );
        assert_eq!(entry.body[1].label(), Some("$L__BB0_1"));
        assert_eq!(entry.body[5].branch(), Some("$L__BB0_1"));
    }

    #[test]
    fn a_call_that_never_returns_is_known() {
        let module = Module::parse(TEXT);
        let last: Vec<usize> =
            module.functions[0].body.iter().enumerate().filter(|(_, statement)| statement.last).map(|(n, _)| n).collect();
        assert_eq!(last, [13]);
    }

    #[test]
    fn a_permission_holds_for_one_statement() {
        let module = Module::parse(TEXT);
        let allowed: Vec<&str> = module.functions[0]
            .body
            .iter()
            .filter(|statement| statement.allows("fence.proxy.async"))
            .map(|statement| statement.text)
            .collect();
        assert_eq!(allowed, ["fence.proxy.async"]);
    }

    #[test]
    fn places_are_those_of_the_rust_source() {
        let module = Module::parse(TEXT);
        assert_eq!(module.place(&module.functions[0].body[3]).as_deref(), Some("/user/src/kernels.rs:7"));
    }
}
