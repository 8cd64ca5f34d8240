//! A module: its functions, variables and source files, and where each lies in the text.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::reader::Reader;
use crate::{Error, Statement};

/// A PTX file.
#[derive(Clone, Debug, Default)]
pub struct Module<'a> {
    /// `.version`, as (major, minor).
    pub version: (u32, u32),
    /// Entries and functions with a body, in order.
    pub functions: Vec<Function<'a>>,
    /// Those without one, which another file or a later part of this one has.
    pub declarations: Vec<Function<'a>>,
    /// Variables outside functions, in order.
    pub variables: Vec<Variable<'a>>,
    /// Tags with no instruction behind them: the line and what is said.
    pub stray: Vec<(u32, &'a str)>,
    pub(crate) files: BTreeMap<u32, &'a str>,
}

/// An entry or a function.
#[derive(Clone, Debug, Default)]
pub struct Function<'a> {
    /// Its symbol.
    pub name: &'a str,
    /// `.entry`, not `.func`.
    pub entry: bool,
    /// `.extern`: another file has it.
    pub external: bool,
    /// What it returns.
    pub results: Vec<Variable<'a>>,
    /// What it takes.
    pub parameters: Vec<Variable<'a>>,
    /// Directives between its parameters and its body, with their numbers: `.maxntid` with 384, 1, 1.
    pub directives: Vec<(&'a str, Vec<u32>)>,
    /// Where it lies in the text, from its first directive to the brace or semicolon at its end.
    pub span: Range<usize>,
    /// The brace that opens the body.
    pub open: usize,
    /// Statements, labels, directives and braces of the body, in order.
    pub body: Vec<Statement<'a>>,
}

impl Function<'_> {
    /// The numbers of a directive of the head, if it is there.
    pub fn directive(&self, name: &str) -> Option<&[u32]> {
        self.directives.iter().find(|(other, _)| *other == name).map(|(_, numbers)| &**numbers)
    }
}

/// A variable of a module, or a parameter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable<'a> {
    /// Its symbol.
    pub name: &'a str,
    /// `.global`, `.shared`, `.const`, `.param`, …: the first directive that names a state space.
    pub space: &'a str,
    /// Bytes in all; 0 of an array without a size.
    pub bytes: u32,
    /// Bytes that its address is a multiple of.
    pub align: u32,
    /// What it holds at first; zeros behind that.
    pub data: Vec<u8>,
}

