//! TMA tensor copies of SIMT bodies: boxes of a tensor to swizzled tiles in scratch, and back.
//!
//! The task declares the boxes of a tensor (`boxes(x = 128)`), and the host makes their tensor maps.

#[cfg(target_arch = "nvptx64")]
use core::cell::Cell;

use crate::data::element::Element;
use crate::data::operand_type::OperandType;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::hardware::{fence, scratch};
use crate::simt::mbarrier::Mbarrier;
use crate::simt::swizzle::Swizzled;

/// Most rows of a box (PTX ISA §5.5, CUDA driver API `cuTensorMapEncodeTiled`).
const MOST: usize = 256;

/// A [`Tile`] that a body with `boxes(..)` in its attribute copies in boxes of `ROWS` rows and `SWIZZLE` bytes: what [`Swizzled::load`] loads
/// from and [`Swizzled::store`] stores to.
///
/// Each thread has its own, which remembers whether the thread has acquired the tensor map, so it is passed on by reference.
pub struct Mapped<E, const R: usize, const C: usize, const ROWS: usize, const SWIZZLE: usize = 128> {
    tile: Tile<E, R, C>,
    /// Where the tensor map is, in global memory.
    #[cfg(target_arch = "nvptx64")]
    map: u64,
    /// Whether this thread has acquired it.
    #[cfg(target_arch = "nvptx64")]
    acquired: Cell<bool>,
}

impl<E, const R: usize, const C: usize, const ROWS: usize, const SWIZZLE: usize> Mapped<E, R, C, ROWS, SWIZZLE> {
    /// `tensor_maps` is the launch's table, which has the map of the tile's view.
    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    pub(crate) fn new(tile: Tile<E, R, C>, tensor_maps: u64) -> Self {
        Mapped {
            tile,
            map: tensor_maps + tile.view.map.index() as u64 * size_of::<maco_abi::TensorMap>() as u64,
            acquired: Cell::new(false),
        }
    }

    #[cfg(not(target_arch = "nvptx64"))]
    pub(crate) fn new(tile: Tile<E, R, C>) -> Self {
        Mapped { tile }
    }
}

impl<E: Element, const R: usize, const C: usize, const ROWS: usize, const SWIZZLE: usize> Mapped<E, R, C, ROWS, SWIZZLE> {
    /// The tile of operand `operand` of `task` whose origin is element (`plane`, `row`, `col`).
    #[doc(hidden)]
    #[inline(always)]
    pub fn of_task(task: Task, operand: usize, plane: i32, row: i32, col: i32) -> Self {
        let tile = task.tile(operand, plane, row, col);
        #[cfg(target_arch = "nvptx64")]
        return Mapped::new(tile, task.tensor_maps());
        #[cfg(not(target_arch = "nvptx64"))]
        Mapped::new(tile)
    }

    /// Rows inside the tensor, counted from the tile's origin; none of a plane that is not there.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.tile.rows()
    }

    /// Columns inside the tensor, counted from the tile's origin.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.tile.cols()
    }

    /// Address of an element relative to the tile's origin, to be read.
    #[inline(always)]
    pub fn pointer(&self, row: i32, col: i32) -> *const E {
        self.tile.pointer(row, col)
    }
}

/// A tensor that is copied in boxes of `ROWS` rows and `SWIZZLE` bytes: [`Mapped`].
#[diagnostic::on_unimplemented(
    message = "MACO0017: this tensor is not copied in boxes of {ROWS} rows that are swizzled by {SWIZZLE} bytes",
    note = "the boxes of a tensor are those of the tiles that it is copied to and from: `#[task(simt, shared = .., boxes(x = 128))]`, or `boxes(x = 128 swizzle 64)`"
)]
pub trait Boxes<const ROWS: usize, const SWIZZLE: usize> {
    /// What the tensor holds.
    type Element: Element;
    /// The tile, as one of the whole tensor.
    #[doc(hidden)]
    fn whole(&self) -> Tile<Self::Element, 0, 0>;
    /// Address of the tensor map, acquired by this thread; if it `LOADS`, with what other tasks have written to the tensor.
    #[doc(hidden)]
    #[cfg(target_arch = "nvptx64")]
    fn map<const LOADS: bool>(&self) -> u64;
}

