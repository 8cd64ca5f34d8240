//! A thread's way through the blocks of eight elements of a tile, of which it handles some together.
//!
//! What is done with them does not belong here.

use crate::data::element::Element;
use crate::data::tile::Tile;
use crate::operations::grid_stride::GridStride;
use crate::operations::simt_consumer::SimtConsumer;

/// Blocks that a thread has made together.
pub(super) type Values<E, const T: usize> = [[<E as Element>::Value; 8]; T];

/// Blocks of a thread that are handled together. Those behind the last one are the first one again: what is loaded there is not used.
#[derive(Clone, Copy)]
pub(super) struct Turn<const T: usize> {
    /// Row, and which block of it.
    pub(super) at: [(u32, u32); T],
    /// Which block of the tile.
    pub(super) number: [u32; T],
    /// Whether there is one; there is a first one.
    pub(super) there: [bool; T],
}

/// A thread's way through the blocks of a tile.
#[derive(Clone, Copy)]
pub(super) struct Turns {
    walk: GridStride,
    rows: u32,
    threads: u32,
    at: (u32, u32),
    number: u32,
    /// All blocks have eight columns in a row, at 16-byte boundaries, and are inside of both tiles. Else each is a turn.
    whole: bool,
}

impl Turns {
    #[inline(always)]
    pub(super) const fn any(&self) -> bool {
        self.at.0 < self.rows
    }

    #[inline(always)]
    fn step(&mut self) {
        (self.at, self.number) = (self.walk.next(self.at), self.number + self.threads);
    }

    /// The next one, if there is [any](Turns::any).
    #[inline(always)]
    pub(super) fn next<const T: usize>(&mut self) -> Turn<T> {
        let mut turn = Turn { at: [self.at; T], number: [self.number; T], there: [false; T] };
        turn.there[0] = true;
        self.step();
        let mut n = 1;
        while n < T {
            if self.whole & self.any() {
                (turn.at[n], turn.number[n], turn.there[n]) = (self.at, self.number, true);
                self.step();
            }
            n += 1;
        }
        turn
    }

    /// The blocks of a turn; `wide`: as [`Tile::block`].
    #[inline(always)]
    pub(super) fn load<E: Element, const T: usize, const A: usize, const B: usize>(
        &self,
        x: Tile<E, A, B>,
        wide: bool,
        turn: &Turn<T>,
    ) -> [E::Eight; T] {
        let mut eight = [E::Eight::default(); T];
        if self.whole {
            let mut n = 0;
            while n < T {
                let (row, beside) = turn.at[n];
                // SAFETY: eight columns inside the tile, which lies inside a live tensor, in a row and aligned.
                eight[n] = unsafe { E::eight(x.pointer(row as i32, 8 * beside as i32)) };
                n += 1;
            }
        } else {
            let (row, beside) = turn.at[0];
            eight[0] = x.block(wide, row, 8 * beside);
        }
        eight
    }

    /// Writes the blocks of a turn that there are; `wide`: as [`Tile::put_block`].
    ///
    /// # Safety
    /// Nobody else writes this thread's blocks of `y`, which has the size that the turns are of.
    #[inline(always)]
    pub(super) unsafe fn put<E: Element, const T: usize, const I: usize, const J: usize>(
        &self,
        y: Tile<E, I, J>,
        wide: bool,
        turn: &Turn<T>,
        values: Values<E, T>,
    ) {
        let mut n = 0;
        while n < T {
            let (row, beside) = turn.at[n];
            if self.whole & turn.there[n] {
                // SAFETY: this thread's block. Whole blocks are inside the tile, in a row and aligned.
                unsafe { E::store8(y.pointer(row as i32, 8 * beside as i32), values[n]) };
            } else if n == 0 {
                // SAFETY: this thread's block; the first one of a turn is there.
                unsafe { y.put_block(wide, row, 8 * beside, values[n]) };
            }
            n += 1;
        }
    }
}

impl SimtConsumer {
    /// This thread's way through the blocks of `y`; `wide`: all tiles have them at 16-byte boundaries, and all of them.
    #[inline(always)]
    pub(super) fn turns<E: Element, const I: usize, const J: usize>(self, y: Tile<E, I, J>, wide: bool) -> Turns {
        let cols = y.cols();
        let rows = if cols == 0 { 0 } else { y.rows() };
        let walk = GridStride::new(self.threads, cols.div_ceil(8).max(1));
        let whole = wide & cols.is_multiple_of(8);
        Turns { walk, rows, threads: self.threads, at: walk.start(self.thread), number: self.thread, whole }
    }
}
