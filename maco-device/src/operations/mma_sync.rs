//! The main loop of a GEMV on `mma.sync` (PTX ISA §9.7.15.5 `mma`), for tiles that take as long as their weights take to load.
//!
//! The warps divide the columns of a stage (elements of K) among themselves, 32 at a time. Which of them a fragment's columns are does not matter as long as both
//! operands agree. So a lane takes eight that lie together, and each of its accesses has 16 bytes. All code is unrolled: an index that is no literal would keep an
//! array in local memory.
//!
//! The weights `w` are the instruction's operand A, of which a fragment has 16 rows. A lane's four words of one row are such a fragment as they come from shared
//! memory, without a move: even words are row `g`, odd ones row `g + 8`. So the even words of `x` give the first eight rows of one product, the odd ones the last
//! eight of another. The other halves are wasted; the tensor cores have the time.

use crate::data::element::{HalfElement, MmaFormat};
use crate::data::tile::Tile;
use crate::operations::row_stages;
use crate::ptx::{matrix, memory};

/// Sums that are made of each dot product: one per warp.
pub const PARTS: u32 = maco_abi::CONSUMERS / 32;

/// Eight elements.
type Eight = [u32; 4];

/// What a lane has of `x` beside two runs of a stage; or, if `x` has more than eight rows, of rows `g` and of rows `g + 8` beside one.
#[derive(Clone, Copy)]
pub struct Columns([[Eight; GROUPS as usize]; 2]);

/// This warp's part of the sums: of each block of 8 rows of `w`, or of every other group of columns if there is one only; of both blocks of 8 rows
/// of `x`; of even words, and of odd ones.
pub struct MmaSync<const I: usize, const J: usize>([[[[f32; 4]; 2]; 2]; 4]);

/// Groups of 32 columns of a run.
const GROUPS: u32 = 4;

/// Whether a warp has two runs of groups of a stage of `rows` rows, and not one.
const fn two_runs(rows: usize) -> bool {
    let groups = row_stages::columns(rows) / 32 / PARTS;
    assert!(groups == GROUPS || groups == 2 * GROUPS);
    groups > GROUPS
}

/// The first of this lane's eight columns of a stage, of group `group`.
#[inline(always)]
fn column(thread: u32, group: u32) -> u32 {
    (thread / 32 + group * PARTS) * 32 + thread % 4 * 8
}

/// Loads what belongs to the stage that begins with column `k`, or to as much of it as there is room for; zeros behind the last column. Nothing
/// here depends on what is loaded: whoever asks for it ahead does not wait for it.
///
/// # Safety
/// `x` is of a live tensor, [`Tile::streams`], and nobody writes its tile.
#[inline(always)]
pub unsafe fn columns<E: HalfElement, const I: usize, const J: usize>(x: Tile<E, I, 0>, k: u32, thread: u32) -> Columns {
    let second = if I > 8 { (8, 0) } else { (0, 1) };
    // SAFETY: (of both) passed on from the caller.
    let run = |(row, run)| unsafe { if run == 0 || two_runs(J) { load(x, row, k, run, thread) } else { [[0; 4]; GROUPS as usize] } };
    Columns([run((0, 0)), run(second)])
}

/// Rows `first` and more of `x`, beside run `run` of the stage that begins with column `k`.
///
/// # Safety
/// As [`columns`].
#[inline(always)]
unsafe fn load<E: HalfElement, const I: usize>(x: Tile<E, I, 0>, first: u32, k: u32, run: u32, thread: u32) -> [Eight; GROUPS as usize] {
    let (row, from) = (first + thread % 32 / 4, k + column(thread, 0));
    let (inside, left) = (row < x.rows(), x.cols() as i32 - from as i32);
    // From this address on, all are literals away.
    let at = x.pointer(row as i32, 0).wrapping_add(from as usize);
    let eight = |group: u32| {
        let away = column(0, run * GROUPS + group);
        // SAFETY: a row streams, so that eight columns from a multiple of eight inside it are in it; or no access.
        unsafe { memory::load4_if(inside && left > away as i32, at.wrapping_add(away as usize).cast()) }
    };
    [eight(0), eight(1), eight(2), eight(3)]
}

impl<const I: usize, const J: usize> MmaSync<I, J> {
    /// All zero.
    #[inline(always)]
    pub fn new() -> Self {
        const { assert!((I == 8 || I == 16) && (J == 8 || J == 16 || J == 32)) };
        // SAFETY: all bits zero is 0.0.
        MmaSync(unsafe { core::mem::zeroed() })
    }

    /// Adds the products of a stage that begins with column `k` of `w` and lies at `stage`.
    ///
    /// # Safety
    /// Called by whole converged warps. The stage is full, and `now` is what [`columns`] gave for it; `x` is as there.
    #[inline(always)]
    pub unsafe fn add<E: HalfElement>(&mut self, now: Columns, x: Tile<E, I, 0>, w: (u32, u32), k: u32, stage: u32, thread: u32) {
        let left = w.1 as i32 - k as i32;
        // SAFETY: (of all) passed on from the caller.
        unsafe {
            if left < row_stages::columns(J) as i32 {
                self.runs::<true, E>(now, x, k, left, stage, thread);
            } else {
                self.runs::<false, E>(now, x, k, left, stage, thread);
            }
        }
    }

