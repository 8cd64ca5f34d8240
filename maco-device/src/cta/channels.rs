//! Channels: bodies that exchange a tile with another rank, step by step.
//!
//! The first grid axis has an element for each rank. The task at coordinate r of it has the channel to rank r, whose other end is that rank's task at this rank's coordinate.
//! Each step takes what the one before returned, and only the last writes the result, which every path of a body writes. So each end does all of them, once in each launch.

use core::marker::PhantomData;

use crate::channel::{Order, SIGNAL, Side};
use crate::cta::channel_ends::ends;
use crate::cta::operations::Begin;
use crate::cta::symmetric::{Open, Opened};
use crate::data::access::{Fresh, Readable, TaskTile, Written};
use crate::data::element::Element;
use crate::data::kind::{Has, Kind, MemoryChannel, PacketChannel, PortChannel, SymmetricChannel};
use crate::data::region::{SameColumns, SameRows};
use crate::data::tile::Tile;
use crate::operations::channel::End;
use crate::operations::simt_consumer::SimtConsumer;

/// A kind of bodies over a channel.
#[diagnostic::on_unimplemented(
    message = "MACO0068: this is an operation of a channel, and this body is of kind `{Self}`",
    label = "not an operation of this body",
    note = "the signature says which channel a body has: `cta: Cta<MemoryChannel>`, `Cta<PacketChannel>` or `Cta<PortChannel>`"
)]
pub trait Channel: Kind {
    /// What is behind [`Channels::put`].
    type Put: Step;
}

impl Channel for MemoryChannel {
    type Put = Put;
}
impl Channel for PacketChannel {
    type Put = Sent;
}
impl Channel for PortChannel {
    type Put = Handed;
}

/// How words get to the other rank.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Stored by this rank, or loaded.
    Memory,
    /// Stored with flags.
    Packets,
    /// Copied by the proxy.
    Proxy,
}

/// How far an exchange is.
pub trait Step {
    /// How.
    const BY: By = By::Memory;
    /// Where this rank stores.
    const SIDE: Side = Side::Peer;
}

/// The tile is in the peer's slot.
pub enum Put {}
/// The tile is in this rank's slot.
pub enum Offered {}
/// The tile is with the proxy.
pub enum Handed {}
/// The tile is on its way, and says itself when it is there.
pub enum Sent {}
/// The peer has been told of `S`.
pub enum Signalled<S> {
    #[doc(hidden)]
    _Of(core::convert::Infallible, PhantomData<S>),
}
/// The peer has told of what it did alike, behind `S` of this rank.
pub enum Arrived<S> {
    #[doc(hidden)]
    _Of(core::convert::Infallible, PhantomData<S>),
}

impl Step for Put {}
impl Step for Offered {
    const SIDE: Side = Side::Own;
}
impl Step for Sent {
    const BY: By = By::Packets;
}
impl Step for Handed {
    const BY: By = By::Proxy;
    const SIDE: Side = Side::Proxy;
}
impl<S: Step> Step for Signalled<S> {
    const BY: By = S::BY;
    const SIDE: Side = S::SIDE;
}
impl<S: Step> Step for Arrived<S> {
    const BY: By = S::BY;
    const SIDE: Side = S::SIDE;
}

/// [`InFlight::signal`] comes next.
#[diagnostic::on_unimplemented(
    message = "MACO0068: a channel signals once, behind `put` or `offer`",
    label = "not the next step: this is `{Self}`",
    note = "the steps are `cta.put(x).signal().wait().receive(y)` or `cta.offer(x).signal().wait().get(y)`; packets need no signal: `cta.put(x).receive(y)`"
)]
pub trait ToSignal: Step {}
impl ToSignal for Put {}
impl ToSignal for Offered {}
impl ToSignal for Handed {}

/// [`InFlight::wait`] comes next.
#[diagnostic::on_unimplemented(
    message = "MACO0068: a channel waits for the signal of its other end once, behind its own signal",
    label = "not the next step: this is `{Self}`",
    note = "the steps are `cta.put(x).signal().wait().receive(y)` or `cta.offer(x).signal().wait().get(y)`; packets need no signal: `cta.put(x).receive(y)`"
)]
pub trait ToWait: Step {}
impl<S: Step> ToWait for Signalled<S> {}

