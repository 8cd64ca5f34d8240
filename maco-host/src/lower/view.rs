//! Operands as rectangular views in memory, and which of them need a tensor map.

use std::collections::HashMap;

use maco_abi::{ElementwisePrologue, MapIndex, OPERANDS, RmsNormPrologue, View, ViewEntry};
use maco_graph::ir;
use maco_graph::plan::{PlannedCall, prologue_fusion};
use maco_graph::spec::Index;

use super::plane::{BoxShape, Plane, TensorMapRequest, ViewError};
use super::tensor_params;
use crate::error::Error;
use crate::tensor::Layout;

/// The distinct views of a plan, and the distinct lists of them that calls use.
#[derive(Debug)]
pub(super) struct Views {
    views: Vec<Template>,
    /// One view per tensor parameter; unused ones are view 0.
    blocks: Vec<[u32; OPERANDS]>,
    tensor_maps: usize,
}

/// A view before its tensor has an address.
#[derive(Debug)]
struct Template {
    view: ir::View,
    /// Its tensor map, if some task copies it by TMA.
    map: Option<u32>,
    /// How that copies.
    boxes: BoxShape,
    /// Some task needs the tensor map; others can load directly without it.
    needed: bool,
    /// How many planes its elements, as indices, may select.
    names: Option<u64>,
    /// Of a prologue's view.
    prologue: Option<Prologue>,
    /// Call and parameter that use it first, or first in need of its map, for error messages.
    call: u32,
    operand: usize,
}

/// What the record of a GEMV's fused prologue says beside its tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Prologue {
    /// The view of an RMSNorm's weights: what is added to the mean square.
    RmsNorm(Option<ir::ScalarSource>),
    /// The view of operand A: the instance of the unary task, the first of its scalars, and the tile's rows with their grid axis.
    Unary { op: u32, scalar: u16, rows: u8, axis: u8 },
}

impl Prologue {
    /// The record of prologue `number` of the plan, of a tensor that `view` shows.
    fn entry(self, view: View, number: u32, scalar: impl Fn(&ir::ScalarSource) -> u32) -> ViewEntry {
        let View { base, rows, cols, row_stride, col_stride, .. } = view;
        match self {
            Prologue::RmsNorm(epsilon) => {
                let epsilon = epsilon.as_ref().map_or(0, scalar);
                ViewEntry::rmsnorm(RmsNormPrologue { weights: base, rows, cols, row_stride, col_stride, number, epsilon })
            }
            Prologue::Unary { op, scalar, rows: tile_rows, axis } => ViewEntry::elementwise(ElementwisePrologue {
                input: base,
                rows,
                cols,
                row_stride,
                tile_rows,
                axis,
                scalar,
                number,
                instance: op,
            }),
        }
    }
}

/// A tensor with its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) address: u64,
    pub(super) layout: Layout,
}

/// What depends on arguments.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    /// [`OPERANDS`] per distinct list, at least one list.
    pub(crate) views: Vec<ViewEntry>,
    /// In order of their maps.
    pub(crate) tensor_maps: Vec<TensorMapRequest>,
    pub(crate) scalars: Vec<u32>,
}

/// Tensor, offset, axis, step and extent of each view axis, how many planes its elements may name, how its tensor map copies, and what a
/// prologue's view says.
type ViewKey<'a> = (u32, &'a [u64], Vec<[u64; 3]>, Option<u64>, BoxShape, Option<Prologue>);

/// How many planes the elements of tensor parameter `operand`, as indices, may select in this call: those of the smallest tensor that they index.
fn names(call: &ir::Call, operand: usize) -> Option<u64> {
    let planes = call
        .operands
        .iter()
        .zip(tensor_params(call))
        .filter(|(_, param)| matches!(param.region, [Index::Data(by), _, _] if usize::from(*by) == operand));
    planes.map(|(view, _)| view.axes[0].extent).min()
}

/// The fused prologue of a GEMV: the call and the parameter whose view is added, and what the view encodes.
fn prologue(graph: &ir::Graph, calls: &[PlannedCall], gemv: usize, first_scalar: &[u16]) -> Option<(usize, usize, Prologue)> {
    let number = calls.get(gemv)?.prologue? as usize;
    let made = &graph.calls[number];
    if let Some(of) = prologue_fusion::rmsnorm(made) {
        return Some((number, of.weight, Prologue::RmsNorm(made.scalars.get(of.epsilon).copied())));
    }
    let (x, _) = made.task.unary_operands()?;
    let operand_a = tensor_params(&graph.calls[gemv]).nth(graph.calls[gemv].task.gemv_operand_a()?)?;
    let [Index::Tile(axis), _] = *operand_a.region else { return None };
    let rows = u8::try_from(*calls[gemv].tile.get(usize::from(axis))?).ok()?;
    Some((number, x, Prologue::Unary { op: calls[number].op, scalar: first_scalar[number], rows, axis }))
}

