//! Accesses of `.sys` scope: memory of the host and of peers (PTX ISA §9.7.9.8 `ld`, §9.7.9.11 `st`, §9.7.13.5 `atom`).
//!
//! Scalars of up to 64 bits are loaded and stored whole; a vector is a set of them in no order (PTX ISA §8.2.2).

use core::arch::asm;

/// `st.release.sys`.
///
/// # Safety
/// `at` is an aligned word, mapped for this GPU.
#[inline(always)]
pub unsafe fn store_release(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: report.end", "st.release.sys.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `st.relaxed.sys`.
///
/// # Safety
/// `at` is an aligned word, mapped for this GPU.
#[inline(always)]
pub unsafe fn store_relaxed(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: report.word", "st.relaxed.sys.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `ld.relaxed.sys.u32`: data of ranks, ordered by what signals of it.
///
/// # Safety
/// `at` is an aligned word of global memory, of this GPU or of a peer.
#[inline(always)]
pub unsafe fn get4(at: *const u32) -> u32 {
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: get.sys", "ld.relaxed.sys.global.u32 {0}, [{1}];", out(reg32) value, in(reg64) at, options(nostack)) };
    value
}

/// `st.relaxed.sys.u32`: data for ranks, ordered by what signals of it.
///
/// # Safety
/// `at` is an aligned word of global memory, of this GPU or of a peer.
#[inline(always)]
pub unsafe fn put4(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: put.sys", "st.relaxed.sys.global.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `ld.relaxed.sys.u8`: data of ranks.
///
/// # Safety
/// `at` is a byte of global memory, of this GPU or of a peer.
#[inline(always)]
pub unsafe fn get1(at: *const u8) -> u8 {
    let value: u16;
    // SAFETY: the caller promises the address; a register may be wider than what is loaded (PTX ISA §9.4.1).
    unsafe { asm!("// maco: get.sys", "ld.relaxed.sys.global.u8 {0}, [{1}];", out(reg16) value, in(reg64) at, options(nostack)) };
    value as u8
}

/// `st.relaxed.sys.u8`: data for ranks.
///
/// # Safety
/// `at` is a byte of global memory, of this GPU or of a peer.
#[inline(always)]
pub unsafe fn put1(at: *mut u8, value: u8) {
    // SAFETY: as above.
    unsafe { asm!("// maco: put.sys", "st.relaxed.sys.global.u8 [{0}], {1};", in(reg64) at, in(reg16) value as u16, options(nostack)) }
}

/// `ld.relaxed.sys.v4.u32`: data of ranks.
///
/// # Safety
/// `at` is four words of global memory at a 16-byte boundary, of this GPU or of a peer.
#[inline(always)]
pub unsafe fn get16(at: *const u32) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: get.sys", "ld.relaxed.sys.global.v4.u32 {{{0}, {1}, {2}, {3}}}, [{4}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg64) at, options(nostack))
    };
    [a, b, c, d]
}

/// `st.relaxed.sys.v4.u32`: data for ranks.
///
/// # Safety
/// `at` is four words of global memory at a 16-byte boundary, of this GPU or of a peer.
#[inline(always)]
pub unsafe fn put16(at: *mut u32, [a, b, c, d]: [u32; 4]) {
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: put.sys", "st.relaxed.sys.global.v4.u32 [{0}], {{{1}, {2}, {3}, {4}}};",
            in(reg64) at, in(reg32) a, in(reg32) b, in(reg32) c, in(reg32) d, options(nostack))
    }
}

/// `ld.relaxed.sys`: a poll of a word that a peer or the host publishes.
///
/// # Safety
/// `at` is an aligned word of global memory, of this GPU or of the host.
#[inline(always)]
pub unsafe fn poll(at: *const u32) -> u32 {
    super::delay::delay();
    let value: u32;
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: wait.sys", "ld.relaxed.sys.global.u32 {0}, [{1}];", out(reg32) value, in(reg64) at, options(nostack)) };
    value
}

