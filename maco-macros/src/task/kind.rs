//! The kind of a body: what its signature says (`cta: &mut Cta<Gemm>`), or what its text looks like. This is decided once, here; it becomes a part of the task's
//! spec, which the plan and the host read, and the type of `cta`, by which rustc checks that the body and all that it calls keep to it.

use std::collections::HashSet;

use maco_graph::spec::{Access, Channel, Code, Collective, Reduction};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens, quote};

use super::parse::{Param, Task, TensorParam};
use super::region::IndexKind;
use crate::errors::Errors;

/// How the body runs: [`maco_graph::spec::TaskKind`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Gemm { splits_k: bool },
    Gemv { operand_b: u8, operand_a: Option<u8> },
    Tiles,
    Rows(RowsForm),
    Columns { operand: u8 },
    Indexed,
    Collective(Collective),
    Simt { cpu: bool, early_start: bool, shared: u32 },
    Warp { cpu: bool, early_start: bool },
}

/// [`maco_graph::spec::RowsForm`]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RowsForm {
    Any,
    Unary { x: u8, y: u8 },
    RmsNorm { x: u8, weight: u8, y: u8, epsilon: u8 },
}

/// Kinds that the signature of a helper can say, and whether a body of it has several operations: then it takes `&mut Cta`.
pub const STATED: [(&str, bool); 6] =
    [("Gemm", true), ("Gemv", false), ("Tiles", true), ("Rows", false), ("Columns", false), ("Indexed", false)];

/// The kinds of bodies over a channel, which only a task's signature can say.
const CHANNELS: [(&str, bool); 4] =
    [("MemoryChannel", false), ("PacketChannel", false), ("PortChannel", false), ("SymmetricChannel", false)];

/// The kind of this name that a task's signature can say.
pub fn stated(name: &Ident) -> Option<(&'static str, bool)> {
    STATED.into_iter().chain(CHANNELS).find(|(known, _)| name == known)
}

impl Kind {
    /// Whether the body is threads' own, and `unsafe`.
    pub fn is_simt(self) -> bool {
        matches!(self, Kind::Simt { .. } | Kind::Warp { .. })
    }

    /// Whether it stores sums, to which an epilogue is applied.
    pub fn is_gemm_or_gemv(self) -> bool {
        matches!(self, Kind::Gemm { .. } | Kind::Gemv { .. })
    }

