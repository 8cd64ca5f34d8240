//! What a task promises, as const data: the macros emit it, const evaluation checks calls against it.
//!
//! `no_std`, no allocation, every function `const`. Sizes do not belong here; they are known to [`crate::plan`] only.
//!
//! A megakernel's body is *replayed*: the macro turns it into a `const fn` that runs once against a [`Recorder`] that counts, then
//! against one of exactly that capacity. What is wrong is recorded as data, one slot per token of the user
//! ([`Recording::report`]), so that all mistakes of a body are reported at once, each on its own token.

mod alias;
mod argument;
mod arithmetic;
mod bindings;
mod call;
mod call_overlap;
mod code;
mod dims;
mod element;
mod expression;
mod fault;
mod flow;
mod fused_op;
mod gemv_form;
mod graph;
mod help;
mod message;
#[cfg(feature = "std")]
mod owned;
mod placement;
mod quotient;
mod recorder;
mod storage;
mod task;
mod text;
mod via;
mod view;

pub use argument::{Argument, Operand, Value};
pub use call::CallSite;
pub use call_overlap::CallOverlap;
pub use code::Code;
pub use dims::{Dim, DimRow, Origin, Polynomial, Term};
pub use fault::{Fault, FaultKind, TensorName};
pub use flow::Kind;
#[cfg(feature = "std")]
pub(crate) use fused_op::call_spec;
pub use fused_op::{FusedOp, FusedOperand};
pub use gemv_form::{Form, check_gemv_form};
pub use graph::{Enclosing, GraphParam, GraphSpec};
#[cfg(feature = "std")]
pub use owned::{BuildError, CallOptions, Owned, intern};
pub use placement::{Channel, Collective, Placement, Planes, Reduction};
pub use recorder::{CallRow, Counts, NO_SITE, Recorder, ScalarRow, TensorRow};
pub use storage::{Recording, Storage};
pub use task::*;
pub use text::Text;
pub use via::Via;
pub use view::{Axis as ViewAxis, View};
