//! Parts of tensors of the run-time builder: views, which copy nothing.
//!
//! Checks do not belong here: slices are those of a megakernel, with its codes.

use std::ops::Range;

use maco_graph::spec::{Code, Kind, Owned, View};
use maco_host::Error;

use super::{Declared, Node, TaskGraph};

/// What a tensor is a part of.
#[derive(Clone)]
pub(super) struct Part {
    of: usize,
    axis: usize,
    range: Range<u64>,
}

impl TaskGraph {
    /// Elements `range` of `node` along `axis`: as `.slice(axis, from..to)` in a megakernel. Nothing is copied: what a call writes to it, it writes to `node`.
    ///
    /// [`TaskGraph::compile`] returns MACO0025 for a range beyond the axis.
    pub fn slice(&mut self, node: Node, axis: usize, range: Range<u64>) -> Node {
        if !self.owns(node, "`slice`") {
            return node;
        }
        let of = self.tensors[node.index].clone();
        let mut shape = of.shape;
        if let Some(extent) = shape.get_mut(axis) {
            *extent = range.end.saturating_sub(range.start);
        }
        let part = Some(Part { of: node.index, axis, range });
        self.tensors.push(Declared { kind: Kind::Temp, shape, part, ..of });
        Node { index: self.tensors.len() - 1, graph: self.id }
    }

    /// Rows `range` of `node`, of all planes: a [`TaskGraph::slice`] of the axis before the last; of a tensor of one axis, elements.
    pub fn rows(&mut self, node: Node, range: Range<u64>) -> Node {
        self.slice(node, self.axis_of_rows(node), range)
    }

    pub(super) fn axis_of_rows(&self, node: Node) -> usize {
        self.tensor(node).map_or(0, |tensor| tensor.shape.len().saturating_sub(2))
    }

    /// One tensor whose rows are those of `nodes`, one after another: these become its parts, and who writes them writes it.
    pub(super) fn joined(&mut self, nodes: &[Node]) -> Node {
        let Some(&first) = nodes.first().filter(|_| nodes.iter().all(|&node| self.owns(node, "`pipeline`"))) else { return nodes[0] };
        let axis = self.axis_of_rows(first);
        let of = self.tensors[first.index].clone();
        let others =
            |shape: &[u64]| shape.iter().enumerate().filter(|(other, _)| *other != axis).map(|(_, &extent)| extent).collect::<Vec<_>>();
        let mut rows = Vec::with_capacity(nodes.len());
        let mut end = 0;
        for node in nodes {
            let tensor = &self.tensors[node.index];
            let made = tensor.kind == Kind::Temp && tensor.part.is_none() && !tensor.shape.is_empty();
            let alike = tensor.shape.len() == of.shape.len() && others(&tensor.shape) == others(&of.shape);
            let alike = alike && tensor.element == of.element && tensor.placement.same(of.placement);
            if !made || !alike {
                let what = if made { "differs from that of the first stage" } else { "is no tensor that a call of it has made" };
                let help = "return a tensor of a call in the stage, with as many columns and the same placement in all stages";
                self.refuse(
                    Code::View,
                    &format!("`{}`, the result of a stage of a pipeline, {what}\n  = help: {help}", self.tensors[node.index].name),
                );
                return first;
            }
            rows.push(end..end + tensor.shape[axis]);
            end += tensor.shape[axis];
        }
        let mut shape = of.shape.clone();
        shape[axis] = end;
        self.tensors.push(Declared { shape, ..of });
        let whole = Node { index: self.tensors.len() - 1, graph: self.id };
        for (node, range) in nodes.iter().zip(rows) {
            self.tensors[node.index].part = Some(Part { of: whole.index, axis, range });
        }
        whole
    }

    /// The tensor that tensor `index` is a part of, or itself.
    pub(super) fn whole(&self, mut index: usize) -> usize {
        while let Some(part) = &self.tensors[index].part {
            index = part.of;
        }
        index
    }

    /// Whether two tensors have an element in common.
    pub(super) fn shares(&self, a: usize, b: usize) -> bool {
        self.whole(a) == self.whole(b) && self.ranges(a).iter().zip(self.ranges(b)).all(|(a, b)| a.start < b.end && b.start < a.end)
    }

    /// Where a tensor lies in the one that it is a part of, along each axis.
    fn ranges(&self, index: usize) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = self.tensors[index].shape.iter().map(|&extent| 0..extent).collect();
        let mut part = &self.tensors[index].part;
        while let Some(Part { of, axis, range }) = part {
            if let Some(along) = ranges.get_mut(*axis) {
                *along = along.start + range.start..along.end + range.start;
            }
            part = &self.tensors[*of].part;
        }
        ranges
    }

    /// Fills in the view of tensor `n`, if it is a part, and of what it is a part of.
    pub(super) fn view_part(&self, n: usize, graph: &mut Owned, views: &mut [View]) -> Result<View, Error> {
        if let Some(Part { of, axis, range }) = &self.tensors[n].part
            && views[n].none()
        {
            let whole = self.view_part(*of, graph, views)?;
            views[n] = graph.slice(whole, *axis, range.clone())?;
        }
        Ok(views[n])
    }
}
