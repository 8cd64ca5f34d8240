//! What a task body calls. Every role runs the body's loops and calls; only consumers (and the CPU) run the closures.

use core::marker::PhantomData;

use crate::data::access::{
    AllApartFrom, AllReadable, AllWritable, ApartFrom, Fresh, Readable, Results, Sources, TaskTile, Updatable, Writable, Written,
};
use crate::data::element::{Element, HalfElement, MmaElement};
use crate::data::epilogue::{Epilogue, Identity};
use crate::data::inputs::Inputs;
use crate::data::region::{
    Beside, ContractsWith, KeepsColumns, KeepsRows, OnePerRow, OneRow, RowsAreColumns, RowsOf, SameColumns, SameRows, Turned,
};
use crate::data::rmsnorm;
use crate::data::split_k::SplitK;
use crate::data::task::Task;
use crate::data::tile::MmaOperand;
use crate::role::Role;
use crate::simt::Simt;
use crate::simt::warp::SimtWarp;

/// The CTA (cooperative thread array) that runs a task, as role `R` sees it. Users write `&mut Cta`; the macro adds the rest.
///
/// The outline of a task (loops, calls on `cta`) depends on shapes, scalars and tile coordinates only: every role runs it.
/// Element values exist only inside closures.
pub struct Cta<'a, R, T = Identity> {
    role: &'a mut R,
    task: Task,
    /// Whether the body has called an operation already. Every role runs the same outline, so it is a constant where the calls are inlined.
    began: bool,
    epilogue: PhantomData<T>,
}

/// A sum in registers (GPU) or memory (CPU): `I` × `J` values of `f32`, for a tile of region `G`.
pub struct Accumulator<R: Role, G, const I: usize, const J: usize>(R::Accumulator<I, J>, PhantomData<fn() -> G>);

/// Two sums of the same shape, of one operand with two others: what [`Accumulator`] is to one product. As many registers as one sum with
/// twice the columns.
pub struct AccumulatorPair<R: Role, G, const I: usize, const J: usize>(R::Accumulator<I, J>, R::Accumulator<I, J>, PhantomData<fn() -> G>);

