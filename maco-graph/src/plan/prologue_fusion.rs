//! Prologue fusion: an RMSNorm or a unary element-wise call is computed by the GEMVs that read its result, on operand A in shared memory.
//!
//! How the device does so does not belong here. An RMSNorm of few rows keeps one multiprocessor busy while all others wait. If only GEMVs read its
//! result, each of their tasks reads the input of the norm instead and normalises it. The fused call, the *prologue*, stays in the plan without tasks.
//!
//! It needs in-band flags (`in_band_flags`) on the input: all of operand A is then in shared memory before the GEMV begins. So prologues are fused on
//! trial, and restored if some GEMV does not get the input with in-band flags.

use maco_abi::OPERANDS;

use super::dependencies::Dependencies;
use super::in_band_flags::writers;
use super::region::{Regions, tensor_of};
use super::tile_selection::Choice;
use super::{Plan, PlannedCall};
use crate::ir::{Call, Graph, TensorKind, View};
use crate::spec::{Access, Index, RowsForm, TaskKind};

/// The tensor parameters of an RMSNorm task, and which scalar is added to the mean square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmsNorm {
    /// What it reads.
    pub x: usize,
    /// Its weights.
    pub weight: usize,
    /// Its result.
    pub y: usize,
    /// The scalar parameter.
    pub epsilon: usize,
}

/// The parameters of a call, if it is an RMSNorm.
pub fn rmsnorm(call: &Call) -> Option<RmsNorm> {
    match call.task.kind {
        TaskKind::Rows(RowsForm::RmsNorm { x, weight, y, epsilon }) => {
            Some(RmsNorm { x: x.into(), weight: weight.into(), y: y.into(), epsilon: epsilon.into() })
        }
        _ => None,
    }
}

/// Input and result of a call that may be fused: the operands of an RMSNorm, or of a unary element-wise call.
fn fused_operands(call: &Call) -> Option<(usize, usize)> {
    rmsnorm(call).map(|of| (of.x, of.y)).or(call.task.unary_operands())
}

/// The calls that may be fused, in program order: RMSNorms, and with `unary` also unary element-wise calls.
pub(super) fn candidates(graph: &Graph, unary: bool) -> Vec<u32> {
    let kind = |call: &Call| fused_operands(call).is_some() && (unary || rmsnorm(call).is_some());
    if !graph.calls.iter().any(kind) {
        return Vec::new();
    }
    let writers = writers(graph);
    (0..graph.calls.len() as u32).filter(|&call| kind(&graph.calls[call as usize]) && is_candidate(graph, &writers, call)).collect()
}

/// Whether a call is an RMSNorm of whole rows, with contiguous weights that no task writes.
fn is_fusable_rmsnorm(graph: &Graph, writers: &[Vec<u32>], call: &Call) -> bool {
    let Some(of) = rmsnorm(call) else { return false };
    let params: Vec<_> = call.task.params.iter().filter_map(tensor_of).collect();
    let rows = |at: usize, access| params[at].access == access && matches!(params[at].region, [Index::Tile(0), Index::All]);
    let (x, weight) = (&call.operands[of.x], &call.operands[of.weight]);
    let plain = params.len() == 3 && call.task.axes.len() == 1 && rows(of.x, Access::Read) && rows(of.y, Access::Write);
    if !plain || !matches!((params[of.weight].access, params[of.weight].region), (Access::Read, [Index::All])) {
        return false;
    }
    let tensor = |view: &View| &graph.tensors[view.tensor as usize];
    let [along] = weight.axes[..] else { return false };
    let known = writers[weight.tensor as usize].is_empty() && usize::from(along.axis) + 1 == tensor(weight).shape.len() && along.step == 1;
    known && along.extent == x.axes[1].extent && tensor(weight).element == tensor(x).element
}

/// Whether a call is unary and element-wise on matrices of equal shape.
fn is_fusable_unary(call: &Call) -> bool {
    let Some((x, y)) = call.task.unary_operands() else { return false };
    let params: Vec<_> = call.task.params.iter().filter_map(tensor_of).collect();
    let each = |at: usize, access| params[at].access == access && matches!(params[at].region, [Index::Tile(0), Index::Tile(1)]);
    let along = |at: usize| call.operands[at].axes.iter().map(|axis| axis.extent);
    params.len() == 2 && each(x, Access::Read) && each(y, Access::Write) && along(x).eq(along(y))
}

