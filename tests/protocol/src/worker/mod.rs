//! What is around the controller in its CTA: see `maco-device/src/worker`.

// No model has spare warps: what stands for their scheduler diverges.
#[allow(unreachable_code, clippy::diverging_sub_expression)]
#[path = "../../../../maco-device/src/worker/control.rs"]
mod control;
#[allow(dead_code)]
#[path = "../../../../maco-device/src/worker/flight.rs"]
mod flight;

use maco_device::abi::{Launch, Share};
use maco_device::protocol::{self, Machine, Patience, Run};

use crate::hardware::special;
use crate::machine::{Lane, Warp};
use crate::role::arena::{Arena, place};
use flight::{polled, pushed, slot};

/// The warp that publishes tasks.
pub unsafe fn control(arena: Arena, launch: *const Launch) {
    // SAFETY: passed on from the caller.
    unsafe { control::control(arena, launch) }
}

/// See `maco-device/src/worker/flight.rs`.
pub unsafe fn stop(arena: Arena, run: &Run, published: u32) {
    // SAFETY: passed on from the caller.
    unsafe { flight::stop(&Warp, arena, run, published) }
}

unsafe fn supervise(arena: Arena, run: &Run, published: u32) {
    // SAFETY: passed on from the caller.
    unsafe { flight::supervise(&Warp, arena, run, published) }
}

unsafe fn stuck(arena: Arena, run: &Run, patience: &Patience, at: u32) {
    // SAFETY: passed on from the caller.
    unsafe { flight::stuck(&Warp, arena, run, patience, at) }
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

unsafe fn copy(_: &Share, _: u64, _: u32, _: u32, _: u32) {
    unreachable!("no model has spare warps");
}
