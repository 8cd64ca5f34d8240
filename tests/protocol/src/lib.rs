//! The protocol of `maco_device::protocol`, as it ships, under a model checker and under random interleavings.
//!
//! Task bodies, tensors and planning do not belong here. [`model`] runs launches under `loom`, which tries every interleaving of
//! small plans and every value that the memory model lets a load return. [`cta`] does so with what the warps of one CTA say to each other: controller and
//! gates, files of `maco-device` themselves over a model of its hardware. [`channel`] does so with channels between ranks, the messages of collectives, and the channels of users. [`lean`] does so with
//! collectives outside of megakernels. [`walk`] runs one random interleaving of a large plan.
// Files of `maco-device` have tests of their own, of which the hardware here is not.
#![cfg(not(test))]

use maco_device::protocol;

pub mod cases;
pub mod channel;
pub mod channel_cases;
pub mod channel_order;
pub mod cta;
mod hardware;
mod lanes;
pub mod lean;
mod machine;
pub mod memory;
pub mod message_cases;
pub mod model;
pub mod order;
pub mod plan;
mod profile;
pub mod slot_cases;
pub mod walk;

/// What the controller uses is used here.
use hardware as ptx;

mod data {
    pub mod task {
        pub use maco_device::Task;
    }
}

#[allow(dead_code)]
#[path = "../../../maco-device/src/shared_memory.rs"]
mod shared_memory;
#[allow(dead_code)]
mod sync;
mod worker;