/// Distinct views of all operands, and per call where in the table its own begin. `first_scalar` is by call.
pub(super) fn collect(graph: &ir::Graph, calls: &[PlannedCall], first_scalar: &[u16]) -> (Views, Vec<u32>) {
    let mut made = Views { views: Vec::new(), blocks: Vec::new(), tensor_maps: 0 };
    let mut known: HashMap<ViewKey<'_>, u32> = HashMap::new();
    let mut blocks: HashMap<[u32; OPERANDS], u32> = HashMap::new();
    let mut first = Vec::with_capacity(graph.calls.len());
    for (call_index, call) in graph.calls.iter().enumerate() {
        let mut block = [0; OPERANDS];
        let own = call.operands.iter().zip(tensor_params(call)).enumerate();
        let own = own.map(|(operand, of)| (operand, of, (call_index, operand), names(call, operand), None));
        // The view of a prologue is the last.
        let behind = prologue(graph, calls, call_index, first_scalar).and_then(|(number, operand, prologue)| {
            let call = &graph.calls[number];
            let of = (call.operands.get(operand)?, tensor_params(call).nth(operand)?);
            Some((OPERANDS - 1, of, (number, operand), None, Some(prologue)))
        });
        for (place, (view, param), (by, operand), names, prologue) in own.chain(behind) {
            // That is no operand of this call.
            let declared = if by == call_index { call.task.boxes(operand) } else { None };
            let axes = view.axes.iter().map(|axis| [axis.axis as u64, axis.step, axis.extent]).collect();
            let element = graph.tensors[view.tensor as usize].element;
            let tile = calls.get(by).map_or(&[][..], |call| &call.tile);
            let streams = by == call_index && call.task.gemv_operand_b() == Some(operand);
            let panels = by == call_index && call.task.tensor_map_operand() == Some(operand);
            let boxes = match () {
                () if streams => BoxShape::BULK_ROWS,
                () if panels => BoxShape::PANELS,
                () => BoxShape::of(param, tile, declared, element),
            };
            let at = *known.entry((view.tensor, view.offset.as_slice(), axes, names, boxes, prologue)).or_insert_with(|| {
                made.views.push(Template {
                    view: view.clone(),
                    map: None,
                    boxes,
                    needed: false,
                    names,
                    prologue,
                    call: by as u32,
                    operand,
                });
                made.views.len() as u32 - 1
            });
            let template = &mut made.views[at as usize];
            let needed = param.staged || declared.is_some();
            if (needed || streams || panels) && template.map.is_none() {
                template.map = Some(made.tensor_maps as u32);
                made.tensor_maps += 1;
            }
            if needed && !template.needed {
                (template.call, template.operand) = (by as u32, operand);
            }
            template.needed |= needed;
            block[place] = at;
        }
        let mut push = || {
            made.blocks.push(block);
            ((made.blocks.len() - 1) * OPERANDS) as u32
        };
        // The record of its messages, or of those that it sends for another call, is its own.
        let sends = calls.iter().any(|call| call.pushed_by == Some(call_index as u32));
        let own = sends || call.task.collective().is_some();
        first.push(if own { push() } else { *blocks.entry(block).or_insert_with(push) });
    }
    (made, first)
}

impl Views {
    pub(super) fn len(&self) -> usize {
        self.blocks.len().max(1) * OPERANDS
    }

    pub(super) fn tensor_maps(&self) -> usize {
        self.tensor_maps
    }

    /// Views at the tensors' addresses and, where tiles are copied by TMA or its model (`staging`), requests for their tensor maps. What TMA could not copy is
    /// refused anyhow, so that a graph that runs on a CPU runs on a GPU.
    pub(super) fn resolve(
        &self,
        graph: &ir::Graph,
        tensors: &[Bound],
        staging: bool,
        scalar: impl Fn(&ir::ScalarSource) -> u32,
    ) -> Result<Tables, Error> {
        let mut tables = Tables { views: Vec::with_capacity(self.len()), tensor_maps: Vec::new(), scalars: Vec::new() };
        let mut tensor_maps = vec![None; if staging { self.tensor_maps } else { 0 }];
        let mut views = Vec::with_capacity(self.views.len());
        let written = graph.written();
        for (number, template) in (1..).zip(&self.views) {
            let tensor = tensors[template.view.tensor as usize];
            let element = graph.tensors[template.view.tensor as usize].element;
            let fault = |fault| template.error(graph, fault);
            let plane = Plane::of(&template.view, &tensor.layout).map_err(fault)?;
            let mut view = plane.view(tensor.address, element).map_err(fault)?;
            if let Some(planes) = template.names {
                view = view.naming(u32::try_from(planes).unwrap_or(u32::MAX));
            }
            let needed = (template.needed && template.boxes.pieces == 0).then(|| plane.map(tensor.address, element, template.boxes));
            let needed = needed.transpose().map_err(fault)?;
            if let Some(map) = template.map.filter(|_| staging) {
                let request = match template.boxes.pieces {
                    0 if needed.is_some() => needed,
                    0 => plane.map(tensor.address, element, template.boxes).ok().filter(|map| !map.empty()),
                    _ => plane.pieces(tensor.address, element),
                };
                if request.is_some() {
                    view.map = MapIndex::new(map, written[template.view.tensor as usize]);
                }
                tensor_maps[map as usize] = Some(request.unwrap_or_else(|| TensorMapRequest::nothing(element)));
            }
            views.push(match template.prologue {
                None => ViewEntry::view(view),
                Some(prologue) => prologue.entry(view, 8 * number, &scalar),
            });
        }
        let none = ViewEntry::view(View::default());
        let view = |at: &u32| views.get(*at as usize).copied().unwrap_or(none);
        tables.views.extend(self.blocks.iter().flatten().map(view));
        if tables.views.is_empty() {
            tables.views.resize(OPERANDS, none);
        }
        tables.tensor_maps = tensor_maps.into_iter().flatten().collect();
        Ok(tables)
    }
}

impl Template {
    fn error(&self, graph: &ir::Graph, fault: ViewError) -> Error {
        let call = &graph.calls[self.call as usize];
        let tensor = graph.tensors[self.view.tensor as usize].name.as_str().into();
        let task = call.task.name.into();
        let parameter = tensor_params(call).nth(self.operand).map_or("", |param| param.name).into();
        match fault {
            ViewError::Layout { reason, help } => Error::ViewLayout { tensor, task, parameter, reason, help },
            ViewError::Staging { reason, help } => Error::NotStageable { tensor, task, parameter, reason, help },
        }
    }
}
