//! The ranks of a job: how they start, find each other, vote, and share memory. Processes of one host or of several, or threads of one process, by the same
//! protocol.
//!
//! Graphs, plans and GPUs do not belong here (`maco-host`), nor do the data of collectives: what goes through these sockets is set-up, some kilobytes of it.
//!
//! Every rank has one connection, to the hub, a thread in the process of rank 0 (`hub`). It waits until all have given their value, and answers all; it
//! notices at once that a connection closes. Messages are bounded and have a version (`message`).

mod agree;
mod arena;
mod clock;
mod error;
mod failure;
mod folder;
mod group;
mod hub;
mod job;
mod launcher;
mod link;
mod meet;
mod memory;
#[doc(hidden)]
pub mod message;
mod stall;
mod threads;
mod token;

pub use agree::Variant;
pub use arena::{ALIGNMENT, Arena, Block, RankMemory};
pub use clock::host_clock;
pub use error::Error;
pub use failure::Failure;
#[doc(hidden)]
pub use failure::ranks as rank_names;
pub use folder::{FOLDER, create_job_folder, lost_note};
pub use group::{Group, MAX_VALUE};
pub use job::{Job, Meeting};
pub use memory::SharedMemory;
pub use stall::{Cause, Stall};
pub use threads::threads;
pub use token::Token;

/// Most ranks of a job.
pub const MAX_RANKS: u32 = 1024;
