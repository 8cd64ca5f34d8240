//! Step 2: what the tokens of a task alone can get wrong.

use maco_abi::{MAX_BOX, OPERANDS, PAGE_BYTES, PAGES, SWIZZLE_ROWS, SWIZZLES, TASK_RANK};
use maco_graph::spec::{Access, Code, Collective, Planes};
use proc_macro2::Ident;
use quote::ToTokens;
use syn::Safety;

use super::kind::collective;
use super::parse::{Param, Task, TensorParam};
use super::region::{Index, IndexKind};
use crate::attribute::{AxisArgument, BoxArgument, element_variant};
use crate::errors::Errors;

pub fn check(task: &Task<'_>, errors: &mut Errors) {
    task.function.check("a task", errors);
    task.function.no_return("a task", errors);
    kind(task, errors);
    shared(task, errors);
    boxes(task, errors);
    let count = task.tensors().count();
    if let Some(tensor) = task.tensors().nth(OPERANDS) {
        let message = format!("{count} tensors, but there is room for {OPERANDS}");
        errors.push(Code::Limit, &tensor.name, message, "pack them into one tensor and use views, or split the task");
    }
    for (n, tensor) in task.tensors().enumerate() {
        if task.tensors().take(n).any(|other| other.name == tensor.name) {
            errors.push(Code::Signature, &tensor.name, format!("`{}` is a parameter already", tensor.name), "give each its own name");
        }
        element(task, tensor, errors);
        region(task, tensor, errors);
        planes(task, tensor, errors);
        if tensor.access.writes() {
            written(task, tensor, errors);
        }
    }
    if !task.params.is_empty() && !task.broken && !task.tensors().any(|tensor| tensor.access.writes()) {
        let name = &task.function.signature.ident;
        errors.push(
            Code::Signature,
            name,
            format!("task `{name}` writes nothing"),
            "mark its result with `#[write(..)]` or `#[update(..)]`",
        );
    }
    if task.params.is_empty() && !errors.any() {
        let name = &task.function.signature.ident;
        errors.push(Code::Signature, name, format!("task `{name}` has no parameters"), "add the tensors it reads and writes");
    }
    axes(task, errors);
    rank_planes(task, errors);
}

/// `simt`, `cpu` and `unsafe` belong together.
fn kind(task: &Task<'_>, errors: &mut Errors) {
    let arguments = task.arguments;
    match (&arguments.simt, &task.function.signature.safety) {
        (None, _) => {
            let help = "a raw body is `#[task(simt, cpu = function)] unsafe fn`; an unsafe region is `#[unsafe(write(ids[i], ..))]`";
            task.function.not_unsafe("a task that is not `simt`", help, errors);
            if let Some(cpu) = &arguments.cpu {
                errors.push(Code::Attribute, cpu, "`cpu = function` is for `simt` tasks", "remove it: the body itself runs on the CPU");
            }
            if let Some(prologue) = &arguments.prologue {
                errors.push(
                    Code::Attribute,
                    prologue,
                    "`prologue` is for `simt` tasks",
                    "remove it: other tasks wait where they first need to",
                );
            }
            if let Some(warp) = &arguments.warp {
                let help = "remove it: the blocks of other tasks divide their work among all threads";
                errors.push(Code::Attribute, warp, "`warp` is for `simt` tasks", help);
            }
            if let Some(shared) = &arguments.shared {
                let help = "remove it: the blocks of other tasks take of shared memory what they need";
                errors.push(Code::Attribute, &shared.key, "`shared = ..` is for `simt` tasks", help);
            }
        }
        (Some(_), Safety::Unsafe(_)) if arguments.few.is_some() => {
            let few = &arguments.few;
            errors.push(Code::Attribute, few, "`few = task` is for GEMMs", "remove it: a `simt` task has one form");
        }
        (Some(_), Safety::Unsafe(_)) => {}
        (Some(simt), _) => {
            errors.push(
                Code::Signature,
                simt,
                "a `simt` task must be an `unsafe fn`",
                "write `unsafe fn`: its body promises to stay inside its regions",
            );
        }
    }
}

