//! The run-time builder: the same graph as a megakernel's, made call by call without macros.
//!
//! Checks do not belong here: the builder records what was asked, and [`TaskGraph::compile`] runs the rules that const evaluation runs
//! over a megakernel, with the same codes.

mod collectives;
mod compiled;
mod overlap;
mod parts;
mod phase;
mod pipeline;

use std::sync::atomic::{AtomicU32, Ordering};

use maco_graph::ir;
use maco_graph::spec::{Argument, BuildError, CallOptions, Code, Element, Kind, Owned, Placement, TaskSpec, Value, Via, View};
use maco_host::{Device, Dispatch, Embedded, Error, OutputFault, Plan, PlanOptions, Program, TensorElement};

use crate::tasks;
pub use compiled::{CompiledGraph, Outputs};
pub use overlap::{Future, Overlapping, Region};
use parts::Part;
pub use phase::{DependsOn, Phase, Phased};
pub use pipeline::{Results, Stage, overlapped};

/// Tasks a run-time graph may call, with their code: made by [`crate::task_set!`].
#[derive(Clone, Copy)]
pub struct TaskSet {
    /// Spec and first slot of each task, without its GEMV form.
    #[doc(hidden)]
    pub tasks: &'static [(&'static TaskSpec, u32)],
    /// One bit per instance that there is code for.
    #[doc(hidden)]
    pub instances: u128,
    #[doc(hidden)]
    pub cpu: Dispatch,
    #[doc(hidden)]
    pub entry: &'static str,
    #[doc(hidden)]
    pub fuse_elementwise: bool,
    #[doc(hidden)]
    pub embedded: Embedded,
}

/// A tensor of a [`TaskGraph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    index: usize,
    graph: GraphId,
}

/// Which graph of the program: several may have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GraphId {
    number: u32,
    name: &'static str,
}

/// An argument of a call: a tensor, or a number.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// A tensor.
    Node(Node),
    /// A floating-point scalar.
    F32(f32),
    /// An integer scalar, for `u32` and `i32` parameters.
    Integer(i64),
}

impl From<Node> for Operand {
    fn from(node: Node) -> Operand {
        Operand::Node(node)
    }
}

impl From<f32> for Operand {
    fn from(value: f32) -> Operand {
        Operand::F32(value)
    }
}

impl From<u32> for Operand {
    fn from(value: u32) -> Operand {
        Operand::Integer(value.into())
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Operand {
        Operand::Integer(value.into())
    }
}

#[derive(Clone)]
struct Declared {
    name: String,
    kind: Kind,
    element: Element,
    shape: Vec<u64>,
    placement: Placement,
    symmetric: bool,
    /// What it is a part of, if it is: then kind, name and placement are those of that one.
    part: Option<Part>,
}

struct Call {
    task: &'static TaskSpec,
    arguments: Vec<Operand>,
    tile: Option<Vec<u32>>,
    split: Option<u32>,
    drain: bool,
    priority: i32,
    via: Via,
}

/// A graph of tasks in program order, built at run time.
///
/// ```
/// use maco::{Device, TaskGraph, bf16, tasks};
///
/// maco::task_set! { ops: tasks::linear<bf16>, tasks::gelu<bf16> }
///
/// let device = Device::cpu();
/// let mut graph = TaskGraph::new("mlp", ops());
/// let x = graph.input::<bf16>("x", [4, 64]);
/// let up = graph.input::<bf16>("up", [128, 64]);
/// let down = graph.input::<bf16>("down", [64, 128]);
/// let h = graph.linear(x, up);
/// let h = graph.elementwise(&tasks::gelu::SPEC, h);
/// let y = graph.linear(h, down);
/// graph.output(y, "y");
/// let compiled = graph.compile(&device)?;
///
/// let ones = device.upload(&vec![bf16::ONE; 4 * 64], [4, 64])?;
/// let weights = device.zeros::<bf16>([128, 64])?;
/// let more = device.zeros::<bf16>([64, 128])?;
/// let outputs = compiled.execute(maco::Arguments::new().tensor(&ones).tensor(&weights).tensor(&more))?;
/// assert_eq!(outputs.get::<bf16>("y").unwrap().shape(), [4, 64]);
/// # Ok::<(), maco::Error>(())
/// ```
pub struct TaskGraph {
    id: GraphId,
    set: TaskSet,
    tensors: Vec<Declared>,
    calls: Vec<Call>,
    overlaps: Vec<ir::Overlap>,
    phases: Vec<ir::Phase>,
    /// The first mistake, which [`TaskGraph::compile`] tells: building goes on.
    mistake: Option<Error>,
}

impl TaskGraph {
    /// An empty graph that may call the tasks of `set`.
    pub fn new(name: &str, set: TaskSet) -> TaskGraph {
        static GRAPHS: AtomicU32 = AtomicU32::new(0);
        let id = GraphId { number: GRAPHS.fetch_add(1, Ordering::Relaxed), name: maco_graph::spec::intern(name) };
        TaskGraph { id, set, tensors: Vec::new(), calls: Vec::new(), overlaps: Vec::new(), phases: Vec::new(), mistake: None }
    }

