//! Reads modules (PTX ISA §5.4, §7.1, §11).

use crate::lex::{Lexer, Token, number};
use crate::{Error, Function, Kind, Module, Statement, Variable, bytes_of};

/// How the comments begin that are for readers of PTX.
const MARK: &str = "maco:";

/// A text that is being read.
pub struct Reader<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    module: Module<'a>,
    /// Where a declaration begins whose first words, as `.visible`, are behind.
    begun: Option<usize>,
    external: bool,
    /// What comments say about the next instruction.
    allowed: Option<&'a str>,
    tag: Option<(u32, &'a str)>,
    /// Between the comments of LLVM around inline assembly.
    inline: bool,
    place: Option<(u32, u32)>,
}

impl<'a> Reader<'a> {
    /// At the beginning of a text.
    pub fn new(text: &'a str) -> Reader<'a> {
        let (lexer, module) = (Lexer::new(text, 0, 1), Module::default());
        Reader { text, lexer, module, begun: None, external: false, allowed: None, tag: None, inline: false, place: None }
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T, Error> {
        Err(Error { line: self.lexer.line, what: what.into() })
    }

    /// To the end.
    pub fn module(mut self) -> Result<Module<'a>, Error> {
        loop {
            while self.lexer.comment().is_some() {}
            let at = self.lexer.at;
            match self.lexer.next() {
                Token::End => return Ok(self.module),
                Token::Word(".version") => {
                    let version = if let Token::Word(word) = self.lexer.next() { word } else { "" };
                    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
                    self.module.version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                }
                Token::Word(".target" | ".address_size") => self.lexer.skip_line(),
                Token::Word(".file") => {
                    if let (Token::Word(number), Token::Text(path)) = (self.lexer.next(), self.lexer.next()) {
                        self.module.files.insert(number.parse().unwrap_or(0), path);
                    }
                    self.lexer.skip_line();
                }
                Token::Word(".section") => while !matches!(self.lexer.next(), Token::Mark(b'}') | Token::End) {},
                Token::Word(".pragma") => self.behind_semicolon()?,
                Token::Word(".alias") => return self.error("`.alias` is not read here"),
                Token::Word(word @ (".func" | ".entry")) => {
                    let begin = self.begun.take().unwrap_or(at);
                    self.function(word == ".entry", begin)?;
                    self.external = false;
                }
                Token::Word(space @ (".shared" | ".global" | ".const")) => {
                    let variable = self.declaration(space)?;
                    self.module.variables.push(variable);
                    (self.begun, self.external) = (None, false);
                }
                Token::Word(word @ (".visible" | ".extern" | ".weak" | ".common")) => {
                    self.external |= word == ".extern";
                    self.begun.get_or_insert(at);
                }
                _ => {}
            }
        }
    }

    fn behind_semicolon(&mut self) -> Result<(), Error> {
        loop {
            match self.lexer.next() {
                Token::Mark(b';') => return Ok(()),
                Token::End => return self.error("the text ends in a directive"),
                _ => {}
            }
        }
    }

    fn function(&mut self, entry: bool, begin: usize) -> Result<(), Error> {
        let mut function = Function { entry, external: self.external, ..Function::default() };
        if self.lexer.take(b'(') {
            function.results = self.parameters()?;
        }
        let Token::Word(name) = self.lexer.next() else { return self.error("a function without name") };
        function.name = name;
        if self.lexer.take(b'(') {
            function.parameters = self.parameters()?;
        }
        loop {
            match self.lexer.next() {
                Token::Mark(b';') => {
                    function.span = begin..self.lexer.at;
                    self.module.declarations.push(function);
                    return Ok(());
                }
                Token::Mark(b'{') => break,
                Token::End => return self.error("the text ends in the head of a function"),
                Token::Word(word) if word.starts_with('.') => function.directives.push((word, self.numbers())),
                _ => {}
            }
        }
        function.open = self.lexer.at - 1;
        self.place = None;
        self.body(&mut function)?;
        function.span = begin..self.lexer.at;
        self.module.functions.push(function);
        Ok(())
    }

    fn numbers(&mut self) -> Vec<u32> {
        let mut found = Vec::new();
        while let Token::Word(word) = self.lexer.peek() {
            let Ok(number) = word.parse() else { break };
            self.lexer.next();
            found.push(number);
            if !self.lexer.take(b',') {
                break;
            }
        }
        found
    }

    /// To the closing parenthesis.
    fn parameters(&mut self) -> Result<Vec<Variable<'a>>, Error> {
        let mut found = Vec::new();
        while !self.lexer.take(b')') {
            if self.lexer.peek() == Token::End {
                return self.error("the text ends in parameters");
            }
            found.push(self.declaration(".param")?);
        }
        Ok(found)
    }

