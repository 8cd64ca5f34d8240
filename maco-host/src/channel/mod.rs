//! Symmetric memory and channels of ranks on CPUs: set-up, checks, and the proxy. What channels do is `maco_device::channel`, the code that GPUs run too.
//!
//! Ranks find each other and make the memory in `maco-ranks`.

mod channels;
mod memory;
mod port;
mod proxy;
mod symmetric;

pub use channels::{ChannelOptions, Channels};
pub use memory::MemoryChannel;
pub use port::PortChannel;
pub use symmetric::{SymmetricBuffer, SymmetricMemory, SymmetricPlace};
