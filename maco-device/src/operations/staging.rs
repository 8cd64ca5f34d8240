//! The epilogue's staging memory: which chunk is in which buffer.

use crate::shared_memory::CHUNKS;

/// The buffer of the `n`-th chunk of warpgroup `group`.
#[inline(always)]
pub fn buffer(group: u32, n: u32) -> u32 {
    group * (CHUNKS / 2) + n % (CHUNKS / 2)
}

/// The parity of the `n`-th chunk's phases.
#[inline(always)]
pub fn parity(n: u32) -> u32 {
    (n / (CHUNKS / 2)) & 1
}
