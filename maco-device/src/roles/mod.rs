//! The roles that run a task's body, and what each operation means to them.

pub mod consumer;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cpu;
#[cfg(not(target_arch = "nvptx64"))]
mod cpu_reference;
pub mod elementwise_prologue;
pub mod loader;
mod simt_consumer;
pub mod store;
#[cfg(target_arch = "nvptx64")]
mod warp_task;
