//! What a body may do with the tile of a parameter, as a part of its type: a body can touch only what its signature says.
//!
//! Roles and operations work on [`Tile`]s; this is the skin around them that bodies see. SIMT bodies are `unsafe`, and see tiles.

use core::marker::PhantomData;

use crate::data::element::Element;
use crate::data::inputs::Inputs;
use crate::data::region::{Beside, Hidden, HiddenToo, Like, LikeRows, OneRow, RowsOf};
use crate::data::row::{Row, RowInputs, RowMut, RowOutputs, RowView};
use crate::data::tile::{Operand, Tile};

/// What a body may do with a tile: one of the types below.
pub trait Access {
    /// What its parameter's attribute says.
    type Origin;
    /// Whether another operation of the body may have written it, or may have read what an operation that writes it overwrites.
    const SHARED: bool;
}

/// It may be read.
#[diagnostic::on_unimplemented(
    message = "MACO0073: this holds nothing yet: it is a `#[write(..)]` parameter that nothing has written",
    label = "read before it is written",
    note = "an operation returns what it has written, to be read: `let y = cta.zip(x, y, f);`; what a tensor held before the task is `#[update(..)]`"
)]
pub trait Readable: Access {}

/// An operation may write it.
#[diagnostic::on_unimplemented(
    message = "MACO0073: the result of an operation must be a `#[write(..)]` or `#[update(..)]` parameter",
    label = "its attribute is another one",
    note = "inputs come first and the result behind them: `cta.zip(x, y, f)` is y = f(x); mark what is written `#[write(..)]` or `#[update(..)]`"
)]
pub trait Writable: Access {}

/// An operation that reads by position may write it: nothing of it is read meanwhile.
#[diagnostic::on_unimplemented(
    message = "MACO0073: this operation reads at any position while it writes, so its result must be a `#[write(..)]` parameter that nothing has written yet",
    label = "may hold what is still read",
    note = "write to another tensor; element by element in place is `cta.map(x, f)` or `cta.zip((x, a), x, f)`"
)]
pub trait Fresh: Writable {}

/// An operation may write parts of it: the rest stays.
#[diagnostic::on_unimplemented(
    message = "MACO0073: this operation leaves elements as they are, so its result must be an `#[update(..)]` parameter",
    label = "what it does not write would be from before",
    note = "mark the parameter `#[update(..)]`, and fill the tensor in a call before this one"
)]
pub trait Updatable: Writable {}

/// It is operand B of a GEMV.
#[diagnostic::on_unimplemented(
    message = "MACO0068: the second argument of `gemv` is operand B, and the plan does not know this as such",
    label = "not the parameter that the plan streams",
    note = "its rows are loaded before the body runs, so the body names a `#[read(j, ..)]` parameter itself: `cta.gemv(x, w, y)`"
)]
pub trait OperandB: Readable {}

/// `#[read(..)]`
pub enum Read {}
/// `#[write(..)]`: holds nothing until an operation of the body has written it. `N`: which of the parameters with this attribute it is, so that what is written of one
/// does not pass for another.
pub enum Write<const N: usize = 0> {}
/// `#[update(..)]`
pub enum Update {}
/// What an operation returns of its result, which was a `#[write(..)]` or an `#[update(..)]` parameter, as `A` says.
pub struct Written<A>(PhantomData<fn() -> A>);
/// The same of a GEMM, whose result is stored when the body has ended: nothing reads or writes it any more.
pub struct Stored<A>(PhantomData<fn() -> A>);
/// `#[read(..)]` of what a GEMV streams, its operand B: what the plan knows it by.
pub enum Streamed {}

impl Access for Read {
    type Origin = Read;
    const SHARED: bool = false;
}
impl Access for Streamed {
    type Origin = Read;
    const SHARED: bool = false;
}
impl<const N: usize> Access for Write<N> {
    type Origin = Write<N>;
    const SHARED: bool = false;
}
impl Access for Update {
    type Origin = Update;
    const SHARED: bool = true;
}
impl<A> Access for Written<A> {
    type Origin = A;
    const SHARED: bool = true;
}
impl<A> Access for Stored<A> {
    type Origin = A;
    const SHARED: bool = true;
}
impl Readable for Read {}
impl Readable for Streamed {}
impl OperandB for Streamed {}
impl Readable for Update {}
impl<A> Readable for Written<A> {}
impl<const N: usize> Writable for Write<N> {}
impl Writable for Update {}
impl<A> Writable for Written<A> {}
impl<const N: usize> Fresh for Write<N> {}
impl Updatable for Update {}
impl<A> Updatable for Written<A> {}

