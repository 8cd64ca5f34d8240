//! What a helper function is handed for a parameter, as the tile that its signature names.
//!
//! The parameter of a `#[maco::helper(..)]` is `impl Given<T>`, and not the tile `T` itself: what does not fit is then said of access, region or element, at the
//! argument. Each part has one implementation that could apply, so rustc takes the helper's axes and dimensions from the arguments, the first one first.

use crate::data::access::TaskTile;
use crate::data::element::Element;

/// An argument that is the tile `T`.
#[diagnostic::on_unimplemented(
    message = "MACO0008: this parameter of the helper function is a tensor, and the argument is `{Self}`",
    label = "not the tile of a parameter, nor what an operation returned",
    note = "did you pass the arguments in the wrong order?"
)]
pub trait Given<T> {
    #[doc(hidden)]
    fn given(self) -> T;
}

/// An argument of access `A`.
#[diagnostic::on_unimplemented(
    message = "MACO0073: this parameter of the helper function is `{A}`, and the argument is `{Self}`",
    label = "the body may do something else with it than the helper function does",
    note = "`Read` is `#[read(..)]`, `Write` is `#[write(..)]`, `Update` is `#[update(..)]`, `Written` is what an operation returned, in a helper function `#[written(..)]`; of a GEMM or GEMV that is `Stored`, and its operand B is `Streamed`",
    note = "did you pass the arguments in the wrong order?"
)]
pub trait OfAccess<A> {}
impl<A> OfAccess<A> for A {}

/// An argument of region `G`; `R` and `C` are its rows and columns, `I` and `J` those of the argument.
#[diagnostic::on_unimplemented(
    message = "MACO0075: this parameter of the helper function has rows and columns `{G}`, and the argument `{Self}`",
    label = "its elements do not lie as the helper function says",
    note = "`At<i, M>` is the index `i` of dimension M, `Whole<M>` is `..`, `Over<i, M, G>` is `i / G`, `Halo<i, M, 1, 1>` is `i + -1..=1`, `Data<ids, M>` is `ids[i]`, `One` is the row of a tensor of one dimension",
    note = "axes and dimensions of one name are one in all parameters of a helper function, and the first argument says which; equal dimensions of two names are `where M == N` in the task's attribute"
)]
pub trait OfRegion<G, const R: usize, const C: usize, const I: usize, const J: usize> {}
impl<G, const R: usize, const C: usize> OfRegion<G, R, C, R, C> for G {}

/// An argument that holds `E`.
#[diagnostic::on_unimplemented(
    message = "MACO0006: this parameter of the helper function holds `{E}`, and the argument holds `{Self}`",
    label = "other elements",
    note = "a helper function of any elements has them as a type parameter: `fn f<E: Element>(cta: &mut Cta, #[read(i, j)] x: Tensor<E, M, N>)`"
)]
pub trait OfElement<E> {}
impl<E> OfElement<E> for E {}

impl<E: Element, F: Element + OfElement<E>, G, H, A, B, const R: usize, const C: usize, const I: usize, const J: usize>
    Given<TaskTile<E, G, A, R, C>> for TaskTile<F, H, B, I, J>
where
    B: OfAccess<A>,
    H: OfRegion<G, R, C, I, J>,
{
    #[inline(always)]
    fn given(self) -> TaskTile<E, G, A, R, C> {
        self.same()
    }
}
