//! Pipelines of the run-time builder: rows in stages, of which each communicates while the next one computes.
//!
//! Nothing is ordered here: each two neighbours are an overlap.

use std::ops::{Deref, DerefMut, Range};

use maco_graph::spec::{Code, Index, Param};
use maco_host::Device;

use super::{Call, Node, Operand, TaskGraph};

/// Most stages that [`overlapped`] makes: then an eighth of the communication has nothing beside it.
const MOST_STAGES: u32 = 8;
/// Rows of a slice are a multiple of so many, if there are enough: a whole tile of a GEMM.
const TILE_ROWS: u64 = 128;

impl TaskGraph {
    /// Cuts the rows of `x`, along the axis before the last, into `stages` slices, and has `build` make each stage: calls, and a collective of their result. The collective of
    /// a stage waits beside the calls of the next one ([`TaskGraph::overlap`]). Returned are the whole results: the rows that `build` returns are rows of them, in order.
    ///
    /// ```
    /// # use maco::{TaskGraph, Reduced, tasks};
    /// # maco::task_set! { ops: tasks::linear<f32>, tasks::all_reduce<f32> }
    /// # let mut graph = TaskGraph::new("layer", ops());
    /// # let [x, w] = ["x", "w"].map(|name| graph.input::<f32>(name, [512, 64]));
    /// let y = graph.pipeline(4, x, |stage, rows| {
    ///     let part = stage.linear(rows, w); // of these rows
    ///     stage.partial(part, Reduced::Sum);
    ///     stage.all_reduce(part)
    /// });
    /// graph.output(y, "y"); // all rows
    /// ```
    ///
    /// Slices have whole tiles if there are enough rows, and differ by one at most. [`TaskGraph::compile`] returns MACO0025 for no stages, for more stages than rows, and for
    /// a stage that returns what none of its calls made; MACO0018 if each call of a stage needs the collective of the one before.
    pub fn pipeline<R: Results>(&mut self, stages: u32, x: Node, mut build: impl FnMut(&mut Stage<'_>, Node) -> R) -> R {
        let rows = if self.owns(x, "`pipeline`") { self.extent(x, self.axis_of_rows(x)) } else { 1 };
        let slices = slices(rows, stages).unwrap_or_else(|| {
            let of = self.tensor(x).map_or("", |tensor| &tensor.name);
            let text =
                format!("a pipeline of {stages} stages cannot cut `{of}`, which has {rows} rows\n  = help: give it 1 to {rows} stages");
            self.refuse(Code::View, &text);
            Vec::from_iter([0..rows])
        });
        let (mut results, mut before) = (Vec::with_capacity(slices.len()), Vec::new());
        for (index, range) in (0..).zip(&slices) {
            // All rows are the tensor itself.
            let part = if slices.len() == 1 { x } else { self.rows(x, range.clone()) };
            let first = self.calls.len();
            let all = slices.len() == 1;
            results.push(build(&mut Stage { graph: self, index, range: range.clone(), all }, part));
            let (comm, compute) = self.collectives_from(first);
            if !before.is_empty() && !compute.is_empty() {
                self.beside(compute, before).auto_waves();
            }
            before = comm;
        }
        match results.pop() {
            Some(only) if results.is_empty() => only,
            Some(last) => {
                results.push(last);
                let of: Vec<Vec<Node>> = results.iter().map(Results::nodes).collect();
                let whole: Vec<Node> =
                    (0..of[0].len()).map(|n| self.joined(&of.iter().map(|nodes| nodes[n]).collect::<Vec<_>>())).collect();
                R::of(&whole)
            }
            None => unreachable!("there is a slice"),
        }
    }
}

/// One stage of a [`TaskGraph::pipeline`]: the graph, and which rows it is about.
pub struct Stage<'a> {
    graph: &'a mut TaskGraph,
    index: u32,
    range: Range<u64>,
    /// There is one stage, of all rows.
    all: bool,
}

impl Stage<'_> {
    /// Which stage it is, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Which rows it has.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// These rows of another tensor, such as a residual.
    pub fn rows_of(&mut self, node: Node) -> Node {
        if self.all { node } else { self.graph.rows(node, self.range.clone()) }
    }
}

impl Deref for Stage<'_> {
    type Target = TaskGraph;

    fn deref(&self) -> &TaskGraph {
        self.graph
    }
}

impl DerefMut for Stage<'_> {
    fn deref_mut(&mut self) -> &mut TaskGraph {
        self.graph
    }
}

/// What a stage of a pipeline returns: a tensor, or an array of them.
pub trait Results: Sized {
    #[doc(hidden)]
    fn nodes(&self) -> Vec<Node>;
    #[doc(hidden)]
    fn of(nodes: &[Node]) -> Self;
}

impl Results for Node {
    fn nodes(&self) -> Vec<Node> {
        vec![*self]
    }

    fn of(nodes: &[Node]) -> Node {
        nodes[0]
    }
}

impl<const N: usize> Results for [Node; N] {
    fn nodes(&self) -> Vec<Node> {
        self.to_vec()
    }

    fn of(nodes: &[Node]) -> [Node; N] {
        std::array::from_fn(|n| nodes[n])
    }
}

