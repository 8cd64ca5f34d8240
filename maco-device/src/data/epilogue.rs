//! Epilogues: functions of an accumulator's values before they are rounded and stored, alone or with an element of another tensor. And elementwise prologues
//! of operand A.
//!
//! Which elements of a tile a thread has does not belong here. An epilogue is a type, so that one without tensors costs nothing for those that have some.

use core::marker::PhantomData;

use crate::data::element::{MmaElement, bf16, f16};
use crate::data::task::Task;
use crate::data::tile::Tile;

/// A function on one value, fusable into the epilogue of a call.
#[diagnostic::on_unimplemented(
    message = "MACO0018: `{Self}` is not element-wise, so a call cannot fuse it",
    label = "not an element-wise task",
    note = "`.then(f)` and `.first(f)` take `#[maco::task(elementwise)] fn f(v: f32) -> f32`, and `.then(f(r))` one of two values; call any other task on its own line"
)]
pub trait Elementwise {
    /// The function.
    fn apply(value: f32) -> f32;
}

/// A function of a value and an operand's element at the same place, fusable into the epilogue of a call as `.then(f(operand))`.
#[diagnostic::on_unimplemented(
    message = "MACO0018: `{Self}` is no function of a value and an operand, so a call cannot fuse it",
    label = "not an element-wise task of two values",
    note = "`.then(f(r))`, and with a number `.first(f(s))`, take `add`, `mul`, `scale`, `silu_mul` and any `#[maco::task(elementwise)] fn f(v: f32, r: f32) -> f32`"
)]
pub trait Combine {
    /// The function.
    fn combine(value: f32, operand: f32) -> f32;
}

/// Where an epilogue's operands are: behind those of the task, at the place of its result.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Anchor {
    /// Tensor parameters of the task.
    pub tensors: usize,
    /// Scalar parameters of the task.
    pub scalars: usize,
    /// Grid axes of its result's planes, rows and columns; [`NO_AXIS`] where there is none.
    pub axes: [usize; 3],
}

/// See [`Anchor::axes`].
#[doc(hidden)]
pub const NO_AXIS: usize = 3;

/// Elements of operands, for one or more values whose places the source knows.
#[doc(hidden)]
pub trait Source {
    /// Those of one tensor.
    type Elements: Copy;
    /// Those of the epilogue's `n`-th tensor, which holds `O`.
    fn tensor<O: MmaElement>(&self, n: usize) -> Self::Elements;
    /// The one beside value `at`, of elements of a tensor of `O`.
    fn element<O: MmaElement>(elements: &Self::Elements, at: usize) -> f32;
    /// The epilogue's `n`-th scalar.
    fn scalar(&self, n: usize) -> f32;
}

/// All that follows a sum.
#[doc(hidden)]
pub trait Epilogue {
    /// Where its operands are.
    const ANCHOR: Anchor = Anchor { tensors: 0, scalars: 0, axes: [NO_AXIS; 3] };
    /// Words of its operands beside 32 columns of a thread of the tensor cores.
    const WORDS: u32 = 0;
    /// Whether it takes so many instructions for each value that they are written once for several chunks of a tile.
    const ROLLED: bool;
    /// What a task whose signature says `E` rounds its results to.
    type Result<E: MmaElement>: MmaElement;
    /// The number of that element, as of [`ResultCode`]; 0: it is `E`.
    const RESULT: u8 = 0;
    /// Whether it does nothing to a value.
    const PLAIN: bool = false;
    /// Its operands, beside the values that a source is for.
    type Operands<S: Source>: Copy;
    /// Reads them.
    fn read<S: Source>(source: &S) -> Self::Operands<S>;
    /// Applies it to value `at`.
    fn apply<S: Source>(value: f32, operands: &Self::Operands<S>, at: usize) -> f32;
    /// Whether operand A has an elementwise prologue: `.first(..)`.
    const MAPS_OPERAND_A: bool = false;
    /// The elementwise prologue, of an element of operand A; `source` has the epilogue's scalars.
    #[inline(always)]
    fn first<S: Source>(source: &S) -> impl Fn(f32) -> f32 {
        let _ = source;
        |value| value
    }
}

/// No epilogue.
pub enum Identity {}