    /// See [`MmaSync::add`]; `left` columns are left from the stage's first one on.
    #[inline(always)]
    unsafe fn runs<const TAIL: bool, E: HalfElement>(
        &mut self,
        now: Columns,
        x: Tile<E, I, 0>,
        k: u32,
        left: i32,
        stage: u32,
        thread: u32,
    ) {
        let Columns([first, second]) = now;
        // SAFETY: (of all) passed on from the caller.
        unsafe {
            self.multiply::<TAIL, E>(first, second, 0, left, stage, thread);
            if two_runs(J) {
                let second = if I > 8 { load(x, 0, k, 1, thread) } else { second };
                let high = if I > 8 { load(x, 8, k, 1, thread) } else { second };
                self.multiply::<TAIL, E>(second, high, 1, left, stage, thread);
            }
        }
    }

    /// Adds the products of one run with rows `g`, `low`, and, if there are more than eight, rows `g + 8`, `high`.
    #[inline(always)]
    unsafe fn multiply<const TAIL: bool, E: HalfElement>(
        &mut self,
        low: [Eight; GROUPS as usize],
        high: [Eight; GROUPS as usize],
        run: u32,
        left: i32,
        stage: u32,
        thread: u32,
    ) {
        let from = stage + (thread % 32 / 4 * row_stages::columns(J) + column(thread, 0)) * 2;
        // Rows that were not copied may be any bits: they give results that nobody wants.
        let rows = |group: u32, block: u32| {
            let group = run * GROUPS + group;
            // SAFETY: inside the stage, at a 16-byte boundary.
            let words = unsafe { memory::load_shared4(from + (block * 8 * row_stages::columns(J) + column(0, group)) * 2) };
            // Columns that were not copied may be any bits, also NaN.
            if TAIL && left <= column(thread, group) as i32 { [0; 4] } else { words }
        };
        // All loads before the first product.
        macro_rules! steps {
            ($($w:ident = $group:literal, $block:literal, $sum:literal;)*) => {{
                $(let $w = rows($group, $block);)*
                $(steps!(@ $w, low[$group], 0, $sum);)*
                if I > 8 {
                    $(steps!(@ $w, high[$group], 1, $sum);)*
                }
            }};
            (@ $w:ident, $x:expr, $half:literal, $sum:literal) => {
                let [even, odd] = &mut self.0[$sum][$half];
                if E::MMA_FORMAT == MmaFormat::Bf16 {
                    matrix::multiply::<true>(even, $w, [$x[0], $x[2]]);
                    matrix::multiply::<true>(odd, $w, [$x[1], $x[3]]);
                } else {
                    matrix::multiply::<false>(even, $w, [$x[0], $x[2]]);
                    matrix::multiply::<false>(odd, $w, [$x[1], $x[3]]);
                }
            };
        }
        match J {
            8 => steps!(a = 0, 0, 0; b = 1, 0, 1; c = 2, 0, 0; d = 3, 0, 1;),
            16 => steps!(a = 0, 0, 0; b = 0, 1, 1; c = 1, 0, 0; d = 1, 1, 1; e = 2, 0, 0; f = 2, 1, 1; g = 3, 0, 0; h = 3, 1, 1;),
            _ => {
                steps!(a = 0, 0, 0; b = 0, 1, 1; c = 0, 2, 2; d = 0, 3, 3; e = 1, 0, 0; f = 1, 1, 1; g = 1, 2, 2; h = 1, 3, 3;);
                steps!(a = 2, 0, 0; b = 2, 1, 1; c = 2, 2, 2; d = 2, 3, 3; e = 3, 0, 0; f = 3, 1, 1; g = 3, 2, 2; h = 3, 3, 3;);
            }
        }
    }

    /// Writes this warp's sums to `scratch`: `PARTS` times `J` columns of `I` rows.
    ///
    /// # Safety
    /// `scratch` is shared memory that nobody else uses but the other warps, who do the same.
    #[inline(always)]
    pub unsafe fn write(&self, scratch: u32, thread: u32) {
        let (warp, lane) = (thread / 32, thread % 32);
        // Columns 2t and 2t + 1 of a product are rows of x; its rows g or g + 8 are row g of w.
        let first = scratch + ((warp * J as u32 + lane / 4) * I as u32 + lane % 4 * 2) * 4;
        let put = |block: u32, half: usize, [even, odd]: [[f32; 4]; 2]| {
            let at = first + (block * 8 * I as u32 + half as u32 * 8) * 4;
            // SAFETY: passed on from the caller; at an 8-byte boundary.
            unsafe { memory::store_shared2(at, [(even[0] + odd[2]).to_bits(), (even[1] + odd[3]).to_bits()]) };
        };
        let plus = |a: [f32; 4], b: [f32; 4]| [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]];
        let mut half = 0;
        while half < I / 8 {
            let sum = |n: usize| self.0[n][half];
            match J {
                8 => put(0, half, [plus(sum(0)[0], sum(1)[0]), plus(sum(0)[1], sum(1)[1])]),
                _ => {
                    put(0, half, sum(0));
                    put(1, half, sum(1));
                }
            }
            if J > 16 {
                put(2, half, sum(2));
                put(3, half, sum(3));
            }
            half += 1;
        }
    }
}
