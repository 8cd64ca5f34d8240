//! What stands in a body: statements, labels, declarations, and whose names these are.

use maco_ptx::{Kind, Lexer, Statement, Token};

use super::*;
use crate::ptx::module::{SHARED_START, Variable};

impl<'a> Body<'a, '_> {
    pub(super) fn error<T>(&self, text: impl std::fmt::Display) -> Result<T, String> {
        Err(format!("PTX line {}: {text}", self.line))
    }

    pub(super) fn statements(&mut self, statements: &'a [Statement<'a>]) -> Result<(), String> {
        let mut label = "";
        for statement in statements {
            self.line = statement.line;
            self.lexer = Lexer::new(statement.text, 0, statement.line);
            match statement.kind {
                Kind::Open => self.scopes.push(Scope::default()),
                Kind::Close => {
                    self.scopes.pop();
                }
                Kind::Label => {
                    label = statement.label().unwrap_or_default();
                    let at = self.decoder.here();
                    if self.labels.insert(label.into(), at).is_some() {
                        return self.error(format!("label `{label}` twice"));
                    }
                }
                Kind::Directive => {
                    self.lexer.next();
                    self.directive(statement.opcode(), label)?;
                }
                Kind::Instruction => {
                    if let Some(guard) = statement.guard {
                        let name = guard.trim_start_matches('!').trim_start();
                        let Some((slot, 1)) = self.register(name) else { return self.error(format!("guard `{name}`")) };
                        self.guard = (slot, guard.starts_with('!'));
                    }
                    let maco_ptx::Token::Word(word) = self.lexer.next() else { return self.error("an instruction") };
                    self.instruction(word)?;
                    self.guard = (NONE, false);
                }
            }
        }
        // Behind the last instruction.
        let last = self.decoder.program.code.last().map(|inst| (inst.op, inst.guard));
        if !matches!(last, Some((Op::Ret | Op::Exit | Op::Bra | Op::Trap, NONE))) {
            self.emit(Op::Exit, |_| {});
        }
        for (at, label) in std::mem::take(&mut self.fixes) {
            let Some(&target) = self.labels.get(&label) else { return self.error(format!("no label `{label}`")) };
            self.decoder.program.code[at as usize].x = target as i32;
        }
        for (at, table) in std::mem::take(&mut self.tables) {
            let Some(names) = self.targets.get(&table) else { return self.error(format!("no targets `{table}`")) };
            let targets: Option<Vec<Slot>> = names.iter().map(|name| self.labels.get(name).copied()).collect();
            let Some(targets) = targets else { return self.error(format!("targets `{table}`")) };
            self.decoder.program.code[at as usize].x = self.decoder.list(targets);
        }
        Ok(())
    }

    /// A variable, as it is declared in the rest of the statement.
    fn declared(&mut self) -> Result<maco_ptx::Variable<'a>, String> {
        maco_ptx::Variable::read(&mut self.lexer).map_err(|error| error.to_string())
    }

    /// Behind its first word, and behind that label.
    fn directive(&mut self, word: &str, label: &str) -> Result<(), String> {
        match word {
            ".pragma" => {}
            ".branchtargets" => {
                let mut names = Vec::new();
                loop {
                    match self.lexer.next() {
                        Token::Word(name) => names.push(name.to_string()),
                        Token::End => break,
                        _ => {}
                    }
                }
                self.targets.insert(label.into(), names);
            }
            ".reg" => {
                let Token::Word(ty) = self.lexer.next() else { return self.error("a type") };
                let Some(ty) = Ty::of(&ty[1..]) else { return self.error(format!("registers of `{ty}`")) };
                let class = match ty {
                    Ty::Pred => 1,
                    ty => match ty.bytes() {
                        1 => 2,
                        bytes => bytes as Class,
                    },
                };
                loop {
                    let Token::Word(name) = self.lexer.next() else { return self.error("a register's name") };
                    if self.lexer.take(b'<') {
                        let Token::Word(count) = self.lexer.next() else { return self.error("a number") };
                        let count: u32 = count.parse().map_err(|_| "a number of registers")?;
                        self.lexer.next();
                        let first = self.decoder.allocate(size_of_class(class).max(64).max(size_of_class(class) * count));
                        self.scopes.last_mut().unwrap().ranges.push((name.into(), class, first, count));
                    } else {
                        let slot = self.decoder.allocate(size_of_class(class));
                        self.scopes.last_mut().unwrap().registers.insert(name.into(), (slot, class));
                    }
                    if !self.lexer.take(b',') {
                        break;
                    }
                }
            }
            ".param" => {
                let variable = self.declared()?;
                let slot = self.decoder.allocate(32 * variable.bytes);
                self.scopes.last_mut().unwrap().parameters.insert(variable.name.to_owned(), (slot, variable.bytes));
            }
            ".local" => {
                let variable = self.declared()?;
                let at = self.decoder.program.local.next_multiple_of(variable.align.max(16));
                self.decoder.program.local = at + variable.bytes;
                self.scopes.last_mut().unwrap().locals.insert(variable.name.to_owned(), at);
            }
            ".shared" => {
                let variable = self.declared()?;
                let at = self.decoder.program.shared.next_multiple_of(variable.align);
                self.decoder.program.shared = at + variable.bytes;
                self.scopes.last_mut().unwrap().shared.insert(variable.name.to_owned(), SHARED_START + at);
            }
            _ => return self.error(format!("directive `{word}`")),
        }
        Ok(())
    }

    pub(super) fn register(&self, name: &str) -> Option<(Slot, Class)> {
        for scope in self.scopes.iter().rev() {
            if let Some(&found) = scope.registers.get(name) {
                return Some(found);
            }
            for (prefix, class, first, count) in &scope.ranges {
                if let Some(index) = name.strip_prefix(prefix.as_str())
                    && let Ok(index) = index.parse::<u32>()
                    && index < *count
                {
                    return Some((first + index * size_of_class(*class), *class));
                }
            }
        }
        None
    }

    /// Place of a variable in a thread's local memory.
    pub(super) fn local(&self, name: &str) -> Option<u32> {
        self.scopes.iter().rev().find_map(|scope| scope.locals.get(name).copied())
    }

    pub(super) fn parameter(&self, name: &str) -> Option<(Slot, u32, bool)> {
        for (depth, scope) in self.scopes.iter().enumerate().rev() {
            if let Some(&(slot, bytes)) = scope.parameters.get(name) {
                return Some((slot, bytes, depth == 0 && self.entry));
            }
        }
        None
    }

    /// Address of a variable in its own space: shared, or global.
    pub(super) fn variable(&self, name: &str) -> Option<u64> {
        for scope in self.scopes.iter().rev() {
            if let Some(&at) = scope.shared.get(name) {
                return Some(u64::from(at));
            }
            if let Some(&at) = scope.locals.get(name) {
                return Some(u64::from(at));
            }
        }
        match self.decoder.module.variables.get(name)? {
            Variable::Shared(at) => Some(u64::from(*at)),
            Variable::Global(at) => Some(*at),
        }
    }

    pub(super) fn emit(&mut self, op: Op, fill: impl FnOnce(&mut Inst)) {
        let mut inst = Inst {
            op,
            ty: Ty::B32,
            ty2: Ty::B32,
            n: 0,
            space: Space::Generic,
            flag: 0,
            dw: 4,
            aw: 4,
            guard: self.guard.0,
            guard_not: self.guard.1,
            d: NONE,
            a: NONE,
            b: NONE,
            c: NONE,
            x: 0,
            line: self.line,
        };
        fill(&mut inst);
        self.decoder.program.code.push(inst);
    }
}
