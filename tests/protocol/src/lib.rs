//! The protocol of `maco_device::protocol`, as it ships, under a model checker and under random interleavings.
//!
//! Task bodies, tensors and planning do not belong here. [`model`] runs launches under `loom`, which tries every interleaving of
//! small plans and every value that the memory model lets a load return. [`walk`] runs one random interleaving of a large plan.

pub mod cases;
pub mod memory;
pub mod model;
pub mod order;
pub mod plan;
pub mod walk;
