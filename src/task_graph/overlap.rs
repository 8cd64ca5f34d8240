//! What is to overlap, of the run-time builder: collectives beside calls that need nothing of them.
//!
//! Nothing is ordered here: the planner moves tasks that wait for other ranks (`maco_graph::ir::Overlap`).

use maco_graph::ir;
use maco_graph::spec::Param;

use super::{Node, Operand, TaskGraph};

/// An overlap of a [`TaskGraph`], which has as many waves as fit unless it is said: [`TaskGraph::overlap`].
#[derive(Debug)]
pub struct Overlapping<'a>(&'a mut Option<u32>);

impl Overlapping<'_> {
    /// As many waves as each worker has tasks of the calls that compute: the default.
    pub fn auto_waves(self) {
        *self.0 = None;
    }

    /// So many waves: behind each comes the same share of the tasks that wait for other ranks. 1: they come behind all that is computed.
    pub fn waves(self, waves: u32) {
        *self.0 = Some(waves.max(1));
    }
}

impl TaskGraph {
    /// Has the collectives that make `comm` wait beside the calls that make `compute`: workers compute while tiles travel. Calls of `compute` that need what a collective
    /// makes do not count for it. Results are the same.
    ///
    /// ```
    /// # use maco::{TaskGraph, Reduced, tasks};
    /// # maco::task_set! { ops: tasks::linear<f32>, tasks::all_reduce<f32>, tasks::add<f32> }
    /// # let mut graph = TaskGraph::new("layer", ops());
    /// # let [x, up, gate] = ["x", "up", "gate"].map(|name| graph.input::<f32>(name, [64, 64]));
    /// let part = graph.linear(x, up);
    /// graph.partial(part, Reduced::Sum);
    /// let sum = graph.all_reduce(part);
    /// let gates = graph.linear(x, gate);
    /// graph.overlap(&[gates], &[sum]).auto_waves();
    /// ```
    ///
    /// [`TaskGraph::compile`] returns MACO0018 for what is no collective, and if each of the calls needs what a collective makes.
    pub fn overlap(&mut self, compute: &[Node], comm: &[Node]) -> Overlapping<'_> {
        let calls = |graph: &mut TaskGraph, nodes: &[Node]| nodes.iter().flat_map(|&node| graph.makers(node, "`overlap`")).collect();
        let (compute, comm) = (calls(self, compute), calls(self, comm));
        self.beside(compute, comm)
    }

    pub(super) fn beside(&mut self, compute: Vec<u32>, comm: Vec<u32>) -> Overlapping<'_> {
        self.overlaps.push(ir::Overlap { compute, comm, waves: None });
        let last = self.overlaps.len() - 1;
        Overlapping(&mut self.overlaps[last].waves)
    }

    /// The last call that writes `node`; of what is written in parts, the last one that writes each.
    pub(super) fn makers(&mut self, node: Node, by: &str) -> Vec<u32> {
        if !self.owns(node, by) {
            return Vec::new();
        }
        let (mut parts, mut calls) = (Vec::new(), Vec::new());
        for (number, call) in self.calls.iter().enumerate().rev() {
            let tensors = call.task.params.iter().zip(&call.arguments).filter_map(|(param, argument)| match (param, argument) {
                (Param::Tensor(tensor), Operand::Node(of)) if tensor.access.writes() => Some(of.index),
                _ => None,
            });
            for written in tensors.filter(|&written| self.shares(written, node.index)) {
                if !parts.contains(&written) {
                    parts.push(written);
                    calls.push(number as u32);
                }
            }
        }
        calls.reverse();
        calls.dedup();
        calls
    }

    /// Which of the calls from `first` on are collectives, and which are not.
    pub(super) fn collectives_from(&self, first: usize) -> (Vec<u32>, Vec<u32>) {
        (first as u32..self.calls.len() as u32).partition(|&call| self.calls[call as usize].task.collective().is_some())
    }

    /// A part of the graph in which what is submitted to compute and what is submitted to communicate overlap, as by [`TaskGraph::overlap`]; `build` submits.
    ///
    /// ```
    /// # use maco::{TaskGraph, Reduced, tasks};
    /// # maco::task_set! { ops: tasks::linear<f32>, tasks::all_reduce<f32>, tasks::add<f32> }
    /// # let mut graph = TaskGraph::new("layer", ops());
    /// # let [part, x, gate] = ["part", "x", "gate"].map(|name| graph.input::<f32>(name, [64, 64]));
    /// # graph.partial(part, Reduced::Sum);
    /// let (sum, gates) = graph.region(|region| {
    ///     let sum = region.submit_comm(|graph| graph.all_reduce(part));
    ///     let gates = region.submit_compute(|graph| graph.linear(x, gate));
    ///     (sum.wait(), gates.wait())
    /// });
    /// ```
    pub fn region<R>(&mut self, build: impl FnOnce(&mut Region<'_>) -> R) -> R {
        let mut region = Region { graph: self, compute: Vec::new(), comm: Vec::new() };
        let result = build(&mut region);
        let Region { graph, compute, comm } = region;
        if !comm.is_empty() {
            graph.beside(compute, comm).auto_waves();
        }
        result
    }
}

/// What [`TaskGraph::region`] is built by.
pub struct Region<'a> {
    graph: &'a mut TaskGraph,
    compute: Vec<u32>,
    comm: Vec<u32>,
}

impl Region<'_> {
    /// Adds calls that compute; they may read what was waited for.
    pub fn submit_compute(&mut self, calls: impl FnOnce(&mut TaskGraph) -> Node) -> Future {
        let first = self.graph.calls.len() as u32;
        let node = calls(self.graph);
        self.compute.extend(first..self.graph.calls.len() as u32);
        Future(node)
    }

    /// Adds calls that exchange between ranks. Of what else they make nothing is moved.
    pub fn submit_comm(&mut self, calls: impl FnOnce(&mut TaskGraph) -> Node) -> Future {
        let first = self.graph.calls.len();
        let node = calls(self.graph);
        self.comm.extend(self.graph.collectives_from(first).0);
        Future(node)
    }
}

/// What a [`Region`] will have made: a tensor that no call can read before it is waited for.
#[derive(Clone, Copy, Debug)]
#[must_use = "calls can read it behind `wait`"]
pub struct Future(Node);

impl Future {
    /// The tensor. Who reads it comes behind who makes it, tile by tile.
    pub fn wait(self) -> Node {
        self.0
    }
}
