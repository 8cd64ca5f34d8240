//! The sentences: what is wrong in the user's names, and a help line.
//!
//! When something is wrong does not belong here.

use super::dims::{Dim, DimRow};
use super::expression::write_dim;
use super::fault::{Fault, FaultKind, TensorName};
use super::{Placement, Text};

/// What a message needs to name dimensions.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) symbols: &'a [&'a str],
    pub(super) dims: &'a [DimRow],
    /// Whether the graph is built at run time.
    pub(super) built: bool,
}

impl Fault {
    /// Code, sentence and help line.
    pub(super) const fn message(&self, names: &Names<'_>) -> Text {
        let mut text = Text::new();
        let label = self.kind.code().label();
        let mut n = 0;
        while n < label.len() {
            text.push_byte(label[n]);
            n += 1;
        }
        text.push(": ");
        if !self.inside.is_empty() {
            text.push("inside graph ");
            text.push_quoted(self.inside);
            text.push(": ");
        }
        self.sentence(&mut text, names);
        let help = if names.built { self.help_of_builder() } else { self.help() };
        if !help.is_empty() {
            text.push("\n  = help: ");
            text.push(help);
        }
        text
    }

    /// "task `linear`"
    const fn task(&self, text: &mut Text) {
        text.push(if self.graph { "graph " } else { "task " });
        text.push_quoted(self.task);
    }

    /// "`x` of task `linear`"
    const fn param(&self, text: &mut Text) {
        text.push_quoted(self.param);
        text.push(" of ");
        self.task(text);
    }

    /// "`.then(add(..))`"
    const fn fused_op(&self, text: &mut Text) {
        text.push("`.then(");
        text.push(self.param);
        text.push("(..))`");
    }

