//! The loader: one thread that issues the TMA copies of staged operands, several tasks ahead of the consumers.

use super::Role;
use super::maps::Maps;
use super::ring::{Arena, Ring, Room, pages, scratch_pages};
use super::stream;
use crate::abi::{self, ROW_BYTES};
use crate::cta::Simt;
use crate::element::{Element, HalfElement, MmaElement};
use crate::epilogue::Epilogue;
use crate::hardware::{special, tma};
use crate::row::{RowInputs, RowOutputs};
use crate::split::Split;
use crate::task::Task;
use crate::tile::{Inputs, Parts, Tile};

/// The loader's state.
pub struct Loader {
    ring: Ring,
    maps: Maps,
}

impl Loader {
    /// # Safety
    /// Made by the loader thread of a CTA whose arena is initialised; `maps` is the launch's table of tensor maps.
    #[inline(always)]
    pub unsafe fn new(arena: Arena, maps: u64) -> Loader {
        Loader { ring: Ring::new(arena), maps: Maps::new(maps) }
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

    /// Waits for all copies: see [`Ring::drain`].
    ///
    /// # Safety
    /// Called by the loader thread at its end.
    #[inline(always)]
    pub unsafe fn drain(&self) {
        // SAFETY: passed on from the caller.
        unsafe { self.ring.drain() }
    }

    /// Copies the boxes of one step of operand `N`, one after another along the kept axis, of which the tile has `kept`, behind `before` others.
    #[inline(always)]
    fn boxes<E: MmaElement, const N: usize>(maps: &mut Maps, room: Room, before: u32, parts: Parts, kept: u32) {
        let shared = room.shared + before * ROW_BYTES;
        let map = maps.get::<N>(parts.view.map);
        // Of either kind, a box has 128 bytes for each of what it keeps: one for the whole tile, but of what is contracted along its rows, where a box is as
        // wide as its swizzle. What a step takes goes by the number of copies.
        let each = if parts.along_rows { abi::columns(E::BYTES) } else { kept };
        // The same at every step: opaque, or the place of every box would have a register of its own.
        let origin = special::opaque(if parts.along_rows { parts.col } else { parts.row } as u32);
        let mut first = 0;
        while first < kept {
            let at = (origin + first) as i32;
            let (row, col) = if parts.along_rows { (parts.row, at) } else { (at, parts.col) };
            // SAFETY: the plan gave every staged operand a tensor map; the stage has space for all boxes, and `full` expects them.
            unsafe { tma::load(shared + first * ROW_BYTES, map, col, row, parts.plane, room.full) };
            first += each;
        }
    }

    /// Copies the boxes of one step of both factors, of which the tile keeps `i` and `j`: if each has one, by one election.
    #[inline(always)]
    fn factors<E: MmaElement>(maps: &mut Maps, room: Room, (a, i): (Parts, u32), (b, j): (Parts, u32)) {
        if a.along_rows || b.along_rows {
            Self::boxes::<E, 0>(maps, room, 0, a, i);
            Self::boxes::<E, 1>(maps, room, i, b, j);
            return;
        }
        let of = |shared: u32, map: u64, parts: Parts| tma::Box { shared, map, at: [parts.col, parts.row, parts.plane] };
        let (first, second) = (maps.get::<0>(a.view.map), maps.get::<1>(b.view.map));
        // SAFETY: as in `boxes`.
        unsafe { tma::load_two(of(room.shared, first, a), of(room.shared + i * ROW_BYTES, second, b), room.full) };
    }
}

impl Role for Loader {
    type Accumulator<const I: usize, const J: usize> = ();

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) {}

    #[inline(always)]
    fn expect(&mut self, a: u32, b: u32) {
        self.maps.get::<0>(a);
        self.maps.get::<1>(b);
    }

    #[inline(always)]
    fn mma<E: MmaElement, const I: usize, const J: usize>(&mut self, _: &mut (), a: Parts, b: Parts) {
        let (i, j) = (I as u32, J as u32);
        // SAFETY: `new` was called by the loader thread; consumers wait for stages of the same size in the same order.
        let maps = &mut self.maps;
        unsafe { self.ring.acquire(pages(I, J), (i + j) * ROW_BYTES, |room| Self::factors::<E>(maps, room, (a, i), (b, j))) };
    }

    #[inline(always)]
    fn mma_pair<E: MmaElement, const I: usize, const J: usize>(&mut self, _: (&mut (), &mut ()), a: Parts, b: (Parts, Parts)) {
        let (i, j) = (I as u32, J as u32);
        // SAFETY: as in `mma`.
        let maps = &mut self.maps;
        unsafe {
            self.ring.acquire(pages(I, 2 * J), (i + 2 * j) * ROW_BYTES, |room| {
                Self::factors::<E>(maps, room, (a, i), (b.0, j));
                Self::boxes::<E, 2>(maps, room, i + j, b.1, j);
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
        if !(x.streams() && w.streams()) {
            return;
        }
        let (rows, cols) = (w.rows(), w.cols());
        let (first, stride) = (w.pointer(0, 0) as u64, w.row_stride() * E::BYTES);
        let mut col = 0;
        loop {
            let left = cols - col;
            let count = if left < stream::columns(J) { left } else { stream::columns(J) };
            let bytes = count * E::BYTES;
            let copy = |room: Room| {
                let mut from = first + (col * E::BYTES) as u64;
                let (mut to, end) = (room.shared, room.shared + rows * stream::columns(J) * E::BYTES);
                while bytes > 0 && to < end {
                    // SAFETY: inside a live tensor, at 16-byte boundaries because it streams; the stage has space for all rows.
                    unsafe { tma::row(to, from, bytes, room.full) };
                    from += stride as u64;
                    to += stream::columns(J) * E::BYTES;
                }
            };
            // SAFETY: `new` was called by the loader thread; consumers wait for stages of the same size in the same order.
            let acquired = unsafe { self.ring.acquire(stream::pages(J), bytes * rows, copy) };
            if !acquired || left <= stream::columns(J) {
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
        let stages = stream::parts(inputs, y, task);
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
        let stages = stream::whole(inputs, y, task);
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
    fn simt<const SHARED: usize>(&mut self, _: bool, _: impl FnOnce(&mut Simt<'_, SHARED>)) {
        if SHARED > 0 {
            // SAFETY: `new` was called by the loader thread; consumers wait for a stage of the same size. Nothing is copied: the stage is full
            // when it is theirs. If it never will be, they are let through.
            unsafe { self.ring.acquire(scratch_pages(SHARED), 0, |_| ()) };
        }
    }

    #[inline(always)]
    fn store<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(&mut self, _: (), _: Tile<E, I, J>, _: Split, _: Task) {}
}