impl<E: Element, const R: usize, const C: usize, const ROWS: usize, const SWIZZLE: usize> Boxes<ROWS, SWIZZLE>
    for Mapped<E, R, C, ROWS, SWIZZLE>
{
    type Element = E;

    #[inline(always)]
    fn whole(&self) -> Tile<E, 0, 0> {
        let Tile { view, plane, row, col, .. } = self.tile;
        Tile::new(view, plane, row, col)
    }

    #[cfg(target_arch = "nvptx64")]
    #[inline(always)]
    fn map<const LOADS: bool>(&self) -> u64 {
        if !self.acquired.get() {
            // SAFETY: the plan put a map for each tensor with boxes into the launch's table, which the host wrote before the launch.
            unsafe { fence::tensormap_acquire(self.map) };
            // Once is enough: while the task runs nobody else writes what it reads. A store ends with the same fence.
            if LOADS {
                fence::proxy_async_global();
            }
            self.acquired.set(true);
        }
        self.map
    }
}

impl<T: OperandType, const ROWS: usize, const COLS: usize, const SWIZZLE: usize> Swizzled<'_, T, ROWS, COLS, SWIZZLE> {
    /// Bytes that [`Swizzled::load`] brings: all of the tile, also where it is filled with zeros.
    #[inline(always)]
    pub const fn bytes(self) -> u32 {
        Self::BYTES as u32
    }

    /// Asks for the elements of `from` whose first one is (`row`, `col`) of its tile, any row and any column at a multiple of 16 bytes of the tensor's row, also outside,
    /// and goes on: they are in this tile, with zeros where
    /// they would lie outside the tensor, when the phase of `barrier` that expects [`Swizzled::bytes`] is complete (PTX ISA §9.7.9.27.1.2
    /// `cp.async.bulk.tensor`, one for each panel; before this thread's first copy from the tensor `fence.proxy.tensormap` and
    /// `fence.proxy.async.global`, since tasks that wrote it wrote it otherwise). One thread calls. A tensor has boxes by `boxes(x = 128)` in the task's attribute, of as many rows as the tile, which
    /// has 256 at most.
    ///
    /// # Safety
    /// What this tile covers of the tensor is inside the task's region, and begins at a multiple of 16 bytes: else a GPU says that the instruction is
    /// illegal; on the CPU that is a panic. `barrier` expects the bytes in its present phase
    /// ([`Mbarrier::arrive_expect`]), and somebody waits for it before the barrier's scope ends: the copy must not outlive the body. What
    /// threads have written to the tile before lies behind a [`crate::Simt::sync_copies`], and nobody uses it meanwhile.
    #[inline(always)]
    pub unsafe fn load(self, from: &impl Boxes<ROWS, SWIZZLE, Element = T::Element>, row: i32, col: i32, barrier: &Mbarrier<'_>) {
        const { assert!(ROWS <= MOST, "MACO0017: a box has 256 rows at most, and so has a tile that a tensor copy fills") };
        let whole = from.whole();
        #[cfg(target_arch = "nvptx64")]
        {
            let map = from.map::<true>();
            let mut panel = 0;
            while panel < Self::PANELS {
                // SAFETY: a panel of the tile, which is aligned for its swizzle; the rest is promised by the caller.
                unsafe {
                    let to = scratch::after(self.at, panel * Self::PANEL_BYTES);
                    let col = whole.col + col + (panel * Self::PANEL) as i32;
                    scratch::tensor_load(to, map, (col, whole.row + row, whole.plane), barrier.at);
                }
                panel += 1;
            }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            for (to, at) in places::<_, ROWS, COLS>(whole, row, col) {
                // SAFETY: inside a live tensor, which the caller promises nobody writes.
                let element = at.map_or(T::Element::element(Default::default()), |at| unsafe { at.read() });
                self.write(to.0, to.1, element);
            }
            // SAFETY: an initialised barrier.
            unsafe { scratch::arrived(barrier.at, self.bytes()) };
        }
    }

    /// Copies the tile to `to`, its first element to (`row`, `col`) of the tile there; what would lie outside the tensor is dropped. When it returns,
    /// the elements are there, as if this thread had stored them (PTX ISA §9.7.9.27.1.2 `cp.async.bulk.tensor`, one for each panel, their group's
    /// `wait_group 0` and `fence.proxy.async.global`). One thread calls.
    ///
    /// # Safety
    /// What this tile covers of the tensor is inside the region that the task writes, begins at a multiple of 16 bytes, as of [`Swizzled::load`], and nobody else
    /// writes it. What threads have written to
    /// the tile lies behind a [`crate::Simt::sync_copies`], and nobody writes it meanwhile.
    #[inline(always)]
    pub unsafe fn store(self, to: &impl Boxes<ROWS, SWIZZLE, Element = T::Element>, row: i32, col: i32) {
        const { assert!(ROWS <= MOST, "MACO0017: a box has 256 rows at most, and so has a tile that a tensor copy stores") };
        let whole = to.whole();
        #[cfg(target_arch = "nvptx64")]
        {
            // The map of a tensor without elements is one of another place.
            if whole.view.rows == 0 || whole.view.cols == 0 {
                return;
            }
            let map = to.map::<false>();
            let mut panel = 0;
            while panel < Self::PANELS {
                // SAFETY: a panel of the tile; the rest is promised by the caller.
                unsafe {
                    let from = scratch::after(self.at, panel * Self::PANEL_BYTES);
                    let col = whole.col + col + (panel * Self::PANEL) as i32;
                    scratch::tensor_store(map, (col, whole.row + row, whole.plane), from);
                }
                panel += 1;
            }
            scratch::complete();
        }
        #[cfg(not(target_arch = "nvptx64"))]
        for (from, at) in places::<_, ROWS, COLS>(whole, row, col) {
            if let Some(at) = at {
                // SAFETY: inside a live tensor, in what the caller promises is the task's own.
                unsafe { at.write(self.read(from.0, from.1)) };
            }
        }
        fence::proxy_async_global();
    }

    /// Panels of the tile.
    #[cfg(target_arch = "nvptx64")]
    const PANELS: u32 = COLS as u32 / Self::PANEL;
    /// Bytes of one.
    #[cfg(target_arch = "nvptx64")]
    const PANEL_BYTES: u32 = (ROWS * SWIZZLE) as u32;
}

