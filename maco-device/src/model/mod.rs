//! A model of what the roles of a CTA are built on, with the names of `ptx`: shared memory, mbarriers, bulk copies, one lane per warp.
//!
//! Policy (what to wait for, in which order) does not belong here. The model does what PTX allows and helps least: copies are made late
//! and in any order, by whoever waits, and what PTX leaves undefined is a panic. A warp has one lane. A thread that stands for several
//! warps arrives once for each of them.

mod copies;
mod delay;
mod load;
mod phase;
mod shared;
mod thread;

pub mod barrier;
pub mod fence;
pub mod gpu_scope;
pub mod mbarrier;
pub mod memory;
pub mod scratch;
pub mod special;
pub mod tma;
pub mod warp;

pub use copies::tensor_map;
pub use delay::{Delays, delay};
pub use shared::Shared;
pub use thread::{Modelled, Nobody, Surroundings, resting};