    /// `.align 16 .b8 name[32]`, to behind a comma or semicolon, or to a closing parenthesis.
    fn declaration(&mut self, space: &'a str) -> Result<Variable<'a>, Error> {
        let mut variable = Variable::read(&mut self.lexer)?;
        variable.space = space;
        Ok(variable)
    }

    /// What a comment says to readers of PTX.
    fn hear(&mut self, comment: &'a str, line: u32) {
        match comment {
            "begin inline asm" => self.inline = true,
            "end inline asm" => self.inline = false,
            _ => {}
        }
        let Some(said) = comment.strip_prefix(MARK).map(str::trim) else { return };
        match said.strip_prefix("allow(").and_then(|what| what.split_once(')')) {
            Some((what, _)) => self.allowed = Some(what),
            None => self.module.stray.extend(self.tag.replace((line, said))),
        }
    }

    /// To behind the brace that closes the body.
    fn body(&mut self, function: &mut Function<'a>) -> Result<(), Error> {
        let name = function.name;
        let mut depth = 1;
        while depth > 0 {
            while let Some(comment) = self.lexer.comment() {
                let line = self.lexer.line;
                self.hear(comment, line);
            }
            let (from, line) = (self.lexer.at, self.lexer.line);
            let (kind, begin, guard) = match self.lexer.next() {
                Token::End => return self.error(format!("the text ends in `{name}`")),
                Token::Mark(b';') => continue,
                Token::Mark(b'{') => {
                    depth += 1;
                    (Kind::Open, from, None)
                }
                Token::Mark(b'}') => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                    (Kind::Close, from, None)
                }
                Token::Word(".loc") => {
                    let numbers = (self.lexer.next(), self.lexer.next());
                    if let (Token::Word(file), Token::Word(line)) = numbers {
                        self.place = file.parse().ok().zip(line.parse().ok());
                    }
                    self.lexer.skip_line();
                    continue;
                }
                Token::Word(".file") => {
                    self.lexer.skip_line();
                    continue;
                }
                Token::Mark(b'@') => {
                    let begin = self.lexer.at;
                    self.lexer.take(b'!');
                    let Token::Word(_) = self.lexer.next() else { return self.error("a predicate is missing") };
                    let guard = self.text[begin..self.lexer.at].trim();
                    while self.lexer.comment().is_some() {}
                    let begin = self.lexer.at;
                    (Kind::Instruction, begin, Some(guard))
                }
                Token::Word(word) if word.starts_with('.') => (Kind::Directive, from, None),
                Token::Word(_) if self.lexer.take(b':') => (Kind::Label, from, None),
                Token::Word(_) => (Kind::Instruction, from, None),
                other => return self.error(format!("{other:?} in `{name}`")),
            };
            let mut end = self.lexer.at;
            if matches!(kind, Kind::Instruction | Kind::Directive) {
                end = self.end_of_statement(name)?;
            }
            let text = self.text[begin..end].trim_end();
            let mut statement = Statement::new(kind, name, text, guard, line);
            statement.place = self.place;
            statement.inline = self.inline;
            if let Some(comment) = self.lexer.comment_behind() {
                self.hear(comment, line);
            }
            if kind == Kind::Instruction {
                statement.allowed = self.allowed.take();
                statement.tag = self.tag.take().map(|(_, tag)| tag);
            }
            function.body.push(statement);
        }
        self.module.stray.extend(self.tag.take());
        (self.allowed, self.inline) = (None, false);
        Ok(())
    }

