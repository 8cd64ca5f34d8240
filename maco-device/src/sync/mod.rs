//! How the warps of a CTA wait for each other: the ring of stages, the waits of a slot, the gate before a task, the mailbox of ready tasks.
//!
//! What is in a stage does not belong here.

pub mod gate;
pub mod ready_mailbox;
pub mod ring;
pub mod tensor_map_cache;
pub mod waits;
#[cfg(target_arch = "nvptx64")]
pub mod warp_task;
