//! Wide accesses to global memory, and plain ones to shared memory (PTX ISA §9.7.9.8 `ld`, §9.7.9.11 `st`).

use core::arch::asm;

pub use super::words::{fetch_add_shared, load_shared, store_shared};

/// Four words in one access.
///
/// # Safety
/// `at` is 16 readable bytes of global memory at a 16-byte boundary.
#[inline(always)]
pub unsafe fn load4(at: *const u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("ld.global.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at, options(nostack))
    };
    [a, b, c, d]
}

macro_rules! load_if {
    ($(#[$doc:meta])* $name:ident, $space:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub unsafe fn $name<const BYTES: u32>(condition: bool, at: *const u8) -> u32 {
            let value: u32;
            macro_rules! load {
                ($bits:literal) => {
                    // SAFETY: the caller promises the address. A wider register gets zeros above (PTX ISA §9.7.9.8 `ld`).
                    unsafe {
                        asm!("{{.reg .pred p; setp.ne.u32 p, {2}, 0; mov.b32 {0}, 0;", concat!("@p ld", $space, $bits, " {0}, [{1}];}}"),
                            out(reg32) value, in(reg64) at, in(reg32) condition as u32, options(nostack))
                    }
                };
            }
            match BYTES {
                1 => load!(".u8"),
                2 => load!(".u16"),
                _ => load!(".b32"),
            }
            value
        }
    };
}

load_if! {
    /// An element of `BYTES` bytes of global memory, 1, 2 or 4, if `condition` holds, else zero; without a branch, behind which its use would
    /// wait for it.
    ///
    /// # Safety
    /// If `condition` holds, `at` is a readable, aligned element of global memory.
    load_if, ".global"
}

load_if! {
    /// The same of global or shared memory.
    ///
    /// # Safety
    /// If `condition` holds, `at` is the generic address of a readable, aligned element.
    load_any_if, ""
}

/// Four words in one access, of global memory, if `condition` holds, else zeros; without a branch.
///
/// # Safety
/// If `condition` holds, `at` is 16 readable bytes of global memory at a 16-byte boundary.
#[inline(always)]
pub unsafe fn load4_global_if(condition: bool, at: *const u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("{{.reg .pred p; setp.ne.u32 p, {5}, 0; mov.b32 {0}, 0; mov.b32 {1}, 0; mov.b32 {2}, 0; mov.b32 {3}, 0;",
            "@p ld.global.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];}}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at, in(reg32) condition as u32, options(nostack))
    };
    [a, b, c, d]
}

/// Two words in one access, of global memory, if `condition` holds, else zeros; without a branch.
///
/// # Safety
/// If `condition` holds, `at` is 8 readable bytes of global memory at an 8-byte boundary.
#[inline(always)]
pub unsafe fn load2_if(condition: bool, at: *const u32) -> [u32; 2] {
    let (a, b): (u32, u32);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("{{.reg .pred p; setp.ne.u32 p, {3}, 0; mov.b32 {0}, 0; mov.b32 {1}, 0;", "@p ld.global.v2.b32 {{{0}, {1}}}, [{2}];}}",
            out(reg32) a, out(reg32) b, in(reg64) at, in(reg32) condition as u32, options(nostack))
    };
    [a, b]
}

/// Four words in one access, of global or shared memory, if `condition` holds, else zeros; without a branch, so that the lanes of a warp stay
/// together.
///
/// # Safety
/// If `condition` holds, `at` is the generic address of 16 readable bytes at a 16-byte boundary.
#[inline(always)]
pub unsafe fn load4_if(condition: bool, at: *const u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("{{.reg .pred p; setp.ne.u32 p, {5}, 0; mov.b32 {0}, 0; mov.b32 {1}, 0; mov.b32 {2}, 0; mov.b32 {3}, 0;",
            "@p ld.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];}}",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at, in(reg32) condition as u32, options(nostack))
    };
    [a, b, c, d]
}

/// Has four words of global memory on their way to shared memory, through no register (PTX ISA §9.7.9.25.3 `cp.async`); they are there, for this
/// thread, behind [`fetched`].
///
/// # Safety
/// `from` is 16 readable bytes of global memory and `to` 16 bytes of shared memory, which nobody else uses until then; both at a 16-byte boundary.
#[inline(always)]
pub unsafe fn fetch4(to: u32, from: *const u32) {
    // SAFETY: the caller promises the addresses.
    unsafe { asm!("cp.async.cg.shared.global [{0}], [{1}], 16;", in(reg32) to, in(reg64) from, options(nostack)) }
}

