//! Consumers: two warpgroups that multiply, and all element-wise work.

use super::Role;
use super::ring::{Arena, Ring, Stage, pages};
use super::store::{buffer, columns, parity};
use crate::abi::{BOX, CONSUMERS};
use crate::cta::Simt;
use crate::element::{Element, MmaElement, pack};
use crate::ptx::{fence, matrix, mbarrier, warp, wgmma};
use crate::row::{RowInputs, RowMut};
use crate::task::Elementwise;
use crate::tile::{Inputs, Parts, Tile};

/// A consumer thread's state.
pub struct Consumer {
    arena: Arena,
    ring: Ring,
    /// Thread among the 256 consumers.
    thread: u32,
    /// The stage that the newest group of multiplications reads.
    reading: Stage,
    /// Chunks staged so far.
    staged: u32,
    /// The last chunks of a finished tile, packed: staged while the next tile is multiplied, so that no consumer waits for the
    /// store of the first ones.
    pending: [u32; 32],
    /// How many chunks of `pending` are still to be staged; always the last ones.
    waiting: u32,
}

impl Consumer {
    /// # Safety
    /// Made by consumer thread `thread` of a CTA whose arena is initialised.
    #[inline(always)]
    pub unsafe fn new(arena: Arena, thread: u32) -> Consumer {
        // SAFETY: (of `zeroed`) all bits zero is 0u32; an array literal would be a loop over local memory.
        Consumer {
            arena,
            ring: Ring::new(arena),
            thread,
            reading: Stage::NONE,
            staged: 0,
            pending: unsafe { core::mem::zeroed() },
            waiting: 0,
        }
    }

    #[inline(always)]
    fn group(&self) -> u32 {
        self.thread / 128
    }

    #[inline(always)]
    fn lane(&self) -> u32 {
        self.thread % 32
    }

    /// Whether results wait to be staged.
    #[inline(always)]
    pub fn owes(&self) -> bool {
        self.waiting > 0
    }

    /// Stages everything that waits.
    #[inline(always)]
    pub fn settle(&mut self) {
        while self.waiting > 0 {
            self.stage_pending();
        }
    }

    /// Stages one chunk if its buffer is free already; called while the tensor cores are busy.
    #[inline(always)]
    fn stage_if_free(&mut self) {
        if self.waiting > 0 {
            let chunk = buffer(self.group(), self.staged);
            // SAFETY: an initialised barrier. Lanes may see it complete at different times, and they must act together.
            if warp::ballot(unsafe { mbarrier::test(self.arena.free(chunk), parity(self.staged) ^ 1) }) == u32::MAX {
                self.stage_pending();
            }
        }
    }

    #[inline(always)]
    fn stage_pending(&mut self) {
        let p = &self.pending;
        let words = if self.waiting == 2 {
            [p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13], p[14], p[15]]
        } else {
            [p[16], p[17], p[18], p[19], p[20], p[21], p[22], p[23], p[24], p[25], p[26], p[27], p[28], p[29], p[30], p[31]]
        };
        self.stage(words);
        self.waiting -= 1;
    }

    /// Writes this warp's 16 rows of the next chunk, 64 columns of packed pairs in accumulator order, and hands them to the store role.
    #[inline(always)]
    fn stage(&mut self, w: [u32; 16]) {
        let lane = self.lane();
        let chunk = buffer(self.group(), self.staged);
        // Lane 8m + r holds the address of row r of matrix m: matrices 0, 1 are rows 0–7, 8–15 of one block of 8 columns, 2, 3 of the next.
        let row = self.thread % 128 / 32 * 16 + (lane / 8 % 2) * 8 + lane % 8;
        let base = self.arena.chunk(chunk) + row * 128;
        // 128-byte swizzle: the 16-byte block's number is xored with the row's number modulo 8.
        let block = |j: u32| base + ((j * 2 + lane / 16) ^ (lane % 8)) * 16;
        // SAFETY: initialised barriers; the chunk is this warpgroup's once it is free, and this warp writes 16 rows of it.
        unsafe {
            self.arena.wait(self.arena.free(chunk), parity(self.staged) ^ 1);
            matrix::store_x4(block(0), [w[0], w[1], w[2], w[3]]);
            matrix::store_x4(block(1), [w[4], w[5], w[6], w[7]]);
            matrix::store_x4(block(2), [w[8], w[9], w[10], w[11]]);
            matrix::store_x4(block(3), [w[12], w[13], w[14], w[15]]);
        }
        self.staged += 1;
        fence::proxy_async_shared();
        warp::sync();
        if lane == 0 {
            // SAFETY: an initialised barrier; the warp's rows are written and fenced.
            unsafe { mbarrier::arrive(self.arena.staged(chunk)) };
        }
    }
}

