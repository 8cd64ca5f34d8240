//! Roles: who runs the outline of a task, and what each operation means to it.

use crate::cta::Simt;
use crate::element::{Element, MmaElement};
use crate::row::{RowInputs, RowMut};
use crate::split::Split;
use crate::task::Elementwise;
use crate::tile::{Inputs, Parts, Tile};

#[cfg(not(target_arch = "nvptx64"))]
pub mod alone;
pub mod consumer;
#[cfg(target_arch = "nvptx64")]
mod cores;
#[cfg(not(target_arch = "nvptx64"))]
#[path = "modelled_cores.rs"]
mod cores;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cpu;
pub mod gate;
pub mod loader;
mod maps;
pub mod notice;
pub mod ring;
pub mod store;
pub mod waits;

/// A role. The default of every operation is to do nothing; [`Role::mma`] and [`Role::store`] must agree on the ring.
pub trait Role: Sized {
    /// Where a sum lives: registers of a consumer, nothing for the others.
    type Accumulator<const I: usize, const J: usize>;

    /// All zero.
    fn zeros<const I: usize, const J: usize>(&mut self) -> Self::Accumulator<I, J>;

    /// One step of a contraction.
    fn mma<E: MmaElement, const I: usize, const J: usize>(&mut self, acc: &mut Self::Accumulator<I, J>, a: Parts, b: Parts);

    /// The end of a contraction, or of a part of it.
    fn store<T: Elementwise, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: Self::Accumulator<I, J>,
        y: Tile<E, I, J>,
        split: Split,
    );

    /// `y = f(inputs)`.
    #[inline(always)]
    fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        _inputs: X,
        _y: Tile<E, I, J>,
        _f: impl Fn(X::Values) -> E::Value,
    ) {
    }

    /// Row by row.
    #[inline(always)]
    fn rows<X: RowInputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        _inputs: X,
        _y: Tile<E, I, J>,
        _f: impl Fn(X::Rows, &mut RowMut<E>),
    ) {
    }

    /// By position.
    #[inline(always)]
    fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        _inputs: X,
        _y: Tile<E, I, J>,
        _f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
    }

    /// An `unsafe` SIMT body; `early`: it begins before its inputs are there, and waits for them itself.
    #[inline(always)]
    fn simt(&mut self, _early: bool, _f: impl FnOnce(&mut Simt)) {}
}
