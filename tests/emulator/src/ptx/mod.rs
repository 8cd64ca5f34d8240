//! From PTX to decoded programs. What a statement is, `maco-ptx` knows.

pub mod decode;
pub mod inst;
pub mod module;

pub use module::Module;
