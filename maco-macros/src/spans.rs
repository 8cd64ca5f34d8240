//! Generated tokens that rustc underlines as if they were the user's.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;

/// The first and last span of the user's tokens.
#[derive(Clone, Copy)]
pub struct Site {
    first: Span,
    last: Span,
}

impl Site {
    pub fn of(tokens: &impl ToTokens) -> Site {
        let mut spans = tokens.to_token_stream().into_iter().map(|token| (start(&token), end(&token)));
        let (first, last) = spans.next().unwrap_or((Span::call_site(), Span::call_site()));
        let last = spans.last().map_or(last, |(_, last)| last);
        Site { first, last }
    }

    /// From the first to the second span.
    pub fn between(first: Span, last: Span) -> Site {
        Site { first, last }
    }

    /// The first span.
    pub fn start(self) -> Span {
        self.first
    }

    /// The tokens with the first span of the user's.
    pub fn respan(self, tokens: TokenStream) -> TokenStream {
        respan(tokens, self.first)
    }

    /// `path` applied to `arguments`, underlined from the first to the last of the user's tokens: rustc joins the span of a call from
    /// its path and its parentheses. The user's own span is kept, so that no line "in this attribute macro expansion" follows.
    pub fn over(self, path: TokenStream, arguments: TokenStream) -> TokenStream {
        let mut group = Group::new(Delimiter::Parenthesis, arguments);
        group.set_span(self.last);
        let mut out = respan(path, self.first);
        out.extend([TokenTree::Group(group)]);
        out
    }
}

/// A local variable of generated code, which the user's tokens cannot mean.
pub fn hidden(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

fn start(token: &TokenTree) -> Span {
    match token {
        TokenTree::Group(group) => group.span_open(),
        other => other.span(),
    }
}

fn end(token: &TokenTree) -> Span {
    match token {
        TokenTree::Group(group) => group.span_close(),
        other => other.span(),
    }
}

fn respan(tokens: TokenStream, span: Span) -> TokenStream {
    tokens
        .into_iter()
        .map(|mut token| {
            token.set_span(span);
            token
        })
        .collect()
}