impl<'a> Module<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// The text is not PTX, or an `.alias`.
    pub fn parse(text: &'a str) -> Result<Module<'a>, Error> {
        let mut module = Reader::new(text).module()?;
        let all = module.functions.iter().chain(&module.declarations);
        let endless: BTreeSet<&str> =
            all.filter(|function| function.directive(".noreturn").is_some()).map(|function| function.name).collect();
        for statement in module.functions.iter_mut().flat_map(|function| &mut function.body) {
            statement.last = statement.callee().is_some_and(|callee| endless.contains(callee));
        }
        Ok(module)
    }

    /// The function of this name that has a body.
    pub fn function(&self, name: &str) -> Option<&Function<'a>> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// Functions that are called but not defined: `.extern .func`.
    pub fn missing(&self) -> impl Iterator<Item = &'a str> {
        self.declarations.iter().chain(&self.functions).filter(|function| function.external).map(|function| function.name)
    }

    /// `file:line` of the source behind a statement.
    pub fn place(&self, statement: &Statement<'_>) -> Option<String> {
        let (file, line) = statement.place?;
        Some(format!("{}:{line}", self.files.get(&file)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

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
        let module = Module::parse(TEXT).unwrap();
        assert_eq!(module.version, (8, 6));
        assert_eq!(module.missing().collect::<Vec<_>>(), ["missing"]);
        let [entry, _] = &*module.functions else { panic!("{:?}", module.functions) };
        assert_eq!((entry.name, entry.entry, entry.parameters[0].name, entry.parameters[0].bytes), ("mlp", true, "p", 8));
        assert!(TEXT[entry.span.clone()].starts_with(".visible .entry mlp(") && TEXT[entry.span.clone()].ends_with("\n}"));
        let texts: Vec<&str> = entry.body.iter().map(|statement| statement.text).filter(|text| !["{", "}"].contains(text)).collect();
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
                "call.uni \n\tpanics, \n\t(\n\tparam0\n\t)"
            ]
        );
        let inline: Vec<bool> =
            entry.body.iter().filter(|statement| statement.kind == Kind::Instruction).map(|statement| statement.inline).collect();
        assert_eq!(inline, [true, true, false, true, true, false, false, false, false, false]);
        assert_eq!((entry.body[1].label(), entry.body[1].kind), (Some("$L__BB0_1"), Kind::Label));
        let jump = entry.body.iter().find(|statement| statement.branch().is_some()).unwrap();
        assert_eq!((jump.branch(), jump.guard), (Some("$L__BB0_1"), Some("%p1")));
        let calls: Vec<&str> = entry.body.iter().filter_map(Statement::callee).collect();
        assert_eq!(calls, ["helper", "panics"]);
    }

    #[test]
    fn a_call_that_never_returns_is_known() {
        let module = Module::parse(TEXT).unwrap();
        let last: Vec<_> = module.functions[0].body.iter().filter(|statement| statement.last).map(Statement::callee).collect();
        assert_eq!(last, [Some("panics")]);
    }

    #[test]
    fn a_permission_holds_for_one_statement() {
        let module = Module::parse(TEXT).unwrap();
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
        let module = Module::parse(TEXT).unwrap();
        assert_eq!(module.place(&module.functions[0].body[4]).as_deref(), Some("/user/src/kernels.rs:7"));
    }

    #[test]
    fn a_tag_is_said_of_one_instruction() {
        let text = ".entry k()\n{\n\t// begin inline asm\n{.reg .pred p;\n// maco: wait.gpu\nld.u32 %r1, [%rd1]; st.u32 [%rd1], 0;}\n\
                    /* maco: first */ bar.sync 0;\nbar.sync 1; // maco: second\n// maco: none\n}\n";
        let module = Module::parse(text).unwrap();
        let tagged: Vec<_> = module.functions[0].body.iter().filter_map(|s| Some((s.opcode(), s.line, s.tag?))).collect();
        assert_eq!(tagged, [("ld.u32", 6, "wait.gpu"), ("bar.sync", 7, "first"), ("bar.sync", 8, "second")]);
        assert_eq!(module.stray, [(9, "none")]);
    }

    #[test]
    fn variables_have_sizes_and_values() {
        let text = ".extern .shared .align 1024 .b8 s[];\n.global .align 4 .b8 t[6] = {1, 2, -1};\n.const .u32 c = 0x102;\n";
        let module = Module::parse(text).unwrap();
        let all: Vec<_> = module.variables.iter().map(|v| (v.name, v.space, v.bytes, v.align, &*v.data)).collect();
        let expected: [(_, _, _, _, &[u8]); 3] =
            [("s", ".shared", 0, 1024, &[]), ("t", ".global", 6, 4, &[1, 2, 255]), ("c", ".const", 4, 4, &[2, 1, 0, 0])];
        assert_eq!(all, expected);
    }

    #[test]
    fn text_that_ends_early_is_an_error() {
        for text in [".entry k(", ".entry k()\n{\nret;\n", ".entry k()\n{\nret\n}\n", ".alias a, b;", ".global .u32 g = x;"] {
            assert!(Module::parse(text).is_err(), "{text}");
        }
        let error = Module::parse(".entry k()\n{\nret\n}\n").unwrap_err().to_string();
        assert_eq!(error, "PTX line 4: a semicolon is missing in `k`");
    }
}
