//! Step 3: what follows from a task's tokens: its kind, what is staged, its dimensions, its const parameters.

use std::collections::HashSet;

use maco_graph::spec::{Access, Code};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::LitInt;

use super::names::Names;
use super::parse::{Param, Task, TensorParam};
use super::region::{Index, IndexKind};
use crate::errors::Errors;
use crate::shape::Symbols;

/// Bytes of one ring page; the ring has [`PAGES`] of them, and a staged task needs two stages at least.
pub const PAGE_BYTES: u64 = 16 * 1024;
pub const PAGES: u64 = 12;
/// Bytes of one step of a row or column that is kept, whatever its elements.
const STEP_BYTES: u64 = 128;

/// How the body runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The body calls `.steps(`, `.mma(` or `.mma_pair(`: operands are staged through the ring.
    Gemm {
        /// See [`maco_graph::spec::TaskKind::Gemm`].
        splits_k: bool,
    },
    Direct,
    /// The body calls `.zip(`, `.map(`, `.rows(` or `.take(` of its `cta` once and nothing else of it: tiles that are read may come through the ring by bulk
    /// copies. Of two operations the second could read what the first one writes.
    Bulk,
    /// The same with `.columns(` or `.transpose(` of this tensor: it may come by TMA tensor copies.
    TensorMap {
        operand: u8,
    },
    /// The body is `cta.zip(x, y, f)` and nothing else, of two tensor parameters.
    Unary {
        x: u8,
        y: u8,
    },
    /// The body calls `.gemv(` or `.gemv_with(`: rows of its second argument, operand B, come through the ring.
    Gemv {
        /// Which tensor parameter.
        operand_b: u8,
        /// Its first argument, operand A, if the body does nothing else.
        operand_a: Option<u8>,
    },
    /// The body is `cta.rmsnorm(x, weight, y, epsilon)`: three tensor parameters and a scalar one, each counted among its like.
    RmsNorm {
        x: u8,
        weight: u8,
        y: u8,
        epsilon: u8,
    },
    Simt {
        cpu: bool,
        early_start: bool,
        /// The body is one warp's.
        warp: bool,
        /// Bytes of scratch.
        shared: u32,
    },
    Elementwise,
}

/// The static extent of a tile along one axis: a const parameter of the body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub axis: usize,
    pub before: u32,
    pub after: u32,
}

/// What a closure may do with an element.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// `f32` values, of 16 bits.
    Half,
    /// `f32` values: the tensor cores take it.
    Mma,
    /// Values of its own type.
    Any,
}

pub struct Model {
    pub kind: Kind,
    pub symbols: Symbols,
    pub equal: Vec<(u8, u8)>,
    /// Of tiled bodies.
    pub names: Names,
    /// In the order of the tensor parameters.
    pub staged: Vec<bool>,
    /// Names in the calls that store accumulators.
    results: HashSet<String>,
    /// Extents of tiles: those that vary are const parameters of the body.
    pub extents: Vec<Extent>,
    pub bound: Bound,
    /// Tile sizes per axis.
    pub tiles: Vec<Vec<u32>>,
}

impl Model {
    /// Whether an extent is a const parameter of the body: one of a single variant is a number, so that bodies and references of tasks
    /// with one tile shape can name it.
    pub fn varies(&self, extent: &Extent) -> bool {
        self.tiles[extent.axis].len() > 1
    }

    /// Whether a tensor is the only generic result, and the body only stores an accumulator in it: a call may then round the accumulator to another
    /// element.
    pub fn rounded(&self, task: &Task<'_>, tensor: &TensorParam) -> bool {
        let stores = matches!(self.kind, Kind::Gemm { .. } | Kind::Gemv { .. });
        let once = mentions(task.function.body.stream(), &tensor.name.to_string()) == 1;
        let generic = Some(&tensor.element) == task.generic() && self.bound != Bound::Any;
        let sole = tensor.access == Access::Write && task.tensors().filter(|tensor| tensor.access.writes()).count() == 1;
        stores && once && generic && sole && self.results.contains(&tensor.name.to_string())
    }

    /// The first variant.
    pub fn first(&self) -> Vec<u32> {
        self.tiles.iter().map(|tiles| tiles[0]).collect()
    }
}