/// Waits for all that this thread has had on its way by [`fetch4`].
#[inline(always)]
pub fn fetched() {
    // SAFETY: waits only.
    unsafe { asm!("cp.async.wait_all;", options(nostack)) }
}

/// Has the line at `at`, of global memory, on its way to the L2 cache (PTX ISA §9.7.9.15 `prefetch`); where nothing is, nothing happens.
#[inline(always)]
pub fn prefetch(at: *const u32) {
    // SAFETY: reads nothing that anybody sees, and does not fault.
    unsafe { asm!("prefetch.global.L2 [{0}];", in(reg64) at, options(nostack)) }
}

/// Four words in one access.
///
/// # Safety
/// `at` is 16 writable bytes of global memory at a 16-byte boundary.
#[inline(always)]
pub unsafe fn store4(at: *mut u32, words: [u32; 4]) {
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("st.global.v4.b32 [{4}], {{{0}, {1}, {2}, {3}}};",
            in(reg32) words[0], in(reg32) words[1], in(reg32) words[2], in(reg32) words[3], in(reg64) at, options(nostack))
    }
}

/// Two words in one access.
///
/// # Safety
/// `at` is 8 readable bytes of global memory at an 8-byte boundary.
#[inline(always)]
pub unsafe fn load2(at: *const u32) -> [u32; 2] {
    let (a, b): (u32, u32);
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.global.v2.b32 {{{0}, {1}}}, [{2}];", out(reg32) a, out(reg32) b, in(reg64) at, options(nostack)) };
    [a, b]
}

/// Two words in one access.
///
/// # Safety
/// `at` is 8 writable bytes of global memory at an 8-byte boundary.
#[inline(always)]
pub unsafe fn store2(at: *mut u32, words: [u32; 2]) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("st.global.v2.b32 [{2}], {{{0}, {1}}};", in(reg32) words[0], in(reg32) words[1], in(reg64) at, options(nostack)) }
}

/// One word.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn load(at: *const u32) -> u32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.global.b32 {0}, [{1}];", out(reg32) value, in(reg64) at, options(nostack)) };
    value
}

/// Two bytes.
///
/// # Safety
/// `at` is two readable bytes of global memory at an even address.
#[inline(always)]
pub unsafe fn load_half(at: *const u16) -> u32 {
    let value: u32;
    // SAFETY: the caller promises the address. A wider register gets zeros above (PTX ISA §9.7.9.8 `ld`).
    unsafe { asm!("ld.global.u16 {0}, [{1}];", out(reg32) value, in(reg64) at, options(nostack)) };
    value
}

/// One word.
///
/// # Safety
/// `at` is an aligned word of global memory.
#[inline(always)]
pub unsafe fn store(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("st.global.b32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `ld.relaxed.cta` of a word of shared memory that others write meanwhile, and which orders nothing (PTX ISA §9.7.9.8).
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn load_relaxed_shared(at: u32) -> u32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.relaxed.cta.shared.b32 {0}, [{1}];", out(reg32) value, in(reg32) at, options(nostack)) };
    value
}

/// `st.relaxed.cta` of a word of shared memory that others read or write meanwhile (PTX ISA §9.7.9.11).
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn store_relaxed_shared(at: u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("st.relaxed.cta.shared.b32 [{0}], {1};", in(reg32) at, in(reg32) value, options(nostack)) }
}

/// `red.relaxed.cta.max` of a word of shared memory that others raise (PTX ISA §9.7.13.6).
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn raise_shared(at: u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: table.raise", "red.relaxed.cta.shared.max.u32 [{0}], {1};", in(reg32) at, in(reg32) value, options(nostack)) }
}

/// `ld.acquire.cta` of a word of shared memory (PTX ISA §9.7.9.8).
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn load_acquire_shared(at: u32) -> u32 {
    super::delay::delay();
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.acquire.cta.shared::cta.b32 {0}, [{1}];", out(reg32) value, in(reg32) at, options(nostack)) };
    value
}

/// `st.release.cta` of a word of shared memory (PTX ISA §9.7.9.11).
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn store_release_shared(at: u32, value: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe { asm!("st.release.cta.shared::cta.b32 [{0}], {1};", in(reg32) at, in(reg32) value, options(nostack)) }
}

/// Two words of shared memory.
///
/// # Safety
/// `at` is 8 bytes of this CTA's shared memory at an 8-byte boundary.
#[inline(always)]
pub unsafe fn store_shared2(at: u32, words: [u32; 2]) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("st.shared.v2.b32 [{2}], {{{0}, {1}}};", in(reg32) words[0], in(reg32) words[1], in(reg32) at, options(nostack)) }
}

