//! What a task body calls. Every role runs the body's loops and calls; only consumers (and the CPU) run the closures.

use core::marker::PhantomData;

use crate::data::access::{Readable, Stored, TaskTile, Writable};
use crate::data::element::{Element, MmaElement};
use crate::data::epilogue::{Epilogue, Identity};
use crate::data::kind::{Gemm, Has, Simt as SimtKind, Warp as WarpKind};
use crate::data::pure::Pure;
use crate::data::region::{ContractsWith, KeepsColumns, KeepsRows};
use crate::data::split_k::SplitK;
use crate::data::task::Task;
use crate::data::tile::MmaOperand;
use crate::operations::order::Since;
use crate::role::Role;
use crate::simt::Simt;
use crate::simt::warp::SimtWarp;

mod channel_ends;
pub mod channels;
pub mod collectives;
pub mod operations;
pub mod symmetric;

/// The CTA (cooperative thread array) that runs a task of kind `K`, as role `R` sees it. Users write `&mut Cta`, or `&mut Cta<Gemm>`; the macro adds the rest.
/// Products on the tensor cores are its own methods, all others those of [`Operations`](operations::Operations),
/// [`Collectives`](collectives::Collectives) and [`Channels`](channels::Channels).
///
/// The outline of a task (loops, calls on `cta`) depends on shapes, scalars and tile coordinates only: every role runs it.
/// Element values exist only inside closures.
pub struct Cta<'a, K, R, T = Identity> {
    role: &'a mut R,
    task: Task,
    since: Since,
    types: PhantomData<(K, T)>,
}

/// A sum in registers (GPU) or memory (CPU): `I` × `J` values of `f32`, for a tile of region `G`.
pub struct Accumulator<R: Role, G, const I: usize, const J: usize>(R::Accumulator<I, J>, PhantomData<fn() -> G>);

/// Two sums of the same shape, of one operand with two others: what [`Accumulator`] is to one GEMM. As many registers as one sum with
/// twice the columns.
pub struct AccumulatorPair<R: Role, G, const I: usize, const J: usize>(R::Accumulator<I, J>, R::Accumulator<I, J>, PhantomData<fn() -> G>);

impl<'a, K, R: Role, T: Epilogue> Cta<'a, K, R, T> {
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(role: &'a mut R, task: Task) -> Self {
        Cta { role, task, since: Since::Nothing, types: PhantomData }
    }

    /// Read anew wherever it is needed: a register across all steps is worth more.
    #[inline(always)]
    fn split_k(&self) -> SplitK {
        self.task.split_k()
    }

    /// A new accumulator, all zero.
    #[inline(always)]
    pub fn accumulator<G, const I: usize, const J: usize>(&mut self) -> Accumulator<R, G, I, J>
    where
        K: Has<Gemm>,
    {
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
    ) -> Steps
    where
        K: Has<Gemm>,
    {
        let (a, b) = (a.raw(), b.raw());
        let steps = a.contraction().div_ceil(maco_abi::columns(E::BYTES));
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
        K: Has<Gemm>,
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
    ) -> TaskTile<E, G, Stored<W::Origin>, I, J>
    where
        K: Has<Gemm>,
    {
        let (split, (y, stored)) = (self.split_k(), y.stored());
        self.role.store::<T, T::Result<E>, I, J>(acc.0, y.of(), split, self.task);
        stored
    }

    /// Two new accumulators, both zero, for [`Cta::mma_pair`]. Tiles: 64 × 128, 64 × 256 or 128 × 128; both sums of a larger one do not fit
    /// the registers.
    #[inline(always)]
    pub fn accumulator_pair<G, const I: usize, const J: usize>(&mut self) -> AccumulatorPair<R, G, I, J>
    where
        K: Has<Gemm>,
    {
        const {
            assert!(
                (I == 64 || I == 128) && (J == 128 || J == 256) && I * J < 128 * 256,
                "MACO0017: two accumulators of a task must have 64 rows and 128 or 256 columns, or 128 of each\nhelp: write `tile(i = 64 | 128, j = 128)`"
            );
        }
        AccumulatorPair(self.role.zeros(), self.role.zeros(), PhantomData)
    }

    /// `acc.0 += a · b.0ᵀ` and `acc.1 += a · b.1ᵀ` over one step, in `f32`: [`Cta::mma`] twice, with `a` loaded once. For gated units, and
    /// whatever else needs two products at the same place at the same time. Both `b` lie along the same axis.
    #[inline(always)]
    pub fn mma_pair<A, B, C, G, MA, MB, const I: usize, const J: usize>(&mut self, acc: &mut AccumulatorPair<R, G, I, J>, a: A, b: (B, C))
    where
        K: Has<Gemm>,
        A: MmaOperand<I, MA> + KeepsRows<G, I, MA>,
        B: MmaOperand<J, MB, Element = A::Element> + KeepsColumns<G, J, MB> + ContractsWith<A::Contracted, J, MB>,
        C: MmaOperand<J, MB, Element = A::Element> + KeepsColumns<G, J, MB> + ContractsWith<A::Contracted, J, MB>,
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
        f: impl Fn(f32, f32) -> f32 + Pure,
    ) -> TaskTile<E, G, Stored<W::Origin>, I, J>
    where
        K: Has<Gemm>,
    {
        let (y, stored) = y.stored();
        self.role.store_pair::<T, T::Result<E>, I, J>((acc.0, acc.1), y.of(), self.task, f);
        stored
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn simt<const SHARED: usize>(&mut self, early: bool, f: impl FnOnce(&mut Simt<'_, SHARED>))
    where
        K: Has<SimtKind>,
    {
        self.role.simt(early, f);
    }

    #[doc(hidden)]
    #[inline(always)]
    pub fn simt_warp(&mut self, early: bool, f: impl FnOnce(&mut SimtWarp<'_>))
    where
        K: Has<WarpKind>,
    {
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
