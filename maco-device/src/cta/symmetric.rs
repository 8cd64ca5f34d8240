//! Exchanges into symmetric memory: a body lets the task at the other end store its result, and stores that one's.
//!
//! A result is the task's own while the task runs: those before it that use this memory have ended, and those behind it wait. It says where its result lies, and thereby that the
//! other end may store it; it ends when the other end has. So what a rank stores in another one's memory nobody else reads or writes meanwhile, and no slot is needed.

use core::marker::PhantomData;

use crate::cta::channel_ends::ends;
use crate::cta::operations::Begin;
use crate::data::access::{Fresh, Readable, TaskTile, Written};
use crate::data::element::Element;
use crate::data::region::{SameColumns, SameRows};
use crate::data::tile::Tile;

/// The other end may store the result, but has not been told.
pub enum Open {}
/// The other end has been told.
pub enum Told {}
/// The other end has told where its result lies.
pub enum Granted {}
/// The other end's result is stored.
pub enum Stored {}
/// The other end has been told that its result is stored.
pub enum StoredAndTold {}
/// The result of this end is stored.
pub enum Complete {}

/// A result that the task at the other end stores, step by step: `cta.open(&y).signal().wait().put(x).signal().wait().receive(y)`. `H` is its region.
#[must_use = "an exchange ends with `receive`"]
pub struct Opened<B, E, H, S, const I: usize, const J: usize> {
    cta: B,
    y: Tile<E, I, J>,
    /// How often this end has signalled, before it does in this launch: twice.
    count: u32,
    /// The launch goes on.
    goes_on: bool,
    types: PhantomData<fn() -> (H, S)>,
}

impl<B: Begin, E: Element, H, S, const I: usize, const J: usize> Opened<B, E, H, S, I, J> {
    /// The next step.
    #[inline(always)]
    fn next<N>(self) -> Opened<B, E, H, N, I, J> {
        let Opened { cta, y, count, goes_on, .. } = self;
        Opened { cta, y, count, goes_on, types: PhantomData }
    }

    /// Tells the other end of signal `count`.
    #[inline(always)]
    fn tell(&mut self, count: u32) {
        if let Some((consumer, Some(end))) = ends(&mut self.cta, 0) {
            consumer.signal_if_stored(end, count);
        }
    }

    /// Waits for signal `count` of the other end.
    #[inline(always)]
    fn hear(&mut self, count: u32) {
        if let Some((consumer, Some(end))) = ends(&mut self.cta, 0) {
            self.goes_on &= consumer.await_signal(end, count);
        }
    }
}

impl<B: Begin, E: Element, H, const I: usize, const J: usize> Opened<B, E, H, Open, I, J> {
    /// `y` may be stored by the other end.
    #[inline(always)]
    pub(super) fn new(cta: B, y: Tile<E, I, J>) -> Self {
        let mut opened = Opened { cta, y, count: 0, goes_on: true, types: PhantomData };
        if let Some((consumer, Some(end))) = ends(&mut opened.cta, 0) {
            opened.count = consumer.grant(y, end);
        }
        opened
    }

    /// Tells the other end where the result lies.
    #[inline(always)]
    pub fn signal(mut self) -> Opened<B, E, H, Told, I, J> {
        self.tell(self.count);
        self.next()
    }
}

impl<B: Begin, E: Element, H, const I: usize, const J: usize> Opened<B, E, H, Told, I, J> {
    /// Waits until the other end has told where its result lies: for as long as the communicator's deadline.
    #[inline(always)]
    pub fn wait(mut self) -> Opened<B, E, H, Granted, I, J> {
        self.hear(self.count);
        self.next()
    }
}

impl<B: Begin, E: Element, H, const I: usize, const J: usize> Opened<B, E, H, Granted, I, J> {
    /// Stores `x` as the other end's result.
    #[inline(always)]
    pub fn put<G: SameRows<H> + SameColumns<H>, P: Readable>(mut self, x: TaskTile<E, G, P, I, J>) -> Opened<B, E, H, Stored, I, J> {
        let (x, count) = (x.raw(), self.count);
        match ends(&mut self.cta, 0) {
            Some((consumer, None)) => consumer.copy_tile(x, self.y),
            Some((consumer, Some(end))) if self.goes_on => consumer.fill_far(x, end, count),
            _ => {}
        }
        self.next()
    }
}

impl<B: Begin, E: Element, H, const I: usize, const J: usize> Opened<B, E, H, Stored, I, J> {
    /// Tells the other end that its result is there.
    #[inline(always)]
    pub fn signal(mut self) -> Opened<B, E, H, StoredAndTold, I, J> {
        self.tell(self.count.wrapping_add(1));
        self.next()
    }
}

impl<B: Begin, E: Element, H, const I: usize, const J: usize> Opened<B, E, H, StoredAndTold, I, J> {
    /// Waits until the other end has stored this end's result: for as long as the communicator's deadline.
    #[inline(always)]
    pub fn wait(mut self) -> Opened<B, E, H, Complete, I, J> {
        self.hear(self.count.wrapping_add(1));
        self.next()
    }
}

impl<B: Begin, E: Element, H, const I: usize, const J: usize> Opened<B, E, H, Complete, I, J> {
    /// `y`, the tile that was opened, as what it is now: written.
    #[inline(always)]
    pub fn receive<W: Fresh>(self, y: TaskTile<E, H, W, I, J>) -> TaskTile<E, H, Written<W::Origin>, I, J> {
        y.written()
    }
}
