//! The graphs that are measured, made of `tasks::ops` at run time: every length and size is a plan of one kernel.

use maco::{CompiledGraph, Device, Error, Node, Operand, PlanOptions, TaskGraph, TensorElement, bf16};

use crate::tasks::plain::TILE;
use crate::tasks::{boundary, dispatch, ops};

/// A chain of calls of one task on one tensor, which `start` sets to zero.
pub fn chain(task: &'static maco::TaskSpec, words: u64, calls: u32) -> TaskGraph {
    let mut graph = TaskGraph::new(task.name, ops());
    let x = graph.temp::<u32>("x", [words]);
    graph.custom(&dispatch::start::SPEC, [x.into()]);
    for _ in 0..calls {
        graph.custom(task, [x.into()]);
    }
    graph.output(x, "x");
    graph
}

/// Tasks that depend on nothing and take as many cycles as the input says.
pub fn busy(tasks: u64) -> TaskGraph {
    let mut graph = TaskGraph::new("busy", ops());
    let cycles = graph.input::<u32>("cycles", [tasks]);
    let done = graph.temp::<u32>("done", [tasks]);
    graph.custom(&dispatch::busy::SPEC, [cycles.into(), done.into()]);
    graph.output(done, "done");
    graph
}

/// y = x by the library's `copy`, in bf16.
pub fn copy(rows: u64, columns: u64) -> TaskGraph {
    one_to_one::<bf16>(&maco::tasks::copy::SPEC, rows, columns)
}

/// y = mix(x) by `transfer`: rows of a tile.
pub fn transfer(rows: u64) -> TaskGraph {
    one_to_one::<u32>(&dispatch::transfer::SPEC, rows, TILE.into())
}

fn one_to_one<E: TensorElement>(task: &'static maco::TaskSpec, rows: u64, columns: u64) -> TaskGraph {
    let mut graph = TaskGraph::new(task.name, ops());
    let x = graph.input::<E>("x", [rows, columns]);
    let y = graph.elementwise(task, x);
    graph.output(y, "y");
    graph
}

/// What a tile needs of the phase before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One tile.
    Identity,
    /// Three neighbours.
    Halo,
    /// All tiles, but three quarters of the bytes need none.
    Weights,
    /// All tiles.
    All,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Pattern; 4] = [Pattern::Identity, Pattern::Halo, Pattern::Weights, Pattern::All];

    /// As in the names of cases and kernels.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Identity => "identity",
            Pattern::Halo => "halo",
            Pattern::Weights => "weights",
            Pattern::All => "all",
        }
    }

    /// Rows that a tile names.
    pub fn needs(self) -> u32 {
        if self == Pattern::Halo { 3 } else { 1 }
    }

    /// Whether a tile sums a word of every tile.
    pub fn sums(self) -> bool {
        matches!(self, Pattern::Weights | Pattern::All)
    }

    /// Words of weights that a tile reads.
    pub fn weights(self) -> u32 {
        if self == Pattern::Weights { TILE / 4 * 3 } else { 0 }
    }

    fn task(self) -> &'static maco::TaskSpec {
        match self {
            Pattern::Identity => &boundary::identity::SPEC,
            Pattern::Halo => &boundary::halo::SPEC,
            Pattern::Weights => &boundary::weights::SPEC,
            Pattern::All => &boundary::all::SPEC,
        }
    }
}

/// Phases of `tiles` tiles, each of which reads what the one before wrote.
///
/// Inputs: `x`, `parts` if the pattern sums, then `ids` of each phase, and `w` of each phase if it has weights. Output: the last `y`.
pub fn phases(pattern: Pattern, tiles: u32, phases: u32, seed: u32) -> TaskGraph {
    let mut graph = TaskGraph::new(pattern.name(), ops());
    let mut x = graph.input::<u32>("x", [tiles.into(), TILE.into()]);
    let mut parts = pattern.sums().then(|| graph.input::<u32>("parts", [tiles.into()]));
    let ids: Vec<Node> = (0..phases).map(|_| ids(&mut graph, pattern, tiles)).collect();
    let w: Vec<Option<Node>> = (0..phases).map(|_| weights(&mut graph, pattern, tiles)).collect();
    for phase in 0..phases {
        let salt = boundary::salt(phase, seed);
        (x, parts) = call(&mut graph, pattern, tiles, ids[phase as usize], x, w[phase as usize], parts, salt);
    }
    finish(graph, x, parts)
}

/// The tasks of all phases in one phase, all on the first phase's input: nothing waits. Inputs as for [`phases`], with the ids of all
/// phases in one tensor, and the weights too.
pub fn one_phase(pattern: Pattern, tiles: u32, phases: u32, seed: u32) -> TaskGraph {
    let mut graph = TaskGraph::new(pattern.name(), ops());
    let x = graph.input::<u32>("x", [tiles.into(), TILE.into()]);
    let parts = pattern.sums().then(|| graph.input::<u32>("parts", [tiles.into()]));
    let ids = ids(&mut graph, pattern, tiles * phases);
    let w = weights(&mut graph, pattern, tiles * phases);
    let (y, part) = call(&mut graph, pattern, tiles * phases, ids, x, w, parts, boundary::salt(0, seed));
    finish(graph, y, part)
}

fn ids(graph: &mut TaskGraph, pattern: Pattern, tiles: u32) -> Node {
    match pattern.needs() {
        1 => graph.input::<u32>("ids", [u64::from(tiles)]),
        needs => graph.input::<u32>("ids", [tiles.into(), needs.into()]),
    }
}

fn weights(graph: &mut TaskGraph, pattern: Pattern, tiles: u32) -> Option<Node> {
    let columns = pattern.weights();
    (columns > 0).then(|| graph.input::<u32>("w", [tiles.into(), columns.into()]))
}

#[allow(clippy::too_many_arguments, reason = "they are the operands of a task")]
fn call(
    graph: &mut TaskGraph,
    pattern: Pattern,
    tiles: u32,
    ids: Node,
    x: Node,
    w: Option<Node>,
    parts: Option<Node>,
    salt: u32,
) -> (Node, Option<Node>) {
    let y = graph.temp::<u32>("y", [tiles.into(), TILE.into()]);
    let part = parts.map(|_| graph.temp::<u32>("part", [u64::from(tiles)]));
    let operands = [Some(ids), Some(x), w, parts, Some(y), part].into_iter().flatten().map(Operand::from);
    graph.custom(pattern.task(), operands.chain([salt.into()]));
    (y, part)
}

/// The last results are outputs.
fn finish(mut graph: TaskGraph, y: Node, part: Option<Node>) -> TaskGraph {
    graph.output(y, "y");
    if let Some(part) = part {
        graph.output(part, "part");
    }
    graph
}

/// Plans with as many tasks as the measurements need.
pub fn plan(graph: TaskGraph, device: &Device, options: &PlanOptions) -> Result<CompiledGraph, Error> {
    graph.compile_with(device, &options.clone().max_tasks(1 << 22))
}