impl Epilogue for Identity {
    const ROLLED: bool = false;
    const PLAIN: bool = true;
    type Result<E: MmaElement> = E;
    type Operands<S: Source> = ();
    #[inline(always)]
    fn read<S: Source>(_: &S) {}
    #[inline(always)]
    fn apply<S: Source>(value: f32, (): &(), _: usize) -> f32 {
        value
    }
}

/// `.then(gelu)`
pub struct Each<F: Elementwise>(PhantomData<F>);

impl<F: Elementwise> Epilogue for Each<F> {
    const ROLLED: bool = true;
    type Result<E: MmaElement> = E;
    type Operands<S: Source> = ();
    #[inline(always)]
    fn read<S: Source>(_: &S) {}
    #[inline(always)]
    fn apply<S: Source>(value: f32, (): &(), _: usize) -> f32 {
        F::apply(value)
    }
}

/// `.then(add(r))`: with the epilogue's `N`-th tensor, which holds `O`.
pub struct WithTensor<F: Combine, const N: usize, O: MmaElement>(PhantomData<(F, O)>);

impl<F: Combine, const N: usize, O: MmaElement> Epilogue for WithTensor<F, N, O> {
    const WORDS: u32 = if O::BYTES == 2 { 8 } else { 16 };
    const ROLLED: bool = false;
    type Result<E: MmaElement> = E;
    type Operands<S: Source> = S::Elements;
    #[inline(always)]
    fn read<S: Source>(source: &S) -> S::Elements {
        source.tensor::<O>(N)
    }
    #[inline(always)]
    fn apply<S: Source>(value: f32, operands: &S::Elements, at: usize) -> f32 {
        F::combine(value, S::element::<O>(operands, at))
    }
}

/// `.then(scale(s))`: with the epilogue's `N`-th scalar.
pub struct WithScalar<F: Combine, const N: usize>(PhantomData<F>);

impl<F: Combine, const N: usize> Epilogue for WithScalar<F, N> {
    const ROLLED: bool = false;
    type Result<E: MmaElement> = E;
    type Operands<S: Source> = f32;
    #[inline(always)]
    fn read<S: Source>(source: &S) -> f32 {
        source.scalar(N)
    }
    #[inline(always)]
    fn apply<S: Source>(value: f32, operand: &f32, _: usize) -> f32 {
        F::combine(value, *operand)
    }
}

/// First `A`, then `B`. The operands of both are read before either is applied, so that they are on their way together.
pub struct Then<A, B>(PhantomData<(A, B)>);

impl<A: Epilogue, B: Epilogue> Epilogue for Then<A, B> {
    const WORDS: u32 = A::WORDS + B::WORDS;
    const ROLLED: bool = A::ROLLED || B::ROLLED;
    type Result<E: MmaElement> = E;
    type Operands<S: Source> = (A::Operands<S>, B::Operands<S>);
    #[inline(always)]
    fn read<S: Source>(source: &S) -> Self::Operands<S> {
        (A::read(source), B::read(source))
    }
    #[inline(always)]
    fn apply<S: Source>(value: f32, (a, b): &Self::Operands<S>, at: usize) -> f32 {
        B::apply::<S>(A::apply::<S>(value, a, at), b, at)
    }
}

/// `T`, and results that are rounded to `C`, whatever the task's signature says.
pub struct Rounded<T, C>(PhantomData<(T, C)>);

impl<T: Epilogue, C: ResultElement> Epilogue for Rounded<T, C> {
    const WORDS: u32 = T::WORDS;
    const ROLLED: bool = T::ROLLED;
    type Result<E: MmaElement> = C::Of<E>;
    const RESULT: u8 = C::NUMBER;
    const PLAIN: bool = T::PLAIN;
    type Operands<S: Source> = T::Operands<S>;
    #[inline(always)]
    fn read<S: Source>(source: &S) -> Self::Operands<S> {
        T::read(source)
    }
    #[inline(always)]
    fn apply<S: Source>(value: f32, operands: &Self::Operands<S>, at: usize) -> f32 {
        T::apply::<S>(value, operands, at)
    }
    const MAPS_OPERAND_A: bool = T::MAPS_OPERAND_A;
    #[inline(always)]
    fn first<S: Source>(source: &S) -> impl Fn(f32) -> f32 {
        T::first(source)
    }
}

/// `.first(..)`: `T`, behind a GEMM whose operand A has the elementwise prologue `M`, which has no tensors.
pub struct First<M, T>(PhantomData<(M, T)>);

