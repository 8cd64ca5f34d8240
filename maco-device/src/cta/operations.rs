//! Operations on tiles: methods of `cta`, for the kinds of bodies that have them.

use crate::cta::Cta;
use crate::data::access::{
    AllApartFrom, AllReadable, AllWritable, ApartFrom, Fresh, OperandB, Readable, Results, Sources, Stored, TaskTile, Updatable, Writable,
    Written,
};
use crate::data::element::{Element, HalfElement};
use crate::data::epilogue::Epilogue;
use crate::data::inputs::Inputs;
use crate::data::kind::{Columns, Gemv, Has, Indexed, Kind, Rows, Several, Single, Tiles};
use crate::data::pure::Pure;
use crate::data::region::{Beside, OnePerRow, OneRow, RowsAreColumns, RowsOf, SameColumns, SameRows, Turned};
use crate::data::rmsnorm;
use crate::data::row::RowOutputs;
use crate::data::task::Task;
use crate::operations::order::Mapping;
use crate::operations::simt_consumer::SimtConsumer;
use crate::role::Role;

/// What a body calls on `cta`, other than products on the tensor cores. Of a body with several operations `cta` is `&mut Cta`, and each call borrows it; of a body
/// that is one operation it is `Cta`, and the call takes it.
///
/// Operations of one body take effect in the order of their calls.
pub trait Operations: Begin {
    /// A GEMV: `y = x · wᵀ` for few rows of `x`, in `f32`, the fused epilogue applied, rounded once. Rows of `w`
    /// come in bulk copies (PTX ISA §9.7.9.25.4) through the ring, up to 192 KiB ahead of the products, and if no task of the graph
    /// writes `w`, ahead of the wait for `x` too, over the borders of tasks. Where rows of `w` are not at 16-byte boundaries, or `x` is
    /// not, results are the same and slower.
    #[inline(always)]
    fn gemv<
        E: HalfElement,
        GX: SameRows<G>,
        GW: SameColumns<GX> + RowsAreColumns<G>,
        G,
        P: Readable,
        Q: OperandB,
        W: Writable,
        const I: usize,
        const J: usize,
    >(
        self,
        x: TaskTile<E, GX, P, I, 0>,
        w: TaskTile<E, GW, Q, J, 0>,
        y: TaskTile<E, G, W, I, J>,
    ) -> TaskTile<E, G, Stored<W::Origin>, I, J>
    where
        Self::Kind: Has<Gemv>,
    {
        self.gemv_with(x, w, (), y, |sum, ()| sum)
    }

    /// `y = f(x · wᵀ, inputs)`, element by element, otherwise as [`Operations::gemv`]: residuals, bias, gates. `inputs` is a tile or a tuple of tiles
    /// in the shape of `y`.
    #[inline(always)]
    fn gemv_with<
        E: HalfElement,
        GX: SameRows<G>,
        GW: SameColumns<GX> + RowsAreColumns<G>,
        G,
        P: Readable,
        Q: OperandB,
        X: Sources + AllReadable + Beside<G>,
        W: Writable,
        const I: usize,
        const J: usize,
    >(
        mut self,
        x: TaskTile<E, GX, P, I, 0>,
        w: TaskTile<E, GW, Q, J, 0>,
        inputs: X,
        y: TaskTile<E, G, W, I, J>,
        f: impl Fn(f32, <X::Raw as Inputs>::Values) -> f32 + Pure,
    ) -> TaskTile<E, G, Stored<W::Origin>, I, J>
    where
        Self::Kind: Has<Gemv>,
    {
        const {
            assert!(
                (I == 8 || I == 16) && (J == 8 || J == 16 || J == 32),
                "MACO0017: a task that calls `gemv` must have 8 or 16 rows of x, and 8, 16 or 32 rows of w\nhelp: write `tile(i = 8 | 16, j = 8 | 16 | 32)`"
            );
        }
        let (y, stored) = y.stored();
        let (role, task) = self.begin(P::SHARED || X::SHARED || W::SHARED, |_| Mapping::Own);
        role.gemv::<Self::Epilogue, E, X::Raw, I, J>(x.raw(), w.raw(), inputs.raw(), y, task, f);
        stored
    }