impl<'a, R: Role, T: Epilogue> Cta<'a, R, T> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(role: &'a mut R, task: Task) -> Self {
        Cta { role, task, began: false, epilogue: PhantomData }
    }

    /// Begins an operation on tiles: the role and the task for it. Operations of one body take effect in the order of their calls. A thread may read or
    /// overwrite what another thread of the last operation has written or still reads, so all threads that share the work meet before each one
    /// but the first.
    #[inline(always)]
    fn operation(&mut self) -> (&mut R, Task) {
        if self.began {
            self.role.sync();
        }
        self.began = true;
        (self.role, self.task)
    }

    /// Read anew wherever it is needed: a register across all steps is worth more.
    #[inline(always)]
    fn split_k(&self) -> SplitK {
        self.task.split_k()
    }

    /// A new accumulator, all zero.
    #[inline(always)]
    pub fn accumulator<G, const I: usize, const J: usize>(&mut self) -> Accumulator<R, G, I, J> {
        const {
            assert!(
                (I == 64 || I == 128) && (J == 128 || J == 256),
                "MACO0017: the accumulator of a task must have 64 or 128 rows and 128 or 256 columns\nhelp: write `tile(i = 64 | 128, j = 128 | 256)`"
            );
        }
        Accumulator(self.role.zeros(), PhantomData)
    }

    /// Steps of a contraction over `a` and `b`: 64 elements each, 32 of `f32`, the last one zero-filled; never empty. Where several tasks make the sum
    /// of one tile in parts, the steps of this one's part. Of a plane that is not there, which is zeros, there is one.
    #[inline(always)]
    pub fn steps<E: Element, GA, GB, P: Readable, Q: Readable, const AR: usize, const AC: usize, const BR: usize, const BC: usize>(
        &mut self,
        a: TaskTile<E, GA, P, AR, AC>,
        b: TaskTile<E, GB, Q, BR, BC>,
    ) -> Steps {
        let (a, b) = (a.raw(), b.raw());
        let steps = a.contraction().div_ceil(crate::abi::columns(E::BYTES));
        let steps = if steps == 0 || a.plane < 0 || b.plane < 0 { 1 } else { steps };
        let split = self.split_k();
        let (first, end) = if split.parts > 1 { split.steps(steps) } else { (0, steps) };
        Steps { first, next: 0, count: self.role.steps(a.view.map, b.view.map, end - first) }
    }

    /// `acc += a · bᵀ` over one step, in `f32` (PTX ISA §9.7.16 `wgmma`). Elements of `f32` are rounded to tf32 first, 10 bits of fraction:
    /// to the nearest, ties to even. Each is off by at most 2⁻¹¹ of itself, and what rounds beyond the largest number is infinite. A call's
    /// `.first(f)` is an elementwise prologue on `a`: each element is f of what would be multiplied otherwise, rounded as that is.
    #[inline(always)]
    pub fn mma<A, B, G, MA, MB, const I: usize, const J: usize>(&mut self, acc: &mut Accumulator<R, G, I, J>, a: A, b: B)
    where
        A: MmaOperand<I, MA> + KeepsRows<G, I, MA>,
        B: MmaOperand<J, MB, Element = A::Element> + KeepsColumns<G, J, MB> + ContractsWith<A::Contracted, J, MB>,
        A::Element: MmaElement,
    {
        self.role.mma::<T, A::Element, I, J>(&mut acc.0, a.operand_tile(), b.operand_tile(), self.task);
    }

    /// Applies the fused epilogue, rounds, and writes the tile; a call may round to another element than `E`. Elements outside the tensor are dropped. Where several tasks make the sum of
    /// one tile, they do that when all parts are there.
    #[inline(always)]
    pub fn store<E: MmaElement, G, W: Writable, const I: usize, const J: usize>(
        &mut self,
        acc: Accumulator<R, G, I, J>,
        y: TaskTile<E, G, W, I, J>,
    ) {
        let split = self.split_k();
        self.role.store::<T, T::Result<E>, I, J>(acc.0, y.raw().of(), split, self.task);
    }

    /// Two new accumulators, both zero, for [`Cta::mma_pair`]. Tiles: 64 × 128, 64 × 256 or 128 × 128; both sums of a larger one do not fit
    /// the registers.
    #[inline(always)]
    pub fn accumulator_pair<G, const I: usize, const J: usize>(&mut self) -> AccumulatorPair<R, G, I, J> {
        const {
            assert!(
                (I == 64 || I == 128) && (J == 128 || J == 256) && I * J < 128 * 256,
                "MACO0017: two accumulators of a task must have 64 rows and 128 or 256 columns, or 128 of each\nhelp: write `tile(i = 64 | 128, j = 128)`"
            );
        }
        AccumulatorPair(self.role.zeros(), self.role.zeros(), PhantomData)
    }

    /// `acc.0 += a · b.0ᵀ` and `acc.1 += a · b.1ᵀ` over one step, in `f32`: [`Cta::mma`] twice, with `a` loaded once. For gated units, and
    /// whatever else needs two products at the same place at the same time.
    #[inline(always)]
    pub fn mma_pair<A, B, G, MA, MB, const I: usize, const J: usize>(&mut self, acc: &mut AccumulatorPair<R, G, I, J>, a: A, b: (B, B))
    where
        A: MmaOperand<I, MA> + KeepsRows<G, I, MA>,
        B: MmaOperand<J, MB, Element = A::Element> + KeepsColumns<G, J, MB> + ContractsWith<A::Contracted, J, MB>,
        A::Element: MmaElement,
    {
        self.role.mma_pair::<T, A::Element, I, J>(
            (&mut acc.0, &mut acc.1),
            a.operand_tile(),
            (b.0.operand_tile(), b.1.operand_tile()),
            self.task,
        );
    }

    /// `y = f(acc.0, acc.1)`, element by element, otherwise as [`Cta::store`]. A tile's sums are not made in parts.
    #[inline(always)]
    pub fn store_pair<E: MmaElement, G, W: Writable, const I: usize, const J: usize>(
        &mut self,
        acc: AccumulatorPair<R, G, I, J>,
        y: TaskTile<E, G, W, I, J>,
        f: impl Fn(f32, f32) -> f32,
    ) {
        self.role.store_pair::<T, T::Result<E>, I, J>((acc.0, acc.1), y.raw().of(), self.task, f);
    }

    /// A GEMV: `y = x · wᵀ` for few rows of `x`, in `f32`, the fused epilogue applied, rounded once. Rows of `w`
    /// come in bulk copies (PTX ISA §9.7.9.25.4) through the ring, up to 192 KiB ahead of the products, and if no task of the graph
    /// writes `w`, ahead of the wait for `x` too, over the borders of tasks. Where rows of `w` are not at 16-byte boundaries, or `x` is
    /// not, results are the same and slower.
    #[inline(always)]
    pub fn gemv<
        E: HalfElement,
        GX: SameRows<G>,
        GW: SameColumns<GX> + RowsAreColumns<G>,
        G,
        P: Readable,
        Q: Readable,
        W: Writable,
        const I: usize,
        const J: usize,
    >(
        &mut self,
        x: TaskTile<E, GX, P, I, 0>,
        w: TaskTile<E, GW, Q, J, 0>,
        y: TaskTile<E, G, W, I, J>,
    ) {
        self.gemv_with(x, w, (), y, |sum, ()| sum);
    }

    /// `y = f(x · wᵀ, inputs)`, element by element, otherwise as [`Cta::gemv`]: residuals, bias, gates. `inputs` is a tile or a tuple of tiles
    /// in the shape of `y`.
    #[inline(always)]
    pub fn gemv_with<
        E: HalfElement,
        GX: SameRows<G>,
        GW: SameColumns<GX> + RowsAreColumns<G>,
        G,
        P: Readable,
        Q: Readable,
        X: Sources + AllReadable + Beside<G>,
        W: Writable,
        const I: usize,
        const J: usize,
    >(
        &mut self,
        x: TaskTile<E, GX, P, I, 0>,
        w: TaskTile<E, GW, Q, J, 0>,
        inputs: X,
        y: TaskTile<E, G, W, I, J>,
        f: impl Fn(f32, <X::Raw as Inputs>::Values) -> f32,
    ) {
        const {
            assert!(
                (I == 8 || I == 16) && (J == 8 || J == 16 || J == 32),
                "MACO0017: a task that calls `gemv` must have 8 or 16 rows of x, and 8, 16 or 32 rows of w\nhelp: write `tile(i = 8 | 16, j = 8 | 16 | 32)`"
            );
        }
        let (role, task) = self.operation();
        role.gemv::<T, E, X::Raw, I, J>(x.raw(), w.raw(), inputs.raw(), y.raw(), task, f);
    }

    /// `x = f(x)`, in place.
    #[inline(always)]
    pub fn map<E: Element, G, A: Readable + Writable, const I: usize, const J: usize>(
        &mut self,
        x: TaskTile<E, G, A, I, J>,
        f: impl Fn(E::Value) -> E::Value,
    ) -> TaskTile<E, G, Written<A::Origin>, I, J> {
        let (role, task) = self.operation();
        role.zip(x.raw(), x.raw(), task, f);
        x.written()
    }

    /// `y = f(inputs)`, element by element; `inputs` is a tile or a tuple of tiles along the axes and dimensions of `y`. One of a tensor of one dimension,
    /// along the columns of `y`, is repeated for every row.
    #[inline(always)]
    pub fn zip<X: Sources + AllReadable + Beside<G>, E: Element, G, A: Writable, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: TaskTile<E, G, A, I, J>,
        f: impl Fn(<X::Raw as Inputs>::Values) -> E::Value,
    ) -> TaskTile<E, G, Written<A::Origin>, I, J> {
        let (role, task) = self.operation();
        let written = y.written();
        role.zip(inputs.raw(), written.raw(), task, f);
        written
    }

    /// Calls `f` once per row of `y`: reductions over a row, then the row's new values. `y` is a tile or a tuple of tiles; rows of `inputs` lie beside its
    /// rows, and the row of a tensor of one dimension is the same every time.
    #[inline(always)]
    pub fn rows<X, Y>(&mut self, inputs: X, y: Y, f: impl for<'r> Fn(X::Rows<'r>, &mut Y::Rows<'r>)) -> Y::Written
    where
        X: Sources + AllReadable + AllApartFrom<Y::Accesses> + RowsOf<Y::Region>,
        Y: Results + AllWritable + RowsOf<Y::Region>,
    {
        let (role, task) = self.operation();
        let (y, written) = y.split();
        role.rows(inputs.raw(), y, task, |x, y| f(X::rows(x), &mut Y::rows(*y)));
        written
    }

    /// `y = x / √(mean(x²) + epsilon) · weight` along each row (Zhang and Sennrich, 2019), by [`Cta::rows`]. Of a task that is nothing else,
    /// and whose result only GEMVs multiply, the plan may fuse it into those as an RMSNorm prologue: to the same bits.
    #[inline(always)]
    pub fn rmsnorm<
        E: Element<Value = f32>,
        GX: SameRows<G> + SameColumns<G>,
        GW: SameColumns<G>,
        G,
        P: Readable + ApartFrom<A>,
        Q: Readable + ApartFrom<A>,
        A: Writable,
        const I: usize,
    >(
        &mut self,
        x: TaskTile<E, GX, P, I, 0>,
        weight: TaskTile<E, GW, Q, 1, 0>,
        y: TaskTile<E, G, A, I, 0>,
        epsilon: f32,
    ) -> TaskTile<E, G, Written<A::Origin>, I, 0> {
        let (role, task) = self.operation();
        let written = y.written();
        role.rows((x.raw(), weight.raw()), written.raw(), task, |(x, weight), y| rmsnorm::row(x, weight, *y, epsilon));
        written
    }

    /// `y[row, col] = f(inputs, row, col)`, for stencils, gathers and transposes; positions count from the tile's origin.
    #[inline(always)]
    pub fn generate<X: Sources + AllReadable, E: Element, G, A: Fresh, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: TaskTile<E, G, A, I, J>,
        f: impl Fn(&<X::Raw as Inputs>::Readers, i32, i32) -> E::Value,
    ) -> TaskTile<E, G, Written<A::Origin>, I, J> {
        let written = y.written();
        let y = written.raw();
        self.operation().0.generate(inputs.raw(), y, f);
        written
    }

    /// `y[row, col..col + 8] = f(inputs, row, col)`, for gathers and rotations: as [`Cta::generate`], in blocks of eight columns that begin
    /// at a multiple of eight. What lies outside `y` is dropped.
    #[inline(always)]
    pub fn blocks<X: Sources + AllReadable, E: Element, G, A: Fresh, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: TaskTile<E, G, A, I, J>,
        f: impl Fn(&<X::Raw as Inputs>::Readers, i32, i32) -> [E::Value; 8],
    ) -> TaskTile<E, G, Written<A::Origin>, I, J> {
        let written = y.written();
        let y = written.raw();
        if let Some(consumer) = self.operation().0.simt_consumer() {
            consumer.blocks(inputs.raw(), y, f);
        }
        written
    }

    /// `y[row, ..] = table[ids[row], ..]`: rows that indices name, zeros where the table has none. Rows of 4 KiB or more a tile, in tables of aligned 16-byte
    /// pieces, come through the ring.
    #[inline(always)]
    #[allow(clippy::type_complexity)]
    pub fn take<
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
        &mut self,
        ids: TaskTile<u32, GI, P, N, S>,
        table: TaskTile<E, GT, Q, A, B>,
        y: TaskTile<E, G, W, I, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J> {
        let (role, task) = self.operation();
        let written = y.written();
        let y = written.raw();
        role.take(ids.raw(), table.raw(), y, task);
        written
    }

    /// `y[row, col..col + 8], y[row, half + col..half + col + 8] = f(inputs, name(inputs, row), row, col)`, `half` being half of the columns of `y`, a multiple
    /// of 8: as [`Cta::blocks`], for what makes both of the same, as rotations of pairs do. What `name` loads, such as the row of another tensor, is on its way
    /// before `f` needs it.
    #[inline(always)]
    pub fn pairs_of_blocks<X: Sources + AllReadable, E: Element, G, A: Fresh, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: TaskTile<E, G, A, I, J>,
        name: impl Fn(&<X::Raw as Inputs>::Readers, i32) -> i32,
        f: impl Fn(&<X::Raw as Inputs>::Readers, i32, i32, i32) -> ([E::Value; 8], [E::Value; 8]),
    ) -> TaskTile<E, G, Written<A::Origin>, I, J> {
        let written = y.written();
        let y = written.raw();
        if let Some(consumer) = self.operation().0.simt_consumer() {
            consumer.pairs_of_blocks(inputs.raw(), y, name, f);
        }
        written
    }

    /// `y[row, ..] = Σ weight · x[index, ..]` in the order of k, where `f(terms, row, k)` gives index and weight for k in `0..count`: weighted sums of
    /// rows that data name. A row outside `x` is zeros. For other k what `f` gives does not count.
    #[inline(always)]
    pub fn sums<
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
        &mut self,
        terms: X,
        x: TaskTile<E, GX, P, A, B>,
        y: TaskTile<E, G, W, I, J>,
        count: u32,
        f: impl Fn(&<X::Raw as Inputs>::Readers, i32, i32) -> (i32, f32),
    ) -> TaskTile<E, G, Written<W::Origin>, I, J> {
        let written = y.written();
        let y = written.raw();
        if let Some(consumer) = self.operation().0.simt_consumer() {
            consumer.sums(terms.raw(), x.raw(), y, count, f);
        }
        written
    }

    /// `y[row, ids[row, k]] = x[row, k]` in the order of k: of equal indices of a row the last one stays. An index outside `y` writes nothing, and what
    /// none names stays.
    #[inline(always)]
    pub fn scatter<
        E: Element,
        GI: SameRows<GX> + SameColumns<GX>,
        GX: SameRows<G>,
        G,
        P: Readable + ApartFrom<W>,
        Q: Readable + ApartFrom<W>,
        W: Updatable,
        const I: usize,
    >(
        &mut self,
        ids: TaskTile<u32, GI, P, I, 0>,
        x: TaskTile<E, GX, Q, I, 0>,
        y: TaskTile<E, G, W, I, 0>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, 0> {
        let written = y.written();
        let y = written.raw();
        if let Some(consumer) = self.operation().0.simt_consumer() {
            consumer.scatter(ids.raw(), x.raw(), y);
        }
        written
    }

    /// `y[ids[i], ..] = x[i, ..]` in the order of i: of equal indices the last one stays. An index outside `y` writes nothing, and rows that none names
    /// stay.
    #[inline(always)]
    pub fn index_copy<
        E: Element,
        GI: OnePerRow<GX>,
        GX: SameColumns<G>,
        G,
        P: Readable + ApartFrom<W>,
        Q: Readable + ApartFrom<W>,
        W: Updatable,
        const J: usize,
    >(
        &mut self,
        ids: TaskTile<u32, GI, P, 1, 0>,
        x: TaskTile<E, GX, Q, 0, J>,
        y: TaskTile<E, G, W, 0, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, 0, J> {
        let (role, task) = self.operation();
        let written = y.written();
        let y = written.raw();
        role.index_copy(ids.raw(), x.raw(), y, task);
        written
    }

    /// `y[ids[i], ..] += x[i, ..]` in the order of i, summed in `f32`: 64 terms one after the other, then these sums. Each sum is rounded to E once. An
    /// index outside `y` adds nothing.
    ///
    /// Alone in its body it finds equal indices by chains in shared memory, and of more than 16,384 indices goes through all of them several times. Beside other
    /// operations it searches all indices for each row.
    #[inline(always)]
    pub fn index_add<
        E: Element<Value = f32>,
        GI: OnePerRow<GX>,
        GX: SameColumns<G>,
        G,
        P: Readable + ApartFrom<W>,
        Q: Readable + ApartFrom<W>,
        W: Updatable,
        const J: usize,
    >(
        &mut self,
        ids: TaskTile<u32, GI, P, 1, 0>,
        x: TaskTile<E, GX, Q, 0, J>,
        y: TaskTile<E, G, W, 0, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, 0, J> {
        let (role, task) = self.operation();
        let written = y.written();
        let y = written.raw();
        role.index_add(ids.raw(), x.raw(), y, task);
        written
    }

    /// `y[col] = finish(f(x[.., col]) combined)`: reductions over a column. `combine` must be associative and commutative; `start` is what
    /// an empty column gives.
    ///
    /// Order: fixed per device by the number of rows, so results repeat bit for bit.
    #[inline(always)]
    pub fn columns<
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
        &mut self,
        x: TaskTile<X, GX, P, A, B>,
        y: TaskTile<E, G, W, I, J>,
        start: f32,
        f: impl Fn(X::Value) -> f32,
        combine: impl Fn(f32, f32) -> f32,
        finish: impl Fn(f32) -> E::Value,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J>
    where
        TaskTile<E, G, W, I, J>: OneRow,
    {
        let (role, task) = self.operation();
        let written = y.written();
        let y = written.raw();
        role.columns(x.raw(), y, task, start, f, combine, finish);
        written
    }

    /// `y = xᵀ`: `x` has as many columns as `y` has rows.
    #[inline(always)]
    pub fn transpose<
        E: Element,
        GX: Turned<G>,
        G,
        P: Readable,
        W: Fresh,
        const A: usize,
        const B: usize,
        const I: usize,
        const J: usize,
    >(
        &mut self,
        x: TaskTile<E, GX, P, A, B>,
        y: TaskTile<E, G, W, I, J>,
    ) -> TaskTile<E, G, Written<W::Origin>, I, J> {
        let (role, task) = self.operation();
        let written = y.written();
        let y = written.raw();
        role.transpose(x.raw(), y, task);
        written
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn simt<const SHARED: usize>(&mut self, early: bool, f: impl FnOnce(&mut Simt<'_, SHARED>)) {
        self.role.simt(early, f);
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn simt_warp(&mut self, early: bool, f: impl FnOnce(&mut SimtWarp<'_>)) {
        self.role.simt_warp(early, f);
    }
}

/// Iterator over the steps of a contraction.
pub struct Steps {
    first: u32,
    /// Counts from `first`.
    next: u32,
    count: u32,
}

impl Iterator for Steps {
    type Item = u32;
    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        // A loop that could run zero times makes ptxas serialise every wgmma in it (C7515).
        // SAFETY: `steps` makes `count` at least 1, since no part is empty, and `next` grows by one up to `count`.
        unsafe { core::hint::assert_unchecked(self.count > 0) };
        if self.next >= self.count {
            return None;
        }
        let k = self.first + self.next;
        self.next += 1;
        Some(k)
    }
}
