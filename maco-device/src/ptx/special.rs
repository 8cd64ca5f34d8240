//! Special registers (PTX ISA §10) and the shared memory.

use core::arch::{asm, global_asm};

/// Threads that run the consumers' share of a task, a hardware thread each.
pub const CONSUMER_THREADS: u32 = maco_abi::CONSUMERS;

// shared memory: swizzled TMA boxes need 1024-byte alignment.
global_asm!(".extern .shared .align 1024 .b8 maco_shared[];");

/// First address of dynamic shared memory, as a 32-bit shared address.
#[inline(always)]
pub fn shared_base() -> u32 {
    let base: u32;
    // SAFETY: reads a symbol's address.
    unsafe { asm!("mov.u32 {0}, maco_shared;", out(reg32) base, options(nostack, pure, nomem)) };
    base
}

/// The same address, of which the compiler knows nothing: sums of it and of constants are then made where they are used, as offsets
/// in instructions, and not kept in registers across loops. Not [`shared_base`] anew: that asks for the CTA's place in its cluster.
#[inline(always)]
pub fn opaque(base: u32) -> u32 {
    let same: u32;
    // SAFETY: copies a register; not `pure`, so that it stays where it is.
    unsafe { asm!("mov.u32 {0}, {1};", out(reg32) same, in(reg32) base, options(nostack, nomem)) };
    same
}

/// The same pointer, computed where this is: neither LLVM nor ptxas moves what it depends on to where it is used.
#[inline(always)]
pub fn same_pointer<T>(pointer: *mut T) -> *mut T {
    let same: *mut T;
    // SAFETY: copies a register; not `pure`, so that it stays where it is.
    unsafe { asm!("mov.u64 {0}, {1};", out(reg64) same, in(reg64) pointer, options(nostack, nomem)) };
    same
}

/// Polls of what carries flags: a thread of a GPU has nothing else to do.
#[inline(always)]
pub fn polled(_: bool) {}

/// The generic address of a shared address (PTX ISA §9.7.9.20 `cvta`).
#[inline(always)]
pub fn generic(shared: u32) -> u64 {
    let address: u64;
    // SAFETY: register arithmetic only.
    unsafe {
        asm!("{{.reg .u64 t; cvt.u64.u32 t, {1}; cvta.shared.u64 {0}, t;}}", out(reg64) address, in(reg32) shared, options(nostack, pure, nomem))
    };
    address
}

macro_rules! register {
    ($(#[$doc:meta])* $name:ident, $register:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            let value: u32;
            // SAFETY: reads a special register.
            unsafe { asm!(concat!("mov.u32 {0}, ", $register, ";"), out(reg32) value, options(nostack, pure, nomem)) };
            value
        }
    };
}
register!(
    /// Thread in the CTA.
    thread, "%tid.x");
register!(
    /// CTA in the grid.
    block, "%ctaid.x");
register!(
    /// CTAs in the grid.
    blocks, "%nctaid.x");
register!(
    /// Multiprocessor.
    multiprocessor, "%smid");

/// [`thread`], where the compiler may not keep what is computed from it: registers are worth more than the instruction.
#[inline(always)]
pub fn thread_again() -> u32 {
    let value: u32;
    // SAFETY: reads a special register; not `pure`, so that it stays where it is.
    unsafe { asm!("mov.u32 {0}, %tid.x;", out(reg32) value, options(nostack, nomem)) };
    value
}

/// [`block`] and [`shared_base`], likewise.
#[inline(always)]
pub fn place_again() -> (u32, u32) {
    let (block, base): (u32, u32);
    // SAFETY: reads a special register and a symbol's address; not `pure`, so that it stays where it is.
    unsafe { asm!("mov.u32 {0}, %ctaid.x; mov.u32 {1}, maco_shared;", out(reg32) block, out(reg32) base, options(nostack, nomem)) };
    (block, base)
}

/// Nanoseconds of the GPU's global timer (resolution: tens of nanoseconds to a microsecond).
#[inline(always)]
pub fn global_timer() -> u64 {
    let value: u64;
    // SAFETY: reads a special register; not `pure`, it changes.
    unsafe { asm!("mov.u64 {0}, %globaltimer;", out(reg64) value, options(nostack, nomem)) };
    value
}

/// Ticks of this multiprocessor's clock (PTX ISA §10 `%clock64`).
#[inline(always)]
pub fn clock() -> u64 {
    let value: u64;
    // SAFETY: reads a special register; not `pure`, it changes.
    unsafe { asm!("mov.u64 {0}, %clock64;", out(reg64) value, options(nostack, nomem)) };
    value
}

/// Nanoseconds of the clock that all multiprocessors share.
#[inline(always)]
pub fn wall() -> u64 {
    global_timer()
}

/// Both clocks at one moment: the global timer ticks seldom, so this waits for its next tick, a microsecond at most.
#[inline(always)]
pub fn stamp() -> maco_abi::Stamp {
    let before = global_timer();
    loop {
        let nanoseconds = global_timer();
        if nanoseconds != before {
            return maco_abi::Stamp { ticks: clock(), nanoseconds };
        }
    }
}

/// Keeps 72 registers per thread, gives the rest back (PTX ISA §9.7.19.5 `setmaxnreg`).
#[inline(always)]
pub fn registers_decrease() {
    // SAFETY: run by whole warpgroups of a kernel with launch bounds, right after the role branch.
    unsafe { asm!("setmaxnreg.dec.sync.aligned.u32 72;", options(nostack)) }
}

/// Takes 216 registers per thread.
#[inline(always)]
pub fn registers_increase() {
    // SAFETY: run by whole warpgroups of a kernel with launch bounds, right after the role branch.
    unsafe { asm!("setmaxnreg.inc.sync.aligned.u32 216;", options(nostack)) }
}
