//! Refuses other operations in a body with a matrix product. The copies of its operands begin before the body runs, and its result is stored after it, so
//! another operation of the body could not be ordered with them.
//!
//! Syntactic, as all of a body's kind: what a helper function does is not seen.

use maco_graph::spec::Code;
use proc_macro2::{Ident, TokenStream, TokenTree};

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
