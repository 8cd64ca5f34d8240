//! A function with the parameters of a task that is none: its `#[task]` was forgotten.
//!
//! rustc finds attributes like `#[read(i)]` first, which mean nothing by themselves, and stops before anything of MACO's is evaluated. So this mistake is looked
//! for in the text of the file.

use maco_graph::spec::Code;
use syn::{FnArg, ItemFn, Path};

use super::callee::texts;
use crate::errors::error;

/// Reports the call of a function of the same file that lacks its attribute.
pub fn check(path: &Path) -> syn::Result<()> {
    let Some(name) = path.segments.last() else { return Ok(()) };
    if !crate::file::of(&name.ident).is_some_and(|file| file.forgets(&name.ident)) {
        return Ok(());
    }
    let (message, help) = texts(path);
    Err(error(Code::NotATask, path, message, help))
}

/// Whether parameters say what a task does to them, but nothing makes a task of the function.
pub fn is_forgotten(function: &ItemFn) -> bool {
    let attribute = |attribute: &syn::Attribute| {
        let name = attribute.path().segments.last().map(|last| last.ident.to_string());
        !matches!(name.as_deref(), Some("doc" | "allow" | "warn" | "expect" | "deny" | "inline" | "rustfmt" | "must_use"))
    };
    let word = |attribute: &syn::Attribute| ["read", "write", "update", "reduce"].iter().any(|word| attribute.path().is_ident(word));
    let region = |input: &FnArg| matches!(input, FnArg::Typed(typed) if typed.attrs.iter().any(word));
    !function.attrs.iter().any(attribute) && function.sig.inputs.iter().any(region)
}