/// Byte offset of warpgroup `group`'s half of an operand tile; 64 rows or columns are 8 KiB in both majors.
const fn half(split: bool, kept: usize, group: u32) -> u32 {
    if split { group * (kept as u32 / 2) * BOX * 2 } else { 0 }
}

impl Role for Consumer {
    type Accumulator<const I: usize, const J: usize> = [f32; 128];

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) -> [f32; 128] {
        // Not `[0.0; 128]`: that is a loop, which keeps the array in local memory.
        // SAFETY: all bits zero is 0.0.
        unsafe { core::mem::zeroed() }
    }

    #[inline(always)]
    fn mma<E: MmaElement, const I: usize, const J: usize>(&mut self, acc: &mut [f32; 128], a: Parts, b: Parts) {
        const STRIDE: u32 = 1024;
        let leading = BOX * BOX * 2;
        let group = self.group();
        // SAFETY: all consumers run the same outline as the loader.
        let (stage, shared) = unsafe { self.ring.wait_full(pages(I, J)) };
        let da = wgmma::descriptor(shared + half(I == 128, I, group), leading, STRIDE);
        let db = wgmma::descriptor(shared + I as u32 * BOX * 2 + half(I == 64, J, group), leading, STRIDE);
        wgmma::fence();
        macro_rules! steps {
            ($n:literal, $a:literal, $b:literal) => {
                if E::BF16 { steps!(@typed $n, true, $a, $b) } else { steps!(@typed $n, false, $a, $b) }
            };
            (@typed $n:literal, $bf16:literal, $a:literal, $b:literal) => {{
                // A k16 step is 32 bytes along the contraction, or 16 rows of 128 bytes across it.
                let (sa, sb) = (if $a { 128 } else { 2 }, if $b { 128 } else { 2 });
                // SAFETY: whole warpgroups run the outline; the stage is full and stays until `release`; `acc` is not touched before the wait.
                unsafe {
                    wgmma::step::<$n, $bf16, $a, $b>(acc, da, db);
                    wgmma::step::<$n, $bf16, $a, $b>(acc, da + sa, db + sb);
                    wgmma::step::<$n, $bf16, $a, $b>(acc, da + 2 * sa, db + 2 * sb);
                    wgmma::step::<$n, $bf16, $a, $b>(acc, da + 3 * sa, db + 3 * sb);
                }
            }};
        }
        macro_rules! majors {
            ($n:literal) => {
                match (a.along_rows, b.along_rows) {
                    (false, false) => steps!($n, false, false),
                    (false, true) => steps!($n, false, true),
                    (true, false) => steps!($n, true, false),
                    (true, true) => steps!($n, true, true),
                }
            };
        }
        match columns(I, J) {
            64 => majors!(64),
            128 => majors!(128),
            _ => majors!(256),
        }
        wgmma::commit();
        self.stage_if_free();
        wgmma::wait::<1>();
        if self.reading.is_some() && self.lane() == 0 {
            // SAFETY: the group that read it is complete for this warp.
            unsafe { self.ring.release(self.reading, pages(I, J)) };
        }
        self.reading = stage;
    }

    #[inline(always)]
    fn store<T: Elementwise, E: MmaElement, const I: usize, const J: usize>(&mut self, mut acc: [f32; 128], _: Tile<E, I, J>) {
        wgmma::wait::<0>();
        match columns(I, J) {
            64 => wgmma::settle::<64>(&mut acc),
            128 => wgmma::settle::<128>(&mut acc),
            _ => wgmma::settle::<256>(&mut acc),
        }
        if self.lane() == 0 {
            // SAFETY: every group is complete for this warp.
            unsafe { self.ring.release(self.reading, pages(I, J)) };
        }
        self.reading = Stage::NONE;

        self.settle();

        macro_rules! pairs {
            ($($at:literal)*) => { [$(pack::<E>(T::apply(acc[$at]), T::apply(acc[$at + 1]))),*] };
        }
        self.stage(pairs!(0 2 4 6 8 10 12 14 16 18 20 22 24 26 28 30));
        if columns(I, J) > 64 {
            self.stage(pairs!(32 34 36 38 40 42 44 46 48 50 52 54 56 58 60 62));
        }
        if columns(I, J) > 128 {
            self.pending =
                pairs!(64 66 68 70 72 74 76 78 80 82 84 86 88 90 92 94 96 98 100 102 104 106 108 110 112 114 116 118 120 122 124 126);
            self.waiting = 2;
        }
    }

    #[inline(always)]
    fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        self.settle();
        let (rows, cols) = (y.rows(), y.cols());
        let blocks = cols.div_ceil(8);
        if blocks == 0 {
            return;
        }
        let wide = inputs.wide() && y.wide();
        let count = rows * blocks;
        let mut at = self.thread;
        // Four blocks of eight at once: all loads are on their way before the first result is needed.
        while wide && at + 3 * CONSUMERS < count {
            let place = |n: u32| ((at + n * CONSUMERS) / blocks, (at + n * CONSUMERS) % blocks * 8);
            let fits = |(row, col): (u32, u32)| col + 8 <= cols && inputs.covers(row, col + 8);
            let (a, b, c, d) = (place(0), place(1), place(2), place(3));
            if !(fits(a) && fits(b) && fits(c) && fits(d)) {
                break;
            }
            // SAFETY: eight columns inside all tiles, at a multiple of eight columns of aligned rows; nobody else writes them.
            unsafe {
                let (va, vb, vc, vd) = (inputs.at8(a.0, a.1), inputs.at8(b.0, b.1), inputs.at8(c.0, c.1), inputs.at8(d.0, d.1));
                let put = |v: [X::Values; 8], (row, col): (u32, u32)| {
                    let out = [f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])];
                    E::store8(y.pointer(row as i32, col as i32), out);
                };
                put(va, a);
                put(vb, b);
                put(vc, c);
                put(vd, d);
            }
            at += 4 * CONSUMERS;
        }
        while at < count {
            let (row, col) = (at / blocks, at % blocks * 8);
            if wide && col + 8 <= cols && inputs.covers(row, col + 8) {
                // SAFETY: as above.
                unsafe {
                    let v = inputs.at8(row, col);
                    let out = [f(v[0]), f(v[1]), f(v[2]), f(v[3]), f(v[4]), f(v[5]), f(v[6]), f(v[7])];
                    E::store8(y.pointer(row as i32, col as i32), out);
                }
            } else {
                let mut c = col;
                while c < cols && c < col + 8 {
                    // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
                    unsafe { y.pointer(row as i32, c as i32).write(E::element(f(inputs.at(row, c)))) };
                    c += 1;
                }
            }
            at += CONSUMERS;
        }
    }

    #[inline(always)]
    fn rows<X: RowInputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(X::Rows, &mut RowMut<E>),
    ) {
        self.settle();
        let mut row = self.thread / 32;
        while row < y.rows() {
            f(inputs.row(row, self.lane(), 32), &mut y.row_mut(row, self.lane(), 32));
            row += CONSUMERS / 32;
        }
    }

    #[inline(always)]
    fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
        self.settle();
        let readers = inputs.readers();
        let (rows, cols) = (y.rows(), y.cols());
        if cols == 0 {
            return;
        }
        let mut at = self.thread;
        while at < rows * cols {
            let (row, col) = ((at / cols) as i32, (at % cols) as i32);
            // SAFETY: the position is inside the tile; tiles of one grid do not overlap.
            unsafe { y.pointer(row, col).write(E::element(f(&readers, row, col))) };
            at += CONSUMERS;
        }
    }

    #[inline(always)]
    fn simt(&mut self, f: impl FnOnce(&mut Simt)) {
        self.settle();
        f(&mut Simt { thread: self.thread, threads: CONSUMERS });
    }
}