/// It is not a tile that the same operation writes with access `A`.
#[diagnostic::on_unimplemented(
    message = "MACO0073: this may be what the same operation writes",
    label = "other threads may write what is read here",
    note = "in place: `cta.map(x, f)`, `cta.zip((x, a), x, f)`, or, row by row, `cta.rows(a, x, |a, x| {{ let sum = x.read().sum(|v| v); x.map(|v| v / sum) }})`",
    note = "else mark what is only read `#[read(..)]`, or the result `#[write(..)]`"
)]
pub trait ApartFrom<A> {}
impl ApartFrom<Read> for Read {}
impl ApartFrom<Update> for Read {}
impl ApartFrom<Written<Update>> for Read {}
impl<const N: usize> ApartFrom<Write<N>> for Read {}
impl<const N: usize> ApartFrom<Written<Write<N>>> for Read {}
// Tensors of two attributes are two; what nothing has written yet cannot be read either.
impl ApartFrom<Read> for Update {}
impl<const N: usize> ApartFrom<Write<N>> for Update {}
impl<const N: usize> ApartFrom<Written<Write<N>>> for Update {}
impl ApartFrom<Read> for Written<Update> {}
impl<const N: usize> ApartFrom<Write<N>> for Written<Update> {}
impl<const N: usize> ApartFrom<Written<Write<N>>> for Written<Update> {}
impl<const N: usize> ApartFrom<Read> for Written<Write<N>> {}
impl<const N: usize, const M: usize> ApartFrom<Write<M>> for Written<Write<N>> {}
impl<const N: usize> ApartFrom<Update> for Written<Write<N>> {}
impl<const N: usize> ApartFrom<Written<Update>> for Written<Write<N>> {}
// It is not read: one mistake, one error.
impl<const N: usize> ApartFrom<Read> for Write<N> {}
impl<const N: usize, const M: usize> ApartFrom<Write<M>> for Write<N> {}
impl<const N: usize> ApartFrom<Update> for Write<N> {}
impl<const N: usize, const M: usize> ApartFrom<Written<Write<M>>> for Write<N> {}
impl<const N: usize> ApartFrom<Written<Update>> for Write<N> {}

/// What a call returns of a `#[write(..)]` tile `Y` that it was handed, or of a tuple of them in order: that tile as written.
#[diagnostic::on_unimplemented(
    message = "MACO0074: this call does not return what it has written of the `#[write(..)]` parameters that it was handed",
    label = "may leave what was there before",
    note = "a function returns what the operation returns, `cta.zip(x, y, f)`, of several results the tuple in their order; `#[maco::helper(Rows)]` on it writes the types",
    note = "of a macro the last value counts, and operations behind a macro too: write the operation outside of it, or as its value"
)]
pub trait WrittenOf<Y> {}
// `N` alone says which tile it is: where others do not fit, rustc says that of the call itself.
impl<E, F, G, H, const N: usize, const R: usize, const C: usize, const S: usize, const D: usize> WrittenOf<TaskTile<E, G, Write<N>, R, C>>
    for TaskTile<F, H, Written<Write<N>>, S, D>
{
}
impl<E, F, G, H, const N: usize, const R: usize, const C: usize, const S: usize, const D: usize> WrittenOf<TaskTile<E, G, Write<N>, R, C>>
    for TaskTile<F, H, Stored<Write<N>>, S, D>
{
}
/// Stands for a result that need not be asked for: an `#[update(..)]` parameter beside others.
pub enum Other {}
impl<T> WrittenOf<Other> for T {}
impl<A: WrittenOf<X>, X> WrittenOf<(X,)> for (A,) {}
impl<A: WrittenOf<X>, B: WrittenOf<Y>, X, Y> WrittenOf<(X, Y)> for (A, B) {}
impl<A: WrittenOf<X>, B: WrittenOf<Y>, C: WrittenOf<Z>, X, Y, Z> WrittenOf<(X, Y, Z)> for (A, B, C) {}
impl<A: WrittenOf<X>, B: WrittenOf<Y>, C: WrittenOf<Z>, D: WrittenOf<V>, X, Y, Z, V> WrittenOf<(X, Y, Z, V)> for (A, B, C, D) {}