    const fn sentence(&self, text: &mut Text, names: &Names<'_>) {
        match &self.kind {
            FaultKind::Aliased { tensor, other } => {
                self.task(text);
                text.push(" would write ");
                push_tensor(text, tensor);
                text.push(" (as ");
                text.push_quoted(self.param);
                text.push(if self.graph {
                    ") while it also uses it (as "
                } else {
                    ") while other tiles of the same grid still use it (as "
                });
                text.push_quoted(other);
                text.push(")");
            }
            FaultKind::Unwritten { tensor, .. } => {
                self.task(text);
                text.push(" reads ");
                push_tensor(text, tensor);
                text.push(", which nothing has written yet");
            }
            FaultKind::NeverRead { tensor } => {
                text.push("temp ");
                push_tensor(text, tensor);
                text.push(" is never read");
            }
            FaultKind::DeadWrite { tensor } => {
                text.push("what ");
                self.task(text);
                text.push(" writes to temp ");
                push_tensor(text, tensor);
                text.push(" here is never read");
            }
            FaultKind::Overwritten { tensor, by } => {
                text.push("what ");
                self.task(text);
                text.push(" writes to ");
                push_tensor(text, tensor);
                text.push(" here is overwritten by task ");
                text.push_quoted(by);
                text.push(" before anything reads it");
            }
            FaultKind::Rank { expected, tensor, found } => {
                self.param(text);
                text.push(" has ");
                text.push_count(*expected, "dimension");
                text.push(", but ");
                push_tensor(text, tensor);
                text.push(" has ");
                text.push_number(*found as i64);
            }
            FaultKind::Bound { symbol, expected, by, tensor, found } => {
                text.push("dimension ");
                text.push_quoted(symbol);
                text.push(" of ");
                self.task(text);
                text.push(" is ");
                push_dim(text, names, *expected);
                text.push(" by argument ");
                text.push_quoted(by);
                text.push(", but ");
                push_tensor(text, tensor);
                text.push(" (as ");
                text.push_quoted(self.param);
                text.push(") has ");
                push_dim(text, names, *found);
                text.push(" there");
            }
            FaultKind::Fixed { axis, expected, tensor, found } => {
                text.push("axis ");
                text.push_number(*axis as i64);
                text.push(" of ");
                self.param(text);
                text.push(" must be ");
                push_dim(text, names, *expected);
                text.push(", but ");
                push_tensor(text, tensor);
                text.push(" has ");
                push_dim(text, names, *found);
                text.push(" there");
            }
            FaultKind::Element { .. } | FaultKind::NotListed { .. } | FaultKind::Mixed { .. } | FaultKind::Rounded { .. } => {
                self.element_sentence(text)
            }
            FaultKind::Scalar { expected, found } => {
                self.param(text);
                text.push(" is ");
                text.push(expected.name());
                text.push(", but the argument is ");
                text.push(found);
            }
            FaultKind::ScalarRange { expected, found } => {
                self.param(text);
                text.push(" is ");
                text.push(expected.name());
                text.push(", and ");
                text.push_number(*found);
                text.push(" does not fit");
            }
            FaultKind::Arity { expected, found, missing } => {
                self.task(text);
                text.push(" takes ");
                text.push_count(*expected, "argument");
                text.push(", found ");
                text.push_number(*found as i64);
                if !missing.is_empty() {
                    text.push("; the first one missing is ");
                    text.push_quoted(missing);
                }
            }
            FaultKind::ScalarForTensor => {
                self.param(text);
                text.push(" is a tensor, but the argument is a scalar");
            }
            FaultKind::TensorForScalar { tensor } => {
                self.param(text);
                text.push(" is a scalar, but ");
                push_tensor(text, tensor);
                text.push(" is a tensor");
            }
            FaultKind::Array { expected, found } => self.array_sentence(text, *expected, *found),
            FaultKind::WritesIn { tensor } => {
                push_tensor(text, tensor);
                text.push(" is an `In`, but ");
                self.task(text);
                text.push(" writes its parameter ");
                text.push_quoted(self.param);
            }
            FaultKind::NeverWritten { tensor } => {
                push_tensor(text, tensor);
                text.push(" is an `Out`, but nothing writes it");
            }
            FaultKind::TileCount { expected, found } => {
                self.task(text);
                text.push(" has ");
                text.push_number(*expected as i64);
                text.push(if *expected == 1 { " grid axis, but `.tile` names " } else { " grid axes, but `.tile` names " });
                text.push_count(*found, "size");
            }
            FaultKind::Tile { axis, tiles, found } => {
                self.task(text);
                text.push(" has no variant with a tile of ");
                text.push_number(*found as i64);
                text.push(" along ");
                text.push_quoted(axis);
                text.push(": it can be ");
                text.push_numbers(tiles);
            }
            FaultKind::TileOfForms { spec, gemv, found } => {
                self.task(text);
                text.push(" has no variant with a tile of ");
                text.push_tile(found, spec.axes.len());
                text.push(": it can be ");
                text.push_tiles(spec);
                text.push(", and as a GEMV ");
                text.push_tiles(gemv);
            }
            FaultKind::SplitCount { found } => {
                text.push("a sum cannot be split into ");
                text.push_count(*found, "part");
            }
            FaultKind::SplitWithoutSum => {
                self.task(text);
                text.push(" has no sum that `.split_k` could split");
            }
            FaultKind::ViaWithoutAllReduce => {
                self.task(text);
                text.push(" does not go that way: an all-reduce goes by all, other collectives by `.via(Nccl)` alone");
            }
            FaultKind::OverlapNextOfCompute => {
                self.task(text);
                text.push(" waits for no other rank, and `.overlap_next` is an option of collectives");
            }
            FaultKind::OverlapNextAtEnd => {
                text.push("there is no call behind ");
                self.task(text);
                text.push(" that it could overlap with");
            }
            FaultKind::OverlapGroup { group, collective } => {
                text.push("overlap group ");
                text.push_quoted(group);
                text.push(if *collective { " has no call beside its collectives" } else { " has no collective" });
            }
            FaultKind::ThenWithoutStore => {
                self.task(text);
                text.push(" stores no accumulator that `.then` could be fused into");
            }
            FaultKind::FirstWithoutGemm => {
                self.task(text);
                text.push(" has no operand A of `cta.mma` that `.first` could be fused into");
            }
            FaultKind::FirstWithTensor => {
                text.push("`.first(");
                text.push(self.param);
                text.push("(..))` takes a number beside the element of operand A, and this is a tensor");
            }
            FaultKind::OperandWithoutResult => {
                self.task(text);
                text.push(" has no single result that an operand of ");
                self.fused_op(text);
                text.push(" could lie beside");
            }
            FaultKind::OperandLimit { limit } => {
                self.task(text);
                text.push(" has room for ");
                text.push_number(*limit as i64);
                text.push(" tensors, and the operand of ");
                self.fused_op(text);
                text.push(" is one more");
            }
            FaultKind::OperandRank { expected, tensor, found } => {
                push_tensor(text, tensor);
                text.push(" has ");
                text.push_count(*found, "dimension");
                text.push(", but the operand of ");
                self.fused_op(text);
                text.push(" has the ");
                text.push_number(*expected as i64);
                text.push(" of the result of ");
                self.task(text);
                text.push(", or 1");
            }
            FaultKind::OptionOnGraph { option } => {
                text.push("`.");
                text.push(option);
                text.push("` is an option of tasks, but ");
                text.push_quoted(self.task);
                text.push(" is a graph");
            }
            FaultKind::PartialRead { .. }
            | FaultKind::ThenOnPartial { .. }
            | FaultKind::Collective { .. }
            | FaultKind::ShardAxis { .. } => self.placement_sentence(text),
            FaultKind::Range { what, found, low, high } => {
                text.push_quoted(what);
                text.push(" must be between ");
                text.push_number(*low as i64);
                text.push(" and ");
                text.push_number(*high as i64);
                text.push(", found ");
                text.push_number(*found as i64);
            }
            FaultKind::Index { array, index, len } => {
                text.push_quoted(array);
                text.push(" has ");
                text.push_count(*len as u32, "tensor");
                text.push(", but the index is ");
                text.push_number(*index as i64);
            }
            FaultKind::Limit { what, found, limit } => {
                text.push_number(*found as i64);
                text.push(" ");
                text.push(what);
                text.push(", but there is room for ");
                text.push_number(*limit as i64);
            }
            FaultKind::Complicated => text.push("this dimension has too many terms or too large numbers"),
            FaultKind::Slice { tensor, start, end, extent } => {
                text.push("the slice ");
                push_dim(text, names, *start);
                text.push("..");
                push_dim(text, names, *end);
                text.push(" is not inside the axis of ");
                push_tensor(text, tensor);
                text.push(", which has ");
                push_dim(text, names, *extent);
            }
            FaultKind::Axis { tensor, axis, rank } => {
                text.push("axis ");
                text.push_number(*axis as i64);
                text.push(" of ");
                push_tensor(text, tensor);
                text.push(" does not exist: it has ");
                text.push_number(*rank as i64);
                text.push(if *rank == 1 { " axis" } else { " axes" });
            }
            FaultKind::DivisionByZero => text.push("this dimension divides by zero"),
        }
    }

