//! A statement as it is written.

/// What a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{`: names that are declared from here on are gone behind the brace that closes it.
    Open,
    /// `}`.
    Close,
    /// `$L:`.
    Label,
    /// `.reg .b32 %r<4>`, and the like.
    Directive,
    /// All that runs.
    Instruction,
}

/// One statement of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement<'a> {
    /// What it is.
    pub kind: Kind,
    /// The symbol of the function it is in.
    pub function: &'a str,
    /// Without predicate, comments before and behind it, and the final semicolon; a label keeps its colon.
    pub text: &'a str,
    /// The first word: every rule asks for it.
    opcode: &'a str,
    /// The predicate under which it runs, as it is written: `%p1`, or `!%p1`.
    pub guard: Option<&'a str>,
    /// What a comment `// maco:allow(…)` permits, which stands before an instruction or behind it in its line.
    pub allowed: Option<&'a str>,
    /// What a comment `// maco: …`, likewise, says that an instruction is for.
    pub tag: Option<&'a str>,
    /// Whether it is of inline assembly, by the comments that LLVM writes around it.
    pub inline: bool,
    /// A call of a function that never returns, as of a panic.
    pub last: bool,
    /// The line that it begins in.
    pub line: u32,
    /// `.loc`: file number and line of the source.
    pub(crate) place: Option<(u32, u32)>,
}

impl<'a> Statement<'a> {
    /// Of text as [`Statement::text`].
    pub(crate) fn new(kind: Kind, function: &'a str, text: &'a str, guard: Option<&'a str>, line: u32) -> Statement<'a> {
        let opcode = text.split_whitespace().next().unwrap_or_default();
        Statement { kind, function, text, opcode, guard, allowed: None, tag: None, inline: false, last: false, line, place: None }
    }

    /// The same statement in other words, which begin with its predicate: `@%p1 bra $L`, or `$L:`.
    pub fn says<'b>(&self, words: &'b str) -> Statement<'b>
    where
        'a: 'b,
    {
        let (guard, text) = match words.strip_prefix('@').and_then(|rest| rest.split_once(char::is_whitespace)) {
            Some((guard, text)) => (Some(guard), text.trim_start()),
            None => (None, words),
        };
        let kind = if text.ends_with(':') { Kind::Label } else { self.kind };
        let said = Statement::new(kind, self.function, text, guard, self.line);
        let same = said.opcode == self.opcode;
        Statement {
            allowed: self.allowed,
            tag: self.tag.filter(|_| same),
            inline: self.inline,
            last: self.last && same,
            place: self.place,
            ..said
        }
    }

    /// `ld.global.b32` of `ld.global.b32 %r1, [%rd2]`.
    pub fn opcode(&self) -> &'a str {
        self.opcode
    }

    /// What is behind the opcode.
    pub fn operands(&self) -> &'a str {
        self.text[self.opcode.len()..].trim_start()
    }

    /// The label this statement is.
    pub fn label(&self) -> Option<&'a str> {
        self.text.strip_suffix(':').filter(|_| self.kind == Kind::Label)
    }

    /// The label this statement jumps to.
    pub fn branch(&self) -> Option<&'a str> {
        self.opcode.starts_with("bra").then(|| self.text.split_whitespace().nth(1)).flatten()
    }

    /// The function that this statement calls; not through a pointer.
    pub fn callee(&self) -> Option<&'a str> {
        let rest = Some(self.operands()).filter(|_| self.opcode == "call" || self.opcode.starts_with("call."))?;
        let rest = rest.strip_prefix('(').and_then(|result| result.split_once(')')).map_or(rest, |(_, rest)| rest);
        let behind = |c: char| c == ',' || c.is_whitespace();
        let name = rest.trim_start_matches(behind).split(behind).next()?;
        (!name.is_empty() && !name.starts_with('%')).then_some(name)
    }

    /// Does the source permit `what` here?
    pub fn allows(&self, what: &str) -> bool {
        self.allowed == Some(what)
    }
}
