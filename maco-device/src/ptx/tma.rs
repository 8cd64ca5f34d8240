//! Bulk copies: of boxes of 64 columns × 64 rows × 1 plane (PTX ISA §9.7.9.25.5 `cp.async.bulk.tensor`), and of bytes that lie together
//! (§9.7.9.25.4 `cp.async.bulk`).
//!
//! Lane 0 of a warp calls, alone, and elects itself (§9.7.13.14 `elect.sync`): ptxas then knows that it is one thread. Else it makes a loop
//! around each copy, over the threads that there may be.

use core::arch::asm;

/// Global to shared; `mbarrier` gets the bytes.
///
/// # Safety
/// Called by lane 0 alone. `map` is a tensor map in global memory, `shared` 1024-byte aligned space for the box, `mbarrier` initialised and expecting it.
#[inline(always)]
pub unsafe fn load(shared: u32, map: u64, col: i32, row: i32, plane: i32, mbarrier: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("{{.reg .pred p; .reg .b32 lane; elect.sync lane|p, 1; @p cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}, {{{2}, {3}, {4}}}], [{5}];}}",
            in(reg32) shared, in(reg64) map, in(reg32) col, in(reg32) row, in(reg32) plane, in(reg32) mbarrier, options(nostack))
    }
}

/// Two boxes, both as [`load`]: where each goes, the address of its tensor map, and its first column, row and plane.
///
/// # Safety
/// As there, for both.
#[inline(always)]
pub unsafe fn load_two((shared_a, map_a, a): (u32, u64, [i32; 3]), (shared_b, map_b, b): (u32, u64, [i32; 3]), mbarrier: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("{{.reg .pred p; .reg .b32 lane; elect.sync lane|p, 1;",
            "@p cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}, {{{2}, {3}, {4}}}], [{10}];",
            "@p cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [{5}], [{6}, {{{7}, {8}, {9}}}], [{10}];}}",
            in(reg32) shared_a, in(reg64) map_a, in(reg32) a[0], in(reg32) a[1], in(reg32) a[2],
            in(reg32) shared_b, in(reg64) map_b, in(reg32) b[0], in(reg32) b[1], in(reg32) b[2], in(reg32) mbarrier, options(nostack))
    }
}

/// Global to shared, `bytes` bytes as they lie; `mbarrier` gets them.
///
/// # Safety
/// Called by lane 0 alone. `from` is global memory and `shared` space for it, both at 16-byte boundaries, `bytes` a multiple of 16 and not 0, `mbarrier`
/// initialised and expecting them.
#[inline(always)]
pub unsafe fn row(shared: u32, from: u64, bytes: u32, mbarrier: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("{{.reg .pred p; .reg .b32 lane; elect.sync lane|p, 1; @p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{1}], {2}, [{3}];}}",
            in(reg32) shared, in(reg64) from, in(reg32) bytes, in(reg32) mbarrier, options(nostack))
    }
}

/// Four rows as [`row`] copies one, one behind the other to `shared`, from where each lies: by one election.
///
/// # Safety
/// As there, for each.
#[inline(always)]
pub unsafe fn four_rows(shared: u32, from: [u64; 4], bytes: u32, mbarrier: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("{{.reg .pred p; .reg .b32 lane; elect.sync lane|p, 1;",
            "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{0}], [{4}], {8}, [{9}];",
            "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{1}], [{5}], {8}, [{9}];",
            "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{2}], [{6}], {8}, [{9}];",
            "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{3}], [{7}], {8}, [{9}];}}",
            in(reg32) shared, in(reg32) shared + bytes, in(reg32) shared + 2 * bytes, in(reg32) shared + 3 * bytes,
            in(reg64) from[0], in(reg64) from[1], in(reg64) from[2], in(reg64) from[3], in(reg32) bytes, in(reg32) mbarrier, options(nostack))
    }
}

/// As [`load`], of what nobody reads again: its lines are the first that leave the L2 cache (PTX ISA §9.7.9 `createpolicy`, `.L2::cache_hint`), and what is read
/// by all multiprocessors, instructions among it, stays.
///
/// # Safety
/// As there.
#[inline(always)]
pub unsafe fn load_once(shared: u32, map: u64, col: i32, row: i32, plane: i32, mbarrier: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("{{.reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0; .reg .pred p; .reg .b32 lane; elect.sync lane|p, 1;",
            "@p cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [{0}], [{1}, {{{2}, {3}, {4}}}], [{5}], policy;}}",
            in(reg32) shared, in(reg64) map, in(reg32) col, in(reg32) row, in(reg32) plane, in(reg32) mbarrier, options(nostack))
    }
}

/// As [`row`], of what nobody reads again: see [`load_once`].
///
/// # Safety
/// As of [`row`].
#[inline(always)]
pub unsafe fn row_once(shared: u32, from: u64, bytes: u32, mbarrier: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("{{.reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0; .reg .pred p; .reg .b32 lane; elect.sync lane|p, 1;",
            "@p cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [{0}], [{1}], {2}, [{3}], policy;}}",
            in(reg32) shared, in(reg64) from, in(reg32) bytes, in(reg32) mbarrier, options(nostack))
    }
}

/// Shared to global, clipped to the tensor; completion by bulk group.
///
/// # Safety
/// Called by lane 0 alone. `map` is a tensor map in global memory, `shared` holds the box, made visible by a proxy fence.
#[inline(always)]
pub unsafe fn store(map: u64, col: i32, row: i32, plane: i32, shared: u32) {
    super::delay::delay();
    // SAFETY: the caller promises the operands.
    unsafe {
        asm!("{{.reg .pred p; .reg .b32 lane; elect.sync lane|p, 1; @p cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [{0}, {{{1}, {2}, {3}}}], [{4}];}}",
            in(reg64) map, in(reg32) col, in(reg32) row, in(reg32) plane, in(reg32) shared, options(nostack))
    }
}

/// Closes this thread's bulk group (PTX ISA §9.7.9.25.3.1).
#[inline(always)]
pub fn commit() {
    // SAFETY: no operands.
    unsafe { asm!("cp.async.bulk.commit_group;", options(nostack)) }
}

/// All but the `PENDING` newest groups have been read from shared memory: its space may be reused. Says nothing about global memory.
#[inline(always)]
pub fn wait_read<const PENDING: u32>() {
    // SAFETY: no operands but a constant.
    unsafe { asm!("cp.async.bulk.wait_group.read {0};", const PENDING, options(nostack)) }
}

/// All groups are complete: their writes to global memory are performed.
#[inline(always)]
pub fn wait_all() {
    // SAFETY: no operands.
    unsafe { asm!("cp.async.bulk.wait_group 0;", options(nostack)) }
}
