//! Functions that are fused into a call: `.first(..)` as a prologue on operand A, `.then(..)` as an epilogue on the accumulator. Their operands are
//! further parameters of the call, after those of the task.
//!
//! How they are computed does not belong here.

use maco_abi::OPERANDS;

use super::bindings::{Bindings, Formal};
use super::fault::FaultKind;
use super::{Access, Argument, CallSite, Element, ElementSpec, Index, Param, RESULTS, Recorder, ScalarType, TaskSpec, TensorParam, View};

/// One `.first(..)` or `.then(..)` of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FusedOp {
    /// Name of the function.
    pub name: &'static str,
    /// What it takes beside the value.
    pub operand: FusedOperand,
    /// `.first(..)`, on operand A; else `.then(..)`, on the accumulator.
    pub on_operand_a: bool,
}

/// Whether `ops` has a prologue: those come before the epilogues.
pub(super) const fn has_prologue(ops: &[FusedOp]) -> bool {
    matches!(ops, [FusedOp { on_operand_a: true, .. }, ..])
}

/// What a [`FusedOp`] takes beside the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusedOperand {
    /// Nothing: `.then(gelu)`.
    Nothing,
    /// A tensor of such elements, of the result's shape, or of one of its rows: `.then(add(r))`.
    Tensor(Element),
    /// A number: `.then(scale(2.0))`.
    Scalar,
}

/// Operands of one call while it is checked.
pub(super) struct Operands {
    pub(super) formals: [Formal; OPERANDS],
    pub(super) views: [View; OPERANDS],
    /// The user's token for each.
    pub(super) sites: [u32; OPERANDS],
    pub(super) count: usize,
}

impl Operands {
    pub(super) const NONE: Operands =
        Operands { formals: [Formal::NONE; OPERANDS], views: [View::NONE; OPERANDS], sites: [0; OPERANDS], count: 0 };

    /// Adds one, if there is room.
    pub(super) const fn push(&mut self, formal: Formal, view: View, site: u32) {
        if self.count < OPERANDS {
            self.formals[self.count] = formal;
            self.views[self.count] = view;
            self.sites[self.count] = site;
            self.count += 1;
        }
    }
}

impl Recorder<'_> {
    /// The operands of `.first(..)` and `.then(..)`, as further parameters of the call.
    pub(super) const fn fused_ops(&mut self, spec: &'static TaskSpec, site: &CallSite<'_>, known: &mut Operands, bindings: &mut Bindings) {
        let (mut n, mut operand) = (0, 0);
        while n < site.fused.len() {
            let FusedOp { name, operand: sort, on_operand_a } = site.fused[n];
            n += 1;
            if matches!(sort, FusedOperand::Nothing) {
                continue;
            }
            let (argument, at) = (&site.fused_arguments[operand], site.fused_site + operand as u32);
            operand += 1;
            let FusedOperand::Tensor(element) = sort else {
                let value = self.scalar_argument(spec.name, name, ScalarType::F32, argument, at);
                self.push_value(value);
                continue;
            };
            let view = match argument {
                Argument::Tensor(view) => *view,
                other => self.no_tensor(spec.name, name, other, at),
            };
            self.push_operand(view);
            if on_operand_a {
                self.fault(at, spec.name, name, FaultKind::FirstWithTensor);
                continue;
            }
            // That nothing can be fused into the task is reported with the function.
            if spec.stores() {
                self.fused_tensor(spec, (name, element), view, at, known, bindings);
            }
        }
    }

    const fn fused_tensor(
        &mut self,
        spec: &'static TaskSpec,
        (name, element): (&'static str, Element),
        view: View,
        at: u32,
        known: &mut Operands,
        bindings: &mut Bindings,
    ) {
        let Some(result) = spec.result() else {
            self.fault(at, spec.name, name, FaultKind::OperandWithoutResult);
            return;
        };
        if known.count == OPERANDS {
            self.fault(at, spec.name, name, FaultKind::OperandLimit { limit: OPERANDS as u32 });
            return;
        }
        let (rank, found) = (result.dims.len(), view.rank as usize);
        if !view.none() && found != 1 && found != rank {
            let tensor = self.name(&view);
            self.fault(at, spec.name, name, FaultKind::OperandRank { expected: rank as u32, tensor, found: found as u32 });
            return;
        }
        let dims = if found == 1 { last(result.dims) } else { result.dims };
        // An element that is not a floating-point number is reported with the list of those that are.
        let element = if element.position(RESULTS).is_some() { ElementSpec::Fixed(element) } else { ElementSpec::Result };
        let formal = Formal { task: spec.name, name, access: Access::Read, element, dims, scattered: false };
        if !view.none() && self.fits(&formal, spec.elements, &view, at, bindings) {
            known.push(formal, view, at);
        }
    }

    /// What [`Recorder::fused_ops`] would add.
    pub(super) const fn count_fused_ops(&mut self, spec: &'static TaskSpec, ops: &[FusedOp]) {
        let mut n = 0;
        while n < ops.len() {
            match ops[n].operand {
                FusedOperand::Nothing => {}
                FusedOperand::Scalar => self.state.counts.values += 1,
                FusedOperand::Tensor(_) => {
                    self.state.counts.operands += 1;
                    if let Some(result) = spec.result() {
                        self.count_dims(result.dims);
                    }
                }
            }
            n += 1;
        }
    }
}

