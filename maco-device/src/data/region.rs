//! The region of a parameter as a part of its tile's type: which axis and which dimension its rows and its columns run along.
//!
//! Operations ask in their bounds for what must agree. So what lies beside each other is checked by the compiler, what is repeated is a tensor of
//! one dimension, and what is turned is `transpose`. Which plane of a tensor a task sees is up to the region, and agrees with anything.

use core::marker::PhantomData;

use crate::data::tile::{AlongColumns, AlongRows, Operand};

/// The index `i`: a tile along axis `A` of dimension `D`.
pub struct At<A, D>(PhantomData<fn() -> (A, D)>);
/// The index `..`: all of dimension `D`.
pub struct Whole<D>(PhantomData<fn() -> D>);
/// The index `i / G`.
pub struct Over<A, D, const G: u64>(PhantomData<fn() -> (A, D)>);
/// The index `i + -B..=F`.
pub struct Halo<A, D, const B: u32, const F: u32>(PhantomData<fn() -> (A, D)>);
/// The index `ids[i]`.
pub struct Data<P, D>(PhantomData<fn() -> (P, D)>);
/// The rows of a tensor of one dimension: there is one, and it is repeated beside more.
pub enum One {}
/// A dimension that is a number.
pub enum Size<const N: u64> {}

/// The name of a task's axis or dimension, as a type: one of several of a task.
#[doc(hidden)]
pub trait Name<const N: usize> {
    type Type;
}

/// Positions along one index are those along the other.
#[diagnostic::on_unimplemented(
    message = "MACO0075: an index of this tile is `{Self}` where that of the other is `{I}`",
    label = "its elements do not lie beside the other's",
    note = "`At<i, M>` is the index `i` of dimension M, `Whole<M>` is `..`, `Over<i, M, G>` is `i / G`, `Halo<i, M, 1, 1>` is `i + -1..=1`, `Data<ids, M>` is `ids[i]`, `One` is the row of a tensor of one dimension",
    note = "equal dimensions of two names are `where M == N` in the attribute; other tiles go by position: `cta.generate(x, y, |x, r, c| x.at(c, r))`; rows become columns by `cta.transpose(x, y)`"
)]
pub trait Like<I> {}
impl<A, D> Like<At<A, D>> for At<A, D> {}
impl<D> Like<Whole<D>> for Whole<D> {}
impl<A, D, const G: u64> Like<Over<A, D, G>> for Over<A, D, G> {}

/// Rows beside rows: as [`Like`], or the one row of a vector, beside any.
#[diagnostic::on_unimplemented(
    message = "MACO0075: the rows of this tile are `{Self}` where those of the other are `{I}`",
    label = "its rows do not lie beside the other's",
    note = "`At<i, M>` is the index `i` of dimension M, `Whole<M>` is `..`, `Over<i, M, G>` is `i / G`, `Halo<i, M, 1, 1>` is `i + -1..=1`, `Data<ids, M>` is `ids[i]`, `One` is the row of a tensor of one dimension",
    note = "equal dimensions of two names are `where M == N` in the attribute; other tiles go by position: `cta.generate(x, y, |x, r, c| x.at(c, r))`; rows become columns by `cta.transpose(x, y)`"
)]
pub trait LikeRows<I> {}
impl<I> LikeRows<I> for One {}
impl<A, D> LikeRows<At<A, D>> for At<A, D> {}
impl<D> LikeRows<Whole<D>> for Whole<D> {}
impl<A, D, const G: u64> LikeRows<Over<A, D, G>> for Over<A, D, G> {}

/// All tiles lie beside a result of region `G`, element by element.
pub trait Beside<G> {}
/// The rows of all tiles lie beside the rows of a result of region `G`.
pub trait RowsOf<G> {}
/// All rows lie beside a row whose columns are `L`, element by element.
pub trait RowsBeside<L> {}

impl<G> Beside<G> for () {}
impl<G> RowsOf<G> for () {}

macro_rules! tuples {
    ($($name:ident),+) => {
        impl<I, $($name: Beside<I>),+> Beside<I> for ($($name,)+) {}
        impl<I, $($name: RowsOf<I>),+> RowsOf<I> for ($($name,)+) {}
        impl<I, $($name: RowsBeside<I>),+> RowsBeside<I> for ($($name,)+) {}
    };
}
tuples!(A);
tuples!(A, B);
tuples!(A, B, C);
tuples!(A, B, C, D);

