//! The epilogue's staging memory: which chunk is in which buffer, and what of a tile is in a chunk.

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

/// Where warpgroup `group` stores what of its columns begins with `col`, of an `I` × `J` tile: row and column from the tile's origin.
///
/// 128 rows: each warpgroup has 64 of them; 64 rows: each has half of the columns.
#[inline(always)]
pub fn place<const I: usize, const J: usize>(group: u32, col: u32) -> (i32, i32) {
    if I == 128 { ((group * 64) as i32, col as i32) } else { (0, (group * (J as u32 / 2) + col) as i32) }
}

/// Columns of the tile that one warpgroup has.
pub const fn columns(i: usize, j: usize) -> usize {
    if i == 128 { j } else { j / 2 }
}
