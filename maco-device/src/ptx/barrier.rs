//! Named barriers (PTX ISA §9.7.13.1 `barrier`); who has which is in `maco_abi`.

use core::arch::asm;

use maco_abi::{BARRIER_BODY, BARRIER_CONSUMERS, BARRIER_CTA, BARRIER_OPERATIONS, BARRIER_PART, BARRIER_WARPGROUPS, CONSUMERS};

/// All 384 threads.
#[inline(always)]
pub fn sync_cta() {
    // SAFETY: called by every thread of the CTA, in convergent code, at kernel start and end only.
    unsafe { asm!("bar.sync {};", const BARRIER_CTA, options(nostack)) }
}

/// The next launch of the stream may begin where there is room, if it was queued to (PTX ISA §9.7.13.13 `griddepcontrol`): it waits for this one.
#[inline(always)]
pub fn let_next_launch_begin() {
    // SAFETY: changes nothing that this grid sees.
    unsafe { asm!("griddepcontrol.launch_dependents;", options(nostack)) }
}

/// Until the kernel before in the stream has ended and what it wrote is here; at once, unless this launch was queued to begin before. Before anything is
/// read that a launch writes, or written.
#[inline(always)]
pub fn wait_for_launch_before() {
    // SAFETY: the kernel before waits for nothing of this one.
    unsafe { asm!("griddepcontrol.wait;", options(nostack)) }
}

/// The 256 consumer threads.
#[inline(always)]
pub fn sync_user() {
    // SAFETY: a SIMT body is run by all consumer threads; its author promises (it is `unsafe`) that they all come here.
    unsafe { asm!("bar.sync {}, {};", const BARRIER_BODY, const CONSUMERS, options(nostack)) }
}

/// The 256 consumer threads, between two operations of a body.
#[inline(always)]
pub fn sync_operations() {
    // SAFETY: all consumers run the outline of every body, which depends on shapes, scalars and tile coordinates alone.
    unsafe { asm!("bar.sync {}, {};", const BARRIER_OPERATIONS, const CONSUMERS, options(nostack)) }
}

/// The 256 consumer threads, between two tasks, or in one that makes a part of a sum.
#[inline(always)]
pub fn sync_consumers() {
    // SAFETY: all consumer warps run the same tasks and add up the same chunks, and come here for each in the same order.
    unsafe { asm!("bar.sync {}, {};", const BARRIER_CONSUMERS, const CONSUMERS, options(nostack)) }
}

/// The 256 consumer threads; whether `condition` holds in any (PTX ISA §9.7.13.1 `barrier.red`).
#[inline(always)]
pub fn any_user(condition: bool) -> bool {
    let any: u32;
    // SAFETY: as [`sync_user`].
    unsafe {
        asm!("{{.reg .pred p, q; setp.ne.u32 p, {1}, 0; barrier.red.or.pred q, {2}, {3}, p; selp.u32 {0}, 1, 0, q;}}",
            out(reg32) any, in(reg32) condition as u32, const BARRIER_BODY, const CONSUMERS, options(nostack))
    };
    any != 0
}

/// The 128 threads of consumer warpgroup `group`.
#[inline(always)]
pub fn sync_group(group: u32) {
    // SAFETY: a SIMT body's author promises (it is `unsafe`) that all threads of the warpgroup come here.
    unsafe { asm!("bar.sync {0}, {1};", in(reg32) BARRIER_WARPGROUPS + group, const CONSUMERS / 2, options(nostack)) }
}

/// The 128 threads of consumer warpgroup `group`; whether `condition` holds in any.
#[inline(always)]
pub fn any_of_group(group: u32, condition: bool) -> bool {
    let any: u32;
    // SAFETY: as [`sync_group`].
    unsafe {
        asm!("{{.reg .pred p, q; setp.ne.u32 p, {1}, 0; barrier.red.or.pred q, {2}, {3}, p; selp.u32 {0}, 1, 0, q;}}",
            out(reg32) any, in(reg32) condition as u32, in(reg32) BARRIER_WARPGROUPS + group, const CONSUMERS / 2, options(nostack))
    };
    any != 0
}

/// Barrier [`BARRIER_PART`] + `ID`, for `THREADS` threads of a SIMT body.
#[inline(always)]
pub fn sync_some<const ID: u32, const THREADS: u32>() {
    // SAFETY: the body's author promises (it is `unsafe`) that as many threads come here, whole warps; bodies that use these barriers meet
    // before they begin, so that no other body uses it at the same time.
    unsafe { asm!("bar.sync {0}, {1};", const { BARRIER_PART + ID }, const THREADS, options(nostack)) }
}