/// Rows of one region beside rows of another.
pub trait SameRows<G> {}
/// Columns of one region beside columns of another.
pub trait SameColumns<G> {}
/// Rows of one region are the columns of another.
pub trait RowsAreColumns<G> {}
/// Rows of one region are the columns of another, and its columns the rows.
pub trait Turned<G> {}
/// The elements of a vector are one for each row of another region.
pub trait OnePerRow<G> {}

impl<R: Like<K>, C, K, L> SameRows<(K, L)> for (R, C) {}
impl<R, C: Like<L>, K, L> SameColumns<(K, L)> for (R, C) {}
impl<R: Like<L>, C, K, L> RowsAreColumns<(K, L)> for (R, C) {}
impl<R: Like<L>, C: Like<K>, K, L> Turned<(K, L)> for (R, C) {}
impl<C: Like<K>, K, L> OnePerRow<(K, L)> for (One, C) {}

/// A tile of one row, as its type says.
#[diagnostic::on_unimplemented(
    message = "MACO0075: the result of this operation has one row",
    label = "this tile may have more, which nothing would write",
    note = "write to a tensor of one dimension, `#[write(j)] y: Tensor<E, N>`, or along an axis of tile 1"
)]
pub trait OneRow {}

/// What an operand of a GEMM keeps are the rows of the sum's region. `N` and `Major` are those of [`crate::data::tile::MmaOperand`].
pub trait KeepsRows<G, const N: usize, Major> {}
/// What an operand of a GEMM keeps are the columns of the sum's region.
pub trait KeepsColumns<G, const N: usize, Major> {}
/// It is contracted along the index `D`, as the other operand.
pub trait ContractsWith<D, const N: usize, Major> {}

impl<E, R: Like<K>, C, K, L, const N: usize> KeepsRows<(K, L), N, AlongColumns> for Operand<E, (R, C), N, 0> {}
impl<E, R, C: Like<K>, K, L, const N: usize> KeepsRows<(K, L), N, AlongRows> for Operand<E, (R, C), 0, N> {}
impl<E, R: Like<L>, C, K, L, const N: usize> KeepsColumns<(K, L), N, AlongColumns> for Operand<E, (R, C), N, 0> {}
impl<E, R, C: Like<L>, K, L, const N: usize> KeepsColumns<(K, L), N, AlongRows> for Operand<E, (R, C), 0, N> {}
impl<E, R, C: Like<D>, D, const N: usize> ContractsWith<D, N, AlongColumns> for Operand<E, (R, C), N, 0> {}
impl<E, R: Like<D>, C, D, const N: usize> ContractsWith<D, N, AlongRows> for Operand<E, (R, C), 0, N> {}

/// Stands for the region of a result that is not known yet, as does [`HiddenToo`].
///
/// With one implementation that could apply to its first argument, rustc would take the region of a call's result from that argument, and then
/// say that the result has another type. With one of these beside it, where the bounds of the true one fail it would name that; so there are two.
pub(crate) enum Hidden {}
/// See [`Hidden`].
pub(crate) enum HiddenToo {}

macro_rules! hidden {
    ($region:ty) => {
        #[diagnostic::do_not_recommend]
        impl<G> SameRows<$region> for G {}
        #[diagnostic::do_not_recommend]
        impl<G> SameColumns<$region> for G {}
        #[diagnostic::do_not_recommend]
        impl<G> RowsAreColumns<$region> for G {}
        #[diagnostic::do_not_recommend]
        impl<G> Turned<$region> for G {}
        #[diagnostic::do_not_recommend]
        impl<G> OnePerRow<$region> for G {}
        #[diagnostic::do_not_recommend]
        impl<E, G, const N: usize> KeepsRows<$region, N, AlongColumns> for Operand<E, G, N, 0> {}
        #[diagnostic::do_not_recommend]
        impl<E, G, const N: usize> KeepsRows<$region, N, AlongRows> for Operand<E, G, 0, N> {}
        #[diagnostic::do_not_recommend]
        impl<E, G, const N: usize> KeepsColumns<$region, N, AlongColumns> for Operand<E, G, N, 0> {}
        #[diagnostic::do_not_recommend]
        impl<E, G, const N: usize> KeepsColumns<$region, N, AlongRows> for Operand<E, G, 0, N> {}
    };
}
hidden!(Hidden);
hidden!(HiddenToo);
