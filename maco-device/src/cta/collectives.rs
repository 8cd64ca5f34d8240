//! Collectives: operations of a body whose tiles all ranks exchange.
//!
//! All ranks run the same tasks on tensors of the same sizes. On one rank each of these is a copy.

use crate::channel::Which;
use crate::cta::operations::Begin;
use crate::data::access::{Fresh, Readable, TaskTile, Written};
use crate::data::element::Element;
use crate::data::kind::{Collective, Has};
use crate::data::region::{SameColumns, SameRows};
use crate::operations::all_reduce_rmsnorm::Normed;
use crate::operations::collective::{Flow, Only, Reduction};
use crate::operations::order::Mapping;
use crate::role::Role;

/// Two rows that an operation has written.
pub type WrittenRows<E, G, A, B> = (TaskTile<E, G, Written<A>, 1, 0>, TaskTile<E, G, Written<B>, 1, 0>);

/// What a body of kind `Collective` calls on `cta`, which takes it. Values are combined in the order of ranks and rounded once, so that all ranks have the same bits.
pub trait Collectives: Begin {
    /// `y = op(x of all ranks)`.
    #[inline(always)]
    fn all_reduce<E: Element, GX: SameRows<G> + SameColumns<G>, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, GX, P, I, J>,
        y: TaskTile<E, G, W, I, J>,
        op: impl Reduction<E::Value>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Collective>,
    {
        exchange(self, x, y, op, |_, _| Flow { owned: true, ..EVERYONE })
    }

    /// `sum = (x of all ranks) + residual` and `y = sum / √(mean(sum²) + epsilon) · weight`, row by row: an all-reduce with the residual connection and the RMSNorm (Zhang
    /// and Sennrich, 2019) behind it. Tiles are one row: `tile(i = 1)`. `sum` has the bits of an all-reduce and an addition by themselves.
    #[inline(always)]
    fn all_reduce_add_rmsnorm<
        E: Element<Value = f32>,
        GX: SameRows<G> + SameColumns<G>,
        GR: SameRows<G> + SameColumns<G>,
        GW: SameColumns<G>,
        G,
        P: Readable,
        Q: Readable,
        N: Readable,
        V: Fresh,
        W: Fresh,
    >(
        mut self,
        x: TaskTile<E, GX, P, 1, 0>,
        residual: TaskTile<E, GR, Q, 1, 0>,
        weight: TaskTile<E, GW, N, 1, 0>,
        sum: TaskTile<E, G, V, 1, 0>,
        y: TaskTile<E, G, W, 1, 0>,
        epsilon: f32,
    ) -> WrittenRows<E, G, V::Origin, W::Origin>
    where
        Self::Kind: Has<Collective>,
    {
        let written = (sum.written(), y.written());
        let (role, task) = self.begin(P::SHARED || Q::SHARED || N::SHARED || V::SHARED || W::SHARED, |_| Mapping::Own);
        if let Some(consumer) = role.simt_consumer() {
            let (sum, y) = (written.0.raw(), written.1.raw());
            let tiles = Normed { x: x.raw(), residual: residual.raw(), weight: weight.raw(), sum, y };
            consumer.all_reduce_add_rmsnorm(tiles, task, EVERYONE, epsilon);
        }
        written
    }

    /// Plane r of `y` is the `x` of rank r. The first index of `y` is one of a grid axis of tile 1, the first of the task; it has as many planes as there are ranks.
    #[inline(always)]
    fn all_gather<E: Element, GX: SameRows<G> + SameColumns<G>, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, GX, P, I, J>,
        y: TaskTile<E, G, W, I, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Collective>,
    {
        exchange(self, x, y, Only, |rank, of| {
            let to = if of == rank { Which::All } else { Which::None };
            Flow { to, from: Which::One(of), of_plane: true, ..EVERYONE }
        })
    }

    /// `y = op(this rank's plane of the x of all ranks)`: plane r of `x`, whose first index is `..`, is for rank r. It has as many planes as there are ranks.
    #[inline(always)]
    fn reduce_scatter<E: Element, GX: SameRows<G> + SameColumns<G>, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, GX, P, I, J>,
        y: TaskTile<E, G, W, I, J>,
        op: impl Reduction<E::Value>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Collective>,
    {
        exchange(self, x, y, op, |_, _| Flow { by_plane: true, ..EVERYONE })
    }