/// The elements of a box of `ROWS` × `COLS`, with where each is in the tensor if it is inside.
#[cfg(not(target_arch = "nvptx64"))]
fn places<E: Element, const ROWS: usize, const COLS: usize>(
    whole: Tile<E, 0, 0>,
    row: i32,
    col: i32,
) -> impl Iterator<Item = ((u32, u32), Option<*mut E>)> {
    let bytes = (whole.col + col) * E::BYTES as i32;
    assert!(
        bytes % 16 == 0,
        "a tensor copy begins at byte {bytes} of a row, expected a multiple of 16: a GPU refuses it as an illegal instruction"
    );
    let inside = |at: i32, of: u32| u32::try_from(at).is_ok_and(|at| at < of);
    let elements = (0..ROWS as i32).flat_map(|down| (0..COLS as i32).map(move |right| (down, right)));
    elements.map(move |(down, right)| {
        let (at_row, at_col) = (row + down, col + right);
        let there = whole.plane >= 0 && inside(whole.row + at_row, whole.view.rows) && inside(whole.col + at_col, whole.view.cols);
        ((down as u32, right as u32), there.then(|| whole.pointer(at_row, at_col)))
    })
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::*;
    use crate::data::element::bf16;
    use crate::data::operand_type::E4M3;
    use crate::simt::Simt;
    use crate::simt::smem::Scratch;
    use maco_abi::View;

    /// Rows of `cols` numbers, each 100 times its row and its column, and as many elements from row to row as there are columns.
    fn numbers<E: Element>(rows: usize, cols: usize, of: impl Fn(usize, usize) -> E) -> Vec<E> {
        (0..rows * cols).map(|at| of(at / cols, at % cols)).collect()
    }

    fn mapped<E: Element, const ROWS: usize>(data: &mut [E], rows: u32, cols: u32, (row, col): (i32, i32)) -> Mapped<E, 0, 0, ROWS> {
        let view = View { base: data.as_mut_ptr() as u64, rows, cols, row_stride: cols, col_stride: 1, ..View::default() };
        Mapped::new(Tile::new(view, 0, row, col))
    }

    #[test]
    fn boxes_are_filled_with_zeros_and_clipped() {
        let mut scratch = Scratch::<{ 4096 + 8 }>::new();
        let mut cta = Simt::alone_with(&mut scratch);
        let tile = cta.swizzled::<bf16, 0, 16, 128>();
        let number = |row: usize, col: usize| bf16::from_f32((row * 10 + col) as f32 + 1.0);
        let mut data = numbers(12, 70, number);
        let from = mapped::<_, 16>(&mut data, 12, 70, (2, 5));
        // SAFETY: one thread; the barrier is behind the tile.
        unsafe {
            cta.mbarriers::<4096, 1>(1, |_, barriers| {
                let barrier = barriers.at(0);
                barrier.arrive_expect(tile.bytes());
                tile.load(&from, -4, -13, &barrier);
                assert!(barrier.wait(0));
            });
        }
        for (row, col) in (0..16usize).flat_map(|row| (0..128usize).map(move |col| (row, col))) {
            let inside = (2..14).contains(&row) && (8..78).contains(&col);
            let expected = if inside { number(row - 2, col - 8).to_f32() } else { 0.0 };
            assert_eq!(tile.read(row as u32, col as u32).to_f32(), expected, "row {row}, column {col}");
        }
        let mut out = numbers(9, 66, |_, _| bf16::from_f32(-1.0));
        let to = mapped::<_, 16>(&mut out, 9, 66, (3, 0));
        // SAFETY: one thread.
        unsafe { tile.store(&to, 0, 64) };
        for (at, value) in out.iter().enumerate() {
            let (row, col) = (at / 66, at % 66);
            let expected = if row < 3 || col < 64 { -1.0 } else { tile.read(row as u32 - 3, col as u32 - 64).to_f32() };
            assert_eq!(value.to_f32(), expected, "row {row}, column {col}");
        }
    }

    #[test]
    fn a_plane_that_is_not_there_is_zeros() {
        let mut scratch = Scratch::<{ 2048 + 8 }>::new();
        let mut cta = Simt::alone_with(&mut scratch);
        let tile = cta.swizzled::<E4M3, 0, 16, 128>();
        let mut data = numbers(16, 128, |_, _| 1i8);
        let view = View { base: data.as_mut_ptr() as u64, rows: 16, cols: 128, row_stride: 128, col_stride: 1, ..View::default() };
        let from = Mapped::<_, 0, 0, 16>::new(Tile::new(view, -1, 0, 0));
        // SAFETY: one thread; the barrier is behind the tile.
        unsafe {
            cta.mbarriers::<2048, 1>(1, |_, barriers| {
                barriers.at(0).arrive_expect(tile.bytes());
                tile.load(&from, 0, 0, &barriers.at(0));
                assert!(barriers.at(0).wait(0));
            });
        }
        assert!((0..16).all(|row| (0..128).all(|col| tile.read(row, col) == 0)));
    }
}
