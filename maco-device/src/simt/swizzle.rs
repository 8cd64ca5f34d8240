//! Operands A and B in scratch: tiles whose rows are swizzled, as the tensor cores and TMA lay them out.
//!
//! What is multiplied with what does not belong here: see `wgmma_queue.rs`.

use core::marker::PhantomData;

use crate::data::element::Element;
use crate::data::operand_type::{HalfOperandType, OperandType};
use crate::hardware::scratch;
use crate::simt::Simt;
#[cfg(any(target_arch = "nvptx64", doc))]
use crate::simt::warp::Warp;

/// Bytes that lie together whatever the swizzle.
const LINE: usize = 16;

/// `ROWS` × `COLS` elements in the scratch of a body, in panels of `SWIZZLE` bytes of each row, one panel behind the other; of a panel all rows lie
/// together. Made by [`Simt::swizzled`].
///
/// Inside a panel the 16-byte lines of a row change places by bits 7 to 9 of where they lie (PTX ISA §9.7.16.5.1, swizzling modes; `SWIZZLE` is 128,
/// 64 or 32): of a panel of 128 bytes, line `l` of row `r` is at place `l ^ r % 8`, so that eight rows of a column, or of a box that TMA copies,
/// meet in no bank of shared memory. With 16 nothing changes its place.
///
/// What operands of a product are made of: [`Swizzled::along`], [`Swizzled::across`].
pub struct Swizzled<'a, T, const ROWS: usize, const COLS: usize, const SWIZZLE: usize = 128> {
    pub(crate) at: scratch::Address,
    scratch: PhantomData<(&'a (), *mut T)>,
}

impl<T, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Clone for Swizzled<'_, T, ROWS, COLS, SWIZZLE> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Copy for Swizzled<'_, T, ROWS, COLS, SWIZZLE> {}

