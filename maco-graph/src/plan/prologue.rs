//! Norms that products make of their factor themselves, before they multiply it.
//!
//! How a product does so does not belong here. A norm of few rows keeps one multiprocessor busy and all others waiting, twice: for what it reads,
//! and for its result. Where nothing but products of few rows read that, each of their tasks reads what the norm reads and makes the norm of
//! it. The call keeps its place among the plan's, without tasks.
//!
//! Only of what comes with flags of its own (`carried`): all of it is then in shared memory before a product begins. So a norm is left out on trial, and
//! back if the plan does not carry what it reads to each of its products.

use super::carried::writers;
use super::dependence::Dependences;
use super::region::{Regions, tensor_of};
use super::tiles::Choice;
use super::{OPERANDS, Plan, PlannedCall};
use crate::ir::{Call, Graph, TensorKind, View};
use crate::spec::{Access, Index, TaskKind};

/// The tensor parameters of a norm, and which scalar is added to the mean square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norm {
    /// What it reads.
    pub x: usize,
    /// Its weights.
    pub weight: usize,
    /// Its result.
    pub y: usize,
    /// The scalar parameter.
    pub epsilon: usize,
}

/// The parameters of a call, if it is a norm.
pub fn norm(call: &Call) -> Option<Norm> {
    match call.task.kind {
        TaskKind::Norm { x, weight, y, epsilon } => Some(Norm { x: x.into(), weight: weight.into(), y: y.into(), epsilon: epsilon.into() }),
        _ => None,
    }
}

/// The calls that products might make, in program order.
pub(super) fn candidates(graph: &Graph) -> Vec<u32> {
    if graph.calls.iter().all(|call| norm(call).is_none()) {
        return Vec::new();
    }
    let writers = writers(graph);
    (0..graph.calls.len() as u32).filter(|&call| is_candidate(graph, &writers, call)).collect()
}

fn is_candidate(graph: &Graph, writers: &[Vec<u32>], number: u32) -> bool {
    let call = &graph.calls[number as usize];
    let Some(of) = norm(call) else { return false };
    let params: Vec<_> = call.task.params.iter().filter_map(tensor_of).collect();
    let rows = |at: usize, access| params[at].access == access && matches!(params[at].region, [Index::Tile(0), Index::All]);
    let (x, weight, y) = (&call.operands[of.x], &call.operands[of.weight], &call.operands[of.y]);
    let plain = params.len() == 3 && call.task.axes.len() == 1 && rows(of.x, Access::Read) && rows(of.y, Access::Write);
    if !plain || !matches!((params[of.weight].access, params[of.weight].region), (Access::Read, [Index::All])) {
        return false;
    }
    // Weights lie side by side, and no task writes them.
    let tensor = |view: &View| &graph.tensors[view.tensor as usize];
    let [along] = weight.axes[..] else { return false };
    let known = writers[weight.tensor as usize].is_empty() && usize::from(along.axis) + 1 == tensor(weight).shape.len() && along.step == 1;
    let alike = [x, weight].iter().all(|view| tensor(view).element == tensor(y).element) && along.extent == x.axes[1].extent;
    let own = tensor(y).kind == TensorKind::Temp && writers[y.tensor as usize] == [number] && *y == View::whole(y.tensor, tensor(y));
    known && alike && own && {
        let mut readers = readers(graph, y.tensor, number).peekable();
        readers.peek().is_some()
            && readers.all(|reader| {
                let call = &graph.calls[reader as usize];
                let mut reads = call.operands.iter().enumerate().filter(|(_, view)| view.tensor == y.tensor);
                let factor = reads.next().is_some_and(|(operand, view)| call.task.factor() == Some(operand) && view == y);
                reader > number && factor && reads.next().is_none() && call.operands.len() < OPERANDS
            })
    }
}

/// The calls but `number` that a tensor is passed to.
fn readers(graph: &Graph, tensor: u32, number: u32) -> impl Iterator<Item = u32> + '_ {
    let other = (0..).zip(&graph.calls).filter(move |(reader, _)| *reader != number);
    other.filter(move |(_, call)| call.operands.iter().any(|view| view.tensor == tensor)).map(|(reader, _)| reader)
}

/// Gives what the `norms` read to the products that read their results, and leaves them without tasks.
pub(super) fn fuse(graph: &mut Graph, calls: &mut [PlannedCall], choices: &mut [Choice], norms: &[u32]) {
    for &number in norms {
        let call = &graph.calls[number as usize];
        let Some(of) = norm(call) else { continue };
        let (x, y) = (call.operands[of.x].clone(), call.operands[of.y].tensor);
        let products: Vec<u32> = readers(graph, y, number).collect();
        for product in products {
            let call = &mut graph.calls[product as usize];
            if let Some(factor) = call.task.factor() {
                call.operands[factor] = x.clone();
                calls[product as usize].norm = Some(number);
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

/// Those of `norms` whose products all get what the norm reads by its flags.
pub(super) fn carried(calls: &[PlannedCall], norms: &[u32], found: &Dependences) -> Vec<u32> {
    let comes = |call: u32| found.relations.iter().any(|relation| relation.consumer == call && relation.carried);
    let products = |norm: u32| (0..).zip(calls).filter(move |(_, call)| call.norm == Some(norm)).map(|(call, _)| call);
    norms.iter().copied().filter(|&norm| products(norm).all(comes)).collect()
}

impl Plan {
    /// The calls that make call `norm` themselves; none if it has tasks of its own, as all have that are no norms.
    pub fn made_by(&self, norm: u32) -> Vec<u32> {
        (0..).zip(&self.calls).filter(|(_, call)| call.norm == Some(norm)).map(|(call, _)| call).collect()
    }

    /// Whether the norm that call `call` makes is one: of what it gets by flags, with weights that no task writes.
    pub(super) fn norm_holds(&self, call: u32) -> bool {
        let Some(number) = self.calls[call as usize].norm else { return true };
        let Some((of, made)) = self.graph.calls.get(number as usize).and_then(|made| Some((norm(made)?, made))) else { return false };
        let own = &self.graph.calls[call as usize];
        let (Some(factor), Some(comes)) = (own.task.factor(), self.carried_to(call)) else { return false };
        let same = own.operands[factor] == made.operands[of.x] && comes.tensor == made.operands[of.x].tensor;
        let read = !self.graph.written()[made.operands[of.weight].tensor as usize] && own.operands.len() < OPERANDS;
        same && read && self.calls[number as usize].tasks.is_empty()
    }
}
