//! The loader: one thread that issues the TMA copies of staged operands, several tasks ahead of the consumers.

use crate::data::element::{Element, HalfElement, MmaElement};
use crate::data::epilogue::Epilogue;
use crate::data::inputs::Inputs;
use crate::data::row::{RowInputs, RowOutputs};
use crate::data::task::Task;
use crate::data::tile::{OperandTile, Tile};
use crate::data::tile_shape::{TileShape, shape_of};
use crate::hardware::{special, tma};
use crate::operations::column_reduction;
use crate::operations::gather_rows;
use crate::operations::index_add;
use crate::operations::row_stages;
use crate::operations::scatter;
use crate::role::{Role, Sharing};
use crate::shared_memory::SharedMemory;
use crate::simt::Simt;
use crate::sync::ring::{Ring, Room, pages, scratch_pages};
use crate::sync::tensor_map_cache::TensorMapCache;
use maco_abi::{self as abi, MapIndex, PAGE_BYTES, PAGES, ROW_BYTES};

/// The loader's state.
pub struct Loader {
    ring: Ring,
    tensor_maps: TensorMapCache,
    /// Of a task with weights ([`abi::LOAD_CONSTANT_OPERAND_EARLY`]): stages that were begun before it may run, of which only those
    /// operands were asked for that no task writes; and [`BEFORE`], that is now. 0 as soon as stages are asked for whole.
    begun: u32,
    /// Before: pages for which there is no stage yet.
    left: u32,
    /// Where the first stage lies whose other operands are still to be asked for.
    from: u32,
    /// Rows and columns of the tile, if the code that runs is for several.
    tile: Option<(u32, u32)>,
}

/// See [`Loader::begun`].
const BEFORE: u32 = 1 << 31;

impl Loader {
    /// # Safety
    /// Made by the loader thread of a CTA whose shared memory is initialised; `tensor_maps` is the launch's table of tensor maps.
    #[inline(always)]
    pub unsafe fn new(smem: SharedMemory, tensor_maps: u64) -> Loader {
        Loader { ring: Ring::new(smem), tensor_maps: TensorMapCache::new(tensor_maps), begun: 0, left: 0, from: 0, tile: None }
    }

    /// See [`Ring::exaggerate`].
    #[inline(always)]
    pub fn exaggerate(&mut self, excess: bool) {
        self.ring.exaggerate(excess);
    }

    /// See [`Ring::precede`].
    #[inline(always)]
    pub fn precede(&mut self, n: u32, precedes: bool) {
        self.ring.precede(n, precedes);
    }

    /// The task that is loaded next may not run yet: begins as many of its stages as the ring has pages for, with the operands that no task
    /// writes. It is then loaded again, from [`Loader::rest`] on.
    #[inline(always)]
    pub fn before(&mut self) {
        self.begun = BEFORE;
        self.left = PAGES;
        self.from = self.ring.position();
    }

    /// The task may run: asks for what is missing in the stages that were begun, then for all others.
    #[inline(always)]
    pub fn rest(&mut self) {
        self.begun &= !BEFORE;
    }

    /// A step whose stage, of `pages` pages and `bytes` bytes, is asked for in two parts: `copy` asks for those operands that nobody writes, or for
    /// the others. False if it is asked for whole.
    #[inline(always)]
    fn in_two(&mut self, pages: u32, bytes: u32, copy: impl Fn(Room, bool)) -> bool {
        if self.begun & BEFORE != 0 {
            let span = self.ring.span(pages);
            // A stage that waits for another one of this task would wait for ever.
            if span > self.left {
                self.left = 0;
                return true;
            }
            self.left -= span;
            // SAFETY: the loader thread, which is asked for stages in their order.
            if unsafe { self.ring.acquire(pages, bytes, |room| copy(room, true)) } {
                self.begun += 1;
            }
            return true;
        }
        if self.begun == 0 {
            return false;
        }
        self.begun -= 1;
        let room = self.ring.again(&mut self.from, pages);
        copy(room, false);
        true
    }

    /// Waits for all copies: see [`Ring::drain`].
    ///
    /// # Safety
    /// Called by the loader thread at its end.
    #[inline(always)]
    pub unsafe fn drain(&self) {
        // SAFETY: passed on from the caller.
        unsafe { self.ring.drain() }
    }