impl<'a, const SHARED: usize> Simt<'a, SHARED> {
    /// A tile with the swizzle of 128 bytes in the body's scratch, from byte `AT` on, a multiple of 1024. `ROWS` is a multiple of 8, a row of
    /// 128 bytes. Tiles may overlap what else is there, as parts of [`Simt::shared`] do.
    ///
    /// Tiles that end beyond `SHARED` bytes do not compile (MACO0020):
    ///
    /// ```compile_fail,E0080
    /// # use maco_device::{Scratch, Simt, bf16};
    /// let mut scratch = Scratch::<8192>::new();
    /// Simt::alone_with(&mut scratch).swizzled::<bf16, 1024, 64, 64>();
    /// ```
    /// ```
    /// # use maco_device::{Scratch, Simt, bf16};
    /// let mut scratch = Scratch::<9216>::new();
    /// Simt::alone_with(&mut scratch).swizzled::<bf16, 1024, 64, 64>();
    /// ```
    #[inline(always)]
    pub fn swizzled<T: OperandType, const AT: usize, const ROWS: usize, const COLS: usize>(&self) -> Swizzled<'a, T, ROWS, COLS> {
        self.swizzled_by::<T, AT, ROWS, COLS, 128>()
    }

    /// `N` tiles, each as [`Simt::swizzled`] makes one, one behind the other from byte `AT` on.
    ///
    /// ```
    /// # use maco_device::{Scratch, Simt, bf16};
    /// # let mut scratch = Scratch::<6144>::new();
    /// let tiles = Simt::alone_with(&mut scratch).swizzled_tiles::<bf16, 0, 3, 16, 64>();
    /// tiles.at(2).write(0, 0, bf16::from_f32(1.0));
    /// ```
    /// ```compile_fail,E0080
    /// # use maco_device::{Scratch, Simt, bf16};
    /// # let mut scratch = Scratch::<6143>::new();
    /// let tiles = Simt::alone_with(&mut scratch).swizzled_tiles::<bf16, 0, 3, 16, 64>();
    /// ```
    #[inline(always)]
    pub fn swizzled_tiles<T: OperandType, const AT: usize, const N: usize, const ROWS: usize, const COLS: usize>(
        &self,
    ) -> SwizzledTiles<'a, T, N, ROWS, COLS> {
        const {
            assert!(N > 0, "MACO0020: there is a tile");
            assert!(
                AT + N * Swizzled::<T, ROWS, COLS>::BYTES <= SHARED,
                "MACO0020: these tiles end beyond what the task asks for\nhelp: write more bytes into `#[task(simt, shared = ..)]`, at most 196608"
            );
        }
        SwizzledTiles { first: self.swizzled::<T, AT, ROWS, COLS>() }
    }

    /// A tile with a swizzle of 128, 64 or 32 bytes, or without one: 16. `AT` is a multiple of eight rows' parts of a panel, `8 * SWIZZLE` bytes.
    #[inline(always)]
    pub fn swizzled_by<T: OperandType, const AT: usize, const ROWS: usize, const COLS: usize, const SWIZZLE: usize>(
        &self,
    ) -> Swizzled<'a, T, ROWS, COLS, SWIZZLE> {
        const {
            assert!(
                SWIZZLE == 128 || SWIZZLE == 64 || SWIZZLE == 32 || SWIZZLE == 16,
                "MACO0017: rows are swizzled by 128, 64 or 32 bytes, or not at all: 16"
            );
            assert!(ROWS > 0 && ROWS.is_multiple_of(8), "MACO0017: a swizzled tile has rows by eights");
            assert!(
                COLS > 0 && (COLS * size_of::<T::Element>()).is_multiple_of(SWIZZLE),
                "MACO0017: a row of a swizzled tile is as many bytes as its swizzle, or a multiple of these"
            );
            assert!(
                AT.is_multiple_of(8 * SWIZZLE),
                "MACO0020: a swizzled tile begins at a multiple of 8 times its swizzle: 1024 bytes of 128"
            );
            assert!(
                AT + Swizzled::<T, ROWS, COLS, SWIZZLE>::BYTES <= SHARED,
                "MACO0020: this tile ends beyond what the task asks for\nhelp: write more bytes into `#[task(simt, shared = ..)]`, at most 196608"
            );
        }
        // SAFETY: inside the scratch.
        Swizzled { at: unsafe { scratch::after(self.place(), AT as u32) }, scratch: PhantomData }
    }
}

/// `N` tiles of one kind, one behind the other: stages of a pipeline, or a tile for each warpgroup. Made by [`Simt::swizzled_tiles`].
pub struct SwizzledTiles<'a, T, const N: usize, const ROWS: usize, const COLS: usize, const SWIZZLE: usize = 128> {
    first: Swizzled<'a, T, ROWS, COLS, SWIZZLE>,
}

impl<T, const N: usize, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Clone for SwizzledTiles<'_, T, N, ROWS, COLS, SWIZZLE> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, const N: usize, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Copy for SwizzledTiles<'_, T, N, ROWS, COLS, SWIZZLE> {}

impl<'a, T: OperandType, const N: usize, const ROWS: usize, const COLS: usize, const SWIZZLE: usize>
    SwizzledTiles<'a, T, N, ROWS, COLS, SWIZZLE>
{
    /// Tile `n`. Beyond the last one: a panic on the CPU, the end of the kernel on a GPU.
    #[inline(always)]
    pub fn at(self, n: u32) -> Swizzled<'a, T, ROWS, COLS, SWIZZLE> {
        if n >= N as u32 {
            scratch::out_of_range(n, 1, N);
        }
        // SAFETY: inside the scratch.
        Swizzled { at: unsafe { scratch::after(self.first.at, n * self.first.bytes()) }, scratch: PhantomData }
    }
}

