//! Parts of a split-K sum: kept in device memory, and added up chunk by chunk.

use super::sum::Sum;
use crate::data::split_k::OwnedChunks;
use crate::data::tile_shape::TileShape;
use crate::ptx::memory;
use maco_abi::CONSUMERS;

/// This thread's part of 64 columns of a sum that is added up from parts.
pub type Columns = [f32; 32];

/// Writes this thread's part of `sum`, chunk after chunk from `at` on, but none that is `owned`: 16 bytes of every thread lie together, so that a
/// warp writes whole lines.
///
/// # Safety
/// `at` is the memory of a partial sum of a tile of this shape.
#[inline(always)]
pub unsafe fn keep(sum: &Sum, shape: TileShape, at: *mut u32, owned: OwnedChunks, thread: u32) {
    let at = at.wrapping_add(4 * thread as usize);
    macro_rules! put {
        ($chunk:literal: $($quad:literal)*) => {
            if !owned.has($chunk) {
                // SAFETY: inside the partial sum, and nobody else's.
                $(unsafe {
                    let words = [
                        sum[4 * $quad].to_bits(), sum[4 * $quad + 1].to_bits(), sum[4 * $quad + 2].to_bits(), sum[4 * $quad + 3].to_bits(),
                    ];
                    memory::store4(at.wrapping_add(4 * CONSUMERS as usize * $quad), words);
                })*
            }
        };
    }
    put!(0: 0 1 2 3 4 5 6 7);
    if shape.own_columns() > 64 {
        put!(1: 8 9 10 11 12 13 14 15);
    }
    if shape.own_columns() > 128 {
        put!(2: 16 17 18 19 20 21 22 23);
        put!(3: 24 25 26 27 28 29 30 31);
    }
}

/// Writes this thread's part of one chunk.
///
/// # Safety
/// `at` is the memory of a chunk of a partial sum.
#[inline(always)]
pub unsafe fn keep_columns(sum: &Columns, at: *mut u32, thread: u32) {
    let at = at.wrapping_add(4 * thread as usize);
    macro_rules! put {
        ($($quad:literal)*) => {{
            // SAFETY: inside the chunk, and nobody else's.
            $(unsafe {
                let words = [
                    sum[4 * $quad].to_bits(), sum[4 * $quad + 1].to_bits(), sum[4 * $quad + 2].to_bits(), sum[4 * $quad + 3].to_bits(),
                ];
                memory::store4(at.wrapping_add(4 * CONSUMERS as usize * $quad), words);
            })*
        }};
    }
    put!(0 1 2 3 4 5 6 7);
}

/// Chunk `first` of a sum, and the one behind it, which is another one only if both are in the same half of four.
#[inline(always)]
pub fn owned(sum: &Sum, shape: TileShape, first: u32) -> (Columns, Columns) {
    // SAFETY: all bits zero is 0.0; as in `Wgmma::zeros`.
    let (mut lower, mut upper): (Columns, Columns) = unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    let (odd, high) = (first & 1 == 1, first & 2 == 2);
    macro_rules! each {
        ($($at:literal)*) => {$(
            if shape.own_columns() > 128 {
                upper[$at] = if high { sum[96 + $at] } else { sum[32 + $at] };
                let low = if high { sum[64 + $at] } else { sum[$at] };
                lower[$at] = if odd { upper[$at] } else { low };
            } else if shape.own_columns() > 64 {
                lower[$at] = if odd { sum[32 + $at] } else { sum[$at] };
            } else {
                lower[$at] = sum[$at];
            }
        )*};
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    (lower, upper)
}

/// No part yet: what -0.0 is added to keeps its sign, as the owner's part does that nothing is added to.
#[inline(always)]
pub fn nothing() -> Columns {
    // SAFETY: all bits zero is 0.0; an array literal would be a loop over local memory.
    let mut none: Columns = unsafe { core::mem::zeroed() };
    macro_rules! each {
        ($($at:literal)*) => {$( none[$at] = -0.0; )*};
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    none
}

/// Chunks that [`add`] has on their way at the same time. With four, GEMMs spill beside a function that takes most registers.
pub const ADDED: u32 = 2;

/// Adds this thread's part of chunks of partial sums, one after the other: of those that `at` has from 0 on, `count` or [`ADDED`].
///
/// # Safety
/// Chunks that [`keep`] has written, and what it has written is visible.
#[inline(always)]
pub unsafe fn add(sum: &mut Columns, at: impl Fn(u32) -> *const u32, count: u32, thread: u32) {
    type Quads = [[u32; 4]; 8];
    macro_rules! each {
        ($($quad:literal)*) => {{
            let get = |n: u32| -> Quads {
                if n < count {
                    let at = at(n).wrapping_add(4 * thread as usize);
                    // SAFETY: inside the chunk.
                    unsafe { [$(memory::load4(at.wrapping_add(4 * CONSUMERS as usize * $quad))),*] }
                } else {
                    // -0.0 is added, which changes nothing.
                    const NOTHING: [u32; 4] = [1 << 31; 4];
                    [$({ let _ = $quad; NOTHING }),*]
                }
            };
            let mut put = |quads: Quads| {
                $(
                    sum[4 * $quad] += f32::from_bits(quads[$quad][0]);
                    sum[4 * $quad + 1] += f32::from_bits(quads[$quad][1]);
                    sum[4 * $quad + 2] += f32::from_bits(quads[$quad][2]);
                    sum[4 * $quad + 3] += f32::from_bits(quads[$quad][3]);
                )*
            };
            // All loads first: they are on their way at the same time.
            let (first, second) = (get(0), get(1));
            put(first);
            put(second);
        }};
    }
    each!(0 1 2 3 4 5 6 7);
}