    /// Copies the boxes of one step of an operand, one after another along the kept axis, of which the tile has `kept`, behind `before` others.
    #[inline(always)]
    fn boxes<E: MmaElement>(room: Room, before: u32, map: u64, tile: OperandTile, kept: u32) {
        let shared = room.shared + before * ROW_BYTES;
        // Of either kind, a box has 128 bytes for each of what it keeps: one for the whole tile, but of what is contracted along its rows, where a box is as
        // wide as its swizzle. What a step takes goes by the number of copies.
        let each = if tile.along_rows { abi::columns(E::BYTES) } else { kept };
        // The same at every step: opaque, or the place of every box would have a register of its own.
        let origin = special::opaque(if tile.along_rows { tile.col } else { tile.row } as u32);
        let mut first = 0;
        while first < kept {
            let at = (origin + first) as i32;
            let (row, col) = if tile.along_rows { (tile.row, at) } else { (at, tile.col) };
            // SAFETY: the plan gave every staged operand a tensor map; the stage has space for all boxes, and `full` expects them.
            unsafe { tma::load(shared + first * ROW_BYTES, map, col, row, tile.plane, room.full) };
            first += each;
        }
    }

    /// Copies the boxes of one step of both operands, of which the tile keeps `i` and `j`: if each has one, by one election.
    #[inline(always)]
    fn operands<E: MmaElement>(room: Room, tensor_maps: [u64; 2], (a, i): (OperandTile, u32), (b, j): (OperandTile, u32)) {
        if a.along_rows || b.along_rows {
            Self::boxes::<E>(room, 0, tensor_maps[0], a, i);
            Self::boxes::<E>(room, i, tensor_maps[1], b, j);
            return;
        }
        let of = |shared: u32, map: u64, tile: OperandTile| (shared, map, [tile.col, tile.row, tile.plane]);
        // SAFETY: as in `boxes`.
        unsafe { tma::load_two(of(room.shared, tensor_maps[0], a), of(room.shared + i * ROW_BYTES, tensor_maps[1], b), room.full) };
    }
}

/// Whether no task of the graph writes what is multiplied.
#[inline(always)]
fn is_unwritten(tile: OperandTile) -> bool {
    tile.view.map.is_unwritten()
}

impl Loader {
    /// The shape of a GEMM's tile, whose code says `I` × `J`.
    #[inline(always)]
    fn shape<const I: usize, const J: usize>(&self) -> TileShape {
        shape_of(self.tile, I, J)
    }
}

impl Role for Loader {
    const SHARING: Sharing = Sharing::Bodies;
    type Accumulator<const I: usize, const J: usize> = ();

    #[inline(always)]
    fn set_tile(&mut self, tile: Option<(u32, u32)>) {
        self.tile = tile;
    }

    #[inline(always)]
    fn tile_rows(&self, rows: u32) -> i32 {
        self.tile.map_or(rows, |(rows, _)| rows) as i32
    }

