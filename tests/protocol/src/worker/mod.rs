//! What is around the controller in its CTA: see `maco-device/src/worker`.

// No model has spare warps: what stands for their scheduler diverges.
#[allow(unreachable_code, clippy::diverging_sub_expression)]
#[path = "../../../../maco-device/src/worker/dependency_poller.rs"]
mod dependency_poller;
#[allow(dead_code)]
#[path = "../../../../maco-device/src/worker/watchdog.rs"]
mod watchdog;

use maco_abi::{Launch, SchedulerPartition};
use maco_device::protocol::{self, Machine, Patience, Run};

use crate::hardware::special;
use crate::machine::{Lane, Warp};
use crate::shared_memory::{SharedMemory, place};
use watchdog::{polled, pushed, slot};

/// The warp that publishes tasks.
pub unsafe fn control(smem: SharedMemory, launch: *const Launch) {
    // SAFETY: passed on from the caller.
    unsafe { dependency_poller::run(smem, launch) }
}

/// See `maco-device/src/worker/watchdog.rs`.
pub unsafe fn stop(smem: SharedMemory, run: &Run, published: u32) {
    // SAFETY: passed on from the caller.
    unsafe { watchdog::stop(&Warp, smem, run, published) }
}

unsafe fn supervise(smem: SharedMemory, run: &Run, published: u32) {
    // SAFETY: passed on from the caller.
    unsafe { watchdog::supervise(&Warp, smem, run, published) }
}

unsafe fn stuck(smem: SharedMemory, run: &Run, patience: &Patience, at: u32) {
    // SAFETY: passed on from the caller.
    unsafe { watchdog::stuck(&Warp, smem, run, patience, at) }
}

/// Enters the launch. Whether it may run.
unsafe fn admitted(run: &Run) -> bool {
    // SAFETY: passed on from the caller.
    unsafe {
        let first = special::thread().is_multiple_of(32);
        let mut aborted = run.aborted(&Warp);
        if first && !protocol::enter(&Lane, run) {
            aborted = true;
        }
        Warp.all(!aborted)
    }
}

unsafe fn copy(_: &SchedulerPartition, _: u64, _: u32, _: u32, _: u32) {
    unreachable!("no model has spare warps");
}