    const fn element_sentence(&self, text: &mut Text) {
        match &self.kind {
            FaultKind::Element { expected, tensor, found } => {
                push_tensor(text, tensor);
                text.push(" holds ");
                text.push(found.name());
                text.push(", but ");
                self.param(text);
                text.push(" is ");
                text.push(expected.name());
            }
            FaultKind::NotListed { listed, tensor, found } => {
                push_tensor(text, tensor);
                text.push(" holds ");
                text.push(found.name());
                text.push(", but ");
                self.param(text);
                text.push(" can be ");
                text.push_elements(listed);
            }
            FaultKind::Mixed { expected, by, tensor, found } => {
                push_tensor(text, tensor);
                text.push(" holds ");
                text.push(found.name());
                text.push(", but ");
                self.task(text);
                text.push(" runs on ");
                text.push(expected.name());
                text.push(" by argument ");
                text.push_quoted(by);
            }
            FaultKind::Rounded { expected, tensor, found } => {
                push_tensor(text, tensor);
                text.push(" holds ");
                text.push(found.name());
                text.push(", but this call of ");
                self.task(text);
                text.push(" rounds ");
                text.push_quoted(self.param);
                text.push(" to ");
                text.push(expected.name());
            }
            _ => {}
        }
    }

    const fn array_sentence(&self, text: &mut Text, expected: u32, found: u32) {
        self.param(text);
        match expected {
            0 => text.push(" is a scalar, but the argument is "),
            1 => text.push(" is one tensor, but the argument is "),
            _ => {
                text.push(" is an array of ");
                text.push_count(expected, "tensor");
                text.push(", but the argument is ");
            }
        }
        match found {
            0 => text.push("a scalar"),
            1 if expected > 1 => text.push("one tensor"),
            _ => {
                text.push("an array of ");
                text.push_number(found as i64);
            }
        }
    }

    const fn placement_sentence(&self, text: &mut Text) {
        match &self.kind {
            FaultKind::PartialRead { tensor, found } => {
                push_tensor(text, tensor);
                text.push(" is ");
                text.push(found.words());
                text.push(", but ");
                self.task(text);
                text.push(" reads it as a whole (as ");
                text.push_quoted(self.param);
                text.push(")");
            }
            FaultKind::ThenOnPartial { tensor } => {
                text.push("`.then` would be applied to each summand of ");
                push_tensor(text, tensor);
                text.push(", not to their sum");
            }
            FaultKind::Collective { collective, reads, tensor, found } => {
                self.param(text);
                text.push(if *reads { " takes " } else { " gives " });
                text.push(if *reads { collective.input() } else { collective.output() });
                text.push(", but ");
                push_tensor(text, tensor);
                text.push(" is ");
                text.push(match found {
                    Placement::Sharded(_) => "sharded along another axis",
                    other => other.words(),
                });
            }
            FaultKind::ShardAxis { tensor, axis, rank } => {
                push_tensor(text, tensor);
                text.push(" is sharded along axis ");
                text.push_number(*axis as i64);
                text.push(", but has ");
                text.push_count(*rank, "dimension");
            }
            _ => {}
        }
    }
}

/// "`up[2]`"
const fn push_tensor(text: &mut Text, name: &TensorName) {
    text.push("`");
    text.push(name.name);
    if name.index != u32::MAX {
        text.push("[");
        text.push_number(name.index as i64);
        text.push("]");
    }
    text.push("`");
}

/// "`2 * H + 1`"
const fn push_dim(text: &mut Text, names: &Names<'_>, dim: Dim) {
    text.push("`");
    write_dim(text, names, dim, false);
    text.push("`");
}
