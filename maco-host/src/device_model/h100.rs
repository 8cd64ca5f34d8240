//! What an NVIDIA H100 costs. Multiprocessors, clocks and L2 cache are about those of an H200, memory is not: the rate of copies was measured, the other numbers
//! are the H200's until somebody measures them.

use std::borrow::Cow;

use maco_graph::plan::{DeviceModel, Origin};

use super::{Reported, Shipped, h200};

/// SXM with HBM3, 132 multiprocessors.
pub(super) const SHIPPED: Shipped = Shipped {
    model: DeviceModel {
        name: Cow::Borrowed("NVIDIA H100 80GB HBM3"),
        origin: Origin::Derived(Cow::Borrowed("NVIDIA H200")),
        // 2.92 TB/s: a copy of 256 MiB takes 92 µs (docs/internals/memory.md).
        copy: 22.1,
        ..h200::SHIPPED.model
    },
    // 2.619 GHz, 5120 bits.
    reported: Reported { multiprocessors: 132, memory: 3352.0 },
};