/// For generated code: what a call returned, if that is what it was to write.
#[doc(hidden)]
#[inline(always)]
pub fn written_by_helper<Y, T: WrittenOf<Y>>(returned: T) -> T {
    returned
}

/// What a helper function returns, as what it is to return.
#[diagnostic::on_unimplemented(
    message = "MACO0074: this helper function does not return what it has written of its `#[write(..)]` parameters",
    label = "may leave what was there before",
    note = "return what the operation returns, `cta.zip(x, y, f)`, of several results the tuple in their order"
)]
pub trait ReturnedAs<T> {
    #[doc(hidden)]
    fn returned(self) -> T;
}
impl<E, G, A, const R: usize, const C: usize> ReturnedAs<TaskTile<E, G, A, R, C>> for TaskTile<E, G, A, R, C> {
    #[inline(always)]
    fn returned(self) -> Self {
        self
    }
}
// See `Hidden`.
#[diagnostic::do_not_recommend]
impl<T> ReturnedAs<T> for Hidden {
    fn returned(self) -> T {
        match self {}
    }
}
macro_rules! returned {
    ($($from:ident $to:ident $n:tt),+) => {
        #[diagnostic::do_not_recommend]
        impl<$($from: ReturnedAs<$to>, $to),+> ReturnedAs<($($to,)+)> for ($($from,)+) {
            #[inline(always)]
            fn returned(self) -> ($($to,)+) {
                ($(self.$n.returned(),)+)
            }
        }
    };
}
returned!(A X 0, B Y 1);
returned!(A X 0, B Y 1, C Z 2);
returned!(A X 0, B Y 1, C Z 2, D V 3);

/// For generated code: what the body of a helper function is.
#[doc(hidden)]
#[inline(always)]
pub fn returned_by_helper<T, U: ReturnedAs<T>>(returned: U) -> T {
    returned.returned()
}

/// For generated code: what a body with macros returns, so that none of these returns from it before it has written its results.
#[doc(hidden)]
pub struct WritesItsResults;

/// The tile of one parameter in a body, or what an operation has made of it: `R` rows and `C` columns, 0 for a whole axis.
///
/// `G` is its region, the indices of its rows and of its columns (see [`crate::data::region`]), and `A` what a body may do with it.
pub struct TaskTile<E, G, A, const R: usize, const C: usize>(Tile<E, R, C>, PhantomData<fn() -> (G, A)>);

impl<E, G, A: Readable, const R: usize, const C: usize> Clone for TaskTile<E, G, A, R, C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
// What is only written is named once: by the operation that writes it.
impl<E, G, A: Readable, const R: usize, const C: usize> Copy for TaskTile<E, G, A, R, C> {}

impl<E: Element, G, A: Access, const R: usize, const C: usize> TaskTile<E, G, A, R, C> {
    /// For generated code: `G` and `A` are region and access of the parameter that `tile` is of.
    #[doc(hidden)]
    #[inline(always)]
    pub fn new(tile: Tile<E, R, C>) -> Self {
        TaskTile(tile, PhantomData)
    }

    /// Rows inside the tensor, counted from the tile's origin.
    #[inline(always)]
    pub fn rows(&self) -> u32 {
        self.0.rows()
    }

    /// Columns inside the tensor, counted from the tile's origin.
    #[inline(always)]
    pub fn cols(&self) -> u32 {
        self.0.cols()
    }

    #[inline(always)]
    pub(crate) fn raw(self) -> Tile<E, R, C> {
        self.0
    }

    /// The tile, for who does not access it.
    #[inline(always)]
    pub(crate) fn place(&self) -> Tile<E, R, C> {
        self.0
    }

    #[inline(always)]
    #[allow(clippy::type_complexity)]
    pub(crate) fn stored(self) -> (Tile<E, R, C>, TaskTile<E, G, Stored<A::Origin>, R, C>) {
        (self.0, TaskTile(self.0, PhantomData))
    }

