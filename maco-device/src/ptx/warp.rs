//! Warp collectives (PTX ISA §9.7.9.6 `shfl.sync`, §9.7.13.2 `bar.warp.sync`, §9.7.13.10 `vote.sync`,
//! §9.7.13.11 `match.sync`, §9.7.13.13 `redux.sync`).

use core::arch::asm;

/// Lanes of a warp.
pub const LANES: u32 = 32;

/// This lane.
#[inline(always)]
pub fn lane() -> u32 {
    super::special::thread() % LANES
}

/// [`lane`], which is not kept in a register.
#[inline(always)]
pub fn lane_again() -> u32 {
    let value: u32;
    // SAFETY: reads a special register; not `pure`, so that it stays where it is.
    unsafe { asm!("mov.u32 {0}, %laneid;", out(reg32) value, options(nostack, nomem)) };
    value
}

/// Consumer warps that a thread stands for: its own.
pub const CONSUMERS: u32 = 1;

/// This warp among the consumers.
#[inline(always)]
pub fn consumer() -> u32 {
    (super::special::thread_again() - 128) / LANES
}

/// Execution and memory barrier of the warp.
#[inline(always)]
pub fn sync() {
    // SAFETY: called by whole warps in convergent code.
    unsafe { asm!("bar.warp.sync 0xffffffff;", options(nostack)) }
}

/// [`sync`] of a warp that gives up what it has waited for, as its tag says.
#[inline(always)]
pub fn give_up() {
    // SAFETY: called by whole warps in convergent code.
    unsafe { asm!("// maco: give_up", "bar.warp.sync 4294967295;", options(nostack)) }
}

/// The value of lane `lane ^ distance`.
#[inline(always)]
pub fn shuffle_xor(value: f32, distance: u32) -> f32 {
    let other: f32;
    // SAFETY: called by whole warps in convergent code.
    unsafe {
        asm!("shfl.sync.bfly.b32 {0}, {1}, {2}, 31, 0xffffffff;", out(reg32) other, in(reg32) value, in(reg32) distance, options(nostack))
    };
    other
}

/// The value of lane `lane`.
#[inline(always)]
pub fn broadcast(value: u32, lane: u32) -> u32 {
    let other: u32;
    // SAFETY: called by whole warps in convergent code.
    unsafe {
        asm!("shfl.sync.idx.b32 {0}, {1}, {2}, 31, 0xffffffff;", out(reg32) other, in(reg32) value, in(reg32) lane, options(nostack))
    };
    other
}

/// Lanes for which `condition` holds.
#[inline(always)]
pub fn ballot(condition: bool) -> u32 {
    let lanes: u32;
    // SAFETY: called by whole warps in convergent code.
    unsafe {
        asm!("{{.reg .pred p; setp.ne.u32 p, {1}, 0; vote.sync.ballot.b32 {0}, p, 0xffffffff;}}", out(reg32) lanes, in(reg32) condition as u32, options(nostack))
    };
    lanes
}

/// A vote whose answer is a predicate: nothing is to be compared before the branch behind it.
macro_rules! votes {
    ($($(#[$doc:meta])* $name:ident: $mode:literal;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(condition: bool) -> bool {
            let answer: u32;
            // SAFETY: called by whole warps in convergent code.
            unsafe {
                asm!("{{.reg .pred p; setp.ne.u32 p, {1}, 0;", concat!("vote.sync.", $mode, ".pred p, p, 0xffffffff; selp.u32 {0}, 1, 0, p;}}"),
                    out(reg32) answer, in(reg32) condition as u32, options(nostack))
            };
            answer != 0
        }
    )*};
}
votes! {
    /// Whether `condition` holds in any lane.
    any: "any";
    /// Whether `condition` holds in all lanes.
    all: "all";
}

/// A number that all lanes' values are combined to, in one instruction.
macro_rules! combined {
    ($($(#[$doc:meta])* $name:ident: $operation:literal;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(value: u32) -> u32 {
            let all: u32;
            // SAFETY: called by whole warps in convergent code.
            unsafe {
                asm!(concat!("redux.sync.", $operation, ".u32 {0}, {1}, 0xffffffff;"), out(reg32) all, in(reg32) value, options(nostack))
            };
            all
        }
    )*};
}
combined! {
    /// The largest of all lanes' values.
    largest: "max";
    /// The least of all lanes' values.
    least: "min";
}

/// Lanes whose `value` is this lane's.
#[inline(always)]
pub fn matching(value: u32) -> u32 {
    let lanes: u32;
    // SAFETY: called by whole warps in convergent code.
    unsafe { asm!("match.any.sync.b32 {0}, {1}, 0xffffffff;", out(reg32) lanes, in(reg32) value, options(nostack)) };
    lanes
}
