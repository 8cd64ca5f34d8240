//! Accumulators and register operands of a warpgroup: which thread has which element, and how they are stored.
//!
//! How sums come about does not belong here: see `wgmma_queue.rs`. All code is unrolled: an index that is no literal would keep an array in local memory.

#[cfg(target_arch = "nvptx64")]
use core::marker::PhantomData;

use crate::data::operand_type::{AccElement, HalfOperandType, OperandType};
#[cfg(target_arch = "nvptx64")]
use crate::ptx::wgmma_types::Registers;
use crate::simt::swizzle::{Along, Swizzled};
use crate::simt::warpgroup::Warpgroup;

/// Rows of every sum.
pub const ROWS: u32 = 64;

/// A sum of products, 64 × `N` elements of `T` (`f32`, `f16` or `i32`), of one warpgroup: `N` / 2 registers of each thread, half as many of `f16`;
/// a matrix on the CPU. `N` is a multiple of 8 up to 256; of `i32` 8, 24 or a multiple of 16 (PTX ISA §9.7.16.2, shapes):
///
/// ```compile_fail,E0080
/// maco_device::Acc::<f32, 20>::zeros();
/// ```
/// ```compile_fail,E0080
/// maco_device::Acc::<i32, 40>::zeros();
/// ```
/// ```
/// (maco_device::Acc::<f32, 40>::zeros(), maco_device::Acc::<i32, 24>::zeros());
/// ```
///
/// Of what a warp of a warpgroup has, 16 rows from `16 * warp` on, lane `4g + t` has columns 2t and 2t + 1 of rows g and g + 8, in
/// each eight columns. The same code makes and reads it wherever it runs: [`Acc::map`], [`Acc::for_each`], [`Acc::store`].
pub struct Acc<T: AccElement, const N: usize> {
    #[cfg(target_arch = "nvptx64")]
    pub(crate) registers: Registers,
    /// Row after row.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) elements: Vec<T::Value>,
    #[cfg(target_arch = "nvptx64")]
    element: PhantomData<T>,
}

/// `$do` with `$n` for every literal below 64 that is below `$end`.
#[cfg(target_arch = "nvptx64")]
macro_rules! unrolled {
    ($end:expr, |$n:ident| $do:expr) => {
        unrolled!(@ $end, $n, $do, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
            32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
    };
    (@ $end:expr, $n:ident, $do:expr, $($literal:literal)*) => {$(
        if const { $literal < $end } {
            const $n: usize = $literal;
            $do
        }
    )*};
}

impl<T: AccElement, const N: usize> Acc<T, N> {
    /// Registers of a thread.
    #[cfg(target_arch = "nvptx64")]
    pub(crate) const REGISTERS: usize = N / 2 / T::PACKED;

    /// Keeps uses of the registers on their side of this point: the tensor cores have them before, or behind it.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn settle(&mut self) {
        unrolled!(Self::REGISTERS.div_ceil(2), |PAIR| {
            crate::ptx::wgmma_types::settle(&mut self.registers[2 * PAIR]);
            crate::ptx::wgmma_types::settle(&mut self.registers[2 * PAIR + 1]);
        });
    }

    /// All zero. Costs nothing where [`crate::Queue::set`] comes first.
    #[inline(always)]
    pub fn zeros() -> Self {
        const {
            assert!(
                N > 0 && N <= 256 && N.is_multiple_of(8),
                "MACO0017: the tensor cores make sums of 8 to 256 columns, in steps of 8\nhelp: multiply by more rows, and do not use the columns beyond the tile"
            );
            assert!(
                !T::INTEGERS || N == 8 || N == 24 || N.is_multiple_of(16),
                "MACO0017: the tensor cores make sums of integers of 8 or 24 columns, or of a multiple of 16"
            );
        }
        #[cfg(target_arch = "nvptx64")]
        // Not `[0; 128]`: that is a loop, which keeps the array in local memory.
        // SAFETY: all bits zero is 0.
        return Acc { registers: unsafe { core::mem::zeroed() }, element: PhantomData };
        #[cfg(not(target_arch = "nvptx64"))]
        Acc { elements: vec![T::Value::default(); ROWS as usize * N] }
    }

    /// Calls `f(row, col, value)` for each element that this thread has, rows below 64: on the CPU for all.
    #[inline(always)]
    pub fn for_each(&self, warpgroup: &Warpgroup<'_>, mut f: impl FnMut(u32, u32, T::Value)) {
        #[cfg(target_arch = "nvptx64")]
        {
            let (row, col) = first(warpgroup);
            unrolled!(N / 4, |PAIR| {
                let values = T::pair(&self.registers, PAIR);
                let (row, col) = (row + 8 * (PAIR as u32 % 2), col + 8 * (PAIR as u32 / 2));
                f(row, col, values.0);
                f(row, col + 1, values.1);
            });
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let _ = warpgroup;
            for (at, &value) in self.elements.iter().enumerate() {
                f((at / N) as u32, (at % N) as u32, value);
            }
        }
    }

    /// Makes each element be `f(row, col, element)`; an `f16` is rounded.
    #[inline(always)]
    pub fn map(&mut self, warpgroup: &Warpgroup<'_>, mut f: impl FnMut(u32, u32, T::Value) -> T::Value) {
        #[cfg(target_arch = "nvptx64")]
        {
            let (row, col) = first(warpgroup);
            unrolled!(N / 4, |PAIR| {
                let values = T::pair(&self.registers, PAIR);
                let (row, col) = (row + 8 * (PAIR as u32 % 2), col + 8 * (PAIR as u32 / 2));
                T::set_pair(&mut self.registers, PAIR, (f(row, col, values.0), f(row, col + 1, values.1)));
            });
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let _ = warpgroup;
            for (at, value) in self.elements.iter_mut().enumerate() {
                *value = T::kept(f((at / N) as u32, (at % N) as u32, *value));
            }
        }
    }
}

