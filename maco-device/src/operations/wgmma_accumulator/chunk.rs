//! Chunks of a sum: through the epilogue, packed, and into a staging buffer.

use super::partial_sum::Columns;
use super::sum::Sum;
use crate::data::element::{MmaElement, MmaFormat, pack, unpacked};
use crate::data::epilogue::{Anchor, Epilogue, NO_AXIS, Source, inside};
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::data::tile_shape::TileShape;
use crate::ptx::{matrix, memory, special, warp};
use maco_abi as abi;

/// This thread's part of 64 columns, packed in pairs, or of 32 columns of `f32`; as `stmatrix` takes them.
pub type Chunk = [u32; 16];

/// No chunk.
#[inline(always)]
pub fn empty() -> Chunk {
    // SAFETY: all bits zero is 0u32; an array literal would be a loop over local memory.
    unsafe { core::mem::zeroed() }
}

/// Two chunks that wait.
pub struct Pending([u32; 32]);

impl Pending {
    #[inline(always)]
    pub fn new() -> Pending {
        // SAFETY: all bits zero is 0u32; an array literal would be a loop over local memory.
        Pending(unsafe { core::mem::zeroed() })
    }

    /// The first and the second one.
    #[inline(always)]
    pub fn of(a: Chunk, b: Chunk) -> Pending {
        Pending([
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], //
            b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15],
        ])
    }

    /// The one that waits longest.
    #[inline(always)]
    pub fn first(&self) -> Chunk {
        let p = &self.0;
        [p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15]]
    }

    /// The other one comes first now. Moved, since a chunk chosen by its number would take 16 registers more, where all are taken.
    #[inline(always)]
    pub fn next(&mut self) {
        let p = &self.0;
        let other = [p[16], p[17], p[18], p[19], p[20], p[21], p[22], p[23], p[24], p[25], p[26], p[27], p[28], p[29], p[30], p[31]];
        *self = Pending::of(other, other);
    }
}

/// Four elements of `f32` of eight columns, as the tensor cores leave them (lane `4g + t`: columns 2t and 2t + 1 of row g, then of row g + 8),
/// in the order in which `stmatrix` takes 16 bytes of a row: column t of both rows, then column t + 4 of both.
#[inline(always)]
fn spread(sum: [f32; 4], thread: u32) -> [u32; 4] {
    let high = thread & 2 != 0;
    // In each of two rounds every lane sends one of its two columns, and takes one of its two: first from lane 0, 2, 1 or 3 of the four.
    let from = thread & 28 | (thread & 1) << 1 | (thread & 2) >> 1;
    let row = |even: f32, odd: f32| {
        let (even, odd) = (even.to_bits(), odd.to_bits());
        let first = warp::broadcast(if high { odd } else { even }, from);
        let second = warp::broadcast(if high { even } else { odd }, from ^ 2);
        if thread & 1 == 0 { (first, second) } else { (second, first) }
    };
    let (upper, lower) = (row(sum[0], sum[1]), row(sum[2], sum[3]));
    [upper.0, lower.0, upper.1, lower.1]
}

/// This thread's part of 32 columns of a result, or of 16 if `HALF`: of each eight of them, two side by side in row `row`, and two in row
/// `row + 8`.
struct Lanes<const HALF: bool> {
    task: Task,
    anchor: Anchor,
    plane: i32,
    row: i32,
    /// The first of its columns.
    col: i32,
}

impl<const HALF: bool> Lanes<HALF> {
    /// The columns from column `col` of this warpgroup's on, of the tile that `task` makes. The tile's place is read
    /// anew: three registers more would not last through its sum.
    #[inline(always)]
    fn new<T: Epilogue>(task: Task, shape: TileShape, col: u32, thread: u32) -> Lanes<HALF> {
        // Asked anew for each chunk: what follows from it would be in registers beside the sum.
        let thread = special::opaque(thread);
        let at = |axis: usize| if axis == NO_AXIS { 0 } else { task.coord(axis) };
        let [plane, down, across] = T::ANCHOR.axes;
        let (row, col) = shape.position(thread / 128, col);
        let row = at(down) * shape.rows() as i32 + row + (thread % 128 / 32 * 16 + thread % 32 / 4) as i32;
        let col = at(across) * shape.columns() as i32 + col + (thread % 4 * 2) as i32;
        Lanes { task, anchor: T::ANCHOR, plane: at(plane), row, col }
    }
}

impl<const HALF: bool> Source for Lanes<HALF> {
    /// As [`pack`] makes them; of `f32`, one in a word. Those of the other half are no registers.
    type Elements = [u32; 16];

