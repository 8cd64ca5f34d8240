//! What can be wrong with a megakernel, as const data; the sentences are in `message.rs`.

use super::{Code, Collective, Dim, Element, Placement, ScalarType, TaskSpec};

/// A tensor in the user's words: `h`, `up[2]`.
#[derive(Clone, Copy, Debug)]
pub struct TensorName {
    /// Name of the parameter or variable.
    pub name: &'static str,
    /// Index in an array, or `u32::MAX`.
    pub index: u32,
}

/// One mistake.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// The `#[maco::graph]` it showed up in, when the call of one does not fit; else empty.
    pub inside: &'static str,
    /// The task or graph that is called; empty where there is none.
    pub task: &'static str,
    /// It is a graph.
    pub graph: bool,
    /// The parameter concerned; empty where there is none.
    pub param: &'static str,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What is wrong. Tensors are the arguments, in the megakernel's names.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The fields are the words of the sentences in `message.rs`.
pub enum FaultKind {
    /// One tensor is written as `param` and used as `other` in one grid.
    Aliased { tensor: TensorName, other: &'static str },
    /// Read before anything wrote it.
    Unwritten { tensor: TensorName, out: bool },
    /// A temp that is never read.
    NeverRead { tensor: TensorName },
    /// What a task writes is never read.
    DeadWrite { tensor: TensorName },
    /// What a task writes is overwritten by `by` before anything reads it.
    Overwritten { tensor: TensorName, by: &'static str },
    /// A tensor of another rank.
    Rank { expected: u32, tensor: TensorName, found: u32 },
    /// A symbol that is bound to another dimension by an earlier parameter.
    Bound { symbol: &'static str, expected: Dim, by: &'static str, tensor: TensorName, found: Dim },
    /// A fixed or computed dimension that does not fit.
    Fixed { axis: u32, expected: Dim, tensor: TensorName, found: Dim },
    /// Another element type than the parameter's.
    Element { expected: Element, tensor: TensorName, found: Element },
    /// An element type that is not in the task's list.
    NotListed { listed: &'static [Element], tensor: TensorName, found: Element },
    /// Another element type than an earlier generic parameter's.
    Mixed { expected: Element, by: &'static str, tensor: TensorName, found: Element },
    /// A result of another element than the code of the call rounds to.
    Rounded { expected: Element, tensor: TensorName, found: Element },
    /// A scalar of another type.
    Scalar { expected: ScalarType, found: &'static str },
    /// A number that does not fit the scalar's type.
    ScalarRange { expected: ScalarType, found: i64 },
    /// Too few or too many arguments; `missing` is the first one missing.
    Arity { expected: u32, found: u32, missing: &'static str },
    /// A scalar where a tensor is due.
    ScalarForTensor,
    /// A tensor where a scalar is due.
    TensorForScalar { tensor: TensorName },
    /// An array of `found` tensors where one tensor or an array of `expected` is due.
    Array { expected: u32, found: u32 },
    /// A write to an `In`.
    WritesIn { tensor: TensorName },
    /// An `Out` that nothing writes.
    NeverWritten { tensor: TensorName },
    /// `.tile(..)` with another number of sizes than grid axes.
    TileCount { expected: u32, found: u32 },
    /// `.tile(..)` with a size that is not a variant.
    Tile { axis: &'static str, tiles: &'static [u32], found: u32 },
    /// `.tile(..)` with sizes that neither the GEMM form nor the GEMV form of a task has.
    TileOfForms { spec: &'static TaskSpec, gemv: &'static TaskSpec, found: [u32; 3] },
    /// `.split_k(..)` into no part, or too many.
    SplitCount { found: u32 },
    /// `.split_k(..)` on a task that does not support split-K.
    SplitWithoutSum,
    /// `.via(..)` on a task that is no all-reduce.
    ViaWithoutAllReduce,
    /// `.overlap_next()` on a task that is no collective.
    OverlapNextOfCompute,
    /// `.overlap_next()` on the last call of a body.
    OverlapNextAtEnd,
    /// `.overlap_group(..)` of collectives alone, or without any.
    OverlapGroup { group: &'static str, collective: bool },
    /// `.then(..)` on a task that stores no accumulator.
    ThenWithoutStore,
    /// `.first(..)` on a task without an operand A of `cta.mma`.
    FirstWithoutGemm,
    /// `.first(f(r))` with a tensor.
    FirstWithTensor,
    /// `.then(f(r))` on a task whose results are not tiles of one tensor.
    OperandWithoutResult,
    /// `.then(f(r))` beside as many tensors as a task can have.
    OperandLimit { limit: u32 },
    /// `.then(f(r))` with a tensor that is neither like the result nor like a row of it.
    OperandRank { expected: u32, tensor: TensorName, found: u32 },
    /// `.then(..)` on a write to a partial sum.
    ThenOnPartial { tensor: TensorName },
    /// `.then(..)` or `.tile(..)` on the call of a graph.
    OptionOnGraph { option: &'static str },
    /// A partial sum or shard where the task cannot use one.
    PartialRead { tensor: TensorName, found: Placement },
    /// What a collective reads or writes is placed otherwise.
    Collective { collective: Collective, reads: bool, tensor: TensorName, found: Placement },
    /// A number out of its range, such as `workers`.
    Range { what: &'static str, found: u64, low: u64, high: u64 },
    /// An index beyond an array.
    Index { array: &'static str, index: u64, len: u64 },
    /// More of something than there is room for.
    Limit { what: &'static str, found: u64, limit: u64 },
    /// A dimension expression with too many terms.
    Complicated,
    /// A slice that ends beyond the axis, or before it starts.
    Slice { tensor: TensorName, start: Dim, end: Dim, extent: Dim },
    /// An axis the view does not have.
    Axis { tensor: TensorName, axis: u64, rank: u32 },
    /// A division by zero.
    DivisionByZero,
    /// A shard along an axis the tensor does not have.
    ShardAxis { tensor: TensorName, axis: u32, rank: u32 },
}

impl FaultKind {
    /// Its code.
    pub const fn code(&self) -> Code {
        match self {
            FaultKind::Aliased { .. } => Code::Overlap,
            FaultKind::Unwritten { .. } => Code::Unwritten,
            FaultKind::NeverRead { .. } | FaultKind::DeadWrite { .. } | FaultKind::Overwritten { .. } => Code::Unread,
            FaultKind::Rank { .. } | FaultKind::OperandRank { .. } => Code::Rank,
            FaultKind::Bound { .. } | FaultKind::Fixed { .. } => Code::Dimension,
            FaultKind::Element { .. }
            | FaultKind::NotListed { .. }
            | FaultKind::Mixed { .. }
            | FaultKind::Rounded { .. }
            | FaultKind::Scalar { .. }
            | FaultKind::ScalarRange { .. } => Code::Element,
            FaultKind::Arity { .. } => Code::Arity,
            FaultKind::ScalarForTensor | FaultKind::TensorForScalar { .. } | FaultKind::Array { .. } => Code::Sort,
            FaultKind::WritesIn { .. } => Code::WritesIn,
            FaultKind::NeverWritten { .. } => Code::OutUnwritten,
            FaultKind::TileCount { .. } | FaultKind::Tile { .. } | FaultKind::TileOfForms { .. } => Code::Tile,
            FaultKind::SplitCount { .. }
            | FaultKind::SplitWithoutSum
            | FaultKind::ViaWithoutAllReduce
            | FaultKind::OverlapNextOfCompute
            | FaultKind::OverlapNextAtEnd
            | FaultKind::OverlapGroup { .. }
            | FaultKind::ThenWithoutStore
            | FaultKind::FirstWithoutGemm
            | FaultKind::FirstWithTensor
            | FaultKind::OperandWithoutResult
            | FaultKind::OptionOnGraph { .. } => Code::CallOption,
            FaultKind::PartialRead { .. }
            | FaultKind::ThenOnPartial { .. }
            | FaultKind::Collective { .. }
            | FaultKind::ShardAxis { .. } => Code::Placement,
            FaultKind::Range { .. } => Code::Workers,
            FaultKind::Index { .. } => Code::Index,
            FaultKind::Limit { .. } | FaultKind::OperandLimit { .. } | FaultKind::Complicated => Code::Limit,
            FaultKind::Slice { .. } | FaultKind::Axis { .. } => Code::View,
            FaultKind::DivisionByZero => Code::Inexact,
        }
    }
}
