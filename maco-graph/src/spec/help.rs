//! The help line of each mistake: what to do about it.

use super::fault::{Fault, FaultKind};

impl Fault {
    /// What to do about a mistake in a graph that is built at run time, in the words of the builder.
    pub(super) const fn help_of_builder(&self) -> &'static str {
        match &self.kind {
            FaultKind::Unwritten { .. } => "call the task that fills it before this one",
            FaultKind::Rank { .. } => "declare the tensor with as many dimensions as the task has there",
            FaultKind::Bound { .. } => "did you pass the arguments in the wrong order?",
            FaultKind::NotListed { .. } | FaultKind::Mixed { .. } => {
                "declare the tensor with another element, or convert it with a task of its own"
            }
            FaultKind::WritesIn { .. } => "an input cannot be changed: write to a `temp`, or copy the input to one first",
            FaultKind::NeverWritten { .. } => "call a task that writes it, or do not make it an output",
            FaultKind::Collective { .. } => "leave the collective out: tensors of this graph are on one GPU",
            _ => self.help(),
        }
    }

    /// What to do; empty where the sentence says it.
    pub(super) const fn help(&self) -> &'static str {
        match &self.kind {
            FaultKind::Aliased { .. } => "write to another tensor, or use a task that updates in place",
            FaultKind::Unwritten { out: true, .. } => "an `Out` has no value before it is written; make it `InOut`, or write it first",
            FaultKind::Unwritten { out: false, .. } => "call the task that fills it before this one",
            FaultKind::NeverRead { .. } => "pass it to a task that reads it, or remove it and the calls that write it",
            FaultKind::DeadWrite { .. } => "remove this call, or read what it writes",
            FaultKind::Overwritten { .. } => "remove this call, or write to another tensor",
            FaultKind::Rank { .. } => "a view changes the rank: `x.split(axis, n)` adds an axis",
            FaultKind::Bound { .. } => "dimensions with different names are different; did you pass the arguments in the wrong order?",
            FaultKind::Fixed { .. } => "different expressions are equal only if they are for all sizes",
            FaultKind::Element { .. } | FaultKind::NotListed { .. } | FaultKind::Mixed { .. } => {
                "declare the tensor with that element, or convert it with a task of its own"
            }
            FaultKind::Rounded { .. } => {
                "what a call rounds to is the element that its variable began with: use a variable for each; a task set rounds to the element of the operands"
            }
            FaultKind::Scalar { .. } => "write `2.0` for an f32 and `2` for a u32 or i32",
            FaultKind::ScalarRange { .. } => "choose a number inside the type's range",
            FaultKind::Arity { .. } => "pass one argument for each parameter, without `cta`",
            FaultKind::ScalarForTensor | FaultKind::TensorForScalar { .. } => "did you pass the arguments in the wrong order?",
            FaultKind::Array { .. } => "index the array, such as `w[0]`, or pass one of the right length",
            FaultKind::WritesIn { .. } => "make it an `InOut`, or write to a temp",
            FaultKind::NeverWritten { .. } => "write it, or remove the parameter",
            FaultKind::TileCount { .. } => "give one size for each axis of the task's `tile(..)`, in that order",
            FaultKind::Tile { .. } | FaultKind::TileOfForms { .. } => "use one of these, or add a variant to the task's `tile(..)`",
            FaultKind::SplitCount { .. } => "name 1 to 64 parts, or leave it out to let the plan choose",
            FaultKind::SplitWithoutSum => {
                "its body must make one accumulator in loops over `cta.steps(..)`, without `break`, and store it once; grids of three axes have no parts"
            }
            FaultKind::ViaWithoutAllReduce => "remove the option",
            FaultKind::OverlapNextOfCompute => "put it on the collective in front of this call, or give both the same `.overlap_group(..)`",
            FaultKind::OverlapNextAtEnd => "remove the option, or name the calls to overlap with by `.overlap_group(..)`",
            FaultKind::OverlapGroup { .. } => "give a collective and the calls that it is to overlap with the same name, in the same body",
            FaultKind::ThenWithoutStore => "call the elementwise task by itself after this one",
            FaultKind::FirstWithoutGemm | FaultKind::FirstWithTensor => "call the elementwise task by itself before this one",
            FaultKind::OperandWithoutResult => {
                "its operands have the shape of one result, written as `#[write(i, j)]`; call the elementwise task by itself after this one"
            }
            FaultKind::OperandLimit { .. } => "call the elementwise task by itself after this one",
            FaultKind::OperandRank { .. } => "a tensor of the result's shape is used element by element, one of rank 1 in every row",
            FaultKind::OptionOnGraph { .. } => "put the option on the calls inside the graph",
            FaultKind::PartialRead { .. } => "reduce it first: `all_reduce(part, whole)`",
            FaultKind::ThenOnPartial { .. } => "reduce it first, then call the elementwise task",
            FaultKind::Collective { reads: true, .. } => {
                "declare it with `.partial(Sum)`, `.shard(axis)` or `#[shard(axis)]`, or leave the collective out"
            }
            FaultKind::Collective { reads: false, .. } => "write to a tensor of that placement",
            FaultKind::ShardAxis { .. } => "axes count from 0",
            FaultKind::Range { .. } => "leave it out to let the plan choose",
            FaultKind::Index { .. } => "indices count from 0",
            FaultKind::Limit { .. } => "split it into smaller ones",
            FaultKind::Complicated => "name an intermediate dimension with a parameter",
            FaultKind::Slice { .. } => "a slice stays inside its axis for all sizes",
            FaultKind::Axis { .. } => "axes count from 0",
            FaultKind::DivisionByZero => "",
        }
    }
}
