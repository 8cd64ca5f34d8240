//! Atomics of `.gpu` scope: counters, tickets and flags of this GPU (PTX ISA §9.7.13.5 `atom`, §9.7.13.7 `red`, §9.7.9.8 `ld`).
//!
//! A pointer to a peer's or the host's memory never comes here; see [`super::sys_scope`].

use core::arch::asm;

/// Relaxed polls of a word, which differ in what they are for: a tag says it to the PTX lint.
macro_rules! polls {
    ($($(#[$doc:meta])* $name:ident: $ty:literal, $tag:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `at` is an aligned word of global memory.
        #[inline(always)]
        pub unsafe fn $name(at: *const u32) -> u32 {
            super::delay::delay();
            let value: u32;
            // SAFETY: the caller promises the address.
            unsafe { asm!(concat!("// maco: ", $tag), concat!("ld.relaxed.gpu.global.", $ty, " {0}, [{1}];"), out(reg32) value, in(reg64) at, options(nostack)) };
            value
        }
    )*};
}
polls! {
    /// `ld.relaxed.gpu`: a poll.
    load_relaxed: "u32", "wait.gpu";
    /// [`load_relaxed`] of a warp that runs a task by itself, which has been published: no other warp decides the same, so that it announces itself at
    /// no gate.
    load_alone: "b32", "wait.alone";
    /// The same before the task is turned to: what it has seen is looked at, and acquired, where [`load_alone`] is. The lint, which cannot follow
    /// it there, asks for the fence behind that one.
    load_ahead: "s32", "wait.ahead";
}

/// Release, then `st.relaxed.gpu` of 1 if the signal is the only one (`sole` is not 0), else `red.relaxed.gpu.add` of 1: everything this thread wrote or observed comes
/// before it. No branch is behind the fence.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn signal(at: *mut u32, sole: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe {
        // A line each: tests take them away one by one.
        asm!(
            "{{.reg .pred sole; setp.ne.u32 sole, {1}, 0;",
            "fence.release.gpu;",
            "// maco: signal.gpu",
            "@sole st.relaxed.gpu.global.u32 [{0}], 1;",
            "// maco: signal.gpu",
            "@!sole red.relaxed.gpu.global.add.u32 [{0}], 1;",
            "}}",
            in(reg64) at,
            in(reg32) sole,
            options(nostack)
        )
    }
}

/// `red.relaxed.gpu.add`, after a release fence: a signal without result.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn add_relaxed(at: *mut u32, value: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: signal.gpu", "red.relaxed.gpu.global.add.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `atom.relaxed.gpu.add`; the old value.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn fetch_add_relaxed(at: *mut u32, value: u32) -> u32 {
    super::delay::delay();
    let old: u32;
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: ticket.gpu", "atom.relaxed.gpu.global.add.u32 {0}, [{1}], {2};", out(reg32) old, in(reg64) at, in(reg32) value, options(nostack))
    };
    old
}

/// `atom.relaxed.gpu.add`, of a part of a sum that is there; the old value.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn arrive(at: *mut u32, value: u32) -> u32 {
    super::delay::delay();
    let old: u32;
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: part.arrive", "atom.relaxed.gpu.global.add.s32 {0}, [{1}], {2};", out(reg32) old, in(reg64) at, in(reg32) value, options(nostack))
    };
    old
}

/// `atom.relaxed.gpu.or`; the old value.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn leave(at: *mut u32, bits: u32) -> u32 {
    super::delay::delay();
    let old: u32;
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: part.leave", "atom.relaxed.gpu.global.or.b32 {0}, [{1}], {2};", out(reg32) old, in(reg64) at, in(reg32) bits, options(nostack))
    };
    old
}

/// `red.relaxed.gpu.and`: all `bits` are 0.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn clear(at: *mut u32, bits: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: clear.gpu", "red.relaxed.gpu.global.and.b32 [{0}], {1};", in(reg64) at, in(reg32) !bits, options(nostack)) }
}

/// `atom.relaxed.gpu.cas`; the old value.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn compare_exchange(at: *mut u32, expected: u32, new: u32) -> u32 {
    let old: u32;
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: claim.gpu", "atom.relaxed.gpu.global.cas.b32 {0}, [{1}], {2}, {3};", out(reg32) old, in(reg64) at, in(reg32) expected, in(reg32) new, options(nostack))
    };
    old
}

/// `st.relaxed.gpu`.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn store_relaxed(at: *mut u32, value: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: message.gpu", "st.relaxed.gpu.global.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `ld.relaxed.gpu`, of four words that carry flags, into `words` if `condition` holds; without a branch, so that the lanes of a warp stay
/// together. Each word is read whole, in no order (PTX ISA §8.2.2, vector data types): what the flag in a word says is about that word alone.
///
/// # Safety
/// If `condition` holds, `at` is four words of global memory at a 16-byte boundary.
#[inline(always)]
pub unsafe fn poll4_if(condition: bool, at: *const u32, words: &mut [u32; 4]) {
    super::delay::delay();
    let [a, b, c, d] = words;
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("{{.reg .pred p; setp.ne.u32 p, {5}, 0;",
            "// maco: in_band.load",
            "@p ld.relaxed.gpu.global.v4.u32 {{{0}, {1}, {2}, {3}}}, [{4}];}}",
            inout(reg32) *a, inout(reg32) *b, inout(reg32) *c, inout(reg32) *d, in(reg64) at, in(reg32) condition as u32, options(nostack))
    };
}

/// `st.relaxed.gpu` of a word that carries its flag: it announces itself, and nothing else.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn carry(at: *mut u32, word: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: in_band.store", "st.relaxed.gpu.global.b32 [{0}], {1};", in(reg64) at, in(reg32) word, options(nostack)) }
}