/// `None` after an error that leaves nothing to emit.
pub fn analyse(task: &Task<'_>, kind: Option<Kind>, errors: &mut Errors) -> Option<Model> {
    let mut symbols = Symbols::default();
    for tensor in task.tensors() {
        symbols.introduce(&tensor.dims, errors);
    }
    let equal = symbols.equal(&task.arguments.equal, errors);
    let body = Body::read(task.function.body.stream());
    let kind = kind.unwrap_or(match (&task.arguments.simt, &task.arguments.cpu) {
        (Some(_), cpu) => Kind::Simt {
            cpu: cpu.is_some(),
            early_start: task.arguments.prologue.is_some(),
            warp: task.arguments.warp.is_some(),
            shared: task.arguments.shared.as_ref().map_or(0, |shared| shared.bytes),
        },
        // Indices that select planes may select none, which has no K steps to split.
        (None, _) if body.contracts => Kind::Gemm { splits_k: body.splits_k() && !task.tensors().any(names_planes) },
        (None, _) => {
            let position = |name: &Option<String>| task.tensors().position(|tensor| name.as_ref().is_some_and(|name| tensor.name == name));
            match position(&body.gemv_operand_b) {
                Some(operand_b) => {
                    let call = sole_call(task.function.body.stream());
                    let product = call.filter(|(method, _)| method == "gemv" || method == "gemv_with");
                    let operand_a = product.and_then(|(_, arguments)| position(arguments.first()?)).map(|operand_a| operand_a as u8);
                    Kind::Gemv { operand_b: operand_b as u8, operand_a }
                }
                None => tiles(task).or_else(|| rmsnorm(task)).unwrap_or(Kind::Direct),
            }
        }
    });
    let staged: Vec<bool> = task.tensors().map(|tensor| matches!(kind, Kind::Gemm { .. }) && body.stages(&tensor.name)).collect();
    let tiles = task.arguments.axes.iter().flatten().map(|axis| axis.tiles.iter().map(|&(_, tile)| tile).collect()).collect();
    let names = Names::of(task, &symbols, &equal);
    let model = Model { kind, symbols, equal, names, staged, results: body.results, extents: extents(task), bound: bound(task), tiles };
    if !errors.any() {
        budget(task, &model, errors);
        accumulators(task, &model, body.pairs, errors);
    }
    (!errors.any()).then_some(model)
}

/// The one method of its `cta` that a body calls, and the call's arguments, if it does nothing else with it. A loop could call it twice, so the call is not inside
/// braces.
fn sole_method(task: &Task<'_>) -> Option<(String, TokenStream)> {
    let Some(syn::Pat::Ident(syn::PatIdent { ident: cta, .. })) = &task.cta else { return None };
    let cta = cta.to_string();
    let tokens: Vec<TokenTree> = task.function.body.stream().into_iter().collect();
    let mut called = tokens.windows(4).filter_map(|window| match window {
        [TokenTree::Ident(name), TokenTree::Punct(dot), TokenTree::Ident(method), TokenTree::Group(arguments)]
            if *name == cta && dot.as_char() == '.' =>
        {
            Some((method.to_string(), arguments.stream()))
        }
        _ => None,
    });
    called.next().filter(|_| mentions(task.function.body.stream(), &cta) == 1)
}

/// See [`Kind::Bulk`] and [`Kind::TensorMap`].
fn tiles(task: &Task<'_>) -> Option<Kind> {
    let (method, arguments) = sole_method(task)?;
    let named = task.tensors().flat_map(|tensor| &tensor.region).any(|index| matches!(index.kind, IndexKind::Data(_)));
    match method.as_str() {
        "zip" | "map" | "rows" if !named => unary(task).or(Some(Kind::Bulk)),
        // The loader reads the indices of rows that are read; for rows that are written it keeps pages for tables of indices.
        "take" | "index_copy" | "index_add" => Some(Kind::Bulk),
        "columns" | "transpose" if !named => {
            let Some(TokenTree::Ident(x)) = arguments.into_iter().next() else { return None };
            let operand = task.tensors().position(|tensor| tensor.name == x)? as u8;
            Some(Kind::TensorMap { operand })
        }
        _ => None,
    }
}