    /// `x = f(x)`, in place.
    #[inline(always)]
    fn map<E: Element, G, A: Readable + Writable, const I: usize, const J: usize>(
        mut self,
        x: TaskTile<E, G, A, I, J>,
        f: impl Fn(E::Value) -> E::Value + Pure,
    ) -> TaskTile<E, G, Written<A::Origin>, I, J>
    where
        Self::Kind: Has<Rows>,
    {
        let (written, x) = (x.written(), x.raw());
        let (role, task) = self.begin(A::SHARED, |consumer| consumer.zip_mapping(x, x));
        role.zip(x, x, task, f);
        written
    }

    /// `y = f(inputs)`, element by element; `inputs` is a tile or a tuple of tiles along the axes and dimensions of `y`. One of a tensor of one dimension,
    /// along the columns of `y`, is repeated for every row.
    #[inline(always)]
    fn zip<X: Sources + AllReadable + Beside<G>, E: Element, G, A: Writable, const I: usize, const J: usize>(
        mut self,
        inputs: X,
        y: TaskTile<E, G, A, I, J>,
        f: impl Fn(<X::Raw as Inputs>::Values) -> E::Value + Pure,
    ) -> TaskTile<E, G, Written<A::Origin>, I, J>
    where
        Self::Kind: Has<Rows>,
    {
        let (inputs, written) = (inputs.raw(), y.written());
        let y = written.raw();
        let (role, task) = self.begin(X::SHARED || A::SHARED, |consumer| consumer.zip_mapping(inputs, y));
        role.zip(inputs, y, task, f);
        written
    }