    /// Plane r of `y` is this rank's plane of the `x` of rank r: plane r of `x` goes to rank r. The first index of both is the same, one of a grid axis of tile 1, the
    /// first of the task; they have as many planes as there are ranks.
    #[inline(always)]
    fn all_to_all<E: Element, GX: SameRows<G> + SameColumns<G>, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, GX, P, I, J>,
        y: TaskTile<E, G, W, I, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Collective>,
    {
        exchange(self, x, y, Only, |_, of| Flow { to: Which::One(of), from: Which::One(of), by_rank: true, of_plane: true, ..EVERYONE })
    }

    /// `y` is the `x` of rank `root`, modulo the number of ranks.
    #[inline(always)]
    fn broadcast<E: Element, GX: SameRows<G> + SameColumns<G>, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, GX, P, I, J>,
        y: TaskTile<E, G, W, I, J>,
        root: u32,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Collective>,
    {
        exchange_among(self, x, y, |rank, ranks| {
            let root = root % ranks;
            let to = if root == rank { Which::All } else { Which::None };
            (to, root)
        })
    }

    /// On rank `to`, `y` is the `x` of rank `from`; on all others it is their own `x`. Both modulo the number of ranks.
    #[inline(always)]
    fn send<E: Element, GX: SameRows<G> + SameColumns<G>, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, GX, P, I, J>,
        y: TaskTile<E, G, W, I, J>,
        from: u32,
        to: u32,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Collective>,
    {
        exchange_among(self, x, y, |rank, ranks| {
            let (from, to) = (from % ranks, to % ranks);
            (if from == rank { Which::One(to) } else { Which::None }, if to == rank { from } else { rank })
        })
    }

    /// `y` is the `x` of the rank `by` places before, around the ring of ranks: 1 is from the rank before, -1 from the one behind.
    #[inline(always)]
    fn ring<E: Element, GX: SameRows<G> + SameColumns<G>, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
        self,
        x: TaskTile<E, GX, P, I, J>,
        y: TaskTile<E, G, W, I, J>,
        by: i32,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Collective>,
    {
        exchange_among(self, x, y, |rank, ranks| {
            // Less than the number of ranks, in either direction.
            let step = by % ranks as i32;
            let ahead = if step < 0 { (step + ranks as i32) as u32 } else { step as u32 };
            (Which::One((rank + ahead) % ranks), (rank + ranks - ahead) % ranks)
        })
    }
}

/// Each rank sends its tile to all, and hears them all.
const EVERYONE: Flow =
    Flow { to: Which::All, from: Which::All, by_plane: false, by_rank: false, of_plane: false, one_way: false, owned: false };

impl<B: Begin> Collectives for B {}

/// `flow`: what this rank does, by its number and that of the rank which the task's plane is of.
#[inline(always)]
fn exchange<B: Begin, E: Element, GX, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
    mut cta: B,
    x: TaskTile<E, GX, P, I, J>,
    y: TaskTile<E, G, W, I, J>,
    op: impl Reduction<E::Value>,
    flow: impl Fn(u32, u32) -> Flow,
) -> TaskTile<E, G, Written<W::Origin>, I, J> {
    let written = y.written();
    let y = written.raw();
    let (role, task) = cta.begin(P::SHARED || W::SHARED, |_| Mapping::Own);
    if let Some(consumer) = role.simt_consumer() {
        let (ranks, _) = task.ranks();
        consumer.collective(x.raw(), y, task, flow(ranks.rank, y.plane as u32), op);
    }
    written
}

/// `flow`: whom this rank sends to, and the one it hears, by its number and how many there are. Nobody answers.
#[inline(always)]
fn exchange_among<B: Begin, E: Element, GX, G, P: Readable, W: Fresh, const I: usize, const J: usize>(
    mut cta: B,
    x: TaskTile<E, GX, P, I, J>,
    y: TaskTile<E, G, W, I, J>,
    flow: impl Fn(u32, u32) -> (Which, u32),
) -> TaskTile<E, G, Written<W::Origin>, I, J> {
    let written = y.written();
    let y = written.raw();
    let (role, task) = cta.begin(P::SHARED || W::SHARED, |_| Mapping::Own);
    if let Some(consumer) = role.simt_consumer() {
        let (ranks, _) = task.ranks();
        let (to, from) = flow(ranks.rank, ranks.ranks);
        let flow = Flow { to, from: Which::One(from), one_way: true, ..EVERYONE };
        consumer.collective(x.raw(), y, task, flow, Only);
    }
    written
}
