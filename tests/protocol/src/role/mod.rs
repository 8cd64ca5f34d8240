//! The files of a CTA that say what is where in its shared memory, and when consumers begin.

#[path = "../../../../maco-device/src/role/gate.rs"]
pub mod gate;
#[path = "../../../../maco-device/src/role/ready_mailbox.rs"]
pub mod ready_mailbox;
#[path = "../../../../maco-device/src/role/shared_memory.rs"]
pub mod shared_memory;
#[path = "../../../../maco-device/src/role/waits.rs"]
pub mod waits;
