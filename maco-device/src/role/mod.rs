//! Roles: who runs the outline of a task, and what each operation means to it.

use crate::cta::Simt;
use crate::element::{Element, MmaElement};
use crate::row::{RowInputs, RowOutputs};
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
mod share;
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

    /// The end of a contraction.
    fn store<T: Elementwise, E: MmaElement, const I: usize, const J: usize>(&mut self, acc: Self::Accumulator<I, J>, y: Tile<E, I, J>);

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
    fn rows<X: RowInputs, Y: RowOutputs>(&mut self, _inputs: X, _y: Y, _f: impl Fn(X::Rows, &mut Y::Rows)) {}

    /// By position.
    #[inline(always)]
    fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        _inputs: X,
        _y: Tile<E, I, J>,
        _f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
    }

    /// By position, eight columns at a time.
    #[inline(always)]
    fn blocks<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        _inputs: X,
        _y: Tile<E, I, J>,
        _f: impl Fn(&X::Readers, i32, i32) -> [E::Value; 8],
    ) {
    }

    /// Column by column.
    #[inline(always)]
    fn columns<X: Element, E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        _x: Tile<X, R, C>,
        _y: Tile<E, I, J>,
        _start: f32,
        _f: impl Fn(X::Value) -> f32,
        _combine: impl Fn(f32, f32) -> f32,
        _finish: impl Fn(f32) -> E::Value,
    ) {
    }

    /// `y = xᵀ`.
    #[inline(always)]
    fn transpose<E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        _x: Tile<E, R, C>,
        _y: Tile<E, I, J>,
    ) {
    }

    /// An `unsafe` SIMT body; `early`: it begins before its inputs are there, and waits for them itself.
    #[inline(always)]
    fn simt(&mut self, _early: bool, _f: impl FnOnce(&mut Simt)) {}
}
