//! Inputs of an operation: a tile, or a tuple of tiles.

use crate::data::element::Element;
use crate::data::reader::Reader;
use crate::data::tile::{BY_ELEMENT, BlockAddresses, Tile};
use crate::sync::ring::Ring;

/// Tiles read together, element by element. A tile of one row is broadcast over the rows of the result.
pub trait Inputs: Copy {
    /// What the closure gets: a value, or a tuple of values.
    type Values: Copy;
    /// What a positional closure gets: a [`Reader`], or a tuple of readers.
    type Readers;
    /// Eight of each, packed.
    #[doc(hidden)]
    type Blocks: Copy + Default;
    /// Accesses of 16 bytes that bring them.
    #[doc(hidden)]
    const ACCESSES: u32;
    /// `whole`: of tiles of which all is [`whole`](Inputs::whole).
    #[doc(hidden)]
    fn readers(self, whole: bool) -> Self::Readers;
    /// Whether blocks of eight from multiples of eight columns on are one aligned access each, or outside the tensor; of tiles that are read
    /// by the element it does not matter.
    #[doc(hidden)]
    fn whole(self) -> bool;
    #[doc(hidden)]
    fn wide(self) -> bool;
    /// Values at a position; zero outside a tile.
    #[doc(hidden)]
    fn at(self, row: u32, col: u32) -> Self::Values;
    /// Whether every tile has so many rows, or is broadcast over them, and so many columns.
    #[doc(hidden)]
    fn covers(self, rows: u32, cols: u32) -> bool;
    /// Bytes of the largest element of tiles that are not broadcast.
    #[doc(hidden)]
    const BYTES: u32;
    /// Whether so many rows and columns of all that are not broadcast can come through the ring.
    #[doc(hidden)]
    fn copies(self, rows: u32, cols: u32) -> bool;
    /// See [`Tile::fetch`]: all that are not broadcast, one after the other.
    ///
    /// # Safety
    /// As there.
    #[doc(hidden)]
    unsafe fn fetch(self, ring: &mut Ring, pages: u32, rows: (u32, u32), cols: u32) -> bool;
    /// See [`Tile::arrived`]: all that are not broadcast, one after the other.
    ///
    /// # Safety
    /// As there.
    #[doc(hidden)]
    unsafe fn arrived(self, ring: &mut Ring, pages: u32, cols: u32, held: &mut u32) -> Self;
    /// Where a thread's blocks lie in each of them.
    #[doc(hidden)]
    type Addresses: Copy;
    /// See [`Tile::block_addresses`]; of tiles that are broadcast, always in their one row. `NEAR`: the others have [arrived](Inputs::arrived).
    #[doc(hidden)]
    fn addresses<const NEAR: bool>(self, first: (u32, u32), step: (u32, u32)) -> Self::Addresses;
    /// Block `n` of each.
    ///
    /// # Safety
    /// Its row and eight columns are covered, from a multiple of eight on, and [`wide`](Inputs::wide); or they have arrived.
    #[doc(hidden)]
    unsafe fn block<const NEAR: bool>(addresses: Self::Addresses, n: u32) -> Self::Blocks;
    #[doc(hidden)]
    fn open(blocks: Self::Blocks) -> [Self::Values; 8];
}

impl<E: Element, const R: usize, const C: usize> Inputs for Tile<E, R, C> {
    type Values = E::Value;
    type Readers = Reader<E, R, C>;
    type Blocks = E::Eight;
    const ACCESSES: u32 = E::BYTES.div_ceil(2);
    #[inline(always)]
    fn readers(self, whole: bool) -> Reader<E, R, C> {
        Reader::new(self, whole && self.near != BY_ELEMENT)
    }
    #[inline(always)]
    fn whole(self) -> bool {
        let eights = const { C.is_multiple_of(8) } && self.view.cols.is_multiple_of(8) && (self.col as u32).is_multiple_of(8);
        self.near == BY_ELEMENT || (eights && Tile::wide(self))
    }
    #[inline(always)]
    fn wide(self) -> bool {
        Tile::wide(self)
    }
    #[inline(always)]
    fn at(self, row: u32, col: u32) -> E::Value {
        let row = if R == 1 { 0 } else { row };
        if row >= self.rows() || col >= self.cols() {
            return E::Value::default();
        }
        // SAFETY: the position is inside the tile, which lies inside a live tensor of the plan.
        unsafe { self.pointer(row as i32, col as i32).read() }.value()
    }
    #[inline(always)]
    fn covers(self, rows: u32, cols: u32) -> bool {
        (R == 1 || rows <= self.rows()) & (cols <= self.cols())
    }
    type Addresses = BlockAddresses<E>;
    #[inline(always)]
    fn addresses<const NEAR: bool>(self, (row, col): (u32, u32), (below, beside): (u32, u32)) -> BlockAddresses<E> {
        match (R == 1, NEAR) {
            (true, _) => self.block_addresses::<false>((0, col), (0, beside)),
            (false, true) => self.block_addresses::<true>((row, col), (below, beside)),
            (false, false) => self.block_addresses::<false>((row, col), (below, beside)),
        }
    }
    #[inline(always)]
    unsafe fn block<const NEAR: bool>(addresses: BlockAddresses<E>, n: u32) -> E::Eight {
        // SAFETY: passed on from the caller.
        unsafe { if NEAR && R != 1 { addresses.block::<true>(n) } else { addresses.block::<false>(n) } }
    }
    const BYTES: u32 = if R == 1 { 0 } else { E::BYTES };
    #[inline(always)]
    fn copies(self, rows: u32, cols: u32) -> bool {
        R == 1 || Tile::copies(self, rows, cols)
    }
    #[inline(always)]
    unsafe fn fetch(self, ring: &mut Ring, pages: u32, rows: (u32, u32), cols: u32) -> bool {
        // SAFETY: passed on from the caller.
        R == 1 || unsafe { Tile::fetch(self, ring, pages, rows, cols) }
    }
    #[inline(always)]
    unsafe fn arrived(self, ring: &mut Ring, pages: u32, cols: u32, held: &mut u32) -> Self {
        // SAFETY: passed on from the caller.
        if R == 1 { self } else { unsafe { Tile::arrived(self, ring, pages, cols, held) } }
    }
    #[inline(always)]
    fn open(block: E::Eight) -> [E::Value; 8] {
        E::open(block)
    }
}

