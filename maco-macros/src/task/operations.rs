//! What the operations of a body must be, as far as its text shows it.
//!
//! Refuses other operations in a body with a matrix product. The copies of its operands begin before the body runs, and its result is stored after it, so
//! another operation of the body could not be ordered with them.
//!
//! And refuses a body that writes one of its results nowhere: the tensor would hold what was there before.
//!
//! Syntactic, as all of a body's kind: what a helper function does is not seen.

use maco_graph::spec::{Access, Code};
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::quote_spanned;

use super::parse::Task;
use crate::errors::Errors;

/// What a body with a matrix product may call on its `cta`.
const OF_PRODUCTS: [&str; 9] = ["steps", "mma", "mma_pair", "accumulator", "accumulator_pair", "store", "store_pair", "gemv", "gemv_with"];

/// Reports every other operation of a body that multiplies.
pub fn check(task: &Task<'_>, errors: &mut Errors) {
    let Some(syn::Pat::Ident(syn::PatIdent { ident: cta, .. })) = &task.cta else { return };
    let mut called = Vec::new();
    methods(task.function.body.stream(), &cta.to_string(), &mut called);
    let product = |method: &Ident| OF_PRODUCTS.iter().any(|known| method == known);
    if task.arguments.simt.is_some() || !called.iter().any(product) {
        return;
    }
    for method in called.iter().filter(|method| !product(method)) {
        let message = format!("`{method}` in a body that multiplies: loads of a matrix product begin before the body runs");
        let help = format!("make `{method}` a task of its own, or fuse it: `linear(x, w, y).then(add(b)).then(gelu)`, `cta.gemv_with(..)`");
        errors.push(Code::Operations, method, message, help);
    }
}

/// Reports each `#[write]` parameter that the body hands to nobody; by its type only an operation can take it, or a helper function. In const evaluation,
/// which comes after what rustc says of a misspelt name.
pub fn unwritten(task: &Task<'_>) -> TokenStream {
    // What a SIMT body writes its author promises.
    let safe = task.arguments.simt.is_none();
    let results = task.tensors().filter(|tensor| safe && tensor.access == Access::Write);
    let reports = results.filter(|tensor| !hands_on(task.function.body.stream(), &tensor.name.to_string())).map(|tensor| {
        let text = format!(
            "{code}: the body writes `{name}` nowhere, which would hold what was there before\n\
             help: make it the result of an operation, such as `cta.zip(x, {name}, f)`, or mark it `#[read(..)]`",
            code = Code::NeverWritten,
            name = tensor.name
        );
        quote_spanned! { tensor.name.span() => const _: () = ::core::panic!(#text); }
    });
    reports.collect()
}

/// Whether `name` stands somewhere as a value: not before a dot, as in `y.rows()`, and not behind one.
fn hands_on(tokens: TokenStream, name: &str) -> bool {
    let is_dot = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(dot)) if dot.as_char() == '.');
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Group(group) => hands_on(group.stream(), name),
        TokenTree::Ident(word) => {
            *word == name && !is_dot(tokens.get(at + 1)) && !is_dot(at.checked_sub(1).and_then(|before| tokens.get(before)))
        }
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// The methods that are called on `cta`, in the order of the text.
fn methods(tokens: TokenStream, cta: &str, called: &mut Vec<Ident>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => methods(group.stream(), cta, called),
            TokenTree::Ident(name) if *name == cta => {
                if let [TokenTree::Punct(dot), TokenTree::Ident(method), ..] = &tokens[at + 1..]
                    && dot.as_char() == '.'
                {
                    called.push(method.clone());
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}
