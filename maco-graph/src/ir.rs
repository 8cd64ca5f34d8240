//! The call graph with concrete sizes: what a megakernel calls, in program order. Input of [`crate::plan`].
//!
//! Tiles and order do not belong here. It is made from a const recording (macros) or by the run-time builder.

use maco_abi::MAP_ALIGN;

use crate::spec::{Element, Param, Placement, TaskSpec, Via};

/// Calls in program order over tensors of known shape.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The megakernel's name.
    pub name: String,
    /// Parameters first, in signature order (arrays flattened), then temps in order of creation.
    pub tensors: Vec<Tensor>,
    /// Run-time scalars, in signature order.
    pub scalars: Vec<Scalar>,
    /// In program order.
    pub calls: Vec<Call>,
    /// Calls that wait for other ranks beside others.
    pub overlaps: Vec<Overlap>,
    /// Tensors that are marked symmetric, by their positions: they lie where other ranks store.
    pub symmetric: Vec<u32>,
    /// Collectives that begin behind other calls.
    pub phases: Vec<Phase>,
}

/// Tasks of `comm` that wait for other ranks come between tasks of `compute` in the workers' lists, so that workers compute while tiles travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overlap {
    /// Calls that need nothing of those in `comm`, by their positions in program order. Of others in it nothing is moved.
    pub compute: Vec<u32>,
    /// Collectives.
    pub comm: Vec<u32>,
    /// In how many waves: behind each comes the same share of the tasks that wait. As many as each worker has tasks of `compute` if it is not said.
    pub waves: Option<u32>,
}

/// No task of `comm` begins before all tasks of `behind` have ended, whatever they read and write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Phase {
    /// Collectives, by their positions in program order.
    pub comm: Vec<u32>,
    /// Calls that come before them in program order.
    pub behind: Vec<u32>,
}

impl Graph {
    /// Per tensor: whether any call writes it.
    pub fn written(&self) -> Vec<bool> {
        let mut written = vec![false; self.tensors.len()];
        for call in &self.calls {
            let tensors = call.task.params.iter().filter_map(|param| match param {
                Param::Tensor(tensor) => Some(tensor),
                Param::Scalar { .. } => None,
            });
            for (view, _) in call.operands.iter().zip(tensors).filter(|(_, tensor)| tensor.access.writes()) {
                written[view.tensor as usize] = true;
            }
        }
        written
    }
}

/// Where a tensor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorKind {
    /// Read only.
    In,
    /// Wholly written before it is read.
    Out,
    /// Read and written.
    InOut,
    /// Kept between launches, such as a KV cache.
    State,
    /// Memory of the plan.
    Temp,
}

/// One tensor.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Name in the user's source; `up[2]` for an element of an array.
    pub name: String,
    /// Where it lives.
    pub kind: TensorKind,
    /// Element type.
    pub element: Element,
    /// Extents, outermost first; rank 1 to 4.
    pub shape: Vec<u64>,
    /// How it is spread over the ranks.
    pub placement: Placement,
}

impl Tensor {
    /// Bytes of the tensor as devices store it: rows, along the last axis, padded to 16 bytes. `u64::MAX` if they are more.
    pub fn stored_bytes(&self) -> u64 {
        let Some((&columns, outer)) = self.shape.split_last() else { return 0 };
        let row = columns.max(1).saturating_mul(u64::from(self.element.bytes())).checked_next_multiple_of(MAP_ALIGN.into());
        outer.iter().fold(row.unwrap_or(u64::MAX), |bytes, &extent| bytes.saturating_mul(extent))
    }
}

/// One run-time scalar.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// Name in the user's source.
    pub name: String,
}

/// One call of a task: becomes a grid of tiles.
#[derive(Clone, Debug)]
pub struct Call {
    /// What it promises.
    pub task: &'static TaskSpec,
    /// Dispatch number of the task's first instance in the megakernel.
    pub slot: u32,
    /// Which of [`TaskSpec::elements`] it runs on; 0 when the task is not generic.
    pub element: u32,
    /// One view per tensor parameter, in parameter order.
    pub operands: Vec<View>,
    /// One source per scalar parameter, in parameter order.
    pub scalars: Vec<ScalarSource>,
    /// Forced tile sizes, one per grid axis (`.tile(64, 128)`).
    pub tile: Option<Vec<u32>>,
    /// Forced number of split-K parts of each tile (`.split_k(4)`).
    pub split: Option<u32>,
    /// Names of the functions fused into the call, prologues (`.first(silu)`) before epilogues (`.then(gelu)`), for display.
    pub fused: Vec<String>,
    /// `.priority(n)`; 0 by default, larger is earlier among ready tasks.
    pub priority: i32,
    /// `.drain()`: workers claim its tasks by ticket (dynamic tile scheduling), because the costs of tasks depend on data. In a plan it is also set for
    /// calls that the planner made dynamic ([`crate::plan::PlannedCall::dynamic`]).
    pub drain: bool,
    /// `.via(TwoShot)`: how tiles of an all-reduce go to the other ranks.
    pub via: Via,
}

impl Call {
    /// A call without scalars and options, on the first of the task's elements: what it has besides is given behind (`Call { tile, ..Call::new(..) }`).
    pub fn new(task: &'static TaskSpec, operands: Vec<View>) -> Call {
        Call {
            task,
            slot: 0,
            element: 0,
            operands,
            scalars: Vec::new(),
            tile: None,
            split: None,
            fused: Vec::new(),
            priority: 0,
            drain: false,
            via: Via::Automatic,
        }
    }
}

/// Where a scalar argument comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalarSource {
    /// Index into [`Graph::scalars`].
    Parameter(u32),
    /// Bits of a literal.
    Literal(u32),
}

/// A rectangular view of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Index into [`Graph::tensors`].
    pub tensor: u32,
    /// First element along each axis of the *tensor*.
    pub offset: Vec<u64>,
    /// Axes of the *view*, outermost first.
    pub axes: Vec<ViewAxis>,
}

/// One axis of a view. Index `n` of it stands for tensor coordinate `offset[axis] + n * step`, summed over all view axes of one tensor axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewAxis {
    /// Tensor axis.
    pub axis: u8,
    /// Tensor elements per index (1 but for the outer half of a split).
    pub step: u64,
    /// Number of indices.
    pub extent: u64,
}

impl View {
    /// The whole of tensor `index`.
    pub fn whole(index: u32, tensor: &Tensor) -> View {
        let axes = tensor.shape.iter().enumerate().map(|(axis, &extent)| ViewAxis { axis: axis as u8, step: 1, extent }).collect();
        View { tensor: index, offset: vec![0; tensor.shape.len()], axes }
    }
}
