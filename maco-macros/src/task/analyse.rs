//! Step 3: what follows from a task's tokens: its kind, what is staged, its dimensions, its const parameters.

use std::collections::HashSet;

use maco_abi::{PAGE_BYTES, PAGES, ROW_BYTES, TILE_COLUMNS, TILE_ROWS};
use maco_graph::spec::{Access, Code};
use proc_macro2::Ident;
use syn::LitInt;

use super::kind::{self, Body, Kind};
use super::names::Names;
use super::parse::{Task, TensorParam};
use super::region::{Index, IndexKind};
use crate::errors::Errors;
use crate::shape::Symbols;

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
    /// The axes of the result's rows and columns, of a GEMM or GEMV whose body is the same for all tiles ([`kind::is_one_sum`], [`kind::is_plain_gemv`]).
    pub result_axes: Option<[usize; 2]>,
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
        let once = kind::mentions(task.function.body.stream(), &tensor.name.to_string()) == 1;
        let generic = Some(&tensor.element) == task.generic() && self.bound != Bound::Any;
        let sole = tensor.access == Access::Write && task.tensors().filter(|tensor| tensor.access.writes()).count() == 1;
        self.kind.is_gemm_or_gemv() && once && generic && sole && self.results.contains(&tensor.name.to_string())
    }

    /// Whether a tensor is operand B of a GEMV.
    pub fn streams(&self, task: &Task<'_>, tensor: &TensorParam) -> bool {
        let Kind::Gemv { operand_b, .. } = self.kind else { return false };
        task.tensors().nth(usize::from(operand_b)).is_some_and(|known| known.name == tensor.name)
    }

    /// The first variant.
    pub fn first(&self) -> Vec<u32> {
        self.tiles.iter().map(|tiles| tiles[0]).collect()
    }
}

/// `None` after an error that leaves nothing to emit.
pub fn analyse(task: &Task<'_>, errors: &mut Errors) -> Option<Model> {
    let mut symbols = Symbols::default();
    for tensor in task.tensors() {
        symbols.introduce(&tensor.dims, errors);
    }
    for tensor in task.tensors() {
        symbols.constants(&tensor.dims, errors);
    }
    let equal = symbols.equal(&task.arguments.equal, errors);
    let body = Body::read(task.function.body.stream(), task.cta_name());
    let kind = kind::of(task, &body, errors);
    let staged: Vec<bool> = task.tensors().map(|tensor| matches!(kind, Kind::Gemm { .. }) && !names_indices(task, tensor)).collect();
    let tiles = task.arguments.axes.iter().flatten().map(|axis| axis.tiles.iter().map(|&(_, tile)| tile).collect()).collect();
    let names = Names::of(task, &symbols, &equal);
    let shared = match kind {
        Kind::Gemm { .. } => kind::is_one_sum(task, &body),
        Kind::Gemv { .. } => kind::is_plain_gemv(task),
        _ => false,
    };
    let result_axes = shared.then(|| result_axes(task)).flatten();
    let model = Model {
        result_axes,
        kind,
        symbols,
        equal,
        names,
        staged,
        results: body.results,
        extents: extents(task),
        bound: bound(task),
        tiles,
    };
    if !errors.any() {
        budget(task, &model, errors);
        accumulators(task, &model, body.pairs, errors);
    }
    (!errors.any()).then_some(model)
}

/// See [`Model::result_axes`].
fn result_axes(task: &Task<'_>) -> Option<[usize; 2]> {
    let mut results = task.tensors().filter(|tensor| tensor.access.writes());
    let (Some(result), None) = (results.next(), results.next()) else { return None };
    let axis = |index: &Index| match &index.kind {
        IndexKind::Tile(_) => extent(task, &index.kind).map(|extent| extent.axis),
        _ => None,
    };
    let ([row, column] | [_, row, column]) = result.region.as_slice() else { return None };
    let [row, column] = [axis(row)?, axis(column)?];
    (row != column).then_some([row, column])
}

/// Whether elements of `by` name indices of another parameter.
pub fn names_indices(task: &Task<'_>, by: &TensorParam) -> bool {
    let regions = task.tensors().flat_map(|tensor| &tensor.region);
    regions.into_iter().any(|index| matches!(&index.kind, IndexKind::Data(names) if names.contains(&by.name)))
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

/// What leaves an accumulator has a tile the tensor cores make: 64 or 128 rows, 128 or 256 columns; of two accumulators the largest tile
/// does not fit the registers.
fn accumulators(task: &Task<'_>, model: &Model, pairs: bool, errors: &mut Errors) {
    let Some(axes) = &task.arguments.axes else { return };
    let ([_, tall], [_, wide]) = (TILE_ROWS, TILE_COLUMNS);
    for (tensor, _) in task.tensors().zip(&model.staged).filter(|(tensor, staged)| **staged && tensor.access.writes()) {
        let [.., row, column] = tensor.region.as_slice() else { continue };
        for (index, what, allowed) in [(row, "rows", TILE_ROWS), (column, "columns", TILE_COLUMNS)] {
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
            && largest(row, tall).is_some()
            && let Some(literal) = largest(column, wide)
        {
            let message = format!("`{}` leaves two accumulators, which cannot have {tall} rows and {wide} columns", tensor.name);
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
                let needed = (size * u64::from(ROW_BYTES)).div_ceil(PAGE_BYTES.into());
                pages += needed;
                if worst.is_none_or(|(most, _)| needed > most) {
                    worst = Some((needed, extent.axis));
                }
            }
        }
        if let Some((_, axis)) = worst
            && 2 * pages > u64::from(PAGES)
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