/// Two words of shared memory.
///
/// # Safety
/// `at` is 8 bytes of this CTA's shared memory at an 8-byte boundary.
#[inline(always)]
pub unsafe fn load_shared2(at: u32) -> [u32; 2] {
    let (a, b): (u32, u32);
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.shared.v2.b32 {{{0}, {1}}}, [{2}];", out(reg32) a, out(reg32) b, in(reg32) at, options(nostack)) };
    [a, b]
}

/// Four words of shared memory.
///
/// # Safety
/// `at` is 16 bytes of this CTA's shared memory at a 16-byte boundary.
#[inline(always)]
pub unsafe fn store_shared4(at: u32, words: [u32; 4]) {
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("st.shared.v4.b32 [{4}], {{{0}, {1}, {2}, {3}}};",
            in(reg32) words[0], in(reg32) words[1], in(reg32) words[2], in(reg32) words[3], in(reg32) at, options(nostack))
    }
}

/// One word of shared memory that does not change until another asm statement has run; free if nobody uses it.
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn read_shared(at: u32) -> u32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.shared.b32 {0}, [{1}];", out(reg32) value, in(reg32) at, options(nostack, pure, readonly)) };
    value
}

/// Two words, as [`read_shared`].
///
/// # Safety
/// `at` is 8 bytes of this CTA's shared memory at an 8-byte boundary.
#[inline(always)]
pub unsafe fn read_shared2(at: u32) -> [u32; 2] {
    let (a, b): (u32, u32);
    // SAFETY: the caller promises the address.
    unsafe { asm!("ld.shared.v2.b32 {{{0}, {1}}}, [{2}];", out(reg32) a, out(reg32) b, in(reg32) at, options(nostack, pure, readonly)) };
    [a, b]
}

/// Four words, as [`read_shared`].
///
/// # Safety
/// `at` is 16 bytes of this CTA's shared memory at a 16-byte boundary.
#[inline(always)]
pub unsafe fn read_shared4(at: u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("ld.shared.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) at, options(nostack, pure, readonly))
    };
    [a, b, c, d]
}

/// Four words of shared memory.
///
/// # Safety
/// `at` is 16 bytes of this CTA's shared memory at a 16-byte boundary.
#[inline(always)]
pub unsafe fn load_shared4(at: u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("ld.shared.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) at, options(nostack))
    };
    [a, b, c, d]
}

/// Four words of shared memory, of what consumers have received: other threads read them behind a barrier.
///
/// # Safety
/// `at` is 16 bytes of this CTA's shared memory at a 16-byte boundary.
#[inline(always)]
pub unsafe fn receive_shared4(at: u32, words: [u32; 4]) {
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: receive", "st.shared.v4.u32 [{4}], {{{0}, {1}, {2}, {3}}};",
            in(reg32) words[0], in(reg32) words[1], in(reg32) words[2], in(reg32) words[3], in(reg32) at, options(nostack))
    }
}

/// Four words of shared memory, of what consumers have written by an elementwise prologue: other threads read them behind a barrier.
///
/// # Safety
/// As of [`receive_shared4`].
#[inline(always)]
pub unsafe fn map_shared4(at: u32, words: [u32; 4]) {
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: elementwise", "st.shared.v4.s32 [{4}], {{{0}, {1}, {2}, {3}}};",
            in(reg32) words[0], in(reg32) words[1], in(reg32) words[2], in(reg32) words[3], in(reg32) at, options(nostack))
    }
}

/// A part of a sum for other consumers, who read it by [`load_part`] behind a barrier.
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn store_part(at: u32, value: f32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: rmsnorm.sum", "st.shared.f32 [{0}], {1};", in(reg32) at, in(reg32) value.to_bits(), options(nostack)) }
}

/// What [`store_part`] has stored.
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn load_part(at: u32) -> f32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: rmsnorm.sum", "ld.shared.f32 {0}, [{1}];", out(reg32) value, in(reg32) at, options(nostack)) };
    f32::from_bits(value)
}

/// What a row is multiplied by, for other consumers, who read it by [`load_factor`] behind a barrier.
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn store_factor(at: u32, value: f32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: rmsnorm.factor", "st.shared.u32 [{0}], {1};", in(reg32) at, in(reg32) value.to_bits(), options(nostack)) }
}

/// What [`store_factor`] has stored.
///
/// # Safety
/// `at` is an aligned word of this CTA's shared memory.
#[inline(always)]
pub unsafe fn load_factor(at: u32) -> f32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: rmsnorm.factor", "ld.shared.u32 {0}, [{1}];", out(reg32) value, in(reg32) at, options(nostack)) };
    f32::from_bits(value)
}