    fn declare(&mut self, name: String, kind: Kind, element: Element, shape: Vec<u64>) -> Node {
        self.tensors.push(Declared { name, kind, element, shape, placement: Placement::Replicated, symmetric: false, part: None });
        Node { index: self.tensors.len() - 1, graph: self.id }
    }

    /// Whether `node` is of this graph, which `by` asks.
    fn owns(&mut self, node: Node, by: &str) -> bool {
        if node.graph != self.id {
            let foreign = || Error::ForeignNode { graph: self.id.name.into(), by: by.into(), tensor: node.index, owner: node.graph.name };
            self.mistake.get_or_insert_with(foreign);
        }
        node.graph == self.id
    }

    /// Keeps a mistake that has the code of one in a megakernel.
    fn refuse(&mut self, code: Code, text: &str) {
        self.mistake.get_or_insert_with(|| Error::Build(BuildError { code, text: format!("{code}: {text}") }));
    }

    fn tensor(&self, node: Node) -> Option<&Declared> {
        self.tensors.get(node.index).filter(|_| node.graph == self.id)
    }

    /// A tensor that [`CompiledGraph::execute`] takes, in the order of these calls.
    pub fn input<E: TensorElement>(&mut self, name: &str, shape: impl Into<Vec<u64>>) -> Node {
        self.declare(name.to_owned(), Kind::In, E::ELEMENT, shape.into())
    }

    /// A tensor of the plan, for [`TaskGraph::custom`] to write.
    pub fn temp<E: TensorElement>(&mut self, name: &str, shape: impl Into<Vec<u64>>) -> Node {
        self.declare(name.to_owned(), Kind::Temp, E::ELEMENT, shape.into())
    }

    /// Names a tensor in messages and in the printed graph. An output has its name from [`TaskGraph::output`], and keeps it; a part has the name of its tensor.
    pub fn name(&mut self, node: Node, name: &str) {
        if !self.owns(node, "`name`") {
            return;
        }
        let tensor = &mut self.tensors[node.index];
        if tensor.kind != Kind::Out {
            tensor.name = name.to_owned();
        } else if tensor.name != name {
            let (graph, output, fault) = (self.id.name.into(), tensor.name.as_str().into(), OutputFault::Renamed { name: name.into() });
            self.mistake.get_or_insert(Error::Output { graph, output, fault });
        }
    }