/// `st.release.sys`: a word that a peer or the host polls. What this thread wrote or observed comes before it, and so does what its CTA's other threads did before
/// they met it at a barrier (PTX ISA §8.8, §8.9.5).
///
/// # Safety
/// `at` is an aligned word of global memory, of a peer or of the host, and this thread is its only writer.
#[inline(always)]
pub unsafe fn publish(at: *mut u32, value: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: signal.sys", "st.release.sys.global.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}

/// `ld.relaxed.sys.u64`: a poll of a packet, whose flag speaks for its word alone.
///
/// # Safety
/// `at` is 8 aligned bytes of global memory of this GPU.
#[inline(always)]
pub unsafe fn load_packet(at: *const u64) -> u64 {
    super::delay::delay();
    let value: u64;
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: packet.load", "ld.relaxed.sys.global.u64 {0}, [{1}];", out(reg64) value, in(reg64) at, options(nostack)) };
    value
}

/// `ld.relaxed.sys.v2.u64`: a poll of two packets.
///
/// # Safety
/// `at` is 16 bytes of global memory of this GPU, at a 16-byte boundary.
#[inline(always)]
pub unsafe fn load_packets(at: *const u64) -> [u64; 2] {
    super::delay::delay();
    let (a, b): (u64, u64);
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: packet.load", "ld.relaxed.sys.global.v2.u64 {{{0}, {1}}}, [{2}];", out(reg64) a, out(reg64) b, in(reg64) at, options(nostack))
    };
    [a, b]
}

/// `st.relaxed.sys.u64`: a packet for a peer.
///
/// # Safety
/// `at` is 8 aligned bytes of global memory of a peer.
#[inline(always)]
pub unsafe fn store_packet(at: *mut u64, value: u64) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: packet.store", "st.relaxed.sys.global.u64 [{0}], {1};", in(reg64) at, in(reg64) value, options(nostack)) }
}

/// `st.relaxed.sys.v2.u64`: two packets for a peer.
///
/// # Safety
/// `at` is 16 bytes of global memory of a peer, at a 16-byte boundary.
#[inline(always)]
pub unsafe fn store_packets(at: *mut u64, [a, b]: [u64; 2]) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: packet.store", "st.relaxed.sys.global.v2.u64 [{0}], {{{1}, {2}}};", in(reg64) at, in(reg64) a, in(reg64) b, options(nostack))
    }
}

/// `st.relaxed.sys.v2.u64`: a trigger for a proxy, behind a release fence; each half says itself that it is there.
///
/// # Safety
/// `at` is 16 bytes of the host's memory, mapped for this GPU, at a 16-byte boundary.
#[inline(always)]
pub unsafe fn push(at: *mut u64, [a, b]: [u64; 2]) {
    super::delay::delay();
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: trigger.sys", "st.relaxed.sys.global.v2.u64 [{0}], {{{1}, {2}}};", in(reg64) at, in(reg64) a, in(reg64) b, options(nostack))
    }
}

/// `atom.relaxed.sys.cas` of a stop word of this rank; the old value.
///
/// # Safety
/// `at` is an aligned word of global memory of this GPU.
#[inline(always)]
pub unsafe fn stop(at: *mut u32, expected: u32, new: u32) -> u32 {
    let old: u32;
    // SAFETY: the caller promises the address.
    unsafe {
        asm!("// maco: stop.sys", "atom.relaxed.sys.global.cas.b32 {0}, [{1}], {2}, {3};", out(reg32) old, in(reg64) at, in(reg32) expected, in(reg32) new, options(nostack))
    };
    old
}

/// `st.relaxed.sys`: a word of a report that [`publish`] completes.
///
/// # Safety
/// `at` is an aligned word of global memory of this GPU.
#[inline(always)]
pub unsafe fn tell(at: *mut u32, value: u32) {
    // SAFETY: the caller promises the address.
    unsafe { asm!("// maco: tell.sys", "st.relaxed.sys.global.u32 [{0}], {1};", in(reg64) at, in(reg32) value, options(nostack)) }
}
