//! What an NVIDIA H200 costs.

use std::borrow::Cow;

use maco_graph::plan::{DeviceModel, Origin};

use super::{Reported, Shipped};

/// Nanoseconds of a cycle. Most numbers were fitted in cycles, at the 1.755 GHz that the GPU had.
const CYCLE: f64 = 1.0 / CLOCK;
const CLOCK: f64 = 1.755;

/// SXM, 132 multiprocessors, driver 580, CUDA 13.0. docs/internals/gemm.md, "Steps and parts", has the sweeps; memory.md and dispatch.md the rest.
pub(super) const SHIPPED: Shipped = Shipped {
    model: DeviceModel {
        name: Cow::Borrowed("NVIDIA H200"),
        origin: Origin::Measured,
        // The driver's copies of 256 MiB move 4.14 TB/s, 4.17 are 18 bytes per cycle of each of 132.
        copy: 18.0 * CLOCK,
        l2: 40.0 * CLOCK,
        // 1544 multiply-adds per cycle, of 2048 at most: a step of 128 × 256 takes 774 ns while all multiply, because the power limit lowers the clock.
        tensor: 2.0 * 1544.0 * CLOCK,
        // Of 16 × 6144 × 4096 a task of 16 × 16 took 5.6 µs (sixteen calls in a launch).
        gemv: 2.0 * 107.0 * CLOCK,
        // Steps of 24, 32 and 40 KiB took 304, 444 and 502 ns.
        step: 60.0 * CYCLE,
        step_rate: 48.0 * CLOCK,
        // 1.2, 1.2, 1.1 and 1.7 µs for 64 × 128, 128 × 128, 64 × 256 and 128 × 256.
        gemm_tile: 1500.0 * CYCLE,
        gemm_element: 0.045 * CYCLE,
        tile: 800.0 * CYCLE,
        // A copy of 128 MiB took 75.4 µs in 4096 tasks of 16 × 1024 and 80.3 µs in 1024 of 64 × 1024.
        ring_tile: 90.0 * CYCLE,
        // `add` of 64 MiB took 1.7 µs for each task of 4 × 1024, where its bytes take 0.8 µs.
        least_tile: 3000.0 * CYCLE,
        // 4.0, 5.0 and 8.0 µs that a part of 64 × 128, 128 × 128 and 128 × 256 takes longer than an unsplit tile of as many steps.
        part: 3400.0 * CYCLE,
        part_rate: 36.0 * CLOCK,
        // Tickets add 984 ns to tasks without work (`bench dispatch`), half of which is 492; the threshold that was measured is 16 KiB of a copy.
        ticket: 518.65,
        // From profiles; 0.63 to 0.78 µs in chains of tasks without work (`bench dispatch`).
        hop: 900.0,
        // A launch of a copy of 1 MiB takes 8.1 µs, its tasks 1.0.
        launch: 7100.0,
        // All-reduces in a chain, two ranks (`bench comm`): 2.0 µs of 8 × 64 elements, 3.1 to 4.3 of 8 × 256.
        packet_tile: 1300.0,
        packet_rate: 1.4,
        // Not measured by itself: the link's 370 GB/s, divided among all.
        signalled_tile: 3000.0,
        signalled_rate: 2.8,
        partial_sums: 32 << 20,
    },
    // 3.201 GHz, 6144 bits.
    reported: Reported { multiprocessors: 132, memory: 4917.0 },
};
