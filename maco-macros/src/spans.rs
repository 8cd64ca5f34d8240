//! Generated tokens that rustc underlines as if they were the user's.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;

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

    /// The tokens from the first to the last span: what rustc underlines of a type.
    pub fn spread(self, tokens: TokenStream) -> TokenStream {
        let mut span = self.first;
        let next = |mut token: TokenTree| {
            token.set_span(span);
            span = self.last;
            token
        };
        tokens.into_iter().map(next).collect()
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

/// A local variable of generated code, which the user's tokens cannot mean. Hygiene alone does not do: a pattern of this name would still be the user's
/// constant or static, if there is one.
pub fn hidden(name: &str) -> Ident {
    Ident::new(&format!("__{name}"), Span::mixed_site())
}

/// A parameter of generated code that users read of. Only for a module of its own, where no constant of the user's is in scope.
pub fn shown(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// A name as users read it at run time: without the `r#` of a raw identifier, and without what [`hidden`] adds.
pub fn plain(name: &Ident) -> String {
    let text = name.unraw().to_string();
    text.strip_prefix("__").map_or_else(|| text.clone(), str::to_owned)
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