/// `shared = 32768`: some bytes, no more than the ring has, and not before the task may run.
fn shared(task: &Task<'_>, errors: &mut Errors) {
    const MOST: u32 = PAGES * PAGE_BYTES;
    let arguments = task.arguments;
    let (Some(shared), Some(_)) = (&arguments.shared, &arguments.simt) else { return };
    if shared.bytes == 0 {
        errors.push(Code::SharedMemory, &shared.literal, "a body with 0 bytes of shared memory", "remove `shared = 0`");
    } else if shared.bytes > MOST {
        let message = format!("{} bytes of shared memory, but there are {MOST}", shared.bytes);
        errors.push(Code::SharedMemory, &shared.literal, message, "work on a part of the tile at a time, or use smaller tiles");
    }
    if arguments.warp.is_some() {
        let help = "remove one of them: a worker runs eight tasks of a warp at a time, and its shared memory is that of one task";
        errors.push(Code::Attribute, &shared.key, "a task of one warp has no shared memory", help);
    }
    if arguments.prologue.is_some() {
        // Threads begin a prologue while others may never: they cannot meet in it, so they cannot share anything either.
        let help = "remove one of them: threads get shared memory when the task may run, and a prologue is what comes before";
        errors.push(Code::Attribute, &shared.key, "a task with a prologue has no shared memory", help);
    }
}

/// `boxes(x = 128)`: of tensors of a body with scratch, and such as a tensor map can have.
fn boxes(task: &Task<'_>, errors: &mut Errors) {
    let Some((key, boxes)) = &task.arguments.boxes else { return };
    if task.arguments.simt.is_none() || task.arguments.shared.is_none() {
        let help = "add `simt` and `shared = ..`, where copies go; or remove it: the blocks of other tasks copy by themselves";
        errors.push(Code::Attribute, key, "`boxes(..)` is for `simt` tasks with shared memory", help);
    }
    for BoxArgument { name, rows: (literal, rows), swizzle: (written, swizzle) } in boxes {
        if !task.broken && !task.tensors().any(|tensor| tensor.name == *name) {
            errors.push(Code::Attribute, name, format!("`{name}` is not a tensor of this task"), "name a tensor parameter");
        }
        if *rows == 0 || *rows > MAX_BOX || !rows.is_multiple_of(SWIZZLE_ROWS) {
            let help = "a box has the rows of the tile that it is copied to or from: 8 to 256, by eights";
            errors.push(Code::Tile, literal, format!("a box of {rows} rows"), help);
        }
        if let Some(written) = written
            && !SWIZZLES.contains(swizzle)
        {
            let help = "rows are swizzled by 128, 64 or 32 bytes, or not at all: 16";
            errors.push(Code::Tile, written, format!("a box swizzled by {swizzle} bytes"), help);
        }
    }
}

fn element(task: &Task<'_>, tensor: &TensorParam, errors: &mut Errors) {
    if Some(&tensor.element) == task.generic() || element_variant(&tensor.element).is_some() || task.arguments.broken {
        return;
    }
    let help = match task.generic() {
        Some(generic) => format!("elements are `{generic}`, bf16, f16, f32, i8, i32 and u32"),
        None => format!("elements are bf16, f16, f32, i8, i32 and u32; `{} in [bf16, f16]` makes the task generic", tensor.element),
    };
    errors.push(Code::Attribute, &tensor.element, format!("`{}` is not an element type", tensor.element), help);
}

/// As many indices as dimensions, of known names.
fn region(task: &Task<'_>, tensor: &TensorParam, errors: &mut Errors) {
    let (indices, dims) = (tensor.region.len(), tensor.dims.len());
    if indices != dims {
        let message = format!("`{}` has {}, but its region has {}", tensor.name, count(dims, "dimension"), count_indices(indices));
        errors.push(Code::Rank, &tensor.attribute, message, "give one index per dimension; `..` is the whole axis");
    }
    if dims > TASK_RANK {
        let message = format!("`{}` has {dims} dimensions, but a task can address {TASK_RANK}", tensor.name);
        errors.push(Code::Limit, &tensor.ty, message, "pass a view with fewer axes");
    }
    for index in &tensor.region {
        if let Some(name) = index.name()
            && axis(task, name).is_none()
            && !task.arguments.broken
        {
            errors.push(Code::UnknownIndex, name, format!("`{name}` is not a grid axis of this task"), axes_help(task, name));
        }
        if let IndexKind::Data(names) = &index.kind {
            for name in names {
                if !task.tensors().any(|other| other.name == *name) {
                    let help = "`ids[i]` and `off[e]..off[e + 1]` look into a tensor of u32 or i32 that is a parameter of this task";
                    errors.push(Code::UnknownIndex, name, format!("`{name}` is not a tensor of this task"), help);
                }
            }
        }
    }
}