/// [`InFlight::receive`] comes next.
#[diagnostic::on_unimplemented(
    message = "MACO0068: a channel receives what was put, behind `wait`, or packets, behind `put`",
    label = "not the next step: this is `{Self}`",
    note = "the steps are `cta.put(x).signal().wait().receive(y)` or `cta.offer(x).signal().wait().get(y)`; packets need no signal: `cta.put(x).receive(y)`"
)]
pub trait ToReceive: Step {}
impl ToReceive for Sent {}
impl ToReceive for Arrived<Signalled<Put>> {}
impl ToReceive for Arrived<Signalled<Handed>> {}

/// [`InFlight::get`] comes next.
#[diagnostic::on_unimplemented(
    message = "MACO0068: a channel gets what was offered, behind `wait`",
    label = "not the next step: this is `{Self}`",
    note = "the steps are `cta.put(x).signal().wait().receive(y)` or `cta.offer(x).signal().wait().get(y)`; packets need no signal: `cta.put(x).receive(y)`"
)]
pub trait ToGet: Step {}
impl ToGet for Arrived<Signalled<Offered>> {}

/// [`InFlight::flush`] may come next.
#[diagnostic::on_unimplemented(
    message = "MACO0068: a flush waits for the proxy of a port channel, and comes behind `put` or `signal`",
    label = "nothing to wait for: this is `{Self}`",
    note = "behind a memory channel's `put` its source may be stored again at once"
)]
pub trait ToFlush: Step {}
impl ToFlush for Handed {}
impl ToFlush for Signalled<Handed> {}

/// What a body over a channel calls on `cta`, which takes it: the first step of an exchange.
pub trait Channels: Begin {
    /// Stores `x` in the slot of the task at the other end: over a [`MemoryChannel`] as it is, over a [`PacketChannel`] each word with its flag. Over a
    /// [`PortChannel`] the proxy is handed a copy of it, and this returns before it has copied.
    #[inline(always)]
    fn put<E: Element, G, P: Readable, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, G, P, I, J>,
    ) -> InFlight<Self, E, G, <Self::Kind as Channel>::Put, I, J>
    where
        Self::Kind: Channel,
    {
        InFlight::hand_over(self, x.raw(), Order { copy: true, signal: false, flush: false })
    }

    /// [`Channels::put`], and then a signal by the proxy.
    #[inline(always)]
    fn put_with_signal<E: Element, G, P: Readable, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, G, P, I, J>,
    ) -> InFlight<Self, E, G, Signalled<Handed>, I, J>
    where
        Self::Kind: Has<PortChannel>,
    {
        InFlight::<_, _, _, Handed, I, J>::hand_over(self, x.raw(), Order { copy: true, signal: true, flush: false }).next()
    }

    /// [`Channels::put_with_signal`], and waits until the proxy has done it.
    #[inline(always)]
    fn put_with_signal_and_flush<E: Element, G, P: Readable, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, G, P, I, J>,
    ) -> InFlight<Self, E, G, Signalled<Handed>, I, J>
    where
        Self::Kind: Has<PortChannel>,
    {
        InFlight::<_, _, _, Handed, I, J>::hand_over(self, x.raw(), Order { copy: true, signal: true, flush: true }).next()
    }

    /// Stores `x` in this task's own slot, for the other end to [`get`](InFlight::get).
    #[inline(always)]
    fn offer<E: Element, G, P: Readable, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, G, P, I, J>,
    ) -> InFlight<Self, E, G, Offered, I, J>
    where
        Self::Kind: Has<MemoryChannel>,
    {
        InFlight::hand_over(self, x.raw(), Order::default())
    }

    /// Lets the task at the other end store `y`, the result of this one, which lies in symmetric memory.
    #[inline(always)]
    fn open<E: Element, H, W: Fresh, const I: usize, const J: usize>(self, y: &TaskTile<E, H, W, I, J>) -> Opened<Self, E, H, Open, I, J>
    where
        Self::Kind: Has<SymmetricChannel>,
    {
        Opened::new(self, y.place())
    }
}

impl<B: Begin> Channels for B {}

/// An exchange of tiles with another rank: what a step returns, and the next one takes. `G` is the region of the tile that is sent.
#[must_use = "an exchange ends with `receive` or `get`, which writes the result"]
pub struct InFlight<B, E, G, S, const I: usize, const J: usize> {
    cta: B,
    /// What is sent: on the rank itself that is what comes.
    x: Tile<E, I, J>,
    /// See [`TileChannel::count`].
    count: u32,
    /// The launch goes on.
    goes_on: bool,
    types: PhantomData<fn() -> (G, S)>,
}

