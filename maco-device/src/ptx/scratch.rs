//! What SIMT bodies do to their scratch in shared memory: accesses, mbarriers, bulk copies (PTX ISA §9.7.9.8 `ld`, §9.7.9.11 `st`, §9.7.13.15
//! `mbarrier`, §9.7.9.25.4 `cp.async.bulk`, §9.7.9.27 `cp.async.bulk.tensor`).
//!
//! A tag tells the PTX lint a body's instructions from the runtime's. Order and scope are written out where those leave them to the default: `.weak`,
//! `.release.cta`, `.acquire.cta`, which mean the same.

use core::arch::asm;

pub use super::mbarrier::init;
use super::tma;
pub use super::tma::row as bulk_load;

/// Where something in scratch lies: a shared address.
pub type Address = u32;

/// Nowhere: the scratch of a body without any.
pub const NOWHERE: Address = 0;

/// Scratch of a reference: there are none here.
pub fn of_host(_: &mut [u8]) -> Address {
    // SAFETY: nothing goes on behind a trap.
    unsafe { core::arch::nvptx::trap() }
}

/// `bytes` further on.
///
/// # Safety
/// None is needed here.
#[inline(always)]
pub unsafe fn after(at: Address, bytes: u32) -> Address {
    at + bytes
}

/// Ends the kernel: an index is out of range.
#[cold]
#[inline(always)]
pub fn out_of_range(_first: u32, _count: u32, _of: usize) -> ! {
    // SAFETY: nothing goes on behind a trap.
    unsafe { core::arch::nvptx::trap() }
}

/// One element.
///
/// # Safety
/// `at` is an aligned element of this body's scratch.
#[inline(always)]
pub unsafe fn load<E: Copy>(at: Address) -> E {
    let bits: u32;
    // SAFETY: the caller promises the address; an element is valid for any bit pattern of its size, which is the low end of the word.
    unsafe {
        match size_of::<E>() {
            1 => asm!("// maco: scratch", "ld.weak.shared.u8 {0}, [{1}];", out(reg32) bits, in(reg32) at, options(nostack)),
            2 => asm!("// maco: scratch", "ld.weak.shared.u16 {0}, [{1}];", out(reg32) bits, in(reg32) at, options(nostack)),
            _ => asm!("// maco: scratch", "ld.weak.shared.u32 {0}, [{1}];", out(reg32) bits, in(reg32) at, options(nostack)),
        }
        core::mem::transmute_copy(&bits)
    }
}

/// One element.
///
/// # Safety
/// As [`load`].
#[inline(always)]
pub unsafe fn store<E: Copy>(at: Address, element: E) {
    // SAFETY: the caller promises the address; an element is plain old data of its size.
    unsafe {
        match size_of::<E>() {
            1 => {
                let bits = core::mem::transmute_copy::<E, u8>(&element) as u32;
                asm!("// maco: scratch", "st.weak.shared.u8 [{0}], {1};", in(reg32) at, in(reg32) bits, options(nostack))
            }
            2 => {
                let bits = core::mem::transmute_copy::<E, u16>(&element) as u32;
                asm!("// maco: scratch", "st.weak.shared.u16 [{0}], {1};", in(reg32) at, in(reg32) bits, options(nostack))
            }
            _ => {
                let bits = core::mem::transmute_copy::<E, u32>(&element);
                asm!("// maco: scratch", "st.weak.shared.u32 [{0}], {1};", in(reg32) at, in(reg32) bits, options(nostack))
            }
        }
    }
}

/// Four words in one access.
///
/// # Safety
/// `at` is 16 bytes of this body's scratch at a 16-byte boundary.
#[inline(always)]
pub unsafe fn load4(at: Address) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: scratch", "ld.weak.shared.v4.b32 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) at, options(nostack))
    };
    [a, b, c, d]
}

/// Four words in one access.
///
/// # Safety
/// As [`load4`].
#[inline(always)]
pub unsafe fn store4(at: Address, words: [u32; 4]) {
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: scratch", "st.weak.shared.v4.b32 [{4}], {{{0}, {1}, {2}, {3}}};",
            in(reg32) words[0], in(reg32) words[1], in(reg32) words[2], in(reg32) words[3], in(reg32) at, options(nostack))
    }
}