    /// Calls `f` once per row of `y`: reductions over a row, then the row's new values. `y` is a tile or a tuple of tiles; rows of `inputs` lie beside its
    /// rows, and the row of a tensor of one dimension is the same every time.
    #[inline(always)]
    fn rows<X, Y>(mut self, inputs: X, y: Y, f: impl for<'r> Fn(X::Rows<'r>, &mut Y::Rows<'r>) + Pure) -> Y::Written
    where
        Self::Kind: Has<Rows>,
        X: Sources + AllReadable + AllApartFrom<Y::Accesses> + RowsOf<Y::Region>,
        Y: Results + AllWritable + RowsOf<Y::Region>,
    {
        let (y, written) = y.split();
        let (role, task) = self.begin(X::SHARED || Y::SHARED, |_| Mapping::Rows(y.count()));
        role.rows(inputs.raw(), y, task, |x, y| f(X::rows(x), &mut Y::rows(*y)));
        written
    }

    /// `y = x / √(mean(x²) + epsilon) · weight` along each row (Zhang and Sennrich, 2019), by [`Operations::rows`]. Of a task that is nothing else,
    /// and whose result only GEMVs multiply, the plan may fuse it into those as an RMSNorm prologue: to the same bits.
    #[inline(always)]
    fn rmsnorm<
        E: Element<Value = f32>,
        GX: SameRows<G> + SameColumns<G>,
        GW: SameColumns<G>,
        G,
        P: Readable + ApartFrom<A>,
        Q: Readable + ApartFrom<A>,
        A: Writable,
        const I: usize,
    >(
        mut self,
        x: TaskTile<E, GX, P, I, 0>,
        weight: TaskTile<E, GW, Q, 1, 0>,
        y: TaskTile<E, G, A, I, 0>,
        epsilon: f32,
    ) -> TaskTile<E, G, Written<A::Origin>, I, 0>
    where
        Self::Kind: Has<Rows>,
    {
        let written = y.written();
        let y = written.raw();
        let (role, task) = self.begin(P::SHARED || Q::SHARED || A::SHARED, |_| Mapping::Rows(y.rows()));
        role.rows((x.raw(), weight.raw()), y, task, |(x, weight), y| rmsnorm::row(x, weight, *y, epsilon));
        written
    }

    /// `y[row, col] = f(inputs, row, col)`, for stencils, gathers and transposes; positions count from the tile's origin.
    #[inline(always)]
    fn generate<X: Sources + AllReadable, E: Element, G, A: Fresh, const I: usize, const J: usize>(
        mut self,
        inputs: X,
        y: TaskTile<E, G, A, I, J>,
        f: impl Fn(&<X::Raw as Inputs>::Readers, i32, i32) -> E::Value + Pure,
    ) -> TaskTile<E, G, Written<A::Origin>, I, J>
    where
        Self::Kind: Has<Tiles>,
    {
        let written = y.written();
        let y = written.raw();
        self.begin(X::SHARED || A::SHARED, |_| Mapping::Own).0.generate(inputs.raw(), y, f);
        written
    }

    /// `y[row, col..col + 8] = f(inputs, row, col)`, for gathers and rotations: as [`Operations::generate`], in blocks of eight columns that begin
    /// at a multiple of eight. What lies outside `y` is dropped.
    #[inline(always)]
    fn blocks<X: Sources + AllReadable, E: Element, G, A: Fresh, const I: usize, const J: usize>(
        mut self,
        inputs: X,
        y: TaskTile<E, G, A, I, J>,
        f: impl Fn(&<X::Raw as Inputs>::Readers, i32, i32) -> [E::Value; 8] + Pure,
    ) -> TaskTile<E, G, Written<A::Origin>, I, J>
    where
        Self::Kind: Has<Tiles>,
    {
        let written = y.written();
        let y = written.raw();
        if let Some(consumer) = self.begin(X::SHARED || A::SHARED, |_| Mapping::Own).0.simt_consumer() {
            consumer.blocks(inputs.raw(), y, f);
        }
        written
    }

    /// `y[row, ..] = table[ids[row], ..]`: rows that indices name, zeros where the table has none. Rows of 4 KiB or more a tile, in tables of aligned 16-byte
    /// pieces, come through the ring.
    #[inline(always)]
    #[allow(clippy::type_complexity)]
    fn take<
        E: Element,
        GI: OnePerRow<G>,
        GT: SameColumns<G>,
        G,
        P: Readable,
        Q: Readable,
        W: Fresh,
        const N: usize,
        const S: usize,
        const A: usize,
        const B: usize,
        const I: usize,
        const J: usize,
    >(
        mut self,
        ids: TaskTile<u32, GI, P, N, S>,
        table: TaskTile<E, GT, Q, A, B>,
        y: TaskTile<E, G, W, I, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Indexed>,
    {
        let written = y.written();
        let y = written.raw();
        let (role, task) = self.begin(P::SHARED || Q::SHARED || W::SHARED, |_| Mapping::Own);
        role.take(ids.raw(), table.raw(), y, task);
        written
    }

    /// `y[row, col..col + 8], y[row, half + col..half + col + 8] = f(inputs, name(inputs, row), row, col)`, `half` being half of the columns of `y`, a multiple
    /// of 8: as [`Operations::blocks`], for what makes both of the same, as rotations of pairs do. What `name` loads, such as the row of another tensor, is on its way
    /// before `f` needs it.
    #[inline(always)]
    fn pairs_of_blocks<X: Sources + AllReadable, E: Element, G, A: Fresh, const I: usize, const J: usize>(
        mut self,
        inputs: X,
        y: TaskTile<E, G, A, I, J>,
        name: impl Fn(&<X::Raw as Inputs>::Readers, i32) -> i32 + Pure,
        f: impl Fn(&<X::Raw as Inputs>::Readers, i32, i32, i32) -> ([E::Value; 8], [E::Value; 8]) + Pure,
    ) -> TaskTile<E, G, Written<A::Origin>, I, J>
    where
        Self::Kind: Has<Tiles>,
    {
        let written = y.written();
        let y = written.raw();
        if let Some(consumer) = self.begin(X::SHARED || A::SHARED, |_| Mapping::Own).0.simt_consumer() {
            consumer.pairs_of_blocks(inputs.raw(), y, name, f);
        }
        written
    }

    /// `y[row, ..] = Σ weight · x[index, ..]` in the order of k, where `f(terms, row, k)` gives index and weight for k in `0..count`: weighted sums of
    /// rows that data name. A row outside `x` is zeros. For other k what `f` gives does not count.
    #[inline(always)]
    fn sums<
        X: Sources + AllReadable,
        E: Element<Value = f32>,
        GX: SameColumns<G>,
        G,
        P: Readable,
        W: Fresh,
        const A: usize,
        const B: usize,
        const I: usize,
        const J: usize,
    >(
        mut self,
        terms: X,
        x: TaskTile<E, GX, P, A, B>,
        y: TaskTile<E, G, W, I, J>,
        count: u32,
        f: impl Fn(&<X::Raw as Inputs>::Readers, i32, i32) -> (i32, f32) + Pure,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Tiles>,
    {
        let written = y.written();
        let y = written.raw();
        if let Some(consumer) = self.begin(X::SHARED || P::SHARED || W::SHARED, |_| Mapping::Own).0.simt_consumer() {
            consumer.sums(terms.raw(), x.raw(), y, count, f);
        }
        written
    }

    /// `y[row, ids[row, k]] = x[row, k]` in the order of k: of equal indices of a row the last one stays. An index outside `y` writes nothing, and what
    /// none names stays.
    #[inline(always)]
    fn scatter<
        E: Element,
        GI: SameRows<GX> + SameColumns<GX>,
        GX: SameRows<G>,
        G,
        P: Readable + ApartFrom<W>,
        Q: Readable + ApartFrom<W>,
        W: Updatable,
        const I: usize,
    >(
        mut self,
        ids: TaskTile<u32, GI, P, I, 0>,
        x: TaskTile<E, GX, Q, I, 0>,
        y: TaskTile<E, G, W, I, 0>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, 0>
    where
        Self::Kind: Has<Tiles>,
    {
        let written = y.written();
        let y = written.raw();
        if let Some(consumer) = self.begin(P::SHARED || Q::SHARED || W::SHARED, |_| Mapping::Own).0.simt_consumer() {
            consumer.scatter(ids.raw(), x.raw(), y);
        }
        written
    }

    /// `y[ids[i], ..] = x[i, ..]` in the order of i: of equal indices the last one stays. An index outside `y` writes nothing, and rows that none names
    /// stay.
    #[inline(always)]
    fn index_copy<
        E: Element,
        GI: OnePerRow<GX>,
        GX: SameColumns<G>,
        G,
        P: Readable + ApartFrom<W>,
        Q: Readable + ApartFrom<W>,
        W: Updatable,
        const J: usize,
    >(
        mut self,
        ids: TaskTile<u32, GI, P, 1, 0>,
        x: TaskTile<E, GX, Q, 0, J>,
        y: TaskTile<E, G, W, 0, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, 0, J>
    where
        Self::Kind: Has<Indexed>,
    {
        let written = y.written();
        let y = written.raw();
        let (role, task) = self.begin(P::SHARED || Q::SHARED || W::SHARED, |_| Mapping::Own);
        role.index_copy(ids.raw(), x.raw(), y, task);
        written
    }

    /// `y[ids[i], ..] += x[i, ..]` in the order of i, summed in `f32`: 64 terms one after the other, then these sums. Each sum is rounded to E once. An
    /// index outside `y` adds nothing.
    ///
    /// Alone in its body it finds equal indices by chains in shared memory, and of more than 16,384 indices goes through all of them several times. Beside other
    /// operations it searches all indices for each row.
    #[inline(always)]
    fn index_add<
        E: Element<Value = f32>,
        GI: OnePerRow<GX>,
        GX: SameColumns<G>,
        G,
        P: Readable + ApartFrom<W>,
        Q: Readable + ApartFrom<W>,
        W: Updatable,
        const J: usize,
    >(
        mut self,
        ids: TaskTile<u32, GI, P, 1, 0>,
        x: TaskTile<E, GX, Q, 0, J>,
        y: TaskTile<E, G, W, 0, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, 0, J>
    where
        Self::Kind: Has<Indexed>,
    {
        let written = y.written();
        let y = written.raw();
        let (role, task) = self.begin(P::SHARED || Q::SHARED || W::SHARED, |_| Mapping::Own);
        role.index_add(ids.raw(), x.raw(), y, task);
        written
    }

    /// `y[col] = finish(f(x[.., col]) combined)`: reductions over a column. `combine` must be associative and commutative; `start` is what
    /// an empty column gives.
    ///
    /// Order: fixed per device by the number of rows, so results repeat bit for bit.
    #[inline(always)]
    fn columns<
        X: Element,
        GX: SameColumns<G>,
        P: Readable,
        E: Element,
        G,
        W: Fresh,
        const A: usize,
        const B: usize,
        const I: usize,
        const J: usize,
    >(
        mut self,
        x: TaskTile<X, GX, P, A, B>,
        y: TaskTile<E, G, W, I, J>,
        start: f32,
        f: impl Fn(X::Value) -> f32 + Pure,
        combine: impl Fn(f32, f32) -> f32 + Pure,
        finish: impl Fn(f32) -> E::Value + Pure,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Columns>,
        TaskTile<E, G, W, I, J>: OneRow,
    {
        let written = y.written();
        let y = written.raw();
        let (role, task) = self.begin(P::SHARED || W::SHARED, |_| Mapping::Own);
        role.columns(x.raw(), y, task, start, f, combine, finish);
        written
    }

    /// `y = xᵀ`: `x` has as many columns as `y` has rows.
    #[inline(always)]
    fn transpose<E: Element, GX: Turned<G>, G, P: Readable, W: Fresh, const A: usize, const B: usize, const I: usize, const J: usize>(
        mut self,
        x: TaskTile<E, GX, P, A, B>,
        y: TaskTile<E, G, W, I, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        Self::Kind: Has<Columns>,
    {
        let written = y.written();
        let y = written.raw();
        let (role, task) = self.begin(P::SHARED || W::SHARED, |_| Mapping::Own);
        role.transpose(x.raw(), y, task);
        written
    }
}

/// How an operation begins: of bodies alone that MACO's own operations are methods of.
pub trait Begin: Sized {
    /// The body's kind.
    type Kind: Kind;
    /// Who runs the body.
    type Role: Role;
    /// What is fused behind it.
    type Epilogue: Epilogue;

    /// Begins an operation, which shares out elements by `mapping`; `shared`: others may have written what it reads, or read what it overwrites.
    fn begin(&mut self, shared: bool, mapping: impl FnOnce(SimtConsumer) -> Mapping) -> (&mut Self::Role, Task);
}

impl<K: Several, R: Role, T: Epilogue> Begin for &mut Cta<'_, K, R, T> {
    type Kind = K;
    type Role = R;
    type Epilogue = T;

    #[inline(always)]
    fn begin(&mut self, shared: bool, mapping: impl FnOnce(SimtConsumer) -> Mapping) -> (&mut R, Task) {
        if let Some(consumer) = self.role.simt_consumer() {
            self.since.next(shared, mapping(consumer), || consumer.sync());
        }
        (self.role, self.task)
    }
}

impl<K: Single, R: Role, T: Epilogue> Begin for Cta<'_, K, R, T> {
    type Kind = K;
    type Role = R;
    type Epilogue = T;

    /// No operation came before: the one before took `cta`.
    #[inline(always)]
    fn begin(&mut self, _: bool, _: impl FnOnce(SimtConsumer) -> Mapping) -> (&mut R, Task) {
        (self.role, self.task)
    }
}

impl<K: Several, R: Role, T: Epilogue> Operations for &mut Cta<'_, K, R, T> {}
impl<K: Single, R: Role, T: Epilogue> Operations for Cta<'_, K, R, T> {}
