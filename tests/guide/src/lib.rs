//! The code of docs/guide. `tests/pages.rs` compares the pages with it.

pub mod language;
pub mod mistakes;
pub mod overlap;
pub mod ranks;
pub mod running;
