//! Phases of the run-time builder: collectives that begin behind other calls.
//!
//! Nothing is ordered here: the planner adds the edges (`maco_graph::ir::Phase`).

use maco_graph::ir;
use maco_graph::spec::Code;

use super::{Node, TaskGraph};

impl TaskGraph {
    /// A phase of communication: none of the collectives that `build` adds begins before all has been made that [`Phase::depends_on`] names. Other calls of it are as
    /// elsewhere. Results are the same.
    ///
    /// ```
    /// # use maco::{TaskGraph, Reduced, tasks};
    /// # maco::task_set! { ops: tasks::linear<f32>, tasks::all_reduce<f32> }
    /// # let mut graph = TaskGraph::new("layer", ops());
    /// # let [x, up, gate] = ["x", "up", "gate"].map(|name| graph.input::<f32>(name, [64, 64]));
    /// let part = graph.linear(x, up);
    /// graph.partial(part, Reduced::Sum);
    /// let gates = graph.linear(x, gate);
    /// let sums = graph.phase(|phase| phase.all_reduce(part)).depends_on([gates]);
    /// graph.output(sums.result, "sum");
    /// ```
    ///
    /// [`TaskGraph::compile`] returns MACO0018 for a phase without a collective, and for one that depends on what is made in it.
    pub fn phase<R>(&mut self, build: impl FnOnce(&mut TaskGraph) -> R) -> Phase<'_, R> {
        let first = self.calls.len();
        let result = build(self);
        let (comm, others) = self.collectives_from(first);
        if comm.is_empty() {
            self.refuse(
                Code::CallOption,
                "a phase has no collective\n  = help: build one in it, such as `all_reduce`, or leave the phase out",
            );
        }
        Phase { graph: self, comm, others, result }
    }
}

/// A phase that is being built: [`TaskGraph::phase`].
#[must_use = "a phase begins behind nothing until `depends_on` says behind what"]
pub struct Phase<'a, R> {
    graph: &'a mut TaskGraph,
    comm: Vec<u32>,
    others: Vec<u32>,
    result: R,
}

impl<R> Phase<'_, R> {
    /// Has the phase begin behind all that makes these: tensors, other phases, slices and tuples of them. An input is there from the beginning.
    pub fn depends_on(self, on: impl DependsOn) -> Phased<R> {
        let Phase { graph, comm, others, result } = self;
        let behind = on.calls(graph);
        let calls = comm.iter().chain(&others).copied().collect();
        if !comm.is_empty() && !behind.is_empty() {
            graph.phases.push(ir::Phase { comm, behind });
        }
        Phased { result, calls }
    }
}

/// A phase of a graph, for other phases to depend on.
#[derive(Clone, Debug)]
pub struct Phased<R> {
    /// What its `build` returned.
    pub result: R,
    calls: Vec<u32>,
}

/// What a phase may depend on.
pub trait DependsOn {
    /// The calls that it stands for.
    #[doc(hidden)]
    fn calls(&self, graph: &mut TaskGraph) -> Vec<u32>;
}

impl DependsOn for Node {
    fn calls(&self, graph: &mut TaskGraph) -> Vec<u32> {
        graph.makers(*self, "`depends_on`")
    }
}

impl<R> DependsOn for Phased<R> {
    fn calls(&self, _: &mut TaskGraph) -> Vec<u32> {
        self.calls.clone()
    }
}

impl<T: DependsOn + ?Sized> DependsOn for &T {
    fn calls(&self, graph: &mut TaskGraph) -> Vec<u32> {
        (**self).calls(graph)
    }
}

impl<T: DependsOn> DependsOn for [T] {
    fn calls(&self, graph: &mut TaskGraph) -> Vec<u32> {
        self.iter().flat_map(|of| of.calls(graph)).collect()
    }
}

impl<T: DependsOn, const N: usize> DependsOn for [T; N] {
    fn calls(&self, graph: &mut TaskGraph) -> Vec<u32> {
        self.as_slice().calls(graph)
    }
}

impl<A: DependsOn, B: DependsOn> DependsOn for (A, B) {
    fn calls(&self, graph: &mut TaskGraph) -> Vec<u32> {
        [self.0.calls(graph), self.1.calls(graph)].concat()
    }
}