/// The last of `all`, which are not none.
const fn last<T>(all: &'static [T]) -> &'static [T] {
    all.split_at(all.len() - 1).1
}

impl TaskSpec {
    /// The one tensor that is written, if each task writes a tile of it, of whole rows and columns of one plane: what operands of an epilogue
    /// have the shape of.
    pub const fn result(&self) -> Option<&'static TensorParam> {
        let params: &'static [Param] = self.params;
        let (mut n, mut result) = (0, None);
        while n < params.len() {
            if let Param::Tensor(tensor) = &params[n]
                && tensor.access.writes()
            {
                if result.is_some() {
                    return None;
                }
                result = Some(tensor);
            }
            n += 1;
        }
        match result {
            Some(tensor) if self.tiled(tensor.region) => result,
            _ => None,
        }
    }

    const fn tiled(&self, region: &[Index]) -> bool {
        match *region {
            [Index::Tile(_), Index::Tile(_)] => true,
            [Index::Tile(plane), Index::Tile(_), Index::Tile(_)] => matches!(self.axes[plane as usize].tiles, [1]),
            _ => false,
        }
    }
}

/// The parameters that the operands of `then` are; `ranks` has the rank of each tensor among them.
#[cfg(feature = "std")]
fn params(result: Option<&'static TensorParam>, ops: &[FusedOp], ranks: impl Iterator<Item = usize>) -> Vec<Param> {
    let mut ranks = ranks.fuse();
    let mut params = Vec::new();
    for op in ops {
        match (op.operand, result) {
            (FusedOperand::Scalar, _) => params.push(Param::Scalar { name: op.name, ty: ScalarType::F32 }),
            (FusedOperand::Tensor(element), Some(result)) => {
                let row = ranks.next() == Some(1);
                let dims = if row { last(result.dims) } else { result.dims };
                let region = if row { last(result.region) } else { result.region };
                let element = ElementSpec::Fixed(element);
                params.push(Param::Tensor(TensorParam { name: op.name, access: Access::Read, element, dims, region, staged: false }));
            }
            _ => {}
        }
    }
    params
}

/// The spec of one call of `task`, in both forms: with the operands of `ops` as further parameters, and a result of the element `result` if the
/// call says so. Equal specs are interned, so that memory is bounded by the calls that a program has.
#[cfg(feature = "std")]
pub(crate) fn call_spec(
    task: &'static TaskSpec,
    result: Option<Element>,
    ops: &[FusedOp],
    ranks: impl Iterator<Item = usize> + Clone,
) -> &'static TaskSpec {
    use std::sync::{Mutex, PoisonError};
    static KNOWN: Mutex<Vec<&'static TaskSpec>> = Mutex::new(Vec::new());
    let own = params(task.result(), ops, ranks.clone());
    if own.is_empty() && result.is_none() && !(has_prologue(ops) && task.gemv.is_some()) {
        return task;
    }
    // The GEMV form exists only for calls without a prologue, and with another result element only if it can round to it.
    let gemv = task.gemv.filter(|gemv| !has_prologue(ops) && (result.is_none() || gemv.rounded() < gemv.params.len()));
    let gemv = gemv.map(|gemv| call_spec(gemv, result, ops, ranks));
    let mut params = [task.params, &own].concat();
    if let (Some(element), Some(Param::Tensor(tensor))) = (result, params.get_mut(task.rounded())) {
        tensor.element = ElementSpec::Fixed(element);
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let same = |spec: &&&TaskSpec| {
        spec.params == params && spec.gemv == gemv && TaskSpec { params: task.params, gemv: task.gemv, ..***spec } == *task
    };
    if let Some(spec) = known.iter().find(same) {
        return spec;
    }
    let spec: &'static TaskSpec = Box::leak(Box::new(TaskSpec { params: Box::leak(params.into_boxed_slice()), gemv, ..*task }));
    known.push(spec);
    spec
}
