//! The GPU device: contexts, memory, modules and launches through CUDA's driver API, loaded at run time.
//!
//! Every CUDA call of MACO is in this folder. What a kernel does does not belong here.

mod beside;
mod binding;
mod capture;
mod context;
mod copy_engine;
mod driver;
mod events;
mod executor;
mod graph;
mod launch;
mod lean;
mod limits;
mod memory;
mod module;
mod nccl;
mod peer_memory;
mod plan_memory;
mod rank_table;
mod registered;
mod staging;
mod stream;
mod tensor_map;
mod timer;
mod topology;
mod virtual_memory;
mod watchdog;

pub use events::Event;
pub use graph::CudaGraph;
pub use stream::Stream;

pub(crate) use beside::Beside;
pub(crate) use context::Context;
pub(crate) use copy_engine::{CopyEngine, TriggerMemory};
pub(crate) use executor::{BoundArguments, Executor, QueuedLaunch};
pub(crate) use lean::{LeanKernel, LeanLaunch};
pub(crate) use memory::DeviceMemory;
pub(crate) use module::has_no_code;
pub(crate) use nccl::NcclCommunicators;
pub(crate) use peer_memory::PeerMemory;
pub(crate) use rank_table::RankTable;
pub(crate) use topology::{has_access, told};