    #[inline(always)]
    fn tensor<O: MmaElement>(&self, n: usize) -> [u32; 16] {
        let tile: Tile<O, 0, 0> = self.task.tile(self.anchor.tensors + n, self.plane, 0, 0);
        let rows = tile.view.rows;
        let (upper, lower) = (tile.pointer(inside(self.row, rows), 0), tile.pointer(inside(self.row + 8, rows), 0));
        let (cols, step) = (tile.view.cols, tile.view.col_stride as usize);
        let at = |col: i32| inside(self.col + col, cols) as usize * step;
        // SAFETY: (of all) inside a live tensor, which nobody writes while the task runs.
        let one = |from: *mut O, col: i32| unsafe {
            if O::BYTES == 2 {
                memory::load_half(from.wrapping_add(at(col)).cast())
            } else {
                memory::load(from.wrapping_add(at(col)).cast())
            }
        };
        // Whether two columns that belong together are one access.
        let pairs = {
            let v = &tile.view;
            step == 1 && v.base & u64::from(2 * O::BYTES - 1) == 0 && (v.cols | v.row_stride | v.plane_stride) & 1 == 0
        };
        let mut words = [0; 16];
        macro_rules! pairs {
            ($get:expr, $($word:literal $col:literal),*) => {$(
                words[$word] = $get(upper, $col);
                words[$word + 1] = $get(lower, $col);
            )*};
        }
        // The last pair, and not the last column.
        let pair = |col: i32| inside(self.col + col, cols - 1) as usize;
        if O::BYTES != 2 {
            macro_rules! fours {
                ($two:expr, $($word:literal $col:literal),*) => {$(
                    [words[$word], words[$word + 1]] = $two(upper, $col);
                    [words[$word + 2], words[$word + 3]] = $two(lower, $col);
                )*};
            }
            if pairs {
                // SAFETY: as above; 8 bytes at such a boundary, since it begins at an even column.
                let two = |from: *mut O, col: i32| unsafe { memory::load2(from.wrapping_add(pair(col)).cast()) };
                fours!(two, 0 0, 4 8);
                if !HALF {
                    fours!(two, 8 16, 12 24);
                }
            } else {
                let two = |from: *mut O, col: i32| [one(from, col), one(from, col + 1)];
                fours!(two, 0 0, 4 8);
                if !HALF {
                    fours!(two, 8 16, 12 24);
                }
            }
        } else if pairs {
            // SAFETY: as above; a word, since it begins at an even column.
            let two = |from: *mut O, col: i32| unsafe { memory::load(from.wrapping_add(pair(col)).cast()) };
            pairs!(two, 0 0, 2 8);
            if !HALF {
                pairs!(two, 4 16, 6 24);
            }
        } else {
            let two = |from: *mut O, col: i32| one(from, col) | one(from, col + 1) << 16;
            pairs!(two, 0 0, 2 8);
            if !HALF {
                pairs!(two, 4 16, 6 24);
            }
        }
        words
    }

    #[inline(always)]
    fn element<O: MmaElement>(elements: &[u32; 16], at: usize) -> f32 {
        if O::BYTES == 2 { unpacked::<O>(elements[at / 2], at % 2 == 1) } else { unpacked::<O>(elements[at], false) }
    }

    #[inline(always)]
    fn scalar(&self, n: usize) -> f32 {
        self.task.scalar(self.anchor.scalars + n)
    }
}

/// Chunk `N` of `R` registers, after the epilogue `T`; the `number`-th of this warpgroup's part of the tile that `task` makes. If there is none
/// nobody asks, and any registers do. Operands are read beside 32 columns at a time, or 16 if their words are more than there are registers for beside
/// a sum of 256 columns: ptxas says how many.
#[inline(always)]
fn packed<T: Epilogue, E: MmaElement, const N: usize, const R: usize>(
    sum: &[f32; R],
    number: u32,
    shape: TileShape,
    task: Task,
    thread: u32,
) -> Chunk {
    const MOST: [u32; 2] = [24, 32];
    if T::WORDS > MOST[usize::from(E::BYTES > 2)] {
        packed_by::<T, E, N, R, true>(sum, number, shape, task, thread)
    } else {
        packed_by::<T, E, N, R, false>(sum, number, shape, task, thread)
    }
}

