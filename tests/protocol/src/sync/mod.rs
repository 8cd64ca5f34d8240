//! The files of a CTA that say when consumers begin.

#[path = "../../../../maco-device/src/sync/gate.rs"]
pub mod gate;
#[path = "../../../../maco-device/src/sync/ready_mailbox.rs"]
pub mod ready_mailbox;
#[path = "../../../../maco-device/src/sync/waits.rs"]
pub mod waits;
