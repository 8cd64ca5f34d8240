//! Symmetric memory of ranks, and channels of ranks on CPUs: set-up, checks, and the proxy. What channels do is `maco_device::channel`, the code that GPUs run
//! too.
//!
//! Ranks find each other in `maco-ranks`, which also has memory of CPU ranks; that of GPUs is made in `gpu`.

mod backing;
mod channels;
mod control;
mod memory;
mod port;
mod proxy;
mod symmetric;

pub use channels::{ChannelOptions, Channels};
pub(crate) use control::operation_name;
pub use memory::MemoryChannel;
pub use port::PortChannel;
pub(crate) use port::Service;
pub use symmetric::{SymmetricBuffer, SymmetricMemory, SymmetricPlace, SymmetricTable};
