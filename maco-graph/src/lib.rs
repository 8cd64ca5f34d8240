//! The task graph: const specs checked at compile time, and the plan made from them once sizes are known.
//!
//! CUDA, threads and memory do not belong here: this crate reasons about regions and order only.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod spec;

#[cfg(feature = "std")]
pub mod ir;
#[cfg(feature = "std")]
pub mod plan;
#[cfg(feature = "std")]
pub mod resolve;