    #[inline(always)]
    pub(crate) fn written(self) -> TaskTile<E, G, Written<A::Origin>, R, C> {
        TaskTile(self.0, PhantomData)
    }
}

impl<E: Element, G, A, const R: usize, const C: usize> TaskTile<E, G, A, R, C> {
    /// The same tile by other names of its type: see [`crate::data::given`].
    #[inline(always)]
    pub(crate) fn same<F, H, B, const I: usize, const J: usize>(self) -> TaskTile<F, H, B, I, J> {
        TaskTile(self.0.same(), PhantomData)
    }
}

impl<E: Element, G, A: Readable, const R: usize, const C: usize> TaskTile<E, G, A, R, C> {
    /// See [`Tile::by_element`].
    #[inline(always)]
    pub fn by_element(self, condition: bool) -> Self {
        TaskTile(self.0.by_element(condition), PhantomData)
    }

    /// Names step `k` of the contraction: 64 columns, 32 of `f32`, or as many rows when the columns are the tile (see [`crate::Cta::mma`]).
    #[inline(always)]
    pub fn tile(self, k: u32) -> Operand<E, G, R, C> {
        self.0.step(k)
    }
}

impl<K, L, R: LikeRows<K>, C: Like<L>, E, A, const I: usize, const J: usize> Beside<(K, L)> for TaskTile<E, (R, C), A, I, J> {}
impl<K, L, R: LikeRows<K>, C, E, A, const I: usize, const J: usize> RowsOf<(K, L)> for TaskTile<E, (R, C), A, I, J> {}
impl<E, G, A, const J: usize> OneRow for TaskTile<E, G, A, 1, J> {}

macro_rules! hidden {
    ($region:ty) => {
        #[diagnostic::do_not_recommend]
        impl<E, G, A, const I: usize, const J: usize> Beside<$region> for TaskTile<E, G, A, I, J> {}
        #[diagnostic::do_not_recommend]
        impl<E, G, A, const I: usize, const J: usize> RowsOf<$region> for TaskTile<E, G, A, I, J> {}
    };
}
hidden!(Hidden);
hidden!(HiddenToo);
// Else rustc would take the number of rows from the other one, as it would a region: see `Hidden`.
#[diagnostic::do_not_recommend]
impl<E, G, A, const J: usize> OneRow for TaskTile<E, G, A, { usize::MAX }, J> {}

/// All of what an operation reads is [`Readable`]. A trait of its own: rustc then points to the argument, or the member of a tuple, that is not.
pub trait AllReadable {}

/// All of what an operation writes is [`Writable`].
pub trait AllWritable {}

/// All of what an operation reads is [`ApartFrom`] results of these accesses.
pub trait AllApartFrom<A> {}

impl AllReadable for () {}
impl<E, G, A: Readable, const R: usize, const C: usize> AllReadable for TaskTile<E, G, A, R, C> {}
impl<E, G, A: Writable, const R: usize, const C: usize> AllWritable for TaskTile<E, G, A, R, C> {}
impl<T> AllApartFrom<T> for () {}
impl<E, G, A: ApartFrom<T>, T, const R: usize, const C: usize> AllApartFrom<T> for TaskTile<E, G, A, R, C> {}

/// What an operation reads: a tile, a tuple, or nothing.
pub trait Sources {
    /// The same for roles.
    type Raw: Inputs + RowInputs;
    /// What a closure gets of it, row by row.
    type Rows<'r>;
    /// Any of it is [`Access::SHARED`].
    const SHARED: bool;
    #[doc(hidden)]
    fn raw(self) -> Self::Raw;
    #[doc(hidden)]
    fn rows<'r>(rows: <Self::Raw as RowInputs>::Rows) -> Self::Rows<'r>;
}

/// What an operation writes: a tile, or a tuple.
pub trait Results {
    /// The same for roles.
    type Raw: RowOutputs;
    /// What a closure gets of it, row by row.
    type Rows<'r>;
    /// What it is when it is written.
    type Written;
    /// The region of the first.
    type Region;
    /// What the body may do with it before.
    type Accesses;
    /// Any of it is [`Access::SHARED`].
    const SHARED: bool;
    #[doc(hidden)]
    fn split(self) -> (Self::Raw, Self::Written);
    #[doc(hidden)]
    fn rows<'r>(rows: <Self::Raw as RowOutputs>::Rows) -> Self::Rows<'r>;
}