impl<'a, T: OperandType, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Swizzled<'a, T, ROWS, COLS, SWIZZLE> {
    /// Bytes of the tile.
    pub const BYTES: usize = ROWS * COLS * size_of::<T::Element>();
    /// Elements of an access of 16 bytes.
    pub const LINE: u32 = LINE as u32 / T::Element::BYTES;
    /// Columns of a panel.
    pub const PANEL: u32 = SWIZZLE as u32 / T::Element::BYTES;

    /// Where element (`row`, `col`) lies, in bytes from the beginning of the tile.
    #[inline(always)]
    pub const fn offset(row: u32, col: u32) -> u32 {
        let panel = col / Self::PANEL * (ROWS * SWIZZLE) as u32;
        let plain = panel + row * SWIZZLE as u32 + col % Self::PANEL * size_of::<T::Element>() as u32;
        plain ^ (plain >> 7 & (SWIZZLE as u32 / LINE as u32 - 1)) << 4
    }

    /// Where `count` elements of a row begin, which lie together.
    #[inline(always)]
    fn place(self, row: u32, col: u32, count: u32) -> scratch::Address {
        if row >= ROWS as u32 || col >= COLS as u32 || !col.is_multiple_of(count) {
            scratch::out_of_range(row * COLS as u32 + col, count, ROWS * COLS);
        }
        // SAFETY: inside the tile.
        unsafe { scratch::after(self.at, Self::offset(row, col)) }
    }

    /// Element (`row`, `col`) (PTX ISA §9.7.9.8 `ld.shared`). Outside the tile: a panic on the CPU, the end of the kernel on a GPU.
    #[inline(always)]
    pub fn read(self, row: u32, col: u32) -> T::Element {
        // SAFETY: an element of the scratch, whose tiles are aligned.
        unsafe { scratch::load(self.place(row, col, 1)) }
    }

    /// Makes (`row`, `col`) be `element` (PTX ISA §9.7.9.11 `st.shared`). Tensor cores and copies see it behind a
    /// [`Simt::sync_copies`] or [`crate::Warpgroup::sync_copies`].
    #[inline(always)]
    pub fn write(self, row: u32, col: u32, element: T::Element) {
        // SAFETY: as above.
        unsafe { scratch::store(self.place(row, col, 1), element) }
    }

    /// The [`Swizzled::LINE`] elements of a row from `col` on, a multiple of as many: one access of 16 bytes (`ld.shared.v4.b32`).
    #[inline(always)]
    pub fn read16(self, row: u32, col: u32) -> [u32; 4] {
        // SAFETY: 16 bytes of the scratch, at a multiple of 16 bytes of an aligned tile.
        unsafe { scratch::load4(self.place(row, col, Self::LINE)) }
    }

    /// Writes what [`Swizzled::read16`] reads (`st.shared.v4.b32`).
    #[inline(always)]
    pub fn write16(self, row: u32, col: u32, words: [u32; 4]) {
        // SAFETY: as above.
        unsafe { scratch::store4(self.place(row, col, Self::LINE), words) }
    }

    /// Rows from `row` on, a multiple of 8, as an operand: K runs along them, all `COLS` elements, which are K-major in PTX's words. As
    /// operand A 64 rows, as operand B as many as the accumulator has columns.
    #[inline(always)]
    pub fn along(self, row: u32) -> Along<'a, T, ROWS, COLS, SWIZZLE> {
        Along { tile: self, row }
    }

    /// Columns from `col` on, a multiple of [`Swizzled::PANEL`], as an operand: K runs along them, over all `ROWS`, which is MN-major in
    /// PTX's words.
    #[inline(always)]
    pub fn across(self, col: u32) -> Across<'a, T, ROWS, COLS, SWIZZLE>
    where
        T: HalfOperandType,
    {
        Across { tile: self, col }
    }
}