/// The first axis of three selects a plane: one of a grid axis, or the one that an element names.
fn planes(task: &Task<'_>, tensor: &TensorParam, errors: &mut Errors) {
    let [first, _, _] = tensor.region.as_slice() else { return };
    let good = match &first.kind {
        IndexKind::Tile(name) | IndexKind::Over(name, _) => {
            axis(task, name).is_none_or(|axis| axis.tiles.iter().all(|&(_, tile)| tile == 1))
        }
        // Unknown names have been told already.
        IndexKind::Data(names) => {
            let one = names.len() == 1 && names.iter().all(|name| naming(task, name).is_none_or(|by| names_one(task, by)));
            tensor.access == Access::Read && one
        }
        // Of each plane another rank has the result.
        IndexKind::All => tensor.access == Access::Read && matches!(collective(task), Some(Collective::ReduceScatter(_))),
        IndexKind::Halo(..) => false,
    };
    if !good {
        let message = format!("the first of three indices of `{}` selects one plane", tensor.name);
        let help =
            "use a grid axis of tile 1, `h` or `h / G` with `tile(h = 1, …)`, or read `ids[h]` with `#[read(h)] ids: Tensor<u32, H>`";
        errors.push(Code::Tile, first, message, help);
    }
}

/// Where a tensor of a collective has a plane for each rank, its first index says so.
fn rank_planes(task: &Task<'_>, errors: &mut Errors) {
    let Some((collective, planes)) = collective(task).and_then(|collective| Some((collective, collective.planes()?))) else { return };
    let mut results = task.tensors().filter(|tensor| tensor.access.writes());
    if let Collective::Channel(channel) = collective {
        // Slots are of its size.
        let results = [results.next(), results.next()];
        if !matches!(results, [Some(TensorParam { access: Access::Write, .. }), None]) {
            let at = results
                .into_iter()
                .flatten()
                .last()
                .map_or_else(|| task.function.signature.ident.to_token_stream(), |tensor| tensor.attribute.to_token_stream());
            let message = format!("a body over {} has one result, which holds what comes", channel.words());
            errors.push(Code::Operations, &at, message, "give it one `#[write(r, i, j)]` parameter, and no `#[update(..)]`");
        }
    }
    for tensor in task.tensors() {
        let (what, good) = match (planes, tensor.access) {
            (Planes::Result, Access::Read) | (Planes::Input, Access::Write | Access::Update | Access::Reduce) => continue,
            (Planes::Input, Access::Read) => ("`..`", matches!(tensor.region.as_slice(), [Index { kind: IndexKind::All, .. }, _, _])),
            (Planes::Result | Planes::Both, _) => {
                let first = task.arguments.axes.iter().flatten().next().map(|axis| &axis.name);
                let is_first = |index: &Index| matches!(&index.kind, IndexKind::Tile(name) if first == Some(name));
                ("the first axis of `tile(..)`", matches!(tensor.region.as_slice(), [index, _, _] if is_first(index)))
            }
        };
        if !good {
            let message = format!("`{}` has a plane for each rank, so the first of its three indices is {what}", tensor.name);
            let example = match collective {
                Collective::ReduceScatter(_) => "`#[read(.., i, j)] x: Tensor<E, R, M, N>`",
                _ => "`tile(r = 1, i = 64, j = 256)` and `#[write(r, i, j)] y: Tensor<E, R, M, N>`",
            };
            errors.push(Code::Tile, &tensor.attribute, message, format!("write {example}"));
        }
    }
}

/// The tensor of that name.
fn naming<'a>(task: &'a Task<'_>, name: &Ident) -> Option<&'a TensorParam> {
    task.tensors().find(|tensor| tensor.name == *name)
}

/// Whether a tile of `by` is one number.
fn names_one(task: &Task<'_>, by: &TensorParam) -> bool {
    let [Index { kind: IndexKind::Tile(name), .. }] = by.region.as_slice() else { return false };
    let one = axis(task, name).is_none_or(|axis| axis.tiles.iter().all(|&(_, tile)| tile == 1));
    one && (by.element == "u32" || by.element == "i32")
}