impl<E: Element, K, L, A: Access, const R: usize, const C: usize> Sources for TaskTile<E, (K, L), A, R, C> {
    type Raw = Tile<E, R, C>;
    type Rows<'r> = Row<'r, E, L>;
    const SHARED: bool = A::SHARED;
    #[inline(always)]
    fn raw(self) -> Tile<E, R, C> {
        self.0
    }
    #[inline(always)]
    fn rows<'r>(row: RowView<E>) -> Row<'r, E, L> {
        Row::new(row)
    }
}

impl Sources for () {
    type Raw = ();
    type Rows<'r> = ();
    const SHARED: bool = false;
    #[inline(always)]
    fn raw(self) {}
    #[inline(always)]
    fn rows<'r>((): ()) -> Self::Rows<'r> {}
}

impl<E: Element, K, L, A: Access, const R: usize, const C: usize> Results for TaskTile<E, (K, L), A, R, C> {
    type Raw = Tile<E, R, C>;
    type Rows<'r> = RowMut<'r, E, L>;
    type Written = TaskTile<E, (K, L), Written<A::Origin>, R, C>;
    type Region = (K, L);
    type Accesses = A;
    const SHARED: bool = A::SHARED;
    #[inline(always)]
    fn split(self) -> (Tile<E, R, C>, Self::Written) {
        (self.0, self.written())
    }
    #[inline(always)]
    fn rows<'r>(row: RowView<E>) -> RowMut<'r, E, L> {
        RowMut::new(row)
    }
}

macro_rules! tuples {
    ($first:ident $zero:tt $(, $name:ident $n:tt)*) => {
        impl<$first: AllReadable $(, $name: AllReadable)*> AllReadable for ($first, $($name,)*) {}
        impl<$first: AllWritable $(, $name: AllWritable)*> AllWritable for ($first, $($name,)*) {}
        impl<T, $first: AllApartFrom<T> $(, $name: AllApartFrom<T>)*> AllApartFrom<T> for ($first, $($name,)*) {}
        // Of several results, all.
        impl<T: Access, $first $(, $name)*> ApartFrom<($first, $($name,)*)> for T where T: ApartFrom<$first> $(+ ApartFrom<$name>)* {}
        impl<$first: Sources $(, $name: Sources)*> Sources for ($first, $($name,)*) {
            type Raw = ($first::Raw, $($name::Raw,)*);
            type Rows<'r> = ($first::Rows<'r>, $($name::Rows<'r>,)*);
            const SHARED: bool = $first::SHARED $(|| $name::SHARED)*;
            #[inline(always)]
            fn raw(self) -> Self::Raw {
                (self.$zero.raw(), $(self.$n.raw(),)*)
            }
            #[inline(always)]
            fn rows<'r>(rows: <Self::Raw as RowInputs>::Rows) -> Self::Rows<'r> {
                ($first::rows(rows.$zero), $($name::rows(rows.$n),)*)
            }
        }
        impl<$first: Results $(, $name: Results)*> Results for ($first, $($name,)*) {
            type Raw = ($first::Raw, $($name::Raw,)*);
            type Rows<'r> = ($first::Rows<'r>, $($name::Rows<'r>,)*);
            type Written = ($first::Written, $($name::Written,)*);
            type Region = $first::Region;
            type Accesses = ($first::Accesses, $($name::Accesses,)*);
            const SHARED: bool = $first::SHARED $(|| $name::SHARED)*;
            #[inline(always)]
            fn split(self) -> (Self::Raw, Self::Written) {
                let all = (self.$zero.split(), $(self.$n.split(),)*);
                ((all.$zero.0, $(all.$n.0,)*), (all.$zero.1, $(all.$n.1,)*))
            }
            #[inline(always)]
            fn rows<'r>(rows: <Self::Raw as RowOutputs>::Rows) -> Self::Rows<'r> {
                ($first::rows(rows.$zero), $($name::rows(rows.$n),)*)
            }
        }
    };
}
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
