//! The role of a host thread, chosen when a task runs, so that a program is compiled once for all roles.

use crate::data::element::{Element, HalfElement, MmaElement};
use crate::data::epilogue::Epilogue;
use crate::data::inputs::Inputs;
use crate::data::row::{RowInputs, RowOutputs};
use crate::data::split_k::SplitK;
use crate::data::task::Task;
use crate::data::tile::{OperandTile, Tile};
use crate::operations::simt_consumer::SimtConsumer;
use crate::role::Role;
use crate::roles::consumer::Consumer;
use crate::roles::cpu_reference::CpuReference;
use crate::roles::elementwise_prologue::ElementwisePrologue;
use crate::roles::loader::Loader;
use crate::roles::store::Store;
use crate::simt::Simt;
use crate::simt::warp::SimtWarp;
use maco_abi::MapIndex;

/// A host thread: all roles at once, or one of a modelled CTA.
pub struct Cpu(Played);

enum Played {
    CpuReference(CpuReference),
    // Valid while `loading`, `consuming`, `elementwise_prologue` or `storing` runs.
    Loader(*mut Loader),
    Consumer(*mut Consumer),
    ElementwisePrologue(*mut ElementwisePrologue),
    Store(*mut Store<true>),
}

// SAFETY: only `loading`, `consuming`, `elementwise_prologue` and `storing` make a part with a pointer, and lend it to one call on their own thread.
unsafe impl Send for Cpu {}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::new()
    }
}

impl Cpu {
    /// A worker that plays all roles, without scratch yet.
    pub fn new() -> Cpu {
        Cpu(Played::CpuReference(CpuReference::default()))
    }

    /// Runs `body` as a loader.
    pub(crate) fn loading<T>(loader: &mut Loader, body: impl FnOnce(&mut Cpu) -> T) -> T {
        body(&mut Cpu(Played::Loader(loader)))
    }

    /// Runs `body` as a consumer.
    pub(crate) fn consuming<T>(consumer: &mut Consumer, body: impl FnOnce(&mut Cpu) -> T) -> T {
        body(&mut Cpu(Played::Consumer(consumer)))
    }

    /// Runs `body` as a consumer that runs the elementwise prologue of operand A.
    pub(crate) fn elementwise_prologue<T>(prologue: &mut ElementwisePrologue, body: impl FnOnce(&mut Cpu) -> T) -> T {
        body(&mut Cpu(Played::ElementwisePrologue(prologue)))
    }

    /// Runs `body` as a store thread.
    pub(crate) fn storing<T>(store: &mut Store<true>, body: impl FnOnce(&mut Cpu) -> T) -> T {
        body(&mut Cpu(Played::Store(store)))
    }
}

/// The sum of the role that is played.
pub enum Sum<const I: usize, const J: usize> {
    CpuReference(<CpuReference as Role>::Accumulator<I, J>),
    Consumer(<Consumer as Role>::Accumulator<I, J>),
    None,
}

/// Calls the same operation of the role that is played.
macro_rules! play {
    ($cpu:ident, |$role:ident| $call:expr) => {
        match &mut $cpu.0 {
            Played::CpuReference($role) => $call,
            Played::Loader(role) => {
                // SAFETY: the pointer comes from a reference that lives while the part is lent, to this thread only.
                let $role = unsafe { &mut **role };
                $call
            }
            Played::Consumer(role) => {
                // SAFETY: as above.
                let $role = unsafe { &mut **role };
                $call
            }
            Played::ElementwisePrologue(role) => {
                // SAFETY: as above.
                let $role = unsafe { &mut **role };
                $call
            }
            Played::Store(role) => {
                // SAFETY: as above.
                let $role = unsafe { &mut **role };
                $call
            }
        }
    };
}

impl Role for Cpu {
    type Accumulator<const I: usize, const J: usize> = Sum<I, J>;

