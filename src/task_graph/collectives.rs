//! Placements and collectives of the run-time builder. Shapes are those of one rank.
//!
//! Checks do not belong here: [`TaskGraph::compile`] runs those of a megakernel.

use maco_graph::spec::{Placement, Reduction, Via};

use super::{Node, TaskGraph};
use crate::tasks;

impl TaskGraph {
    /// Each rank has a part of `node` along `axis`: as `#[shard(axis)]`, or `.shard(axis)` of a temp.
    pub fn shard(&mut self, node: Node, axis: u8) {
        self.place(node, Placement::Sharded(axis), "`shard`");
    }

    /// Each rank has a part of the result, which is reduced so: as `.partial(Sum)` of a temp.
    pub fn partial(&mut self, node: Node, reduction: Reduction) {
        self.place(node, Placement::Partial(reduction), "`partial`");
    }

    /// Has `node`, a temp, lie where other ranks store: as `.symmetric()` of a temp. Outputs are made for each run, and cannot.
    pub fn symmetric(&mut self, node: Node) {
        if self.owns(node, "`symmetric`") {
            self.tensors[node.index].symmetric = true;
        }
    }

    fn place(&mut self, node: Node, placement: Placement, by: &str) {
        if self.owns(node, by) {
            let whole = self.whole(node.index);
            self.tensors[whole].placement = placement;
        }
    }

    /// The sum of `part` over all ranks: [`tasks::all_reduce`]. `part` is [`TaskGraph::partial`].
    pub fn all_reduce(&mut self, part: Node) -> Node {
        self.elementwise(&tasks::all_reduce::SPEC, part)
    }

    /// Plane r of the result is the `x` of rank r of `ranks`: [`tasks::all_gather`]. `x` is a [`TaskGraph::shard`].
    pub fn all_gather(&mut self, x: Node, ranks: u32) -> Node {
        let shape = vec![ranks.into(), self.extent(x, 0), self.extent(x, 1)];
        let y = self.result(&tasks::all_gather::SPEC, x, shape);
        self.custom(&tasks::all_gather::SPEC, [x.into(), y.into()]);
        y
    }

    /// The sum of this rank's plane of `part` over all ranks, a shard along axis 0: [`tasks::reduce_scatter`]. `part` is [`TaskGraph::partial`].
    pub fn reduce_scatter(&mut self, part: Node) -> Node {
        let shape = vec![self.extent(part, 1), self.extent(part, 2)];
        let y = self.result(&tasks::reduce_scatter::SPEC, part, shape);
        self.shard(y, 0);
        self.custom(&tasks::reduce_scatter::SPEC, [part.into(), y.into()]);
        y
    }

    /// How tiles of the latest call, an all-reduce, go to the other ranks: as `.via(TwoShot)` in a megakernel.
    pub fn via(&mut self, via: Via) {
        if let Some(call) = self.calls.last_mut() {
            call.via = via;
        }
    }

    /// Priority of the latest call: larger is earlier among ready tasks, as `.priority(1)` in a megakernel. 0 by default.
    pub fn priority(&mut self, priority: i32) {
        if let Some(call) = self.calls.last_mut() {
            call.priority = priority;
        }
    }
}