/// How often a body names `name`.
fn mentions(tokens: TokenStream, name: &str) -> usize {
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

fn extents(task: &Task<'_>) -> Vec<Extent> {
    let mut extents = Vec::new();
    for index in task.tensors().flat_map(|tensor| &tensor.region) {
        if let Some(extent) = extent(task, &index.kind)
            && !extents.contains(&extent)
        {
            extents.push(extent);
        }
    }
    extents
}

/// The extent of one index; `None` for a whole axis.
pub fn extent(task: &Task<'_>, index: &IndexKind) -> Option<Extent> {
    let (name, before, after) = match index {
        IndexKind::Tile(name) | IndexKind::Over(name, _) => (name, 0, 0),
        IndexKind::Halo(name, before, after) => (name, *before, *after),
        IndexKind::All | IndexKind::Data(_) => return None,
    };
    let axis = position(task, name)?;
    Some(Extent { axis, before, after })
}

/// Position of a grid axis.
pub fn position(task: &Task<'_>, name: &Ident) -> Option<usize> {
    task.arguments.axes.as_deref()?.iter().position(|axis| axis.name == *name)
}

fn bound(task: &Task<'_>) -> Bound {
    let list = task.arguments.elements.iter().flat_map(|elements| &elements.list);
    let mut bound = Bound::Half;
    for element in list {
        if element == "f32" && bound == Bound::Half {
            bound = Bound::Mma;
        } else if element == "i8" || element == "i32" || element == "u32" {
            bound = Bound::Any;
        }
    }
    bound
}

/// What the tokens of a body mention. Syntactic: a helper function that calls `mma` on behalf of the body does not count.
#[derive(Default)]
struct Body {
    /// `.steps(`, `.mma(` or `.mma_pair(`.
    contracts: bool,
    /// `.accumulator_pair(`.
    pairs: bool,
    /// `.accumulator(`, `.store(` and `.mma(` in all, and `.mma(` in loops over `.steps(`.
    accumulators: usize,
    stores: usize,
    mmas: usize,
    steps: usize,
    /// `break`, `continue` or `return`.
    leaves: bool,
    /// `x` of `x.tile(`.
    tiled: HashSet<String>,
    /// `y` of `.store(acc, y)` and `.store_pair(acc, y, f)`.
    stored: HashSet<String>,
    /// Names in `.store(acc, y)`, `.store_pair(acc, y, f)`, `.gemv(x, w, y)` and `.gemv_with(x, w, r, y, f)`.
    results: HashSet<String>,
    /// `w` of `.gemv(x, w, y)`.
    gemv_operand_b: Option<String>,
}

impl Body {
    fn read(tokens: TokenStream) -> Body {
        let mut body = Body::default();
        body.visit(tokens, false);
        body
    }

    /// Whether the body supports split-K.
    fn splits_k(&self) -> bool {
        let one_sum = self.accumulators == 1 && self.stores == 1;
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
                self.stored.extend(identifiers(arguments.stream()).take(2));
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
        for window in tokens.windows(4) {
            if let [TokenTree::Ident(name), TokenTree::Punct(dot), TokenTree::Ident(method), TokenTree::Group(_)] = window
                && dot.as_char() == '.'
                && method == "tile"
            {
                self.tiled.insert(name.to_string());
            }
        }
        // Between `for` and the braces of its body: whether it names steps.
        let mut header = None;
        for token in tokens {
            match token {
                TokenTree::Ident(word) if word == "for" => header = Some(false),
                TokenTree::Ident(word) if word == "steps" => header = header.map(|_| true),
                TokenTree::Ident(word) => self.leaves |= word == "break" || word == "continue" || word == "return",
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    self.visit(group.stream(), in_steps || header.take() == Some(true));
                }
                TokenTree::Group(group) => self.visit(group.stream(), in_steps),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }

    fn stages(&self, name: &Ident) -> bool {
        let name = name.to_string();
        self.tiled.contains(&name) || self.stored.contains(&name)
    }
}

/// Whether the body is one unary element-wise call. Its function may use any scalars.
fn unary(task: &Task<'_>) -> Option<Kind> {
    let (method, arguments) = sole_call(task.function.body.stream())?;
    let [x, y, _, ..] = arguments.as_slice() else { return None };
    let tensor = |name: &Option<String>| task.tensors().position(|tensor| name.as_ref().is_some_and(|name| tensor.name == name));
    let [x, y] = [tensor(x)?, tensor(y)?].map(|at| at as u8);
    (method == "zip" && x != y && task.tensors().count() == 2).then_some(Kind::Unary { x, y })
}

/// Whether the body is one `rmsnorm` call.
fn rmsnorm(task: &Task<'_>) -> Option<Kind> {
    let (method, arguments) = sole_call(task.function.body.stream())?;
    let [x, weight, y, epsilon] = arguments.as_slice() else { return None };
    let tensor = |name: &Option<String>| task.tensors().position(|tensor| name.as_ref().is_some_and(|name| tensor.name == name));
    let scalars = task.params.iter().filter(|param| matches!(param, Param::Scalar { .. }));
    let epsilon = scalars.map(Param::name).position(|name| epsilon.as_ref().is_some_and(|epsilon| name == epsilon))?;
    let [x, weight, y, epsilon] = [tensor(x)?, tensor(weight)?, tensor(y)?, epsilon].map(|at| at as u8);
    (method == "rmsnorm").then_some(Kind::RmsNorm { x, weight, y, epsilon })
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

/// What leaves an accumulator has a tile the tensor cores make: 64 or 128 rows, 128 or 256 columns; of two accumulators the largest tile
/// does not fit the registers.
fn accumulators(task: &Task<'_>, model: &Model, pairs: bool, errors: &mut Errors) {
    let Some(axes) = &task.arguments.axes else { return };
    for (tensor, _) in task.tensors().zip(&model.staged).filter(|(tensor, staged)| **staged && tensor.access.writes()) {
        let [.., row, column] = tensor.region.as_slice() else { continue };
        for (index, what, allowed) in [(row, "rows", [64, 128]), (column, "columns", [128, 256])] {
            let Some(extent) = extent(task, &index.kind) else { continue };
            for (literal, size) in axes[extent.axis].tiles.iter().filter(|(_, size)| !allowed.contains(size)) {
                let message = format!("`{}` leaves an accumulator, which cannot have {size} {what}", tensor.name);
                let [small, large] = allowed;
                errors.push(Code::Tile, literal, message, format!("the tensor cores make tiles of {small} or {large} {what}"));
            }
        }
        let largest = |index: &Index, size: u32| {
            let axis = &axes[extent(task, &index.kind)?.axis];
            axis.tiles.iter().find(|(_, tile)| *tile == size).map(|(literal, _)| literal)
        };
        if pairs
            && largest(row, 128).is_some()
            && let Some(literal) = largest(column, 256)
        {
            let message = format!("`{}` leaves two accumulators, which cannot have 128 rows and 256 columns", tensor.name);
            errors.push(Code::Tile, literal, message, "two of them do not fit the registers: write `tile(i = 64 | 128, j = 128)`");
        }
    }
}

/// Two stages of every variant must fit the ring.
fn budget(task: &Task<'_>, model: &Model, errors: &mut Errors) {
    if !matches!(model.kind, Kind::Gemm { .. }) {
        return;
    }
    let Some(axes) = &task.arguments.axes else { return };
    let mut told = Vec::new();
    let mut variant = vec![0; axes.len()];
    loop {
        let mut pages = 0;
        let mut worst: Option<(u64, usize)> = None;
        for (tensor, _) in task.tensors().zip(&model.staged).filter(|(tensor, staged)| **staged && !tensor.access.writes()) {
            for extent in tensor.region.iter().filter_map(|index| extent(task, &index.kind)) {
                let size = u64::from(axes[extent.axis].tiles[variant[extent.axis]].1);
                let needed = (size * STEP_BYTES).div_ceil(PAGE_BYTES);
                pages += needed;
                if worst.is_none_or(|(most, _)| needed > most) {
                    worst = Some((needed, extent.axis));
                }
            }
        }
        if let Some((_, axis)) = worst
            && 2 * pages > PAGES
        {
            let literal: &LitInt = &axes[axis].tiles[variant[axis]].0;
            if !told.contains(&(axis, variant[axis])) {
                told.push((axis, variant[axis]));
                let message = format!("one step of this variant takes {pages} pages of shared memory, but two steps must fit {PAGES}");
                errors.push(Code::SharedMemory, literal, message, "use smaller tiles: a step of 128 rows is one page of 16 KiB");
            }
        }
        // The next variant, last axis fastest.
        let Some(axis) = (0..axes.len()).rev().find(|&axis| variant[axis] + 1 < axes[axis].tiles.len()) else { return };
        variant[axis] += 1;
        variant[axis + 1..].fill(0);
    }
}
