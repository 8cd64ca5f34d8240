//! Bodies that tasks and plain kernels share, so that every system does the same work.
//!
//! [`THREADS`] threads run each; whoever calls them has waited for what they read.

use maco_device::ptx::memory::{load, load4, store, store4};
use maco_device::ptx::special;

use super::boundary::{CHUNK, mix};
use super::plain::{PARTS, THREADS};
use super::ptx;

/// x += 1: every thread reads, one writes.
///
/// # Safety
/// `x` is a word of global memory; `sync` is a barrier among the threads, which are all here.
#[inline(always)]
pub unsafe fn bump(thread: u32, x: *mut u32, sync: impl Fn()) {
    // SAFETY: passed on from the caller.
    unsafe {
        let value = load(x);
        sync();
        if thread == 0 {
            store(x, value.wrapping_add(1));
        }
    }
}

/// Four words, each one more.
///
/// # Safety
/// `x` is 16 bytes of global memory at a 16-byte boundary that only this thread uses now.
#[inline(always)]
pub unsafe fn relay(x: *mut u32) {
    // SAFETY: passed on from the caller.
    unsafe { store4(x, load4(x).map(|word| word.wrapping_add(1))) }
}

/// Spins for the cycles that are written there.
///
/// # Safety
/// Both are words of global memory.
#[inline(always)]
pub unsafe fn busy(thread: u32, cycles: *const u32, done: *mut u32) {
    let begin = special::clock();
    // SAFETY: passed on from the caller.
    unsafe {
        let cycles = load(cycles);
        while special::clock().wrapping_sub(begin) < u64::from(cycles) {}
        if thread == 0 {
            store(done, cycles);
        }
    }
}

/// A thread's part of a row: 16 bytes of each chunk.
#[inline(always)]
unsafe fn at(row: *const u32, chunk: u32, thread: u32) -> *const u32 {
    row.wrapping_add((chunk * CHUNK + thread * 4) as usize)
}

const _: () = assert!(CHUNK == THREADS * 4);

/// An array of one expression for every number: a loop would keep the array in local memory.
macro_rules! each {
    (|$n:ident| $value:expr; $($number:literal)*) => {
        [$({
            let $n = $number;
            $value
        }),*]
    };
}

/// y = mix(words + add), a row of eight chunks.
#[inline(always)]
unsafe fn finish(thread: u32, words: [[u32; 4]; 8], add: u32, y: *mut u32, salt: u32) {
    let store = |chunk: usize| {
        let mixed = words[chunk].map(|word| mix(word.wrapping_add(add), salt));
        // SAFETY: the row has eight chunks.
        unsafe { store4(at(y, chunk as u32, thread).cast_mut(), mixed) };
    };
    each!(|n| store(n); 0 1 2 3 4 5 6 7);
}

/// y = mix(x), a chunk from each of the rows in turn; all eight loads are in flight together.
///
/// # Safety
/// Rows of [`super::plain::TILE`] words in global memory, at 16-byte boundaries.
#[inline(always)]
pub unsafe fn gather<const N: usize>(thread: u32, rows: [*const u32; N], y: *mut u32, salt: u32) {
    // SAFETY: passed on from the caller.
    unsafe {
        let words = each!(|n| load4(at(rows[n % N], n as u32, thread)); 0 1 2 3 4 5 6 7);
        finish(thread, words, 0, y, salt);
    }
}

/// The sum of one word of every tile, by every warp for itself.
///
/// # Safety
/// `parts` are `count` words of global memory, a multiple of 4 and at most [`PARTS`], at a 16-byte boundary.
#[inline(always)]
unsafe fn sum(thread: u32, parts: *const u32, count: u32) -> u32 {
    let position = |n: u32| thread % 32 * 4 + n * 128;
    // SAFETY: passed on from the caller; positions after the end become the last one, so that all loads go out without a branch.
    let words = unsafe { each!(|n| load4(parts.wrapping_add(position(n).min(count - 4) as usize)); 0 1 2 3) };
    const { assert!(PARTS == 4 * 128) };
    let inside = |n: usize| if position(n as u32) < count { words[n] } else { [0; 4] };
    let total = |[a, b, c, d]: [u32; 4]| a.wrapping_add(b).wrapping_add(c).wrapping_add(d);
    ptx::warp_sum(total(each!(|n| total(inside(n)); 0 1 2 3)))
}

/// The first word of the row stands for it.
#[inline(always)]
unsafe fn stand_in(thread: u32, first: u32, add: u32, part: *mut u32, salt: u32) {
    if thread == 0 {
        // SAFETY: `part` is a word of global memory.
        unsafe { store(part, mix(first.wrapping_add(add), salt)) };
    }
}

/// y = mix(x + sum(parts)).
///
/// # Safety
/// As for [`gather`]; `parts` and `count` are such that PARTS holds them: a multiple of 4, at a 16-byte boundary.
#[inline(always)]
pub unsafe fn all(thread: u32, x: *const u32, parts: *const u32, count: u32, y: *mut u32, part: *mut u32, salt: u32) {
    // SAFETY: passed on from the caller.
    unsafe {
        let words = each!(|n| load4(at(x, n, thread)); 0 1 2 3 4 5 6 7);
        let add = sum(thread, parts, count);
        stand_in(thread, words[0][0], add, part, salt);
        finish(thread, words, add, y, salt);
    }
}

/// A thread's part of a row of weights, which may be loaded before anything has been waited for.
///
/// # Safety
/// `w` is a row of six chunks in global memory, at a 16-byte boundary.
#[inline(always)]
pub unsafe fn load_weights(thread: u32, w: *const u32) -> [[u32; 4]; 6] {
    // SAFETY: passed on from the caller.
    unsafe { each!(|n| load4(at(w, n, thread)); 0 1 2 3 4 5) }
}

/// y = mix((two chunks of x, w) + sum(parts)).
///
/// # Safety
/// As for [`all`].
#[inline(always)]
pub unsafe fn weights(thread: u32, w: [[u32; 4]; 6], x: *const u32, parts: *const u32, count: u32, y: *mut u32, part: *mut u32, salt: u32) {
    // SAFETY: passed on from the caller.
    unsafe {
        let x = [load4(at(x, 0, thread)), load4(at(x, 1, thread))];
        let add = sum(thread, parts, count);
        stand_in(thread, x[0][0], add, part, salt);
        finish(thread, [x[0], x[1], w[0], w[1], w[2], w[3], w[4], w[5]], add, y, salt);
    }
}