    /// Name of its type in `maco::kind`.
    fn name(self) -> &'static str {
        match self {
            Kind::Gemm { .. } => "Gemm",
            Kind::Gemv { .. } => "Gemv",
            Kind::Tiles => "Tiles",
            Kind::Rows(_) => "Rows",
            Kind::Columns { .. } => "Columns",
            Kind::Indexed => "Indexed",
            Kind::Collective(Collective::Channel(channel)) => match channel {
                Channel::Memory => "MemoryChannel",
                Channel::Packet => "PacketChannel",
                Channel::Port => "PortChannel",
                Channel::Symmetric => "SymmetricChannel",
            },
            Kind::Collective(_) => "Collective",
            Kind::Simt { .. } => "Simt",
            Kind::Warp { .. } => "Warp",
        }
    }

    /// Its type.
    pub fn ty(self, p: &TokenStream) -> TokenStream {
        let name = Ident::new(self.name(), proc_macro2::Span::call_site());
        quote! { #p::kind::#name }
    }

    /// Whether the body has several operations, and borrows its `cta`.
    pub fn borrows(self) -> bool {
        self.is_simt() || STATED.iter().any(|(name, several)| *name == self.name() && *several)
    }

    /// As a part of the spec; of SIMT bodies with the `boxes` in which they copy tensors.
    pub fn spec(self, boxes: &TokenStream, p: &TokenStream) -> TokenStream {
        let kind = match self {
            Kind::Gemm { splits_k } => quote! { Gemm { splits_k: #splits_k } },
            Kind::Gemv { operand_b, operand_a } => {
                let operand_a = match operand_a {
                    Some(operand_a) => quote! { ::core::option::Option::Some(#operand_a) },
                    None => quote! { ::core::option::Option::None },
                };
                quote! { Gemv { operand_b: #operand_b, operand_a: #operand_a } }
            }
            Kind::Tiles => quote! { Tiles },
            Kind::Rows(form) => {
                let form = match form {
                    RowsForm::Any => quote! { Any },
                    RowsForm::Unary { x, y } => quote! { Unary { x: #x, y: #y } },
                    RowsForm::RmsNorm { x, weight, y, epsilon } => quote! { RmsNorm { x: #x, weight: #weight, y: #y, epsilon: #epsilon } },
                };
                quote! { Rows(#p::spec::RowsForm::#form) }
            }
            Kind::Columns { operand } => quote! { Columns { operand: #operand } },
            Kind::Indexed => quote! { Indexed },
            Kind::Collective(collective) => {
                // Its name, or with a reduction or a channel `AllReduce(Sum)`.
                let text = format!("{collective:?}");
                let ident = |name: &str| Ident::new(name, proc_macro2::Span::call_site());
                let collective = match text.trim_end_matches(')').split_once('(') {
                    None => ident(&text).to_token_stream(),
                    Some((name, of)) => {
                        let ty = if name == "Channel" { "Channel" } else { "Reduction" };
                        let [name, ty, of] = [name, ty, of].map(ident);
                        quote! { #name(#p::spec::#ty::#of) }
                    }
                };
                quote! { Collective(#p::spec::Collective::#collective) }
            }
            Kind::Simt { cpu, early_start, shared } => {
                quote! { Simt { cpu: #cpu, early_start: #early_start, shared: #shared, boxes: &[#boxes] } }
            }
            Kind::Warp { cpu, early_start } => quote! { Warp { cpu: #cpu, early_start: #early_start } },
        };
        quote! { #p::spec::TaskKind::#kind }
    }
}

/// The kind of a task's body.
pub fn of(task: &Task<'_>, body: &Body, errors: &mut Errors) -> Kind {
    if task.arguments.simt.is_some() {
        let (cpu, early_start) = (task.arguments.cpu.is_some(), task.arguments.prologue.is_some());
        return match task.arguments.warp {
            Some(_) => Kind::Warp { cpu, early_start },
            None => Kind::Simt { cpu, early_start, shared: task.arguments.shared.as_ref().map_or(0, |shared| shared.bytes) },
        };
    }
    if let Some(channel) = channel(task) {
        return Kind::Collective(Collective::Channel(channel));
    }
    let looks = looks(task, body);
    let Some(stated) = &task.kind else { return looks.unwrap_or_else(|| missing_operand_b(task, errors)) };
    match looks {
        // What it says and how it looks agree: then the plan knows more than the name.
        Some(kind) if stated == kind.name() => kind,
        _ => match stated.to_string().as_str() {
            "Gemm" => Kind::Gemm { splits_k: false },
            "Gemv" => match operand_b(task, None) {
                Some(operand_b) => Kind::Gemv { operand_b, operand_a: None },
                None => missing_operand_b(task, errors),
            },
            "Rows" => Kind::Rows(RowsForm::Any),
            "Indexed" => Kind::Indexed,
            "Columns" => match task.tensors().position(|tensor| tensor.access == Access::Read) {
                Some(operand) => Kind::Columns { operand: operand as u8 },
                None => Kind::Tiles,
            },
            _ => Kind::Tiles,
        },
    }
}

/// What ranks do together in it, if the body is that.
pub fn collective(task: &Task<'_>) -> Option<Collective> {
    if let Some(channel) = channel(task) {
        return Some(Collective::Channel(channel));
    }
    match one_operation(task, &Body::read(task.function.body.stream(), task.cta_name()))? {
        Kind::Collective(collective) => Some(collective),
        _ => None,
    }
}

/// The channel that its signature says.
fn channel(task: &Task<'_>) -> Option<Channel> {
    Channel::named(&task.kind.as_ref()?.to_string())
}

fn missing_operand_b(task: &Task<'_>, errors: &mut Errors) -> Kind {
    let name = &task.function.signature.ident;
    let message = format!("`{name}` calls `gemv`, and none of its parameters is known as operand B");
    errors.push(
        Code::Operations,
        name,
        message,
        "its second argument is a `#[read(j, ..)]` parameter by its own name: `cta.gemv(x, w, y)`",
    );
    Kind::Gemv { operand_b: 0, operand_a: None }
}

/// What kind the body's text looks like. `None`: a GEMV without operand B.
///
/// A body that is one operation names its `cta` once, as the receiver of a call that is not inside braces: a loop could call it twice.
fn looks(task: &Task<'_>, body: &Body) -> Option<Kind> {
    if body.contracts {
        // Indices that select planes may select none, which has no K steps to split.
        return Some(Kind::Gemm { splits_k: body.splits_k() && !task.tensors().any(names_planes) });
    }
    if let Some(named) = &body.gemv_operand_b {
        let call = sole_call(task.function.body.stream());
        let gemv = call.filter(|(method, _)| method == "gemv" || method == "gemv_with");
        let operand_a = gemv.and_then(|(_, arguments)| tensor(task, arguments.first()?));
        return operand_b(task, Some(named)).map(|operand_b| Kind::Gemv { operand_b, operand_a });
    }
    Some(one_operation(task, body).unwrap_or(Kind::Tiles))
}

/// Which tensor parameter is operand B of a GEMV: the one of this name, or the only one that has a row for each column of the result.
fn operand_b(task: &Task<'_>, named: Option<&String>) -> Option<u8> {
    let is_read = |n: &u8| task.tensors().nth(usize::from(*n)).is_some_and(|tensor| tensor.access == Access::Read);
    if let Some(n) = named.and_then(|name| tensor(task, &Some(name.clone()))).filter(is_read) {
        return Some(n);
    }
    let result = task.tensors().find(|tensor| tensor.access.writes())?;
    let [.., column] = result.region.as_slice() else { return None };
    let IndexKind::Tile(axis) = &column.kind else { return None };
    let has_rows = |tensor: &TensorParam| match tensor.region.as_slice() {
        [.., row, last] => {
            tensor.access == Access::Read && matches!((&row.kind, &last.kind), (IndexKind::Tile(of), IndexKind::All) if of == axis)
        }
        _ => false,
    };
    let mut candidates = task.tensors().enumerate().filter(|(_, tensor)| has_rows(tensor));
    candidates.next().filter(|_| candidates.next().is_none()).map(|(n, _)| n as u8)
}

/// The one operation of its `cta` that a body calls, if it does nothing else with it.
fn one_operation(task: &Task<'_>, body: &Body) -> Option<Kind> {
    let cta = task.cta_name()?;
    let tokens: Vec<TokenTree> = task.function.body.stream().into_iter().collect();
    let mut called = tokens.windows(4).filter_map(|window| match window {
        [TokenTree::Ident(name), TokenTree::Punct(dot), TokenTree::Ident(method), TokenTree::Group(arguments)]
            if *name == cta && dot.as_char() == '.' =>
        {
            Some((method.to_string(), arguments.stream()))
        }
        _ => None,
    });
    let (method, arguments) = called.next().filter(|_| body.receivers + body.others == 1)?;
    let named = task.tensors().flat_map(|tensor| &tensor.region).any(|index| matches!(index.kind, IndexKind::Data(_)));
    match method.as_str() {
        "zip" | "map" | "rows" if !named => Some(Kind::Rows(unary(task).unwrap_or(RowsForm::Any))),
        "rmsnorm" if !named => Some(Kind::Rows(rmsnorm(task).unwrap_or(RowsForm::Any))),
        // The loader reads the indices of rows that are read; for rows that are written it keeps pages for tables of indices.
        "take" | "index_copy" | "index_add" => Some(Kind::Indexed),
        "columns" | "transpose" if !named => {
            let Some(TokenTree::Ident(x)) = arguments.into_iter().next() else { return None };
            tensor(task, &Some(x.to_string())).map(|operand| Kind::Columns { operand })
        }
        _ => Collective::named(&method, reduction(arguments)).map(Kind::Collective),
    }
}

/// The reduction that a collective's arguments end with: `Sum` of `part, y, Sum`.
fn reduction(arguments: TokenStream) -> Reduction {
    let last = identifiers(arguments).last();
    last.and_then(|name| Reduction::named(&name)).unwrap_or(Reduction::Other)
}

/// Whether a GEMM's body is one sum, which it stores once, and goes by its tile's size nowhere: it names tensors as operands and as its result only. Then
/// instances for several tiles may run one code.
pub fn is_one_sum(task: &Task<'_>, body: &Body) -> bool {
    let sums = if body.pairs { 2 } else { 1 };
    let names: Vec<String> = task.tensors().map(|tensor| tensor.name.to_string()).collect();
    let once = body.accumulators == sums && body.stores == 1 && body.others == 0 && !body.leaves;
    body.contracts && once && only_operands(task.function.body.stream(), &names, false)
}

/// The same of a GEMV's body, which is one operation: [`Kind::Gemv`].
pub fn is_plain_gemv(task: &Task<'_>) -> bool {
    let names: Vec<String> = task.tensors().map(|tensor| tensor.name.to_string()).collect();
    only_operands(task.function.body.stream(), &names, false)
}

/// Whether names of tensors are followed by `.tile`, or are `arguments` of a `steps`, a store or a `gemv`. What a macro does with a name is not seen.
fn only_operands(tokens: TokenStream, names: &[String], arguments: bool) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |at: usize, wanted: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == wanted);
    let begins = |at: usize| at == 0 || is(at - 1, ',');
    let ends = |at: usize| at + 1 == tokens.len() || is(at + 1, ',');
    let word = |at: Option<usize>| match at.and_then(|at| tokens.get(at)) {
        Some(TokenTree::Ident(word)) => word.to_string(),
        _ => String::new(),
    };
    tokens.iter().enumerate().all(|(at, token)| match token {
        TokenTree::Ident(name) if names.iter().any(|known| name == known) => {
            is(at + 1, '.') && word(Some(at + 2)) == "tile" || arguments && begins(at) && ends(at)
        }
        TokenTree::Group(group) => {
            let called = matches!(word(at.checked_sub(1)).as_str(), "steps" | "store" | "store_pair" | "gemv");
            let is_macro = at > 1 && is(at - 1, '!');
            !(is_macro && names.iter().any(|name| mentions(group.stream(), name) > 0)) && only_operands(group.stream(), names, called)
        }
        _ => true,
    })
}

/// Position of a tensor parameter of this name.
fn tensor(task: &Task<'_>, name: &Option<String>) -> Option<u8> {
    task.tensors().position(|tensor| name.as_ref().is_some_and(|name| tensor.name == name)).map(|at| at as u8)
}

/// How often a body names `name`.
pub fn mentions(tokens: TokenStream, name: &str) -> usize {
    let each = tokens.into_iter().map(|token| match token {
        TokenTree::Ident(word) => usize::from(word == name),
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => 0,
    });
    each.sum()
}

/// Whether data selects the planes of a tensor.
fn names_planes(tensor: &TensorParam) -> bool {
    matches!(tensor.region.as_slice(), [index, _, _] if matches!(index.kind, IndexKind::Data(_)))
}

/// A body that is one unary element-wise call. Its function may use any scalars.
fn unary(task: &Task<'_>) -> Option<RowsForm> {
    let (method, arguments) = sole_call(task.function.body.stream())?;
    let [x, y, _, ..] = arguments.as_slice() else { return None };
    let [x, y] = [tensor(task, x)?, tensor(task, y)?];
    (method == "zip" && x != y && task.tensors().count() == 2).then_some(RowsForm::Unary { x, y })
}

/// A body that is one `rmsnorm` call.
fn rmsnorm(task: &Task<'_>) -> Option<RowsForm> {
    let (method, arguments) = sole_call(task.function.body.stream())?;
    let [x, weight, y, epsilon] = arguments.as_slice() else { return None };
    let scalars = task.params.iter().filter(|param| matches!(param, Param::Scalar { .. }));
    let epsilon = scalars.map(Param::name).position(|name| epsilon.as_ref().is_some_and(|epsilon| name == epsilon))? as u8;
    let [x, weight, y] = [tensor(task, x)?, tensor(task, weight)?, tensor(task, y)?];
    (method == "rmsnorm").then_some(RowsForm::RmsNorm { x, weight, y, epsilon })
}

/// What the tokens of a body mention.
#[derive(Default)]
pub struct Body {
    /// `cta` as the receiver of a call, and anywhere else: there it may go to a helper function.
    receivers: usize,
    others: usize,
    /// `.steps(`, `.mma(` or `.mma_pair(`.
    contracts: bool,
    /// `.accumulator_pair(`.
    pub pairs: bool,
    /// `.accumulator(`, `.store(` and `.mma(` in all, and `.mma(` in loops over `.steps(`.
    accumulators: usize,
    stores: usize,
    mmas: usize,
    steps: usize,
    /// `break`, `continue` or `return`.
    leaves: bool,
    /// Names in `.store(acc, y)`, `.store_pair(acc, y, f)`, `.gemv(x, w, y)` and `.gemv_with(x, w, r, y, f)`.
    pub results: HashSet<String>,
    /// `w` of `.gemv(x, w, y)`.
    gemv_operand_b: Option<String>,
}

impl Body {
    /// `cta`: the name of that parameter.
    pub fn read(tokens: TokenStream, cta: Option<String>) -> Body {
        let mut body = Body::default();
        body.visit(tokens.clone(), false);
        if let Some(cta) = cta {
            body.receivers = receivers(tokens.clone(), &cta);
            body.others = mentions(tokens, &cta) - body.receivers;
        }
        body
    }

    /// Whether the body supports split-K: a helper function could multiply too.
    fn splits_k(&self) -> bool {
        let one_sum = self.accumulators == 1 && self.stores == 1 && self.others == 0;
        one_sum && self.mmas > 0 && self.mmas == self.steps && !self.leaves
    }

    /// `in_steps`: inside a loop over `.steps(`.
    fn visit(&mut self, tokens: TokenStream, in_steps: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for window in tokens.windows(3) {
            let [TokenTree::Punct(dot), TokenTree::Ident(method), TokenTree::Group(arguments)] = window else { continue };
            if dot.as_char() != '.' || arguments.delimiter() != Delimiter::Parenthesis {
                continue;
            }
            if method == "steps" || method == "mma" || method == "mma_pair" {
                self.contracts = true;
            } else if method == "store" || method == "store_pair" {
                self.stores += 1;
                // What follows in a pair's is a closure.
                self.results.extend(identifiers(arguments.stream()).take(2));
            } else if method == "accumulator" {
                self.accumulators += 1;
            } else if method == "accumulator_pair" {
                self.accumulators += 2;
                self.pairs = true;
            } else if method == "gemv" || method == "gemv_with" {
                self.gemv_operand_b = identifiers(arguments.stream()).nth(1);
                self.results.extend(identifiers(arguments.stream()));
            }
            if method == "mma" {
                self.mmas += 1;
                self.steps += usize::from(in_steps);
            }
        }
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) => self.leaves |= word == "break" || word == "continue" || word == "return",
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    // `for k in cta.steps(x, w) { .. }`: of `cta.steps(x, w).enumerate()` each part would count anew.
                    let steps = matches!(&tokens[..at], [.., TokenTree::Ident(method), TokenTree::Group(_)] if method == "steps");
                    self.visit(group.stream(), in_steps || steps);
                }
                TokenTree::Group(group) => self.visit(group.stream(), in_steps),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

/// How often `cta` is the receiver of a call.
fn receivers(tokens: TokenStream, cta: &str) -> usize {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let each = tokens.iter().enumerate().map(|(at, token)| match token {
        TokenTree::Group(group) => receivers(group.stream(), cta),
        TokenTree::Ident(name) if *name == cta => {
            usize::from(matches!(tokens.get(at + 1), Some(TokenTree::Punct(dot)) if dot.as_char() == '.'))
        }
        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => 0,
    });
    each.sum()
}

/// Method and arguments of a body that is one call on `cta` and nothing else; of arguments, those that are a name.
fn sole_call(body: TokenStream) -> Option<(String, Vec<Option<String>>)> {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let statement = match tokens.as_slice() {
        [statement @ .., TokenTree::Punct(end)] if end.as_char() == ';' => statement,
        statement => statement,
    };
    let [TokenTree::Ident(_), TokenTree::Punct(dot), TokenTree::Ident(method), TokenTree::Group(arguments)] = statement else {
        return None;
    };
    if dot.as_char() != '.' {
        return None;
    }
    let tokens: Vec<TokenTree> = arguments.stream().into_iter().collect();
    let comma = |token: &TokenTree| matches!(token, TokenTree::Punct(comma) if comma.as_char() == ',');
    let mut arguments: Vec<_> = tokens
        .split(comma)
        .map(|argument| match argument {
            [TokenTree::Ident(name)] => Some(name.to_string()),
            _ => None,
        })
        .collect();
    // Behind the last comma may be nothing.
    if tokens.last().is_some_and(comma) {
        arguments.pop();
    }
    Some((method.to_string(), arguments))
}

fn identifiers(tokens: TokenStream) -> impl Iterator<Item = String> {
    tokens.into_iter().filter_map(|token| match token {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    })
}