/// Row and column of the first element of this thread.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn first(warpgroup: &Warpgroup<'_>) -> (u32, u32) {
    let lane = warpgroup.thread % 32;
    (warpgroup.thread / 32 * 16 + lane / 4, lane % 4 * 2)
}

impl<T: AccElement<Value = f32>, const N: usize> Acc<T, N> {
    /// Rounds to `bf16` or `f16` and writes rows `row..row + 64` and columns `col..col + N` of a tile (PTX ISA §9.7.15.5.16 `stmatrix`); both
    /// multiples of 8. Other threads, copies and tensor cores see it behind a barrier that says so.
    #[inline(always)]
    pub fn store<E: HalfOperandType, const R: usize, const C: usize, const SWIZZLE: usize>(
        &self,
        warpgroup: &Warpgroup<'_>,
        tile: Swizzled<'_, E, R, C, SWIZZLE>,
        row: u32,
        col: u32,
    ) {
        #[cfg(target_arch = "nvptx64")]
        {
            // Lane 8m + r has row r of matrix m: 0 and 1 are rows 0 to 7 and 8 to 15 of eight columns, 2 and 3 of the next eight.
            let (warp, lane) = (warpgroup.warp(), warpgroup.thread % 32);
            let row = row + warpgroup.thread / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
            let word = |(low, high): (f32, f32)| E::pack(low, high);
            unrolled!(N / 16, |BLOCK| {
                let four = [
                    word(T::pair(&self.registers, 4 * BLOCK)),
                    word(T::pair(&self.registers, 4 * BLOCK + 1)),
                    word(T::pair(&self.registers, 4 * BLOCK + 2)),
                    word(T::pair(&self.registers, 4 * BLOCK + 3)),
                ];
                tile.store_matrix::<4, false>(&warp, row, col + 16 * BLOCK as u32 + lane / 16 * 8, four);
            });
            if const { N % 16 == 8 } {
                let two = [word(T::pair(&self.registers, N / 4 - 2)), word(T::pair(&self.registers, N / 4 - 1))];
                tile.store_matrix::<2, false>(&warp, row, col + N as u32 - 8, two);
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            assert!(row.is_multiple_of(8) && col.is_multiple_of(8), "row {row} and column {col} of a tile: both are multiples of 8");
            self.for_each(warpgroup, |r, c, value| tile.write(row + r, col + c, E::round(value)));
        }
    }

    /// Rounded to `bf16` or `f16`, as operand A of another product, whose K are the columns of this sum: `STEPS` is `N` / 16.
    #[inline(always)]
    pub fn fragments<E: HalfOperandType, const STEPS: usize>(&self) -> Fragments<E, STEPS> {
        const { assert!(STEPS * 16 == N, "MACO0017: a sum of N columns is operand A of N / 16 steps") };
        #[cfg(target_arch = "nvptx64")]
        {
            let word = |(low, high): (f32, f32)| E::pack(low, high);
            // SAFETY: all bits zero is 0; as in `zeros`.
            let mut words: [[u32; 4]; STEPS] = unsafe { core::mem::zeroed() };
            unrolled!(STEPS, |STEP| {
                words[STEP] = [
                    word(T::pair(&self.registers, 4 * STEP)),
                    word(T::pair(&self.registers, 4 * STEP + 1)),
                    word(T::pair(&self.registers, 4 * STEP + 2)),
                    word(T::pair(&self.registers, 4 * STEP + 3)),
                ];
            });
            Fragments::from_words(words)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        Fragments { elements: self.elements.iter().map(|&value| E::round(value)).collect() }
    }
}

/// Operand A in a warpgroup's registers: 64 rows, `STEPS` times 32 bytes of K, 4 registers of each thread for each; a matrix on the CPU.
pub struct Fragments<T: OperandType, const STEPS: usize> {
    #[cfg(target_arch = "nvptx64")]
    pub(crate) words: [[u32; 4]; STEPS],
    /// Row after row.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) elements: Vec<T::Element>,
    #[cfg(target_arch = "nvptx64")]
    element: PhantomData<T>,
}

impl<T: OperandType, const STEPS: usize> Fragments<T, STEPS> {
    /// 64 rows of a tile of `STEPS * 32` bytes, all of it (PTX ISA §9.7.15.5.15 `ldmatrix`). What other threads have written is there behind a
    /// barrier.
    #[inline(always)]
    pub fn load<const R: usize, const C: usize, const SWIZZLE: usize>(
        warpgroup: &Warpgroup<'_>,
        operand: Along<'_, T, R, C, SWIZZLE>,
    ) -> Self {
        const { assert!(STEPS * T::STEP == C, "MACO0017: a row of the tile has `STEPS` times 32 bytes") };
        #[cfg(target_arch = "nvptx64")]
        {
            let (tile, row) = operand.parts();
            let (warp, lane) = (warpgroup.warp(), warpgroup.thread % 32);
            let row = row + warpgroup.thread / 32 * 16 + lane / 8 % 2 * 8 + lane % 8;
            let col = |step: usize| (step * T::STEP) as u32 + lane / 16 * (T::STEP as u32 / 2);
            // SAFETY: all bits zero is 0; as in `Acc::zeros`.
            let mut words: [[u32; 4]; STEPS] = unsafe { core::mem::zeroed() };
            unrolled!(STEPS, |STEP| words[STEP] = tile.load_matrix::<4, false>(&warp, row, col(STEP)));
            Fragments::from_words(words)
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            use crate::simt::swizzle::SharedOperand;
            let _ = warpgroup;
            let place = |at: usize| ((at / C) as u32, (at % C) as u32);
            Fragments { elements: (0..ROWS as usize * C).map(place).map(|(row, k)| operand.element(row, k)).collect() }
        }
    }

    /// On a GPU, this thread's registers: of each 32 bytes of K, lane `4g + t` has bytes `4t..4t + 4` of rows g and g + 8 of the warp's 16, then
    /// bytes `16 + 4t..` of both. For operands that are computed on the way, from fewer bits for instance.
    #[cfg(any(target_arch = "nvptx64", doc))]
    #[inline(always)]
    pub fn from_words(words: [[u32; 4]; STEPS]) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            const { assert!(STEPS > 0 && STEPS <= 16, "MACO0017: an operand in registers has 1 to 16 steps of 32 bytes") };
            let mut words = words;
            // Behind the waits so far: nothing may write registers that an earlier product still reads.
            unrolled!(STEPS, |STEP| {
                crate::ptx::wgmma_types::settle(&mut words[STEP][0]);
                crate::ptx::wgmma_types::settle(&mut words[STEP][1]);
                crate::ptx::wgmma_types::settle(&mut words[STEP][2]);
                crate::ptx::wgmma_types::settle(&mut words[STEP][3]);
            });
            Fragments { words, element: PhantomData }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let _ = words;
            unreachable!("documented only")
        }
    }
}