    fn steps(&mut self, a: MapIndex, b: MapIndex, count: u32) -> u32 {
        play!(self, |role| role.steps(a, b, count))
    }

    fn zeros<const I: usize, const J: usize>(&mut self) -> Sum<I, J> {
        match &mut self.0 {
            Played::CpuReference(role) => Sum::CpuReference(role.zeros::<I, J>()),
            // SAFETY: as in `play`.
            Played::Consumer(role) => Sum::Consumer(unsafe { &mut **role }.zeros::<I, J>()),
            Played::Loader(_) | Played::ElementwisePrologue(_) | Played::Store(_) => Sum::None,
        }
    }

    fn mma<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: &mut Sum<I, J>,
        a: OperandTile,
        b: OperandTile,
        task: Task,
    ) {
        match (&mut self.0, acc) {
            (Played::CpuReference(role), Sum::CpuReference(acc)) => role.mma::<T, E, I, J>(acc, a, b, task),
            // SAFETY: as in `play`.
            (Played::Consumer(role), Sum::Consumer(acc)) => unsafe { &mut **role }.mma::<T, E, I, J>(acc, a, b, task),
            // SAFETY: as above.
            (Played::Loader(role), _) => unsafe { &mut **role }.mma::<T, E, I, J>(&mut (), a, b, task),
            // SAFETY: as above.
            (Played::Store(role), _) => unsafe { &mut **role }.mma::<T, E, I, J>(&mut (), a, b, task),
            _ => unreachable!("a sum is its role's"),
        }
    }

    fn store<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: Sum<I, J>,
        y: Tile<E, I, J>,
        split: SplitK,
        task: Task,
    ) {
        match (&mut self.0, acc) {
            (Played::CpuReference(role), Sum::CpuReference(acc)) => role.store::<T, E, I, J>(acc, y, split, task),
            // SAFETY: as in `play`.
            (Played::Consumer(role), Sum::Consumer(acc)) => unsafe { &mut **role }.store::<T, E, I, J>(acc, y, split, task),
            // SAFETY: as above.
            (Played::Loader(role), _) => unsafe { &mut **role }.store::<T, E, I, J>((), y, split, task),
            // SAFETY: as above.
            (Played::Store(role), _) => unsafe { &mut **role }.store::<T, E, I, J>((), y, split, task),
            _ => unreachable!("a sum is its role's"),
        }
    }

    fn mma_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: (&mut Sum<I, J>, &mut Sum<I, J>),
        a: OperandTile,
        b: (OperandTile, OperandTile),
        task: Task,
    ) {
        match (&mut self.0, acc) {
            (Played::CpuReference(role), (Sum::CpuReference(first), Sum::CpuReference(second))) => {
                role.mma_pair::<T, E, I, J>((first, second), a, b, task)
            }
            (Played::Consumer(role), (Sum::Consumer(first), Sum::Consumer(second))) => {
                // SAFETY: as in `play`.
                unsafe { &mut **role }.mma_pair::<T, E, I, J>((first, second), a, b, task)
            }
            // SAFETY: as above.
            (Played::Loader(role), _) => unsafe { &mut **role }.mma_pair::<T, E, I, J>((&mut (), &mut ()), a, b, task),
            // SAFETY: as above.
            (Played::Store(role), _) => unsafe { &mut **role }.mma_pair::<T, E, I, J>((&mut (), &mut ()), a, b, task),
            _ => unreachable!("a sum is its role's"),
        }
    }

    fn store_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        acc: (Sum<I, J>, Sum<I, J>),
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(f32, f32) -> f32,
    ) {
        match (&mut self.0, acc) {
            (Played::CpuReference(role), (Sum::CpuReference(first), Sum::CpuReference(second))) => {
                role.store_pair::<T, E, I, J>((first, second), y, task, f)
            }
            (Played::Consumer(role), (Sum::Consumer(first), Sum::Consumer(second))) => {
                // SAFETY: as in `play`.
                unsafe { &mut **role }.store_pair::<T, E, I, J>((first, second), y, task, f)
            }
            // SAFETY: as above.
            (Played::Loader(role), _) => unsafe { &mut **role }.store_pair::<T, E, I, J>(((), ()), y, task, f),
            // SAFETY: as above.
            (Played::Store(role), _) => unsafe { &mut **role }.store_pair::<T, E, I, J>(((), ()), y, task, f),
            _ => unreachable!("a sum is its role's"),
        }
    }

    fn simt_consumer(&self) -> Option<SimtConsumer> {
        match &self.0 {
            Played::CpuReference(role) => role.simt_consumer(),
            // SAFETY: as in `play`.
            Played::Consumer(role) => unsafe { &**role }.simt_consumer(),
            Played::Loader(_) | Played::ElementwisePrologue(_) | Played::Store(_) => None,
        }
    }

    fn gemv<T: Epilogue, E: HalfElement, X: Inputs, const I: usize, const J: usize>(
        &mut self,
        x: Tile<E, I, 0>,
        w: Tile<E, J, 0>,
        inputs: X,
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(f32, X::Values) -> f32,
    ) {
        play!(self, |role| role.gemv::<T, E, X, I, J>(x, w, inputs, y, task, f));
    }

    fn zip<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        task: Task,
        f: impl Fn(X::Values) -> E::Value,
    ) {
        play!(self, |role| role.zip(inputs, y, task, f));
    }

    fn rows<X: RowInputs, Y: RowOutputs>(&mut self, inputs: X, y: Y, task: Task, f: impl Fn(X::Rows, &mut Y::Rows)) {
        play!(self, |role| role.rows(inputs, y, task, f));
    }

    fn take<E: Element, const R: usize, const C: usize, const A: usize, const B: usize, const I: usize, const J: usize>(
        &mut self,
        ids: Tile<u32, R, C>,
        table: Tile<E, A, B>,
        y: Tile<E, I, J>,
        task: Task,
    ) {
        play!(self, |role| role.take(ids, table, y, task));
    }

    fn index_copy<E: Element, const J: usize>(&mut self, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) {
        play!(self, |role| role.index_copy(ids, x, y, task));
    }

    fn index_add<E: Element<Value = f32>, const J: usize>(&mut self, ids: Tile<u32, 1, 0>, x: Tile<E, 0, J>, y: Tile<E, 0, J>, task: Task) {
        play!(self, |role| role.index_add(ids, x, y, task));
    }

    fn columns<X: Element, E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        x: Tile<X, R, C>,
        y: Tile<E, I, J>,
        task: Task,
        start: f32,
        f: impl Fn(X::Value) -> f32,
        combine: impl Fn(f32, f32) -> f32,
        finish: impl Fn(f32) -> E::Value,
    ) {
        play!(self, |role| role.columns(x, y, task, start, f, combine, finish));
    }

    fn transpose<E: Element, const R: usize, const C: usize, const I: usize, const J: usize>(
        &mut self,
        x: Tile<E, R, C>,
        y: Tile<E, I, J>,
        task: Task,
    ) {
        play!(self, |role| role.transpose(x, y, task));
    }

    fn generate<X: Inputs, E: Element, const I: usize, const J: usize>(
        &mut self,
        inputs: X,
        y: Tile<E, I, J>,
        f: impl Fn(&X::Readers, i32, i32) -> E::Value,
    ) {
        play!(self, |role| role.generate(inputs, y, f));
    }

    fn simt<const SHARED: usize>(&mut self, early: bool, f: impl FnOnce(&mut Simt<'_, SHARED>)) {
        play!(self, |role| role.simt(early, f));
    }

    fn simt_warp(&mut self, early: bool, f: impl FnOnce(&mut SimtWarp<'_>)) {
        play!(self, |role| role.simt_warp(early, f));
    }
}