fn is_candidate(graph: &Graph, writers: &[Vec<u32>], number: u32) -> bool {
    let call = &graph.calls[number as usize];
    let Some((x, y)) = fused_operands(call) else { return false };
    if !is_fusable_rmsnorm(graph, writers, call) && !is_fusable_unary(call) {
        return false;
    }
    let (x, y) = (&call.operands[x], &call.operands[y]);
    let tensor = |view: &View| &graph.tensors[view.tensor as usize];
    let alike = tensor(x).element == tensor(y).element;
    let own = tensor(y).kind == TensorKind::Temp && writers[y.tensor as usize] == [number] && *y == View::whole(y.tensor, tensor(y));
    alike && own && {
        let mut readers = readers(graph, y.tensor, number).peekable();
        readers.peek().is_some()
            && readers.all(|reader| {
                let call = &graph.calls[reader as usize];
                let mut reads = call.operands.iter().enumerate().filter(|(_, view)| view.tensor == y.tensor);
                let is_operand_a = reads.next().is_some_and(|(operand, view)| call.task.gemv_operand_a() == Some(operand) && view == y);
                reader > number && is_operand_a && reads.next().is_none() && call.operands.len() < OPERANDS
            })
    }
}

/// The calls but `number` that a tensor is passed to.
fn readers(graph: &Graph, tensor: u32, number: u32) -> impl Iterator<Item = u32> + '_ {
    let other = (0..).zip(&graph.calls).filter(move |(reader, _)| *reader != number);
    other.filter(move |(_, call)| call.operands.iter().any(|view| view.tensor == tensor)).map(|(reader, _)| reader)
}

/// Passes the inputs of `prologues` to the GEMVs that read their results, and leaves the prologues without tasks.
pub(super) fn fuse(graph: &mut Graph, calls: &mut [PlannedCall], choices: &mut [Choice], prologues: &[u32]) {
    for &number in prologues {
        let call = &graph.calls[number as usize];
        let Some((x, y)) = fused_operands(call) else { continue };
        let (x, y) = (call.operands[x].clone(), call.operands[y].tensor);
        let gemvs: Vec<u32> = readers(graph, y, number).collect();
        for gemv in gemvs {
            let call = &mut graph.calls[gemv as usize];
            if let Some(operand_a) = call.task.gemv_operand_a() {
                call.operands[operand_a] = x.clone();
                calls[gemv as usize].prologue = Some(number);
            }
        }
        choices[number as usize].grid[0] = 0;
        calls[number as usize].grid[0] = 0;
    }
}

/// Regions of all calls.
pub(super) fn regions(graph: &Graph, choices: &[Choice]) -> Regions {
    let mut regions = Regions::with_capacity(graph.calls.len());
    graph.calls.iter().zip(choices).for_each(|(call, choice)| regions.add(call, choice));
    regions
}

/// Those of `prologues` whose GEMVs all get the input with in-band flags.
pub(super) fn in_band(calls: &[PlannedCall], prologues: &[u32], found: &Dependencies) -> Vec<u32> {
    let comes = |call: u32| found.relations.iter().any(|relation| relation.consumer == call && relation.in_band);
    let gemvs = |made: u32| (0..).zip(calls).filter(move |(_, call)| call.prologue == Some(made)).map(|(call, _)| call);
    prologues.iter().copied().filter(|&made| gemvs(made).all(comes)).collect()
}

impl Plan {
    /// The calls that call `prologue` is fused into; none if it has tasks of its own.
    pub fn fused_into(&self, prologue: u32) -> Vec<u32> {
        (0..).zip(&self.calls).filter(|(_, call)| call.prologue == Some(prologue)).map(|(call, _)| call).collect()
    }

    /// Whether the prologue of call `call`, if it has one, is valid: an RMSNorm or unary call on an operand A with in-band flags, with weights that no
    /// task writes.
    pub(super) fn prologue_holds(&self, call: u32) -> bool {
        let Some(number) = self.calls[call as usize].prologue else { return true };
        let Some(((x, _), made)) = self.graph.calls.get(number as usize).and_then(|made| Some((fused_operands(made)?, made))) else {
            return false;
        };
        let own = &self.graph.calls[call as usize];
        let (Some(operand_a), Some(comes)) = (own.task.gemv_operand_a(), self.in_band_input(call)) else { return false };
        let same = own.operands[operand_a] == made.operands[x] && comes.tensor == made.operands[x].tensor;
        let read = rmsnorm(made).is_none_or(|of| !self.graph.written()[made.operands[of.weight].tensor as usize]);
        same && read && own.operands.len() < OPERANDS && self.calls[number as usize].tasks.is_empty()
    }
}