/// The same as `build`, which has calls and a collective of rows of its first tensor, as a [`TaskGraph::pipeline`] of as many stages as `device` can fill: in each some call has
/// a tile for every worker, counted in the largest tiles that its task may have. There are 8 at most, and one if there is less to do. What `build` takes besides, such as
/// weights, is passed on to each stage.
///
/// ```
/// # use maco::{Device, Node, TaskGraph, Reduced, tasks};
/// # maco::task_set! { ops: tasks::linear<f32>, tasks::all_reduce<f32> }
/// # let mut graph = TaskGraph::new("layers", ops());
/// # let [x, up, down] = ["x", "up", "down"].map(|name| graph.input::<f32>(name, [64, 64]));
/// # let device = Device::cpu_with(2);
/// let layer = maco::overlapped(&device, |graph, x, w: Node| {
///     let part = graph.linear(x, w);
///     graph.partial(part, Reduced::Sum);
///     graph.all_reduce(part)
/// });
/// let h = layer(&mut graph, x, up);
/// let y = layer(&mut graph, h, down);
/// ```
///
/// `build` is called for each stage, and before that to count tiles: it should do nothing but add calls. Elements are the same sums; where the planner splits K for one number
/// of rows and not for another, it rounds them otherwise, as with any other tiles.
pub fn overlapped<A, R, F>(device: &Device, build: F) -> impl Fn(&mut TaskGraph, Node, A) -> R + use<A, R, F>
where
    A: Clone,
    R: Results,
    F: Fn(&mut TaskGraph, Node, A) -> R,
{
    let workers = u64::from(device.workers());
    move |graph, x, more: A| {
        let rows = graph.extent(x, graph.axis_of_rows(x));
        let fills = |stages: &u32| {
            let least = slices(rows, *stages).into_iter().flatten().min_by_key(|range| range.end - range.start);
            least.is_some_and(|range| {
                let mut trial = graph.trial();
                let part = trial.rows(x, range);
                build(&mut trial, part, more.clone());
                trial.calls.iter().map(|call| trial.tiles(call)).max() >= Some(workers)
            })
        };
        // A stage of less than a tile's rows would have as many tiles, for less.
        let most = (rows / TILE_ROWS).min(MOST_STAGES.into()) as u32;
        let stages = (2..=most).rev().find(fills).unwrap_or(1);
        graph.pipeline(stages, x, |stage, rows| build(stage, rows, more.clone()))
    }
}

impl TaskGraph {
    /// The same tensors without calls, to see what a function adds.
    fn trial(&self) -> TaskGraph {
        let tensors = self.tensors.clone();
        TaskGraph { id: self.id, set: self.set, tensors, calls: Vec::new(), overlaps: Vec::new(), phases: Vec::new(), mistake: None }
    }

    /// The fewest tiles that a call may have; none of a collective.
    fn tiles(&self, call: &Call) -> u64 {
        if call.task.collective().is_some() {
            return 0;
        }
        let extent = |axis: usize| {
            let tensors = call.task.params.iter().zip(&call.arguments).filter_map(|(param, argument)| match (param, argument) {
                (Param::Tensor(param), Operand::Node(node)) => Some((param.region, *node)),
                _ => None,
            });
            let along = |index: &Index| matches!(*index, Index::Tile(by) if usize::from(by) == axis);
            tensors.filter_map(|(region, node)| Some(self.extent(node, region.iter().position(along)?))).max().unwrap_or(1)
        };
        let largest = |axis: usize| {
            let forced = call.tile.as_ref().and_then(|tile| tile.get(axis)).copied();
            forced.or(call.task.axes[axis].tiles.iter().max().copied()).unwrap_or(1).max(1)
        };
        (0..call.task.axes.len()).map(|axis| extent(axis).div_ceil(largest(axis).into())).product()
    }
}

/// So many slices of rows, of whole tiles if there are enough, that differ by one tile at most. None if they would be empty.
fn slices(rows: u64, stages: u32) -> Option<Vec<Range<u64>>> {
    let stages = u64::from(stages);
    if stages == 0 || stages > rows {
        return None;
    }
    let mut tile = TILE_ROWS;
    while rows.div_ceil(tile) < stages {
        tile /= 2;
    }
    // The last tile may be a part, so larger slices come last.
    let tiles = rows.div_ceil(tile);
    let border = |n: u64| (n * tiles / stages * tile).min(rows);
    Some((0..stages).map(|n| border(n)..border(n + 1)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_differ_by_one_tile_at_most() {
        for rows in 1..600 {
            for stages in 1..=9.min(rows as u32) {
                let slices = slices(rows, stages).unwrap();
                assert_eq!((slices.len(), slices[0].start, slices[slices.len() - 1].end), (stages as usize, 0, rows));
                assert!(slices.windows(2).all(|two| two[0].end == two[1].start), "{slices:?}");
                let tile = (0..8).map(|n| TILE_ROWS >> n).find(|&tile| rows.div_ceil(tile) >= stages.into()).unwrap();
                let lengths = || slices.iter().map(|range| range.end - range.start);
                assert!(lengths().min().unwrap() > 0 && lengths().max().unwrap() - lengths().min().unwrap() <= tile, "{slices:?}");
                assert!(slices.iter().all(|range| range.start.is_multiple_of(tile)), "{slices:?}");
            }
        }
        assert_eq!(slices(1000, 3).unwrap(), [0..256, 256..640, 640..1000]);
    }

    #[test]
    fn there_are_no_empty_slices() {
        assert_eq!(slices(3, 4), None);
        assert_eq!(slices(3, 0), None);
        assert_eq!(slices(0, 1), None);
        assert_eq!(slices(3, 3).unwrap(), [0..1, 1..2, 2..3]);
    }
}