/// Tiles of one grid must write apart.
fn written(task: &Task<'_>, tensor: &TensorParam, errors: &mut Errors) {
    let verb = match tensor.access {
        Access::Update => "update",
        _ => "write",
    };
    let mut data = false;
    for index in &tensor.region {
        match &index.kind {
            IndexKind::Over(name, group) => {
                let message =
                    format!("tiles with the same `{name} / {}` would {verb} the same part of `{}`", group.to_token_stream(), tensor.name);
                errors.push(
                    Code::Overlap,
                    index,
                    message,
                    format!("{verb} with `{name}` itself, or make the group a loop inside the task"),
                );
            }
            IndexKind::Halo(name, ..) => {
                let message = format!("neighbouring tiles would {verb} the same part of `{}`", tensor.name);
                errors.push(Code::Overlap, index, message, format!("{verb} with `{name}` alone; a halo is for reading"));
            }
            IndexKind::Data(_) => {
                data = true;
                if !tensor.unsafety {
                    let message = format!("nothing proves that tiles {verb} different parts of `{}`", tensor.name);
                    let help = format!("promise it: `#[unsafe({verb}(..))]`; every tile must then {verb} elements of its own");
                    errors.push(Code::UnsafeWrite, index, message, help);
                }
            }
            IndexKind::All | IndexKind::Tile(_) => {}
        }
    }
    for (n, index) in tensor.region.iter().enumerate() {
        if let IndexKind::Tile(name) = &index.kind
            && tensor.region[..n].iter().any(|earlier| earlier.name() == Some(name))
        {
            let message = format!("`{name}` names two dimensions of `{}`: tiles would {verb} its diagonal only", tensor.name);
            errors.push(Code::GridAxis, index, message, "use one grid axis for each dimension");
        }
    }
    if data {
        return;
    }
    let Some(axes) = &task.arguments.axes else { return };
    for axis in axes {
        if !tensor.region.iter().any(|index| index.name() == Some(&axis.name)) {
            let name = &axis.name;
            let message = format!("tiles that differ only in `{name}` would {verb} the same part of `{}`", tensor.name);
            errors.push(
                Code::MissingAxis,
                &tensor.attribute,
                message,
                format!("name `{name}` in the region, or make `{name}` a loop inside the task"),
            );
        }
    }
}

/// Each grid axis runs over one dimension.
fn axes(task: &Task<'_>, errors: &mut Errors) {
    let Some(axes) = &task.arguments.axes else { return };
    for axis in axes {
        let mut over: Option<(String, &TensorParam)> = None;
        for tensor in task.tensors() {
            for (index, dimension) in tensor.region.iter().zip(&tensor.dims) {
                let IndexKind::Tile(name) = &index.kind else { continue };
                if *name != axis.name {
                    continue;
                }
                let dimension = same(task, &dimension.to_token_stream().to_string());
                match &over {
                    None => over = Some((dimension, tensor)),
                    Some((known, first)) if *known != dimension => {
                        let message =
                            format!("`{name}` runs over `{known}` in `{}`, but over `{dimension}` in `{}`", first.name, tensor.name);
                        errors.push(
                            Code::GridAxis,
                            index,
                            message,
                            format!("say `where {known} == {dimension}`, or use another grid axis"),
                        );
                    }
                    Some(_) => {}
                }
            }
        }
        if over.is_none() && !errors.any() {
            let message = format!("grid axis `{}` runs over no dimension", axis.name);
            errors.push(
                Code::GridAxis,
                &axis.name,
                message,
                format!("use it in a region, such as `#[write({}, ..)]`, or remove it", axis.name),
            );
        }
    }
}

/// The first of the names that `where` makes equal.
fn same(task: &Task<'_>, name: &str) -> String {
    let mut name = name.to_owned();
    for _ in 0..=task.arguments.equal.len() {
        for (left, right) in &task.arguments.equal {
            if *right == name.as_str() {
                name = left.to_string();
            }
        }
    }
    name
}

pub fn axis<'a>(task: &'a Task<'_>, name: &Ident) -> Option<&'a AxisArgument> {
    task.arguments.axes.as_deref()?.iter().find(|axis| axis.name == *name)
}

fn axes_help(task: &Task<'_>, name: &Ident) -> String {
    match task.arguments.axes.as_deref() {
        None | Some([]) => format!("add it to the attribute: `tile({name} = 64)`"),
        Some(axes) => {
            let names: Vec<String> = axes.iter().map(|axis| format!("`{}`", axis.name)).collect();
            format!("grid axes are {}; others are added to the attribute's `tile(..)`", names.join(", "))
        }
    }
}

fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

fn count_indices(n: usize) -> String {
    if n == 1 { "1 index".to_owned() } else { format!("{n} indices") }
}

/// Keeps the parameter kinds in one place for emission.
impl Param {
    pub fn name(&self) -> &Ident {
        match self {
            Param::Tensor(tensor) => &tensor.name,
            Param::Scalar { name, .. } => name,
        }
    }
}
