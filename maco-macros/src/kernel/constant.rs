//! Conditions, bounds and numbers of a body: a megakernel is planned before it runs, so they are constants.

use maco_graph::spec::Code;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Expr;

use super::analyse::{Replay, strip};
use crate::errors::error;

impl Replay<'_> {
    /// An expression that must be constant, as `what`: reports the first name in it that stands for a dimension, a parameter or a tensor.
    pub(super) fn constant(&mut self, expression: &Expr, what: &str) -> syn::Result<()> {
        self.constant_tokens(expression.to_token_stream(), what)
    }

    fn constant_tokens(&mut self, tokens: TokenStream, what: &str) -> syn::Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: Option<usize>, letters: &[char]| {
            let token = at.and_then(|at| tokens.get(at));
            matches!(token, Some(TokenTree::Punct(punct)) if letters.contains(&punct.as_char()))
        };
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.constant_tokens(group.stream(), what)?,
                // A field, a method, a part of a path, a macro or the name of a field that gets a value is none of them.
                TokenTree::Ident(name)
                    if !is(at.checked_sub(1), &[':']) && !is(Some(at + 1), &[':', '!']) && !self.is_field(&tokens, at) =>
                {
                    self.constant_name(name, what)?;
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        Ok(())
    }

    /// Whether the name there follows the dot of a field or a method, not the two of a range.
    fn is_field(&self, tokens: &[TokenTree], at: usize) -> bool {
        let dot = |back: usize| {
            at.checked_sub(back)
                .and_then(|at| tokens.get(at))
                .is_some_and(|token| matches!(token, TokenTree::Punct(dot) if dot.as_char() == '.'))
        };
        dot(1) && !dot(2)
    }

    fn constant_name(&self, name: &Ident, what: &str) -> syn::Result<()> {
        let text = name.to_string();
        let known = if self.locals.contains(&text) {
            return Ok(());
        } else if self.scalars.contains(&text) {
            (
                "is a number of each run",
                "pass it to a task: `scale(h, by)`; what is chosen by it is two megakernels, of which the host runs one",
            )
        } else if self.tensors.contains_key(&text) || self.arrays.contains_key(&text) {
            ("is a tensor", "what depends on data is decided in a task's body")
        } else if self.symbols.index(name).is_some() {
            (
                "is a dimension, known when a plan is made",
                "use a constant, `const LAYERS: usize = 4;`; what depends on sizes is two megakernels, of which the host plans one",
            )
        } else {
            return Ok(());
        };
        Err(error(Code::NotConstant, name, format!("{what} is a constant, but `{name}` {}", known.0), known.1))
    }

    /// The same of a variable's value: what is computed, or a dimension by its name alone.
    pub(super) fn constant_value(&mut self, expression: &Expr, what: &str) -> syn::Result<()> {
        let computed = matches!(strip(expression), Expr::Binary(_) | Expr::Cast(_) | Expr::Unary(_));
        let named = matches!(strip(expression), Expr::Path(_)) && !self.is_variable(expression);
        if computed || named { self.constant(expression, what) } else { Ok(()) }
    }
}
