//! The files of a CTA that say what is where in its shared memory, and when consumers begin.

#[path = "../../../../maco-device/src/role/arena.rs"]
pub mod arena;
#[path = "../../../../maco-device/src/role/gate.rs"]
pub mod gate;
#[path = "../../../../maco-device/src/role/notice.rs"]
pub mod notice;
#[path = "../../../../maco-device/src/role/waits.rs"]
pub mod waits;