/// No tile.
impl Inputs for () {
    type Values = ();
    type Readers = ();
    type Blocks = ();
    const ACCESSES: u32 = 0;
    #[inline(always)]
    fn readers(self, _: bool) {}
    #[inline(always)]
    fn whole(self) -> bool {
        true
    }
    #[inline(always)]
    fn wide(self) -> bool {
        true
    }
    #[inline(always)]
    fn at(self, _: u32, _: u32) {}
    #[inline(always)]
    fn covers(self, _: u32, _: u32) -> bool {
        true
    }
    type Addresses = ();
    #[inline(always)]
    fn addresses<const NEAR: bool>(self, _: (u32, u32), _: (u32, u32)) {}
    #[inline(always)]
    unsafe fn block<const NEAR: bool>((): (), _: u32) {}
    const BYTES: u32 = 0;
    #[inline(always)]
    fn copies(self, _: u32, _: u32) -> bool {
        true
    }
    #[inline(always)]
    unsafe fn fetch(self, _: &mut Ring, _: u32, _: (u32, u32), _: u32) -> bool {
        true
    }
    #[inline(always)]
    unsafe fn arrived(self, _: &mut Ring, _: u32, _: u32, _: &mut u32) {}
    #[inline(always)]
    fn open((): ()) -> [(); 8] {
        [(); 8]
    }
}

macro_rules! tuple_inputs {
    ($($name:ident $n:tt),+) => {
        impl<$($name: Inputs),+> Inputs for ($($name,)+) {
            type Values = ($($name::Values,)+);
            type Readers = ($($name::Readers,)+);
            type Blocks = ($($name::Blocks,)+);
            const ACCESSES: u32 = 0 $(+ $name::ACCESSES)+;
            #[inline(always)]
            fn readers(self, whole: bool) -> Self::Readers {
                ($(self.$n.readers(whole),)+)
            }
            #[inline(always)]
            fn whole(self) -> bool {
                $(self.$n.whole())&&+
            }
            #[inline(always)]
            fn wide(self) -> bool {
                $(self.$n.wide())&&+
            }
            #[inline(always)]
            fn at(self, row: u32, col: u32) -> Self::Values {
                ($(self.$n.at(row, col),)+)
            }
            #[inline(always)]
            fn covers(self, rows: u32, cols: u32) -> bool {
                $(self.$n.covers(rows, cols))&&+
            }
            const BYTES: u32 = {
                let mut most = 0;
                $(if $name::BYTES > most {
                    most = $name::BYTES;
                })+
                most
            };
            #[inline(always)]
            fn copies(self, rows: u32, cols: u32) -> bool {
                $(self.$n.copies(rows, cols))&&+
            }
            #[inline(always)]
            unsafe fn fetch(self, ring: &mut Ring, pages: u32, rows: (u32, u32), cols: u32) -> bool {
                // SAFETY: passed on from the caller.
                unsafe { $(self.$n.fetch(ring, pages, rows, cols))&&+ }
            }
            #[inline(always)]
            unsafe fn arrived(self, ring: &mut Ring, pages: u32, cols: u32, held: &mut u32) -> Self {
                // SAFETY: passed on from the caller.
                unsafe { ($(self.$n.arrived(ring, pages, cols, held),)+) }
            }
            type Addresses = ($($name::Addresses,)+);
            #[inline(always)]
            fn addresses<const NEAR: bool>(self, first: (u32, u32), step: (u32, u32)) -> Self::Addresses {
                ($(self.$n.addresses::<NEAR>(first, step),)+)
            }
            #[inline(always)]
            unsafe fn block<const NEAR: bool>(addresses: Self::Addresses, n: u32) -> Self::Blocks {
                // SAFETY: passed on from the caller.
                unsafe { ($($name::block::<NEAR>(addresses.$n, n),)+) }
            }
            #[inline(always)]
            fn open(blocks: Self::Blocks) -> [Self::Values; 8] {
                let v = ($($name::open(blocks.$n),)+);
                [
                    ($(v.$n[0],)+), ($(v.$n[1],)+), ($(v.$n[2],)+), ($(v.$n[3],)+),
                    ($(v.$n[4],)+), ($(v.$n[5],)+), ($(v.$n[6],)+), ($(v.$n[7],)+),
                ]
            }
        }
    };
}
tuple_inputs!(A 0);
tuple_inputs!(A 0, B 1);
tuple_inputs!(A 0, B 1, C 2);
tuple_inputs!(A 0, B 1, C 2, D 3);