    /// Makes a tensor that some call writes an output: [`CompiledGraph::execute`] returns it under `name`, which no other output has.
    pub fn output(&mut self, node: Node, name: &str) {
        if !self.owns(node, "`output`") {
            return;
        }
        let tensor = &self.tensors[node.index];
        let fault = match tensor.kind {
            _ if tensor.part.is_some() => Some(OutputFault::Part { of: self.tensors[self.whole(node.index)].name.as_str().into() }),
            Kind::In => Some(OutputFault::Input { name: tensor.name.as_str().into() }),
            Kind::Out => Some(OutputFault::Twice { name: tensor.name.as_str().into() }),
            _ if self.tensors.iter().any(|other| other.kind == Kind::Out && other.name == name) => Some(OutputFault::Name),
            _ => None,
        };
        if let Some(fault) = fault {
            self.mistake.get_or_insert_with(|| Error::Output { graph: self.id.name.into(), output: name.into(), fault });
            return;
        }
        let tensor = &mut self.tensors[node.index];
        tensor.name = name.to_owned();
        tensor.kind = Kind::Out;
    }

    fn extent(&self, node: Node, axis: usize) -> u64 {
        // A wrong node or rank is reported by `compile`, with the call's name.
        self.tensor(node).and_then(|tensor| tensor.shape.get(axis)).copied().unwrap_or(1)
    }

    fn element(&self, node: Node) -> Element {
        self.tensor(node).map_or(Element::F32, |tensor| tensor.element)
    }

    fn result(&mut self, task: &'static TaskSpec, like: Node, shape: Vec<u64>) -> Node {
        let name = format!("{}{}", task.name, self.calls.len());
        self.declare(name, Kind::Temp, self.element(like), shape)
    }

    /// y\[M, N\] = x\[M, K\] · w\[N, K\]ᵀ.
    pub fn linear(&mut self, x: Node, w: Node) -> Node {
        let y = self.result(&tasks::linear::SPEC, x, vec![self.extent(x, 0), self.extent(w, 0)]);
        self.custom(&tasks::linear::SPEC, [x.into(), w.into(), y.into()]);
        y
    }

    /// y\[M, N\] = a\[M, K\] · b\[K, N\].
    pub fn matmul(&mut self, a: Node, b: Node) -> Node {
        let y = self.result(&tasks::matmul::SPEC, a, vec![self.extent(a, 0), self.extent(b, 1)]);
        self.custom(&tasks::matmul::SPEC, [a.into(), b.into(), y.into()]);
        y
    }

    /// y = f(x) for an element-wise task such as [`tasks::gelu`].
    pub fn elementwise(&mut self, task: &'static TaskSpec, x: Node) -> Node {
        let shape = self.tensor(x).map_or_else(Vec::new, |tensor| tensor.shape.clone());
        let y = self.result(task, x, shape);
        self.custom(task, [x.into(), y.into()]);
        y
    }

    /// Calls any task of the set, arguments in the order of its signature. What it writes is a [`TaskGraph::temp`].
    pub fn custom(&mut self, task: &'static TaskSpec, arguments: impl IntoIterator<Item = Operand>) {
        let arguments: Vec<Operand> = arguments.into_iter().collect();
        for operand in &arguments {
            if let Operand::Node(node) = *operand {
                self.owns(node, &format!("call `{}`", task.name));
            }
        }
        self.calls.push(Call { task, arguments, tile: None, split: None, drain: false, priority: 0, via: Via::Automatic });
    }

    /// Forces the tile of the latest call.
    pub fn tile(&mut self, tile: &[u32]) {
        if let Some(call) = self.calls.last_mut() {
            call.tile = Some(tile.to_vec());
        }
    }

    /// Split-K of the latest call, as `.split_k(n)` in a megakernel: `parts` tasks per tile, at most one per 64 elements of K. By default the planner
    /// chooses.
    pub fn split_k(&mut self, parts: u32) {
        if let Some(call) = self.calls.last_mut() {
            call.split = Some(parts);
        }
    }

    /// Dynamic tile scheduling of the latest call, as `.drain()` in a megakernel: with static lists, workers claim its tasks by ticket. For tasks whose
    /// cost depends on data.
    pub fn drain(&mut self) {
        if let Some(call) = self.calls.last_mut() {
            call.drain = true;
        }
    }