/// On a GPU only, as those of [`crate::Smem`].
#[cfg(any(target_arch = "nvptx64", doc))]
impl<T: OperandType, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Swizzled<'_, T, ROWS, COLS, SWIZZLE> {
    /// The shared address of the tile, for PTX of one's own (`.shared::cta`).
    #[inline(always)]
    pub fn address(self) -> u32 {
        self.at as _
    }

    /// `X` matrices of eight rows of 16 bytes: [`crate::Smem::load_matrix`], with the place of each row as (row, column).
    #[inline(always)]
    pub fn load_matrix<const X: usize, const TRANSPOSED: bool>(self, _: &Warp<'_>, row: u32, col: u32) -> [u32; X] {
        // SAFETY: a token of the whole warp, which promises with it to come here together; 16 bytes of the scratch at a multiple of 16.
        unsafe { crate::ptx::matrix::load::<X, TRANSPOSED>(self.place(row, col, Self::LINE) as _) }
    }

    /// Writes what [`Swizzled::load_matrix`] reads.
    #[inline(always)]
    pub fn store_matrix<const X: usize, const TRANSPOSED: bool>(self, _: &Warp<'_>, row: u32, col: u32, fragments: [u32; X]) {
        // SAFETY: as above.
        unsafe { crate::ptx::matrix::store::<X, TRANSPOSED>(self.place(row, col, Self::LINE) as _, fragments) }
    }
}

/// An operand in scratch: operand B of a product, and operand A if that is not in registers.
pub trait SharedOperand: Copy {
    /// What it is multiplied as.
    type Type: OperandType;
    /// Elements of K.
    const K: usize;
    /// Whether it is MN-major.
    #[doc(hidden)]
    const ACROSS: bool;
    /// The descriptor of its first instruction, for `count` rows of the product.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn descriptor(self, count: u32) -> crate::ptx::wgmma::Descriptor;
    /// Bytes from its first instruction to that number `n`.
    #[doc(hidden)]
    fn step(n: u32) -> u32;
    /// What is multiplied at place `k` of row `at` of the product.
    #[doc(hidden)]
    #[cfg(not(target_arch = "nvptx64"))]
    fn element(self, at: u32, k: u32) -> <Self::Type as OperandType>::Element;
}

/// Made by [`Swizzled::along`].
pub struct Along<'a, T, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> {
    tile: Swizzled<'a, T, ROWS, COLS, SWIZZLE>,
    row: u32,
}

/// Made by [`Swizzled::across`].
pub struct Across<'a, T, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> {
    tile: Swizzled<'a, T, ROWS, COLS, SWIZZLE>,
    col: u32,
}

macro_rules! copied {
    ($($name:ident)*) => {$(
        impl<T, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Clone for $name<'_, T, ROWS, COLS, SWIZZLE> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Copy for $name<'_, T, ROWS, COLS, SWIZZLE> {}
    )*};
}
copied!(Along Across);

impl<T: OperandType, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Along<'_, T, ROWS, COLS, SWIZZLE> {
    /// What [`crate::Fragments::load`] loads: the tile, and the first row.
    #[cfg(target_arch = "nvptx64")]
    pub(crate) fn parts(&self) -> (Swizzled<'_, T, ROWS, COLS, SWIZZLE>, u32) {
        (self.tile, self.row)
    }
}

impl<T: OperandType, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> SharedOperand for Along<'_, T, ROWS, COLS, SWIZZLE> {
    type Type = T;
    const K: usize = COLS;
    const ACROSS: bool = false;

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn descriptor(self, count: u32) -> crate::ptx::wgmma::Descriptor {
        if count > ROWS as u32 || self.row > ROWS as u32 - count || !self.row.is_multiple_of(8) {
            scratch::out_of_range(self.row, count, ROWS);
        }
        crate::ptx::wgmma::Descriptor::swizzled::<SWIZZLE>(
            self.tile.at + self.row * SWIZZLE as u32,
            (ROWS * LINE) as u32,
            8 * SWIZZLE as u32,
        )
    }

    #[inline(always)]
    fn step(n: u32) -> u32 {
        // 32 bytes: a part of a panel, or two whole ones.
        let (before, panel) = (32 * n, SWIZZLE as u32);
        before / panel * (ROWS * SWIZZLE) as u32 + before % panel
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn element(self, at: u32, k: u32) -> T::Element {
        self.tile.read(self.row + at, k)
    }
}

