//! The host runtime: devices, tensors, plans, and the executors that run them on a GPU or on the CPU.
//!
//! Task bodies and the protocol between workers do not belong here (`maco-device`), nor does reasoning about graphs
//! (`maco-graph`). CUDA calls are in `gpu` only.

mod abort;
mod agreement;
mod arguments;
mod channel;
mod communicator;
mod cpu;
mod device;
mod device_model;
mod error;
mod exchange;
mod files;
mod gpu;
mod graph_files;
mod hang;
mod lean;
mod lower;
mod options;
mod peer_access;
mod plan;
mod plan_core;
pub mod profile;
mod program;
mod progress;
mod report;
mod signature;
mod single_task;
mod tensor;
mod tuning;
mod ways;

pub use arguments::{Arguments, ScalarValue};
pub use channel::{ChannelOptions, Channels, MemoryChannel, PortChannel, SymmetricBuffer, SymmetricMemory, SymmetricPlace, SymmetricTable};
pub use communicator::Communicator;
pub use device::Device;
pub use error::{Error, OutputFault};
pub use files::FileError;
pub use gpu::{CudaGraph, Event, Stream};
pub use hang::{Dependency, Executor, Hang, RankWait, Symptom};
pub use lean::{Collecting, RankElement, Reduce};
#[doc(hidden)]
pub use lower::Fault;
pub use maco_graph::plan::{CallShape, Cost, Costs, DeviceModel, Memory, Origin, Schedule, WayLine};
/// How ranks find each other, what goes wrong between them ([`ranks::Error`]), and memory that they share.
pub use maco_ranks as ranks;
pub use options::PlanOptions;
pub use plan::{Bound, Pending, Plan};
pub use program::{DeviceModule, Dispatch, Embedded, Program};
pub use report::Report;
pub use single_task::on_cpu;
pub use tensor::{BufferFault, Extent, IntoShape, Shape, Tensor, TensorElement};
pub use tuning::{Tuned, Tuning};
