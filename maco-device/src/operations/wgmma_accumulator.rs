//! A consumer's accumulator in registers, and the WGMMA instructions that add to it (PTX ISA §9.7.16 `wgmma`).
//!
//! When to multiply, to stage and to release a stage does not belong here. All code is unrolled: an index that is no literal would keep an array in local memory.

use crate::data::element::{MmaElement, MmaFormat, pack, unpacked};
use crate::data::epilogue::{Anchor, Epilogue, NO_AXIS, Scalars, Source, inside};
use crate::data::split_k::OwnedChunks;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::data::tile_shape::TileShape;
use crate::math::tf32;
use crate::ptx::{barrier, matrix, memory, special, warp, wgmma};
use crate::simt::Simt;
use crate::sync::gate::Gate;
use maco_abi::{self as abi, BOX, CONSUMERS, ROW_BYTES};

/// This thread's part of a sum.
pub type Sum = [f32; 128];

/// This thread's part of 64 columns, packed in pairs, or of 32 columns of `f32`; as `stmatrix` takes them.
pub type Chunk = [u32; 16];

/// Rows, and columns, of a block that [`turn`] transposes.
pub const BLOCK: u32 = 32;

/// Runs a SIMT body as consumer thread `thread`.
#[inline(always)]
pub fn simt<const SHARED: usize>(thread: u32, gate: &mut Gate, scratch: u32, f: impl FnOnce(&mut Simt<'_, SHARED>)) {
    f(&mut Simt { thread, threads: CONSUMERS, gate: Some(gate), scratch });
}

/// Whether any consumer thread has seen the scratch of a body that begins. All meet here, so that they agree, and none is in another body.
#[inline(always)]
pub fn agree(seen: bool) -> bool {
    barrier::any_user(seen)
}

/// The tensor cores of this thread's warpgroup.
pub struct Wgmma;

impl Wgmma {
    #[inline(always)]
    pub fn new() -> Wgmma {
        Wgmma
    }

    /// All zero.
    #[inline(always)]
    pub fn zeros<const I: usize, const J: usize>(&self) -> Sum {
        // Not `[0.0; 128]`: that is a loop, which keeps the array in local memory.
        // SAFETY: all bits zero is 0.0.
        unsafe { core::mem::zeroed() }
    }

    /// Starts `sum += a · bᵀ` over one step; `along` says for each operand whether the contraction runs along
    /// its rows. Those of tf32 have been turned.
    ///
    /// # Safety
    /// Run by a converged warpgroup. `a` and `b` are swizzled boxes in shared memory that stay until the group is complete; `sum` is
    /// not touched until then.
    #[inline(always)]
    pub unsafe fn multiply<E: MmaElement, const I: usize, const J: usize>(&mut self, sum: &mut Sum, a: u32, b: u32, along: (bool, bool)) {
        const STRIDE: u32 = 1024;
        let leading = BOX * ROW_BYTES;
        let da = wgmma::Descriptor::new(a, leading, STRIDE);
        let db = wgmma::Descriptor::new(b, leading, STRIDE);
        wgmma::fence();
        macro_rules! steps {
            ($n:literal, $a:literal, $b:literal) => {
                if E::MMA_FORMAT == MmaFormat::Bf16 { steps!(@typed $n, true, $a, $b) } else { steps!(@typed $n, false, $a, $b) }
            };
            ($n:literal) => {{
                // SAFETY: passed on from the caller. A k8 step is 32 bytes.
                unsafe {
                    wgmma::step_tf32::<$n>(sum, da, db);
                    wgmma::step_tf32::<$n>(sum, da.after(32), db.after(32));
                    wgmma::step_tf32::<$n>(sum, da.after(64), db.after(64));
                    wgmma::step_tf32::<$n>(sum, da.after(96), db.after(96));
                }
            }};
            (@typed $n:literal, $bf16:literal, $a:literal, $b:literal) => {{
                // A k16 step is 32 bytes along the contraction, or 16 rows of 128 bytes across it.
                let (sa, sb) = (if $a { 2048 } else { 32 }, if $b { 2048 } else { 32 });
                // SAFETY: passed on from the caller.
                unsafe {
                    wgmma::step::<$n, $bf16, $a, $b>(sum, da, db);
                    wgmma::step::<$n, $bf16, $a, $b>(sum, da.after(sa), db.after(sb));
                    wgmma::step::<$n, $bf16, $a, $b>(sum, da.after(2 * sa), db.after(2 * sb));
                    wgmma::step::<$n, $bf16, $a, $b>(sum, da.after(3 * sa), db.after(3 * sb));
                }
            }};
        }
        macro_rules! majors {
            ($n:literal) => {
                match along {
                    _ if E::MMA_FORMAT == MmaFormat::Tf32 => steps!($n),
                    (false, false) => steps!($n, false, false),
                    (false, true) => steps!($n, false, true),
                    (true, false) => steps!($n, true, false),
                    (true, true) => steps!($n, true, true),
                }
            };
        }
        match TileShape::of(I, J).own_columns() {
            64 => majors!(64),
            128 => majors!(128),
            _ => majors!(256),
        }
    }

    /// Closes the group of what was started.
    #[inline(always)]
    pub fn commit(&mut self) {
        wgmma::commit();
    }

    /// All groups but the newest are complete.
    #[inline(always)]
    pub fn wait_older(&mut self) {
        wgmma::wait::<1>();
    }

    /// All groups are complete; more will be added to their sums.
    #[inline(always)]
    pub fn wait_newest(&mut self) {
        wgmma::wait::<0>();
    }

    /// All groups are complete.
    #[inline(always)]
    pub fn wait_all<const I: usize, const J: usize>(&mut self, sum: &mut Sum) {
        wgmma::wait::<0>();
        match TileShape::of(I, J).own_columns() {
            64 => wgmma::settle::<64>(sum),
            128 => wgmma::settle::<128>(sum),
            _ => wgmma::settle::<256>(sum),
        }
    }
}

/// A sum of any shape, all zero. Opaque: its registers are written here and nowhere else before products are added, whatever the tile's shape.
#[inline(always)]
pub fn begin() -> Sum {
    // SAFETY: all bits zero is 0.0; as in `Wgmma::zeros`.
    let mut sum: Sum = unsafe { core::mem::zeroed() };
    wgmma::begin(&mut sum);
    sum
}

/// The registers of a sum that an `I` × `J` tile has, into those of one of any shape.
#[inline(always)]
pub fn keep_registers<const I: usize, const J: usize>(sum: &mut Sum, own: &Sum) {
    macro_rules! each {
        ($($at:literal)*) => {$( sum[$at] = own[$at]; )*};
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    if TileShape::of(I, J).own_columns() > 64 {
        each!(32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    }
    if TileShape::of(I, J).own_columns() > 128 {
        *sum = *own;
    }
}

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

/// `f` of two sums, element by element. Up to 128 columns: of more, two do not fit the registers.
#[inline(always)]
pub fn combine<const I: usize, const J: usize>(a: &Sum, b: &Sum, f: impl Fn(f32, f32) -> f32) -> Sum {
    const { assert!(TileShape::of(I, J).own_columns() <= 128) };
    // SAFETY: all bits zero is 0.0; as in `Wgmma::zeros`.
    let mut sum: Sum = unsafe { core::mem::zeroed() };
    macro_rules! each {
        ($($at:literal)*) => {$( sum[$at] = f(a[$at], b[$at]); )*};
    }
    each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    if TileShape::of(I, J).own_columns() > 64 {
        each!(32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63);
    }
    sum
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
        let at = |axis: usize| if axis == NO_AXIS { 0 } else { task.coord(axis) };
        let [plane, down, across] = T::ANCHOR.axes;
        let (row, col) = shape.place(thread / 128, col);
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

/// Chunks that [`add`] has on their way at the same time. With four, products spill beside a function that takes most registers.
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

/// Applies the elementwise prologue of operand A to `rows` rows of 128 bytes at `at`, with the 128-byte swizzle, in place. Rows are rows of the operand, and
/// columns are the contraction's; `across`: the other way round, 64 columns of the operand after another. The contraction goes on for `left` elements.
///
/// # Safety
/// Called by consumer thread `thread`, its whole warp converged; the rows are the consumers', and nobody else's until they meet.
#[inline(always)]
pub unsafe fn map_operand_a<T: Epilogue, E: MmaElement>(at: u32, rows: u32, across: bool, left: i32, task: Task, thread: u32) {
    const ROWS: u32 = CONSUMERS / 8;
    const { assert!(64u32.is_multiple_of(ROWS) && ROWS.is_multiple_of(8)) };
    let (row, block) = (thread / 8, thread % 8);
    let mut from = at + row * ROW_BYTES + (block ^ row % 8) * 16;
    let scalars = Scalars::of::<T>(task);
    let f = T::first(&scalars);
    // Of this thread's first element; of rows, from one turn to the next 32 further, and behind 64 they begin again.
    let mut k = if across { row } else { block * (16 / E::BYTES) } as i32;
    let mut n = 0;
    while n < rows / ROWS {
        // SAFETY: 16 bytes of a row, at a 16-byte boundary, of this thread alone.
        let [a, b, c, d] = unsafe { memory::load_shared4(from) };
        let one = |word: u32, high: bool, k: i32| {
            let value = unpacked::<E>(word, high);
            if k < left { f(value) } else { value }
        };
        let word = |word: u32, n: i32| {
            if E::MMA_FORMAT == MmaFormat::Tf32 {
                return tf32(one(word, false, if across { k } else { k + n })).to_bits();
            }
            let (low, high) = if across { (k, k) } else { (k + 2 * n, k + 2 * n + 1) };
            pack::<E>(one(word, false, low), one(word, true, high))
        };
        // SAFETY: as above.
        unsafe { memory::store_shared4(from, [word(a, 0), word(b, 1), word(c, 2), word(d, 3)]) };
        from += ROWS * ROW_BYTES;
        if across {
            k = (k + ROWS as i32) % BOX as i32;
        }
        // Opaque, or each turn would be written out, with registers of its own.
        n = special::opaque(n + 1);
    }
}

/// Transposes `blocks` blocks of 32 × 32 elements of `f32` in place, which lie at `at` with the 128-byte swizzle: rows of what is kept
/// become rows of 32 steps of the contraction. Each warp of the consumers has every eighth.
///
/// # Safety
/// Called by consumer thread `thread`, its whole warp converged; the blocks are the consumers', and nobody else's until they meet.
#[inline(always)]
pub unsafe fn turn(at: u32, blocks: u32, thread: u32) {
    let (own, lane) = (thread % 32 / 8, thread % 8);
    // Squares of eight by eight, four at a time, since a lane has few registers beside its sums: those that stay, then two pairs that
    // change places, three times. In each access the squares, and the rows of what is written, are on different banks. One loop over
    // blocks and rounds, whose length nobody knows: addresses of several would not fit the registers either.
    let mut n = thread / 32 * 4;
    while n < blocks * 4 {
        let base = at + n / 4 * (BLOCK * ROW_BYTES);
        let other = (own ^ n % 4) * 8 + lane;
        let (from, to) = (base + own * 8 * ROW_BYTES, base + other * ROW_BYTES);
        macro_rules! column {
            // SAFETY: words of the block.
            ($($k:literal)*) => { unsafe { [$(memory::load_shared(from + $k * ROW_BYTES + (other * 4 ^ $k * 16))),*] } };
        }
        let v = column!(0 1 2 3 4 5 6 7);
        warp::sync();
        // SAFETY: 16 bytes of the block each, at a 16-byte boundary; all lanes have read the squares.
        unsafe {
            memory::store_shared4(to + ((own * 2 ^ lane) * 16), [v[0], v[1], v[2], v[3]]);
            memory::store_shared4(to + ((own * 2 + 1 ^ lane) * 16), [v[4], v[5], v[6], v[7]]);
        }
        n += if n % 4 < 3 { 1 } else { CONSUMERS / 32 * 4 - 3 };
    }
}