/// Ends the life of an mbarrier: its memory may be used for something else.
///
/// # Safety
/// `at` is an initialised mbarrier that nobody uses any more.
#[inline(always)]
pub unsafe fn invalidate(at: Address) {
    // SAFETY: the caller promises the mbarrier.
    unsafe { asm!("// maco: scratch", "mbarrier.inval.shared::cta.b64 [{0}];", in(reg32) at, options(nostack)) }
}

/// Arrives (release, CTA scope).
///
/// # Safety
/// `at` is an initialised mbarrier.
#[inline(always)]
pub unsafe fn arrive(at: Address) {
    super::delay::delay();
    // SAFETY: the caller promises the mbarrier.
    unsafe { asm!("// maco: scratch", "mbarrier.arrive.release.cta.shared::cta.b64 _, [{0}];", in(reg32) at, options(nostack)) }
}

/// Arrives and expects `bytes` of bulk copies in this phase.
///
/// # Safety
/// `at` is an initialised mbarrier.
#[inline(always)]
pub unsafe fn arrive_expect(at: Address, bytes: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the mbarrier.
    unsafe {
        asm!("// maco: scratch", "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [{0}], {1};", in(reg32) at, in(reg32) bytes, options(nostack))
    }
}

/// Whether the phase of parity `parity` is complete (acquire, CTA scope); suspends the thread for a while if not.
///
/// # Safety
/// `at` is an initialised mbarrier.
#[inline(always)]
pub unsafe fn try_wait(at: Address, parity: u32) -> bool {
    super::delay::delay();
    let done: u32;
    // SAFETY: the caller promises the mbarrier.
    unsafe {
        asm!("{{.reg .pred p; /* maco: scratch */ mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [{1}], {2}; selp.u32 {0}, 1, 0, p;}}",
            out(reg32) done, in(reg32) at, in(reg32) parity, options(nostack))
    };
    done != 0
}

/// Shared to global, `bytes` bytes as they lie; completion by bulk group.
///
/// # Safety
/// `to` is writable global memory and `from` scratch that nobody writes, both at 16-byte boundaries, `bytes` a multiple of 16 and not 0; what
/// threads have written there is fenced for the async proxy.
#[inline(always)]
pub unsafe fn bulk_store(to: u64, from: Address, bytes: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("// maco: scratch", "cp.async.bulk.global.shared::cta.bulk_group [{0}], [{1}], {2};",
            in(reg64) to, in(reg32) from, in(reg32) bytes, options(nostack))
    }
}

/// Global to shared, a box from element (column, row, plane) on, zeros outside the tensor; `mbarrier` gets all of its bytes. `.tile` is the mode
/// that copies of the runtime's have by default.
///
/// # Safety
/// `map` is a tensor map in global memory that this thread has acquired, `to` aligned space of the scratch for its box, `mbarrier` initialised and
/// expecting it.
#[inline(always)]
pub unsafe fn tensor_load(to: Address, map: u64, (col, row, plane): (i32, i32, i32), mbarrier: Address) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("// maco: scratch", "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [{0}], [{1}, {{{2}, {3}, {4}}}], [{5}];",
            in(reg32) to, in(reg64) map, in(reg32) col, in(reg32) row, in(reg32) plane, in(reg32) mbarrier, options(nostack))
    }
}

/// Shared to global, a box, clipped to the tensor; completion by bulk group.
///
/// # Safety
/// `map` is a tensor map in global memory that this thread has acquired, of a tensor with elements; `from` is a box in the scratch that nobody
/// writes; what threads have written there is fenced for the async proxy.
#[inline(always)]
pub unsafe fn tensor_store(map: u64, (col, row, plane): (i32, i32, i32), from: Address) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("// maco: scratch", "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [{0}, {{{1}, {2}, {3}}}], [{4}];",
            in(reg64) map, in(reg32) col, in(reg32) row, in(reg32) plane, in(reg32) from, options(nostack))
    }
}

/// Waits until what this thread has asked [`bulk_store`] and [`tensor_store`] for is complete: its writes to global memory are performed.
#[inline(always)]
pub fn complete() {
    tma::commit();
    tma::wait_all();
}
