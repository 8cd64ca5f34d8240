//! What is around the controller in its CTA: see `maco-device/src/worker`.

// No model has spare warps: what stands for their scheduler diverges.
#[allow(unreachable_code, clippy::diverging_sub_expression)]
#[path = "../../../../maco-device/src/worker/dependency_poller.rs"]
mod dependency_poller;
// As above.
#[allow(unreachable_code, clippy::diverging_sub_expression)]
#[path = "../../../../maco-device/src/worker/rest.rs"]
mod rest;
#[allow(dead_code)]
#[path = "../../../../maco-device/src/worker/watchdog.rs"]
mod watchdog;

use maco_abi::{Launch, SchedulerPartition};
use maco_device::protocol::{self, Machine, Patience, Run};

use crate::hardware::special;
use crate::machine::{Lane, Warp};
use crate::shared_memory::{SharedMemory, place};
use rest::Rest;
use watchdog::{polled, pushed, slot};

/// The warp that publishes tasks.
pub unsafe fn control(smem: SharedMemory, launch: *const Launch) {
    // SAFETY: passed on from the caller.
    unsafe { dependency_poller::run(smem, launch).run(launch) }
}

/// Publishes no further task after the first `published`, but those that have begun, and waits for their ends.
pub unsafe fn stop(launch: *const Launch, published: u32) {
    // SAFETY: passed on from the caller.
    unsafe { Rest::stop(published).run(launch) }
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
