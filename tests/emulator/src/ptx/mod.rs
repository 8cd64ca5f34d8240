//! From PTX text to decoded programs.

pub mod decode;
pub mod inst;
pub mod lex;
pub mod module;

pub use module::Module;