    /// Checks and plans the graph for a device.
    ///
    /// # Errors
    /// What const evaluation would say of the same megakernel (MACO0001 to MACO0028), MACO0061 for a task that the set lacks, has
    /// twice, or has not for that element, MACO0070 for a tensor of another graph, MACO0071 for an output that has its name twice, gets
    /// another one by [`TaskGraph::name`], is an input or a part of a tensor, and the errors of [`Plan::build`].
    pub fn compile(self, device: &Device) -> Result<CompiledGraph, Error> {
        self.compile_with(device, &PlanOptions::new())
    }

    /// As [`TaskGraph::compile`], with options.
    ///
    /// # Errors
    /// As for [`TaskGraph::compile`].
    pub fn compile_with(mut self, device: &Device, options: &PlanOptions) -> Result<CompiledGraph, Error> {
        let mistake = self.mistake.take();
        let program = || mistake.map_or_else(|| self.program(), Err);
        let plan = Plan::build_from(device, self.id.name, program, options)?;
        let inputs = self.tensors.iter().filter(|tensor| tensor.kind == Kind::In).count();
        let outputs = self.tensors.into_iter().filter(|tensor| tensor.kind == Kind::Out).collect();
        Ok(CompiledGraph { plan, inputs, outputs })
    }

    fn program(&self) -> Result<Program, Error> {
        let mut graph = Owned::new();
        // Parameters first, then temps: the order of a megakernel.
        let mut order: Vec<usize> = (0..self.tensors.len()).filter(|&n| self.tensors[n].part.is_none()).collect();
        order.sort_by_key(|&n| match self.tensors[n].kind {
            Kind::In => 0,
            Kind::Out => 1,
            _ => 2,
        });
        let mut views = vec![View::NONE; self.tensors.len()];
        for n in order {
            let tensor = &self.tensors[n];
            views[n] = graph.tensor(&tensor.name, tensor.kind, tensor.element, &tensor.shape, tensor.placement)?;
            if tensor.symmetric {
                graph.symmetric(views[n]);
            }
        }
        for n in 0..self.tensors.len() {
            self.view_part(n, &mut graph, &mut views)?;
        }
        for call in &self.calls {
            let own = call.task.own();
            let mut known = self.set.tasks.iter().filter(|(task, _)| **task == own);
            let Some((task, slot)) = known.next() else {
                return Err(Error::UnknownTask { task: call.task.name, graph: self.id.name.into() });
            };
            // Equal specs may have different bodies.
            if known.next().is_some() {
                return Err(Error::AmbiguousTask { task: call.task.name, graph: self.id.name.into() });
            }
            let arguments: Vec<Argument<'_>> = call
                .arguments
                .iter()
                .map(|operand| match *operand {
                    Operand::Node(node) => Argument::Tensor(views[node.index]),
                    Operand::F32(value) => Argument::Scalar(Value::F32(value)),
                    Operand::Integer(value) => Argument::Scalar(Value::Integer(value)),
                })
                .collect();
            let options = CallOptions {
                tile: call.tile.as_deref(),
                split: call.split,
                drain: call.drain,
                priority: call.priority,
                via: call.via,
                ..CallOptions::default()
            };
            graph.call(task, *slot, &arguments, options)?;
        }
        let mut graph = graph.finish()?.resolve(self.id.name, &[])?;
        graph.overlaps.clone_from(&self.overlaps);
        graph.phases.clone_from(&self.phases);
        for call in &graph.calls {
            let instance = call.slot + call.element * call.task.tile_variants();
            if self.set.instances.checked_shr(instance).is_some_and(|rest| rest & 1 == 0) {
                let element = call.task.elements[call.element as usize].name();
                return Err(Error::UnknownElement { task: call.task.name, element, graph: self.id.name.into() });
            }
        }
        Ok(Program {
            name: self.id.name,
            graph,
            entry: self.set.entry,
            embedded: self.set.embedded,
            cpu: self.set.cpu,
            fuse_elementwise: self.set.fuse_elementwise,
            workers: None,
            schedulers: None,
        })
    }
}