impl<B: Begin, E: Element, G, S: Step, const I: usize, const J: usize> InFlight<B, E, G, S, I, J> {
    /// Stores the tile, and where there is a proxy gives it the order.
    #[inline(always)]
    fn hand_over(cta: B, x: Tile<E, I, J>, order: Order) -> Self {
        let mut begun = InFlight { cta, x, count: 0, goes_on: true, types: PhantomData };
        if let Some((consumer, Some(end))) = begun.ends() {
            match S::BY {
                By::Packets => consumer.send_packets(x, end),
                By::Memory | By::Proxy => begun.count = consumer.fill(x, end, S::SIDE),
            }
            if let By::Proxy = S::BY {
                begun.goes_on = consumer.order(end, begun.count, order);
            }
        }
        begun
    }

    /// The next step.
    #[inline(always)]
    fn next<N: Step>(self) -> InFlight<B, E, G, N, I, J> {
        let InFlight { cta, x, count, goes_on, .. } = self;
        InFlight { cta, x, count, goes_on, types: PhantomData }
    }

    /// Of a role that computes, its thread and this task's end of the channel; `None` for that where the other end is this rank itself.
    #[inline(always)]
    fn ends(&mut self) -> Option<(SimtConsumer, Option<End>)> {
        ends(&mut self.cta, if let By::Proxy = S::BY { SIGNAL } else { 0 })
    }

    /// Tells the other end that the tile is there.
    #[inline(always)]
    pub fn signal(mut self) -> InFlight<B, E, G, Signalled<S>, I, J>
    where
        S: ToSignal,
    {
        let count = self.count;
        if let Some((consumer, Some(end))) = self.ends() {
            match S::BY {
                By::Proxy => self.goes_on &= consumer.order(end, count, Order { signal: true, ..Order::default() }),
                By::Memory | By::Packets => consumer.signal(end, count),
            }
        }
        self.next()
    }

    /// Waits until the proxy has done what this rank has handed to it.
    #[inline(always)]
    pub fn flush(mut self) -> Self
    where
        S: ToFlush,
    {
        let count = self.count;
        if let Some((consumer, Some(end))) = self.ends() {
            self.goes_on &= consumer.order(end, count, Order { flush: true, ..Order::default() });
        }
        self
    }

    /// Waits until the other end has told of its tile: for as long as the communicator's deadline.
    #[inline(always)]
    pub fn wait(mut self) -> InFlight<B, E, G, Arrived<S>, I, J>
    where
        S: ToWait,
    {
        let count = self.count;
        if let Some((consumer, Some(end))) = self.ends() {
            self.goes_on &= match S::BY {
                By::Proxy => consumer.await_proxy(end, count),
                By::Memory | By::Packets => consumer.await_signal(end, count),
            };
        }
        self.next()
    }

    /// `y` is the `x` that the other end has put.
    #[inline(always)]
    pub fn receive<H, W: Fresh>(self, y: TaskTile<E, H, W, I, J>) -> TaskTile<E, H, Written<W::Origin>, I, J>
    where
        S: ToReceive,
        G: SameRows<H> + SameColumns<H>,
    {
        self.end(y, Side::Own)
    }

    /// `y` is the `x` that the other end has offered.
    #[inline(always)]
    pub fn get<H, W: Fresh>(self, y: TaskTile<E, H, W, I, J>) -> TaskTile<E, H, Written<W::Origin>, I, J>
    where
        S: ToGet,
        G: SameRows<H> + SameColumns<H>,
    {
        self.end(y, Side::Peer)
    }

    #[inline(always)]
    fn end<H, W: Fresh>(mut self, y: TaskTile<E, H, W, I, J>, side: Side) -> TaskTile<E, H, Written<W::Origin>, I, J> {
        let (written, x, count, goes_on) = (y.written(), self.x, self.count, self.goes_on);
        let y = written.raw();
        match self.ends() {
            Some((consumer, None)) => consumer.copy_tile(x, y),
            Some((consumer, Some(end))) if S::BY == By::Packets => {
                consumer.receive_packets(y, end);
            }
            Some((consumer, Some(end))) if goes_on => consumer.empty(y, end, side, count),
            _ => {}
        }
        written
    }
}
