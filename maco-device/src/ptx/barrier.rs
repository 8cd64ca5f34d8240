//! Named barriers (PTX ISA §9.7.13.1 `barrier`). 0: all threads at start and end; 1: consumers between two operations of a body; 2, 3: a warpgroup of a
//! SIMT body; 4: SIMT bodies (256 consumers); 5: consumers between tasks, and between the steps of adding up parts; 6 to 15: some threads of a SIMT body.

use core::arch::asm;

/// All 384 threads.
#[inline(always)]
pub fn sync_cta() {
    // SAFETY: called by every thread of the CTA, in convergent code, at kernel start and end only.
    unsafe { asm!("bar.sync 0;", options(nostack)) }
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
    unsafe { asm!("bar.sync 4, 256;", options(nostack)) }
}

/// The 256 consumer threads, between two operations of a body.
#[inline(always)]
pub fn sync_operations() {
    // SAFETY: all consumers run the outline of every body, which depends on shapes, scalars and tile coordinates alone.
    unsafe { asm!("bar.sync 1, 256;", options(nostack)) }
}

/// The 256 consumer threads, between two tasks, or in one that makes a part of a sum.
#[inline(always)]
pub fn sync_consumers() {
    // SAFETY: all consumer warps run the same tasks and add up the same chunks, and come here for each in the same order.
    unsafe { asm!("bar.sync 5, 256;", options(nostack)) }
}

/// The 256 consumer threads; whether `condition` holds in any (PTX ISA §9.7.13.1 `barrier.red`).
#[inline(always)]
pub fn any_user(condition: bool) -> bool {
    let any: u32;
    // SAFETY: as [`sync_user`].
    unsafe {
        asm!("{{.reg .pred p, q; setp.ne.u32 p, {1}, 0; barrier.red.or.pred q, 4, 256, p; selp.u32 {0}, 1, 0, q;}}",
            out(reg32) any, in(reg32) condition as u32, options(nostack))
    };
    any != 0
}

/// The 128 threads of consumer warpgroup `group`.
#[inline(always)]
pub fn sync_group(group: u32) {
    // SAFETY: a SIMT body's author promises (it is `unsafe`) that all threads of the warpgroup come here.
    unsafe { asm!("bar.sync {0}, 128;", in(reg32) GROUPS + group, options(nostack)) }
}

/// The 128 threads of consumer warpgroup `group`; whether `condition` holds in any.
#[inline(always)]
pub fn any_of_group(group: u32, condition: bool) -> bool {
    let any: u32;
    // SAFETY: as [`sync_group`].
    unsafe {
        asm!("{{.reg .pred p, q; setp.ne.u32 p, {1}, 0; barrier.red.or.pred q, {2}, 128, p; selp.u32 {0}, 1, 0, q;}}",
            out(reg32) any, in(reg32) condition as u32, in(reg32) GROUPS + group, options(nostack))
    };
    any != 0
}

/// The barriers of warpgroups: this one and the next.
const GROUPS: u32 = 2;

/// Barrier [`SOME`] + `ID`, for `THREADS` threads of a SIMT body.
#[inline(always)]
pub fn sync_some<const ID: u32, const THREADS: u32>() {
    // SAFETY: the body's author promises (it is `unsafe`) that as many threads come here, whole warps; bodies that use these barriers meet
    // before they begin, so that no other body uses it at the same time.
    unsafe { asm!("bar.sync {0}, {1};", const { SOME + ID }, const THREADS, options(nostack)) }
}

/// The first of the barriers that SIMT bodies have for some of their threads; all others up to 15 too.
const SOME: u32 = 6;
