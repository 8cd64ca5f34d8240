//! PTX text as modules, functions and statements (PTX ISA §4 and §5), with where each lies in the text. What instructions mean does not belong here: the lint
//! of `maco-build` and the emulated driver know that.
//!
//! ```
//! let module = maco_ptx::Module::parse(".version 8.6\n.entry k(.param .u64 p)\n{\n@%p1 bra $L;\n$L: ret;\n}\n")?;
//! let [jump, label, last] = &module.functions[0].body[..] else { panic!() };
//! assert_eq!((jump.guard, jump.branch(), label.label(), last.opcode()), (Some("%p1"), Some("$L"), Some("$L"), "ret"));
//! # Ok::<(), maco_ptx::Error>(())
//! ```

mod lex;
mod module;
mod reader;
mod statement;

pub use lex::{Lexer, Token, number};
pub use module::{Function, Module, Variable};
pub use statement::{Kind, Statement};

/// Text that is not PTX, or PTX that nobody here has met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {what}")]
pub struct Error {
    /// The line, from 1.
    pub line: u32,
    /// What is there, or missing.
    pub what: String,
}

/// Bytes of a value of a type, without its point: `b32`, `f16x2`, `pred`.
pub fn bytes_of(ty: &str) -> Option<u32> {
    Some(match ty {
        "b8" | "u8" | "s8" | "e4m3" | "e5m2" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" | "pred" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        "b128" => 16,
        _ => return None,
    })
}
