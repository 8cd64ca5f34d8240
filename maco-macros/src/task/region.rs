//! Regions: `i`, `i / G`, `i + -1..=1`, `..`, `ids[i]`, `off[e]..off[e + 1]`.
//!
//! Whether the names mean anything is checked in `check.rs`.

use maco_graph::spec::Code;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, LitInt, Token, bracketed};

use crate::errors::error;

/// One index of a region.
#[derive(Clone)]
pub struct Index {
    pub kind: IndexKind,
    tokens: TokenStream,
}

#[derive(Clone)]
pub enum IndexKind {
    All,
    Tile(Ident),
    /// Tile index and the group size it is divided by.
    Over(Ident, Box<Expr>),
    /// Tile index, elements before and after.
    Halo(Ident, u32, u32),
    /// The parameters whose values decide.
    Data(Vec<Ident>),
}

impl ToTokens for Index {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.tokens.to_tokens(tokens);
    }
}

impl Index {
    /// The tile index that is named, if any.
    pub fn name(&self) -> Option<&Ident> {
        match &self.kind {
            IndexKind::Tile(name) | IndexKind::Over(name, _) | IndexKind::Halo(name, ..) => Some(name),
            IndexKind::All | IndexKind::Data(_) => None,
        }
    }
}

/// Reads the arguments of `#[read(..)]`.
pub fn region(tokens: TokenStream) -> syn::Result<Vec<Index>> {
    let parser = |input: ParseStream<'_>| Punctuated::<Index, Token![,]>::parse_terminated(input);
    Ok(parser.parse2(tokens)?.into_iter().collect())
}

impl Parse for Index {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let begin = input.fork();
        let kind = kind(input)?;
        let tokens = consumed(&begin, input);
        if !input.is_empty() && !input.peek(Token![,]) {
            let rest: TokenTree = input.parse()?;
            return Err(error(Code::Attribute, quote! { #tokens #rest }, "this is not an index of a region", HELP));
        }
        Ok(Index { kind, tokens })
    }
}

const HELP: &str = "an index is `i`, `i / G`, `i + -1..=1`, `..`, `ids[i]` or `off[e]..off[e + 1]`";

fn kind(input: ParseStream<'_>) -> syn::Result<IndexKind> {
    if input.peek(Token![..]) && !input.peek(Token![..=]) {
        let _: Token![..] = input.parse()?;
        return Ok(IndexKind::All);
    }
    let Ok(name) = input.parse::<Ident>() else {
        return Err(syn::Error::new(input.span(), format!("{}: this is not an index of a region\n= help: {HELP}", Code::Attribute)));
    };
    if input.peek(Token![/]) {
        let _: Token![/] = input.parse()?;
        return Ok(IndexKind::Over(name, Box::new(input.parse()?)));
    }
    if input.peek(Token![+]) {
        let _: Token![+] = input.parse()?;
        return halo(name, input);
    }
    if input.peek(syn::token::Bracket) {
        let mut names = vec![name];
        skip_brackets(input)?;
        if input.peek(Token![..]) {
            let _: Token![..] = input.parse()?;
            names.push(input.parse()?);
            skip_brackets(input)?;
        }
        return Ok(IndexKind::Data(names));
    }
    Ok(IndexKind::Tile(name))
}

/// `-1..=1` after `i +`.
fn halo(name: Ident, input: ParseStream<'_>) -> syn::Result<IndexKind> {
    let begin = input.fork();
    let low = signed(input)?;
    let _: Token![..=] = input.parse()?;
    let high = signed(input)?;
    if low > 0 || high < 0 {
        let message = "a halo begins at or before the tile and ends at or after it";
        return Err(error(Code::Attribute, consumed(&begin, input), message, "write `i + -1..=1`"));
    }
    Ok(IndexKind::Halo(name, low.unsigned_abs(), high.unsigned_abs()))
}

fn signed(input: ParseStream<'_>) -> syn::Result<i32> {
    let minus: Option<Token![-]> = input.parse()?;
    let number: i32 = input.parse::<LitInt>()?.base10_parse()?;
    Ok(if minus.is_some() { -number } else { number })
}

fn skip_brackets(input: ParseStream<'_>) -> syn::Result<()> {
    let content;
    bracketed!(content in input);
    let _: Expr = content.parse()?;
    Ok(())
}

/// The tokens between two positions of one stream.
fn consumed(begin: ParseStream<'_>, end: ParseStream<'_>) -> TokenStream {
    let mut out = TokenStream::new();
    let remaining = |stream: ParseStream<'_>| stream.fork().parse::<TokenStream>().map_or(0, |rest| rest.into_iter().count());
    let begin = begin.fork();
    let end = remaining(end);
    while remaining(&begin) > end {
        match begin.parse::<TokenTree>() {
            Ok(token) => out.extend([token]),
            Err(_) => break,
        }
    }
    out
}
