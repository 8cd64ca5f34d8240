//! The arguments of the three macros.
//!
//! They are split at commas first, so that a mistake in one does not hide the next.

use maco_graph::spec::Code;
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, LitInt, Path, Token, bracketed, parenthesized};

use crate::errors::{Errors, error};

/// One grid axis: `i = 64 | 128`.
pub struct AxisArgument {
    pub name: Ident,
    pub tiles: Vec<(LitInt, u32)>,
}

/// Bytes of shared memory: the key, and how many.
pub struct SharedArgument {
    pub key: Ident,
    pub literal: LitInt,
    pub bytes: u32,
}

/// Boxes of a tensor: `x = 128`, `x = 128 swizzle 64`.
pub struct BoxArgument {
    pub name: Ident,
    pub rows: (LitInt, u32),
    /// Where the number was written, and the number; 128 without one.
    pub swizzle: (Option<LitInt>, u32),
}

/// `E in [bf16, f16]`
pub struct ElementsArgument {
    pub name: Ident,
    pub list: Vec<Ident>,
}

/// Everything an attribute may say; each macro allows some of it.
#[derive(Default)]
pub struct Arguments {
    pub axes: Option<Vec<AxisArgument>>,
    pub elements: Option<ElementsArgument>,
    /// `where M == N`
    pub equal: Vec<(Ident, Ident)>,
    pub elementwise: Option<Ident>,
    pub simt: Option<Ident>,
    pub prologue: Option<Ident>,
    pub warp: Option<Ident>,
    pub cpu: Option<Path>,
    /// `few = skinny_linear`: the GEMV form of a GEMM, for few rows.
    pub few: Option<Path>,
    /// `shared = 32768`
    pub shared: Option<SharedArgument>,
    /// `boxes(x = 128)`
    pub boxes: Option<(Ident, Vec<BoxArgument>)>,
    /// `Rows`, of a helper.
    pub kind: Option<Ident>,
    pub workers: Option<Expr>,
    pub schedulers: Option<Expr>,
    krate: Option<Path>,
    /// An argument did not parse, so that names it may have introduced are unknown.
    pub broken: bool,
    /// The elements were not written by the user, so that their names need not be in scope.
    given: bool,
}

/// What an argument may be called, for each macro.
pub struct Grammar {
    pub what: &'static str,
    pub keys: &'static [&'static str],
    pub help: &'static str,
}

pub const TASK: Grammar = Grammar {
    what: "task",
    keys: &["tile", "elements", "where", "elementwise", "simt", "warp", "prologue", "shared", "boxes", "cpu", "few", "crate"],
    help: "arguments are `tile(i = 64 | 128)`, `E in [bf16, f16]`, `where M == N`, `elementwise`, `simt`, `warp`, `prologue`, `shared = 32768`, `boxes(x = 128)`, `cpu = function`, `few = task`, `crate = path`",
};
pub const HELPER: Grammar = Grammar {
    what: "helper",
    keys: &["kind", "crate"],
    help: "write `#[helper(Rows)]`: its operations are those of `Gemm`, `Gemv`, `Tiles`, `Rows`, `Columns` or `Indexed`; `crate = path`",
};
pub const MEGAKERNEL: Grammar = Grammar {
    what: "megakernel",
    keys: &["workers", "schedulers", "where", "crate"],
    help: "arguments are `workers = 128`, `schedulers = 4`, `where M == N`, `crate = path`",
};
pub const GRAPH: Grammar = Grammar { what: "graph", keys: &["where", "crate"], help: "arguments are `where M == N` and `crate = path`" };