#[inline(always)]
fn packed_by<T: Epilogue, E: MmaElement, const N: usize, const R: usize, const HALF: bool>(
    sum: &[f32; R],
    number: u32,
    shape: TileShape,
    task: Task,
    thread: u32,
) -> Chunk {
    let operands = |col: u32| T::read(&Lanes::<HALF>::new::<T>(task, shape, number * abi::columns(E::BYTES) + col, thread));
    macro_rules! at {
        ($operands:ident, $n:expr) => {
            T::apply::<Lanes<HALF>>(
                sum[const { (N * 16 * (4 / E::BYTES as usize) + $n) % R }],
                &$operands,
                const { $n % if HALF { 8 } else { 16 } },
            )
        };
    }
    macro_rules! pairs {
        ($operands:ident, $($at:literal)*) => { [$(pack::<E>(at!($operands, $at), at!($operands, $at + 1))),*] };
    }
    macro_rules! four {
        ($operands:ident, $at:literal) => {
            spread([at!($operands, $at), at!($operands, $at + 1), at!($operands, $at + 2), at!($operands, $at + 3)], thread)
        };
    }
    let first = operands(0);
    if E::MMA_FORMAT == MmaFormat::Tf32 {
        let (a, b) = (four!(first, 0), four!(first, 4));
        let second = if HALF { operands(16) } else { first };
        let (c, d) = (four!(second, 8), four!(second, 12));
        return [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3]];
    }
    let a = pairs!(first, 0 2 4 6);
    let second = if HALF { operands(16) } else { first };
    let b = pairs!(second, 8 10 12 14);
    let third = operands(32);
    let c = pairs!(third, 16 18 20 22);
    let fourth = if HALF { operands(48) } else { third };
    let d = pairs!(fourth, 24 26 28 30);
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3], c[0], c[1], c[2], c[3], d[0], d[1], d[2], d[3]]
}

/// Chunk `N` of this warpgroup's columns. By whole converged warps.
#[inline(always)]
pub fn chunk<T: Epilogue, E: MmaElement, const N: usize>(sum: &Sum, shape: TileShape, task: Task, thread: u32) -> Chunk {
    packed::<T, E, N, 128>(sum, N as u32, shape, task, thread)
}

/// A sum whose chunks come to the front one after another, so that one code is for all of them: a register has no number that could be chosen.
pub struct Turning(Sum);

impl Turning {
    #[inline(always)]
    pub fn of(sum: &Sum) -> Turning {
        Turning(*sum)
    }

    /// [`chunk`] of the one at the front, the `number`-th.
    #[inline(always)]
    pub fn front<T: Epilogue, E: MmaElement>(&self, number: u32, shape: TileShape, task: Task, thread: u32) -> Chunk {
        packed::<T, E, 0, 128>(&self.0, number, shape, task, thread)
    }

    /// The next 64 columns come to the front, and what was made of those before may wait behind the last ones.
    #[inline(always)]
    pub fn turn(&mut self, words: Chunk) {
        let sum = &mut self.0;
        macro_rules! columns {
            ($($at:literal)*) => {$(
                sum[$at] = sum[$at + 32];
                sum[$at + 32] = sum[$at + 64];
                sum[$at + 64] = sum[$at + 96];
            )*};
        }
        columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
        macro_rules! words {
            ($($at:literal)*) => {$( sum[$at + 96] = f32::from_bits(words[$at]); )*};
        }
        words!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }

    /// What waits there.
    #[inline(always)]
    pub fn behind(&self) -> Chunk {
        macro_rules! words {
            ($($at:literal)*) => { [$( self.0[$at + 96].to_bits() ),*] };
        }
        words!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    }
}

/// Chunk `N` of 64 columns of a sum that was added up, which begin with chunk `first` of this warpgroup's part. By whole converged warps.
#[inline(always)]
pub fn whole<T: Epilogue, E: MmaElement, const N: usize>(sum: &Columns, first: u32, shape: TileShape, task: Task, thread: u32) -> Chunk {
    packed::<T, E, N, 32>(sum, first + N as u32, shape, task, thread)
}

/// Writes this warp's 16 rows of a chunk to the swizzled box at `chunk`.
///
/// # Safety
/// Called by consumer thread `thread`, its whole warp converged; the box is its warpgroup's.
#[inline(always)]
pub unsafe fn write(chunk: u32, thread: u32, w: Chunk) {
    let lane = thread % 32;
    // Lane 8m + r holds the address of row r of matrix m: matrices 0, 1 are rows 0–7, 8–15 of one block of 8 columns, 2, 3 of the next.
    let row = thread % 128 / 32 * 16 + (lane / 8 % 2) * 8 + lane % 8;
    let base = chunk + row * 128;
    // 128-byte swizzle: the 16-byte block's number is xored with the row's number modulo 8.
    let block = |j: u32| base + ((j * 2 + lane / 16) ^ (lane % 8)) * 16;
    // SAFETY: 16-byte aligned addresses in the box.
    unsafe {
        matrix::store_x4(block(0), [w[0], w[1], w[2], w[3]]);
        matrix::store_x4(block(1), [w[4], w[5], w[6], w[7]]);
        matrix::store_x4(block(2), [w[8], w[9], w[10], w[11]]);
        matrix::store_x4(block(3), [w[12], w[13], w[14], w[15]]);
    }
}