    /// Behind the semicolon that ends a statement; where that is.
    fn end_of_statement(&mut self, function: &str) -> Result<usize, Error> {
        let mut depth = 0;
        loop {
            match self.lexer.next() {
                Token::Mark(b'{') => depth += 1,
                Token::Mark(b'}') if depth == 0 => return self.error(format!("a semicolon is missing in `{function}`")),
                Token::Mark(b'}') => depth -= 1,
                Token::Mark(b';') if depth == 0 => return Ok(self.lexer.at - 1),
                Token::End => return self.error(format!("the text ends in `{function}`")),
                _ => {}
            }
        }
    }
}

impl<'a> Variable<'a> {
    /// `.align 16 .b8 name[32]`, with or without the state space before it, to behind a comma or semicolon, or to a closing parenthesis or the end.
    ///
    /// # Errors
    /// A size or value is no number.
    pub fn read(lexer: &mut Lexer<'a>) -> Result<Variable<'a>, Error> {
        let mut variable = Variable::default();
        let error = |lexer: &Lexer<'_>, what: String| Err(Error { line: lexer.line, what });
        loop {
            match lexer.peek() {
                Token::End | Token::Mark(b')') => break,
                Token::Mark(b',' | b';') => {
                    lexer.next();
                    break;
                }
                Token::Mark(b'[') => {
                    lexer.next();
                    match lexer.next() {
                        Token::Word(count) => {
                            let Some(count) = number(count).and_then(|count| u32::try_from(count).ok()) else {
                                return error(lexer, format!("`{count}` is no size"));
                            };
                            variable.bytes *= count;
                            lexer.next();
                        }
                        _ => variable.bytes = 0,
                    }
                }
                Token::Mark(b'=') => {
                    lexer.next();
                    variable.data = values(lexer, variable.bytes)?;
                }
                Token::Word(".align") => {
                    lexer.next();
                    if let Token::Word(word) = lexer.next() {
                        variable.align = word.parse().unwrap_or(1);
                    }
                }
                Token::Word(word) if word.starts_with('.') => {
                    lexer.next();
                    match bytes_of(&word[1..]) {
                        Some(bytes) => (variable.bytes, variable.align) = (bytes, variable.align.max(bytes)),
                        None if variable.space.is_empty() => variable.space = word,
                        None => {}
                    }
                }
                Token::Word(word) => {
                    lexer.next();
                    variable.name = word;
                }
                _ => {
                    lexer.next();
                }
            }
        }
        variable.align = variable.align.max(1);
        Ok(variable)
    }
}

/// What a variable holds at first: an array of bytes, as compilers write them, or one number.
fn values(lexer: &mut Lexer<'_>, bytes: u32) -> Result<Vec<u8>, Error> {
    let mut data = Vec::new();
    let braces = lexer.take(b'{');
    loop {
        let mut negative = false;
        match lexer.peek() {
            Token::Mark(b';') => break,
            Token::Mark(b'}') => {
                lexer.next();
                break;
            }
            Token::Mark(b'-') => {
                lexer.next();
                negative = true;
            }
            Token::Mark(_) => {
                lexer.next();
                continue;
            }
            _ => {}
        }
        let Token::Word(word) = lexer.next() else { break };
        let Some(value) = number(word) else {
            return Err(Error { line: lexer.line, what: format!("`{word}` is no number that a variable can hold") });
        };
        let value = if negative { value.wrapping_neg() } else { value };
        if braces {
            data.push(value as u8);
        } else {
            data.extend_from_slice(&value.to_le_bytes()[..(bytes as usize).min(8)]);
        }
    }
    Ok(data)
}