impl<M: Epilogue, T: Epilogue> Epilogue for First<M, T> {
    const WORDS: u32 = T::WORDS;
    const ROLLED: bool = T::ROLLED;
    const RESULT: u8 = T::RESULT;
    const PLAIN: bool = T::PLAIN;
    type Result<E: MmaElement> = T::Result<E>;
    type Operands<S: Source> = T::Operands<S>;
    #[inline(always)]
    fn read<S: Source>(source: &S) -> Self::Operands<S> {
        T::read(source)
    }
    #[inline(always)]
    fn apply<S: Source>(value: f32, operands: &Self::Operands<S>, at: usize) -> f32 {
        T::apply::<S>(value, operands, at)
    }
    const MAPS_OPERAND_A: bool = true;
    #[inline(always)]
    fn first<S: Source>(source: &S) -> impl Fn(f32) -> f32 {
        let operands = M::read(source);
        move |value| M::apply::<S>(value, &operands, 0)
    }
}

/// What results are rounded to: an element, or [`ResultCode`].
#[doc(hidden)]
pub trait ResultElement {
    /// Its number; 0: that of the signature.
    const NUMBER: u8;
    /// Where the task's signature says `E`.
    type Of<E: MmaElement>: MmaElement;
}

/// The element that a number stands for, since what const evaluation finds is no type: 0 is that of the signature, others are those of
/// `maco_graph::spec::result_code`.
#[doc(hidden)]
pub enum ResultCode<const N: u8> {}

impl ResultElement for ResultCode<0> {
    const NUMBER: u8 = 0;
    type Of<E: MmaElement> = E;
}

macro_rules! result_elements {
    ($($element:ident $code:literal)*) => {$(
        impl ResultElement for $element {
            const NUMBER: u8 = $code;
            type Of<E: MmaElement> = $element;
        }
        impl ResultElement for ResultCode<$code> {
            const NUMBER: u8 = $code;
            type Of<E: MmaElement> = $element;
        }
    )*};
}
result_elements!(bf16 1 f16 2 f32 3);

/// `T` behind a task with so many tensors and scalars, and with these axes of its result's planes, rows and columns.
#[doc(hidden)]
pub struct Anchored<T, const TENSORS: usize, const SCALARS: usize, const PLANE: usize, const ROW: usize, const COLUMN: usize>(
    PhantomData<T>,
);

impl<T: Epilogue, const TENSORS: usize, const SCALARS: usize, const PLANE: usize, const ROW: usize, const COLUMN: usize> Epilogue
    for Anchored<T, TENSORS, SCALARS, PLANE, ROW, COLUMN>
{
    const ANCHOR: Anchor = Anchor { tensors: TENSORS, scalars: SCALARS, axes: [PLANE, ROW, COLUMN] };
    const WORDS: u32 = T::WORDS;
    const ROLLED: bool = T::ROLLED;
    const RESULT: u8 = T::RESULT;
    const PLAIN: bool = T::PLAIN;
    type Result<E: MmaElement> = T::Result<E>;
    type Operands<S: Source> = T::Operands<S>;
    #[inline(always)]
    fn read<S: Source>(source: &S) -> Self::Operands<S> {
        T::read(source)
    }
    #[inline(always)]
    fn apply<S: Source>(value: f32, operands: &Self::Operands<S>, at: usize) -> f32 {
        T::apply::<S>(value, operands, at)
    }
    const MAPS_OPERAND_A: bool = T::MAPS_OPERAND_A;
    #[inline(always)]
    fn first<S: Source>(source: &S) -> impl Fn(f32) -> f32 {
        T::first(source)
    }
}

/// What is done with an epilogue, which is a type, and with the element of its results.
#[doc(hidden)]
pub trait WithEpilogue {
    /// What comes of it.
    type Output;
    /// What comes of no epilogue: of an instance that has none, which nobody asks for.
    fn none() -> Self::Output;
    /// Does it.
    fn of<T: Epilogue, E: MmaElement>(self) -> Self::Output;
}

/// The epilogues of several instances, one of which is chosen when a GEMM ends.
pub(crate) trait Epilogues {
    /// Does it with the epilogue of instance `op`.
    fn with<W: WithEpilogue>(op: u32, what: W) -> W::Output;
}