impl Arguments {
    pub fn parse(tokens: TokenStream, grammar: &Grammar, errors: &mut Errors) -> Arguments {
        let mut arguments = Arguments::default();
        let mut after_where = false;
        for part in split(tokens) {
            let parsed = (|input: ParseStream<'_>| arguments.one(input, grammar, &mut after_where)).parse2(part);
            if let Err(error) = parsed {
                arguments.broken = true;
                errors.parser(Code::Attribute, &error, grammar.help);
            }
        }
        arguments
    }

    /// The path of generated names: `::maco::__private`.
    pub fn private(&self) -> TokenStream {
        match &self.krate {
            Some(path) => quote! { #path::__private },
            None => quote! { ::maco::__private },
        }
    }

    /// For an attribute that the macro has made from the user's: the crate is the same, elements need not be in scope.
    pub fn made_from(&mut self, other: &Arguments) {
        self.krate.clone_from(&other.krate);
        self.given = true;
    }

    /// A named element as a Rust type. The user's own token, so that it means what it means in the user's file.
    pub fn element_type(&self, element: &Ident) -> TokenStream {
        let p = self.private();
        match element.to_string().as_str() {
            "bf16" | "f16" if self.given => quote! { #p::#element },
            _ => element.to_token_stream(),
        }
    }

    fn one(&mut self, input: ParseStream<'_>, grammar: &Grammar, after_where: &mut bool) -> syn::Result<()> {
        if input.peek(Token![where]) {
            let token: Token![where] = input.parse()?;
            allowed(grammar, "where", token)?;
            *after_where = true;
            return self.equal(input);
        }
        if *after_where && input.peek2(Token![==]) {
            return self.equal(input);
        }
        *after_where = false;
        let key = input.call(Ident::parse_any)?;
        if input.peek(Token![in]) {
            allowed(grammar, "elements", &key)?;
            return self.elements(key, input);
        }
        match key.to_string().as_str() {
            name @ "tile" => {
                allowed(grammar, name, &key)?;
                let axes = axes(input)?;
                once(&mut self.axes, axes, &key)
            }
            name @ "elementwise" => {
                allowed(grammar, name, &key)?;
                once(&mut self.elementwise, key.clone(), &key)
            }
            name @ "simt" => {
                allowed(grammar, name, &key)?;
                once(&mut self.simt, key.clone(), &key)
            }
            name @ "warp" => {
                allowed(grammar, name, &key)?;
                once(&mut self.warp, key.clone(), &key)
            }
            name @ "prologue" => {
                allowed(grammar, name, &key)?;
                once(&mut self.prologue, key.clone(), &key)
            }
            name @ "shared" => {
                allowed(grammar, name, &key)?;
                let _: Token![=] = input.parse()?;
                let literal: LitInt = input.parse()?;
                let bytes = literal.base10_parse()?;
                once(&mut self.shared, SharedArgument { key: key.clone(), literal, bytes }, &key)
            }
            name @ "boxes" => {
                allowed(grammar, name, &key)?;
                let boxes = boxes(input)?;
                once(&mut self.boxes, (key.clone(), boxes), &key)
            }
            name @ "cpu" => {
                allowed(grammar, name, &key)?;
                let _: Token![=] = input.parse()?;
                once(&mut self.cpu, input.call(Path::parse_mod_style)?, &key)
            }
            name @ "few" => {
                allowed(grammar, name, &key)?;
                let _: Token![=] = input.parse()?;
                once(&mut self.few, input.call(Path::parse_mod_style)?, &key)
            }
            name @ "crate" => {
                allowed(grammar, name, &key)?;
                let _: Token![=] = input.parse()?;
                once(&mut self.krate, input.call(Path::parse_mod_style)?, &key)
            }
            name @ "workers" => {
                allowed(grammar, name, &key)?;
                let _: Token![=] = input.parse()?;
                once(&mut self.workers, input.parse()?, &key)
            }
            name @ "schedulers" => {
                allowed(grammar, name, &key)?;
                let _: Token![=] = input.parse()?;
                once(&mut self.schedulers, input.parse()?, &key)
            }
            _ if grammar.keys.contains(&"kind") => once(&mut self.kind, key.clone(), &key),
            name => Err(error(Code::Attribute, &key, format!("`{name}` is not an argument of `#[{}]`", grammar.what), grammar.help)),
        }
    }

    fn equal(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let left: Ident = input.parse()?;
        let _: Token![==] = input.parse()?;
        self.equal.push((left, input.parse()?));
        Ok(())
    }

    fn elements(&mut self, name: Ident, input: ParseStream<'_>) -> syn::Result<()> {
        let _: Token![in] = input.parse()?;
        let content;
        bracketed!(content in input);
        let list: Vec<Ident> = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?.into_iter().collect();
        let known = ["bf16", "f16", "f32", "i8", "i32", "u32"];
        for (n, element) in list.iter().enumerate() {
            if !known.iter().any(|known| element == known) {
                let help = "elements are bf16, f16, f32, i8, i32 and u32";
                return Err(error(Code::Attribute, element, format!("`{element}` is not an element type"), help));
            }
            if list[..n].contains(element) {
                return Err(error(Code::Attribute, element, format!("`{element}` is listed twice"), "list each element once"));
            }
        }
        if list.is_empty() {
            return Err(error(Code::Attribute, &name, format!("`{name}` has no element type"), "list at least one: `E in [bf16]`"));
        }
        let key = name.clone();
        once(&mut self.elements, ElementsArgument { name, list }, &key)
    }
}

/// `(x = 128, w = 64 swizzle 32)`
fn boxes(input: ParseStream<'_>) -> syn::Result<Vec<BoxArgument>> {
    let content;
    parenthesized!(content in input);
    let mut boxes: Vec<BoxArgument> = Vec::new();
    while !content.is_empty() {
        let name: Ident = content.parse()?;
        if boxes.iter().any(|known| known.name == name) {
            return Err(error(Code::Attribute, &name, format!("`{name}` has boxes already"), "a tensor is copied in boxes of one kind"));
        }
        let _: Token![=] = content.parse()?;
        let rows: LitInt = content.parse()?;
        let rows = (rows.clone(), rows.base10_parse()?);
        let mut swizzle = (None, 128);
        if content.peek(syn::Ident) {
            let word: Ident = content.parse()?;
            if word != "swizzle" {
                let help = "write `x = 128`, or `x = 128 swizzle 64` for tiles of `swizzled_by`";
                return Err(error(Code::Attribute, &word, format!("`{word}` is nothing that a box has"), help));
            }
            let literal: LitInt = content.parse()?;
            swizzle = (Some(literal.clone()), literal.base10_parse()?);
        }
        boxes.push(BoxArgument { name, rows, swizzle });
        if !content.is_empty() {
            let _: Token![,] = content.parse()?;
        }
    }
    Ok(boxes)
}

/// `(i = 64 | 128, j = 128)`
fn axes(input: ParseStream<'_>) -> syn::Result<Vec<AxisArgument>> {
    let content;
    parenthesized!(content in input);
    let mut axes: Vec<AxisArgument> = Vec::new();
    while !content.is_empty() {
        let name: Ident = content.parse()?;
        if axes.iter().any(|axis| axis.name == name) {
            return Err(error(Code::Attribute, &name, format!("`{name}` is a grid axis already"), "name each axis once"));
        }
        let _: Token![=] = content.parse()?;
        let mut tiles: Vec<(LitInt, u32)> = Vec::new();
        loop {
            let literal: LitInt = content.parse()?;
            let size: u32 = literal.base10_parse()?;
            if size == 0 || size > 65536 {
                return Err(error(Code::Tile, &literal, format!("a tile of {size} elements"), "a tile has 1 to 65536 elements"));
            }
            if tiles.iter().any(|&(_, known)| known == size) {
                return Err(error(Code::Tile, &literal, format!("{size} is listed twice"), "list each tile size once"));
            }
            tiles.push((literal, size));
            if !content.peek(Token![|]) {
                break;
            }
            let _: Token![|] = content.parse()?;
        }
        axes.push(AxisArgument { name, tiles });
        if !content.is_empty() {
            let _: Token![,] = content.parse()?;
        }
    }
    if axes.len() > 3 {
        let name = &axes[3].name;
        return Err(error(
            Code::Limit,
            name,
            format!("{} grid axes, but there is room for 3", axes.len()),
            "make one of them a loop inside the task",
        ));
    }
    Ok(axes)
}

fn allowed(grammar: &Grammar, key: &str, at: impl ToTokens) -> syn::Result<()> {
    if grammar.keys.contains(&key) {
        return Ok(());
    }
    let shown = if key == "elements" { "in" } else { key };
    Err(error(Code::Attribute, at, format!("`{shown}` is not an argument of `#[{}]`", grammar.what), grammar.help))
}

fn once<T>(place: &mut Option<T>, value: T, key: &Ident) -> syn::Result<()> {
    if place.is_some() {
        return Err(error(Code::Attribute, key, format!("`{key}` is given twice"), "give it once"));
    }
    *place = Some(value);
    Ok(())
}

/// The tokens between commas, without empty parts.
fn split(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![Vec::new()];
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ',' => parts.push(Vec::new()),
            _ => parts.last_mut().expect("never empty").push(token),
        }
    }
    parts.into_iter().filter(|part| !part.is_empty()).map(|part| part.into_iter().collect()).collect()
}

/// The variant of `spec::Element` for a name the user wrote.
pub fn element_variant(name: &Ident) -> Option<Ident> {
    let variant = match name.to_string().as_str() {
        "bf16" => "Bf16",
        "f16" => "F16",
        "f32" => "F32",
        "i32" => "I32",
        "u32" => "U32",
        "i8" => "I8",
        _ => return None,
    };
    Some(Ident::new(variant, Span::call_site()))
}

/// The variant of `spec::ScalarType` for a name the user wrote.
pub fn scalar_variant(name: &Ident) -> Option<Ident> {
    let variant = match name.to_string().as_str() {
        "f32" => "F32",
        "i32" => "I32",
        "u32" => "U32",
        _ => return None,
    };
    Some(Ident::new(variant, Span::call_site()))
}