impl<T: HalfOperandType, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> SharedOperand for Across<'_, T, ROWS, COLS, SWIZZLE> {
    type Type = T;
    const K: usize = ROWS;
    const ACROSS: bool = true;

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn descriptor(self, count: u32) -> crate::ptx::wgmma::Descriptor {
        let panel = Swizzled::<T, ROWS, COLS, SWIZZLE>::PANEL;
        if count > COLS as u32 || self.col > COLS as u32 - count || !self.col.is_multiple_of(panel) {
            scratch::out_of_range(self.col, count, COLS);
        }
        let (next, eight) = ((ROWS * SWIZZLE) as u32, 8 * SWIZZLE as u32);
        let at = self.tile.at + self.col / panel * next;
        // Without a swizzle the two distances change names.
        let (leading, stride) = if SWIZZLE == LINE { (eight, next) } else { (next, eight) };
        crate::ptx::wgmma::Descriptor::swizzled::<SWIZZLE>(at, leading, stride)
    }

    #[inline(always)]
    fn step(n: u32) -> u32 {
        n * (T::STEP * SWIZZLE) as u32
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn element(self, at: u32, k: u32) -> T::Element {
        self.tile.read(k, self.col + at)
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::data::element::bf16;
    use crate::data::operand_type::{E4M3, Tf32};
    use crate::simt::smem::Scratch;
    use std::collections::BTreeSet;

    /// What the ISA says of an address: of a swizzle of 128, 64 or 32 bytes, the low three, two bits or one of those from 7 on are xored onto
    /// those from 4 on. `plain` is the address without it.
    fn swizzled(swizzle: u32, plain: u32) -> u32 {
        match swizzle {
            128 => plain ^ (plain & 0x380) >> 3,
            64 => plain ^ (plain & 0x180) >> 3,
            32 => plain ^ (plain & 0x80) >> 3,
            _ => plain,
        }
    }

    fn layout<T: OperandType, const ROWS: usize, const COLS: usize, const SWIZZLE: usize>() {
        let bytes = T::Element::BYTES;
        let mut seen = BTreeSet::new();
        for row in 0..ROWS as u32 {
            for col in 0..COLS as u32 {
                let (panel, rest) = (col * bytes / SWIZZLE as u32, col * bytes % SWIZZLE as u32);
                let plain = (panel * ROWS as u32 + row) * SWIZZLE as u32 + rest;
                let offset = Swizzled::<T, ROWS, COLS, SWIZZLE>::offset(row, col);
                assert_eq!(offset, swizzled(SWIZZLE as u32, plain), "{SWIZZLE} bytes, row {row}, column {col}");
                assert!(seen.insert(offset) && offset as usize + bytes as usize <= ROWS * COLS * bytes as usize);
            }
        }
    }

    #[test]
    fn layouts_are_those_of_the_isa() {
        layout::<bf16, 64, 64, 128>();
        layout::<bf16, 24, 192, 128>();
        layout::<Tf32, 16, 64, 64>();
        layout::<E4M3, 40, 128, 32>();
        layout::<bf16, 8, 40, 16>();
        // A line of each row of eight is in another place.
        let places: BTreeSet<u32> = (0..8).map(|row| Swizzled::<bf16, 8, 64>::offset(row, 8) % 128).collect();
        assert_eq!(places.len(), 8);
        assert_eq!(Swizzled::<bf16, 64, 64>::offset(1, 0), 128 + 16);
    }

    /// Where an instruction looks for element (`row`, `byte`) of its 32 bytes of K: canonical layouts of K-major operands.
    #[test]
    fn steps_lie_where_instructions_look() {
        fn check<const ROWS: usize, const COLS: usize, const SWIZZLE: usize>() {
            for n in 0..COLS as u32 / 32 {
                for (row, byte) in [(0, 0), (5, 16), (9, 8), (ROWS as u32 - 1, 31)] {
                    let (line, rest) = (byte / 16, byte % 16);
                    // Of the plain address: eights of rows are `8 * SWIZZLE` apart, the next 16 bytes follow, or are `leading` further.
                    let next = if SWIZZLE == 16 { ROWS as u32 * 16 } else { 16 };
                    let start = Along::<E4M3, ROWS, COLS, SWIZZLE>::step(n);
                    let plain = start + row / 8 * 8 * SWIZZLE as u32 + row % 8 * SWIZZLE as u32 + line * next + rest;
                    let found = Swizzled::<E4M3, ROWS, COLS, SWIZZLE>::offset(row, 32 * n + byte);
                    assert_eq!(found, swizzled(SWIZZLE as u32, plain), "{SWIZZLE} bytes, step {n}, row {row}, byte {byte}");
                }
            }
        }
        check::<64, 256, 128>();
        check::<40, 128, 64>();
        check::<16, 96, 32>();
        check::<24, 64, 16>();
    }

    /// The same of MN-major ones: lines of eight columns, by where the canonical layouts have them.
    #[test]
    fn steps_across_lie_where_instructions_look() {
        fn check<const ROWS: usize, const COLS: usize, const SWIZZLE: usize>() {
            let (next, eight) = ((ROWS * SWIZZLE) as u32, 8 * SWIZZLE as u32);
            for n in 0..ROWS as u32 / 16 {
                for k in 0..16 {
                    for col in (0..COLS as u32).step_by(8) {
                        let (panel, line) = (col * 2 / SWIZZLE as u32, col * 2 % SWIZZLE as u32);
                        let start = Across::<bf16, ROWS, COLS, SWIZZLE>::step(n);
                        let plain = start + panel * next + line + k / 8 * eight + k % 8 * SWIZZLE as u32;
                        let found = Swizzled::<bf16, ROWS, COLS, SWIZZLE>::offset(16 * n + k, col);
                        assert_eq!(found, swizzled(SWIZZLE as u32, plain), "{SWIZZLE} bytes, step {n}, k {k}, column {col}");
                    }
                }
            }
        }
        check::<64, 128, 128>();
        check::<32, 64, 64>();
        check::<16, 48, 32>();
        check::<48, 24, 16>();
    }

    #[test]
    fn elements_and_lines() {
        let mut scratch = Scratch::<4096>::new();
        let cta = Simt::alone_with(&mut scratch);
        let tile = cta.swizzled::<bf16, 2048, 8, 128>();
        tile.write(3, 65, bf16::from_f32(1.5));
        tile.write(3, 64, bf16::from_f32(0.0));
        assert_eq!((tile.read(3, 65).to_f32(), tile.read16(3, 64)[0]), (1.5, 0x3fc0_0000));
        tile.write16(7, 120, [0, 0, 0, 0x4000_0000]);
        assert_eq!(tile.read(7, 127).to_f32(), 2.0);
        // Through the places of plain elements: the second panel is 1024 bytes further.
        assert_eq!(cta.shared::<bf16, 2048, 1024>().read(512 + 3 * 64 + 3 * 8 + 1).to_f32(), 1.5);
    }

    #[test]
    #[should_panic = "elements 512..513 of a `Smem` of 512"]
    fn a_row_stays_inside() {
        let mut scratch = Scratch::<1024>::new();
        Simt::alone_with(&mut scratch).swizzled::<bf16, 0, 8, 64>().read(8, 0);
    }

    #[test]
    #[should_panic = "of a `Smem`"]
    fn lines_are_aligned() {
        let mut scratch = Scratch::<1024>::new();
        Simt::alone_with(&mut scratch).swizzled::<bf16, 0, 8, 64>().read16(0, 4);
    }
}