/// One epilogue, of whatever instance.
pub(crate) struct Alone<T, E>(PhantomData<(T, E)>);

impl<T: Epilogue, E: MmaElement> Epilogues for Alone<T, E> {
    #[inline(always)]
    fn with<W: WithEpilogue>(_: u32, what: W) -> W::Output {
        what.of::<T, E>()
    }
}

/// The scalars of an epilogue, for the elementwise prologue of operand A.
pub(crate) struct Scalars {
    task: Task,
    before: usize,
}

impl Scalars {
    /// Those of `T`, of `task`.
    #[inline(always)]
    pub(crate) fn of<T: Epilogue>(task: Task) -> Scalars {
        Scalars { task, before: T::ANCHOR.scalars }
    }
}

impl Source for Scalars {
    type Elements = ();
    #[inline(always)]
    fn tensor<O: MmaElement>(&self, _: usize) {}
    /// The recorder refuses tensors in a prologue.
    #[inline(always)]
    fn element<O: MmaElement>((): &(), _: usize) -> f32 {
        0.0
    }
    #[inline(always)]
    fn scalar(&self, n: usize) -> f32 {
        self.task.scalar(self.before + n)
    }
}

/// One element of a result.
pub(crate) struct Spot {
    task: Task,
    anchor: Anchor,
    plane: i32,
    row: i32,
    col: i32,
    /// Whether there is such an element.
    inside: bool,
}

impl Source for Spot {
    /// Bits: what is read ahead is not waited for where it is asked for.
    type Elements = u32;
    #[inline(always)]
    fn tensor<O: MmaElement>(&self, n: usize) -> u32 {
        let tile: Tile<O, 0, 0> = self.task.tile(self.anchor.tensors + n, self.plane, 0, 0);
        let row = inside(self.row, tile.view.rows);
        // SAFETY: an operand has the shape of the result, or is one row of it; nobody writes it while the task runs.
        unsafe { O::bits_if(self.inside, tile.pointer(row, self.col)) }
    }
    #[inline(always)]
    fn element<O: MmaElement>(element: &u32, _: usize) -> f32 {
        O::of_bits(*element)
    }
    #[inline(always)]
    fn scalar(&self, n: usize) -> f32 {
        self.task.scalar(self.anchor.scalars + n)
    }
}

/// The row, or column, that is read for `at` of an operand that has `extent`, of which there is at least one. A tensor of one row is the
/// same to every row of the result; and what lies behind the last one belongs to no element, but has to be read from somewhere.
#[inline(always)]
pub(crate) fn inside(at: i32, extent: u32) -> i32 {
    let last = extent as i32 - 1;
    if at < last { at } else { last }
}

/// What the epilogue `T` of a task takes beside one element of its result.
pub(crate) struct Beside<T: Epilogue>(T::Operands<Spot>);

impl<T: Epilogue> Clone for Beside<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Epilogue> Copy for Beside<T> {}

impl<T: Epilogue> Beside<T> {
    /// Of the element at (`row`, `col`) of `y`'s tile, if there is one; asked for here, and waited for in [`Beside::finish`].
    #[inline(always)]
    pub(crate) fn read<E: MmaElement, const I: usize, const J: usize>(task: Task, y: Tile<E, I, J>, (row, col): (u32, u32)) -> Self {
        let inside = row < y.rows() && col < y.cols();
        let (plane, row, col) = (y.plane, y.row + row as i32, y.col + col as i32);
        Beside(T::read(&Spot { task, anchor: T::ANCHOR, plane, row, col, inside }))
    }

    /// The element, of which the task has made `value`.
    #[inline(always)]
    pub(crate) fn finish(self, value: f32) -> f32 {
        T::apply::<Spot>(value, &self.0, 0)
    }
}

#[cfg(all(test, not(target_arch = "nvptx64")))]
mod tests {
    use super::inside;

    /// What lies behind the edge is read as the edge, never from beyond the tensor; one row is every row.
    #[test]
    fn nothing_is_read_behind_the_last_one() {
        assert_eq!([0, 62, 63, 64, 200].map(|at| inside(at, 64)), [0, 62, 63, 63, 63]);
        assert_eq!([0, 1, 127].map(|at| inside(at, 1)), [0, 0, 0]);
        assert_eq!(inside(i32::MAX, i32::MAX as u32), i32::MAX - 1);
    }
}
