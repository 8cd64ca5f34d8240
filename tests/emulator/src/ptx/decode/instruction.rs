//! One instruction: its words, and the family that knows it.

use maco_ptx::Token;

use super::operands::Operand;
use super::*;

/// An instruction as it is written.
#[derive(Clone, Copy)]
pub(super) struct Parsed<'p> {
    /// The whole name, and its parts: the first, and those behind it.
    pub word: &'p str,
    pub base: &'p str,
    pub mods: &'p [&'p str],
    /// The last type of the name, and the class of its registers.
    pub ty: Ty,
    pub class: Class,
    pub operands: &'p [Operand],
}

impl Parsed<'_> {
    pub fn has(&self, name: &str) -> bool {
        self.mods.contains(&name)
    }

    /// The number of the first of these names that it has.
    pub fn which(&self, names: &[&str]) -> Option<u8> {
        names.iter().position(|name| self.has(name)).map(|at| at as u8)
    }

    pub fn types(&self) -> Vec<Ty> {
        self.mods.iter().filter_map(|name| Ty::of(name)).collect()
    }

    pub fn flags(&self) -> u8 {
        let mut flag = 0;
        flag |= if self.has("NaN") { F_NAN } else { 0 };
        flag |= if self.has("ftz") { F_FTZ } else { 0 };
        flag |= if self.has("sat") || self.has("satfinite") { F_SAT } else { 0 };
        flag |= if self.has("relu") { F_RELU } else { 0 };
        flag
    }

    pub fn space(&self) -> Space {
        for name in self.mods {
            match *name {
                "global" => return Space::Global,
                "shared" | "shared::cta" | "shared::cluster" => return Space::Shared,
                "local" => return Space::Local,
                "param" | "param::entry" | "param::func" => return Space::Param,
                "const" => return Space::Const,
                _ => {}
            }
        }
        Space::Generic
    }
}

impl Body<'_, '_> {
    pub(super) fn instruction(&mut self, word: &str) -> Result<(), String> {
        let mut operands = Vec::new();
        if self.lexer.peek() != Token::End {
            loop {
                operands.push(self.operand()?);
                match self.lexer.next() {
                    Token::Mark(b',') => {}
                    Token::End => break,
                    other => return self.error(format!("{other:?} in `{word}`")),
                }
            }
        }
        let parts: Vec<&str> = word.split('.').collect();
        let ty = parts[1..].iter().rev().find_map(|name| Ty::of(name)).unwrap_or(Ty::B32);
        let class = match ty {
            Ty::Pred => 1,
            ty => ty.bytes().max(2) as Class,
        };
        let parsed = Parsed { word, base: parts[0], mods: &parts[1..], ty, class, operands: &operands };
        self.build(&parsed).map_err(|text| if text.starts_with("PTX") { text } else { format!("PTX line {}: {text}", self.line) })
    }

    fn build(&mut self, p: &Parsed<'_>) -> Result<(), String> {
        let known = self.arithmetic(p)?
            || self.conversion(p)?
            || self.memory(p)?
            || self.control(p)?
            || self.barrier(p)?
            || self.collective(p)?
            || self.copy(p)?
            || self.matrix(p)?;
        if known { Ok(()) } else { self.error(format!("instruction `{}`", p.word)) }
    }

    /// Refuses a form of an instruction.
    pub(super) fn refuse<T>(&self, p: &Parsed<'_>) -> Result<T, String> {
        self.error(format!("`{}`", p.word))
    }
}