    #[inline(always)]
    fn tile_columns(&self, columns: u32) -> i32 {
        self.tile.map_or(columns, |(_, columns)| columns) as i32
    }

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) {}

    #[inline(always)]
    fn steps(&mut self, a: MapIndex, b: MapIndex, count: u32) -> u32 {
        self.tensor_maps.get::<0>(a);
        self.tensor_maps.get::<1>(b);
        // Behind as many as the ring may have stages there is nothing to begin.
        if self.begun & BEFORE != 0 && count > PAGES { PAGES } else { count }
    }

    #[inline(always)]
    fn mma<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(&mut self, _: &mut (), a: OperandTile, b: OperandTile, _: Task) {
        let shape = self.shape::<I, J>();
        let (i, j) = (shape.rows(), shape.columns());
        let bytes = (i + j) * ROW_BYTES;
        // Each once, whatever comes.
        let tensor_maps = [self.tensor_maps.get::<0>(a.view.map), self.tensor_maps.get::<1>(b.view.map)];
        if self.begun != 0 {
            let copy = |room: Room, unwritten: bool| {
                if is_unwritten(a) == unwritten {
                    Self::boxes::<E>(room, 0, tensor_maps[0], a, i);
                }
                if is_unwritten(b) == unwritten {
                    Self::boxes::<E>(room, i, tensor_maps[1], b, j);
                }
            };
            if self.in_two(pages(i + j), bytes, copy) {
                return;
            }
        }
        // SAFETY: `new` was called by the loader thread; consumers wait for stages of the same size in the same order.
        unsafe { self.ring.acquire(pages(i + j), bytes, |room| Self::operands::<E>(room, tensor_maps, (a, i), (b, j))) };
    }

    #[inline(always)]
    fn mma_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        _: (&mut (), &mut ()),
        a: OperandTile,
        b: (OperandTile, OperandTile),
        _: Task,
    ) {
        let shape = self.shape::<I, J>();
        let (i, j) = (shape.rows(), shape.columns());
        let bytes = (i + 2 * j) * ROW_BYTES;
        let tensor_maps = [self.tensor_maps.get::<0>(a.view.map), self.tensor_maps.get::<1>(b.0.view.map)];
        let third = self.tensor_maps.get::<2>(b.1.view.map);
        if self.begun != 0 {
            let copy = |room: Room, unwritten: bool| {
                if is_unwritten(a) == unwritten {
                    Self::boxes::<E>(room, 0, tensor_maps[0], a, i);
                }
                if is_unwritten(b.0) == unwritten {
                    Self::boxes::<E>(room, i, tensor_maps[1], b.0, j);
                }
                if is_unwritten(b.1) == unwritten {
                    Self::boxes::<E>(room, i + j, third, b.1, j);
                }
            };
            if self.in_two(pages(i + 2 * j), bytes, copy) {
                return;
            }
        }
        // SAFETY: as in `mma`.
        unsafe {
            self.ring.acquire(pages(i + 2 * j), bytes, |room| {
                Self::operands::<E>(room, tensor_maps, (a, i), (b.0, j));
                Self::boxes::<E>(room, i + j, third, b.1, j);
            })
        };
    }

    #[inline(always)]
    fn store_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        _: ((), ()),
        _: Tile<E, I, J>,
        _: Task,
        _: impl Fn(f32, f32) -> f32,
    ) {
    }

    #[inline(always)]
    fn gemv<T: Epilogue, E: HalfElement, X: Inputs, const I: usize, const J: usize>(
        &mut self,
        x: Tile<E, I, 0>,
        w: Tile<E, J, 0>,
        _: X,
        _: Tile<E, I, J>,
        _: Task,
        _: impl Fn(f32, X::Values) -> f32,
    ) {
        if !(x.is_bulk_copied() && w.is_bulk_copied()) {
            return;
        }
        let kept = self.tile.map_or(J as u32, |(_, columns)| columns);
        let (rows, cols) = (w.part(kept).rows(), w.cols());
        let (first, stride) = (w.pointer(0, 0) as u64, w.row_stride() as u64 * E::BYTES as u64);
        let (columns, pages) = (row_stages::columns(kept as usize), row_stages::pages(kept as usize));
        // Rows in pieces come in boxes: one copy for eight rows.
        let boxed = row_stages::boxed(kept as usize) && !w.view.map.is_none();
        let map = if boxed { self.tensor_maps.get::<0>(w.view.map) } else { 0 };
        let mut col = 0;
        loop {
            let left = cols - col;
            let count = if left < columns { left } else { columns };
            let bytes = count * E::BYTES;
            let copy = |room: Room| {
                if boxed {
                    let mut row = 0;
                    while row < kept {
                        let (to, piece) = (room.shared + row * columns * E::BYTES, (col / abi::PIECE) as i32);
                        // SAFETY: the map is that of the weights in pieces; the stage has space for all boxes, and expects them, also what of
                        // them is outside.
                        unsafe { tma::load_once(to, map, 0, piece, w.row + row as i32, room.full) };
                        row += abi::WEIGHT_BOX_ROWS;
                    }
                    return;
                }
                let mut from = first + col as u64 * E::BYTES as u64;
                let (mut to, end) = (room.shared, room.shared + rows * columns * E::BYTES);
                while bytes > 0 && to < end {
                    // SAFETY: inside a live tensor, at 16-byte boundaries because it streams; the stage has space for all rows.
                    unsafe { tma::row_once(to, from, bytes, room.full) };
                    from += stride;
                    to += columns * E::BYTES;
                }
            };
            // SAFETY: `new` was called by the loader thread; consumers wait for stages of the same size in the same order. Stages that were begun
            // in part are of an earlier task, which is loaded.
            let acquired = unsafe {
                self.ring.throttle(pages);
                self.ring.acquire(pages, if boxed { pages * PAGE_BYTES } else { bytes * rows }, copy)
            };
            if !acquired || left <= columns {
                return;
            }
            col += count;
        }
    }

    #[inline(always)]
    fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        task: Task,
        _: impl Fn(X::Values) -> E::Value,
    ) {
        let stages = row_stages::element_stages(inputs, y, task);
        let (mut first, rows) = (0, y.rows());
        while stages.any() && first < rows {
            let count = stages.next(first, rows);
            // SAFETY: `new` was called by the loader thread; consumers reckon the same stages from the same tiles.
            if !unsafe { inputs.fetch(&mut self.ring, stages.pages, (first, count), y.cols()) } {
                return;
            }
            first += count;
        }
    }

    #[inline(always)]
    fn rows<X: RowInputs, Y: RowOutputs>(&mut self, inputs: X, y: Y, task: Task, _: impl Fn(X::Rows, &mut Y::Rows)) {
        let stages = row_stages::row_stages(inputs, y, task);
        let (mut first, rows) = (0, y.count());
        // SAFETY: as above.
        if stages.singles(rows) && !unsafe { inputs.fetch_singles(&mut self.ring) } {
            return;
        }
        while stages.any() && first < rows {
            let count = stages.next(first, rows);
            // SAFETY: as above.
            if !unsafe { inputs.fetch(&mut self.ring, stages.pages, (first, count)) } {
                return;
            }
            first += count;
        }
    }

    #[inline(always)]
    fn take<E: Element, const R: usize, const C: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
        &mut self,
        ids: Tile<u32, R, C>,
        table: Tile<E, A, B>,
        y: Tile<E, I, J>,
        task: Task,
    ) {
        // SAFETY: `new` was called by the loader thread; consumers reckon the same stages from the same tiles.
        unsafe { gather_rows::fetch(&mut self.ring, ids, table, y, task) };
    }

    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn columns<X: Element, E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        x: Tile<X, R, C>,
        _: Tile<E, I, J>,
        task: Task,
        _: f32,
        _: impl Fn(X::Value) -> f32,
        _: impl Fn(f32, f32) -> f32,
        _: impl Fn(f32) -> E::Value,
    ) {
        // SAFETY: `new` was called by the loader thread; consumers reckon the same stages from the same tile.
        unsafe { column_reduction::fetch_columns(&mut self.ring, &mut self.tensor_maps, x, task) };
    }

    #[inline(always)]
    fn transpose<E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        x: Tile<E, R, C>,
        _: Tile<E, I, J>,
        task: Task,
    ) {
        // SAFETY: as above.
        unsafe { column_reduction::fetch(&mut self.ring, &mut self.tensor_maps, x, task) };
    }

    #[inline(always)]
    fn index_copy<E: Element, const J: usize>(&mut self, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) {
        // SAFETY: `new` was called by the loader thread; consumers reckon the same pages from the same tiles.
        unsafe { scatter::reserve(&mut self.ring, ids, x, y, task) };
    }

    #[inline(always)]
    fn index_add<E: Element<Value = f32>, const J: usize>(&mut self, ids: Tile<u32, 1, 0>, _: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) {
        // SAFETY: as above.
        unsafe { index_add::reserve(&mut self.ring, ids, y, task) };
    }

    #[inline(always)]
    fn simt<const SHARED: usize>(&mut self, _: bool, _: impl FnOnce(&mut Simt<'_, SHARED>)) {
        if SHARED > 0 {
            // SAFETY: `new` was called by the loader thread; consumers wait for a stage of the same size. Nothing is copied: the stage is full
            // when it is theirs. If it never will be, they are let through.
            unsafe { self.ring.acquire(scratch_pages(SHARED), 0, |_| ()) };
        }
    }
}
