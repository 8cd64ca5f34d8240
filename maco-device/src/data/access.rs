//! What a body may do with the tile of a parameter, as a part of its type: a body can touch only what its signature says.
//!
//! Roles and operations work on [`Tile`]s; this is the skin around them that bodies see. SIMT bodies are `unsafe`, and see tiles.

use core::marker::PhantomData;

use crate::data::element::Element;
use crate::data::inputs::Inputs;
use crate::data::row::{RowInputs, RowOutputs};
use crate::data::tile::{Operand, Tile};

/// What a body may do with a tile: one of the types below.
pub trait Access: 'static {}

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

/// `#[read(..)]`
pub enum Read {}
/// `#[write(..)]`: holds nothing until an operation of the body has written it.
pub enum Write {}
/// `#[update(..)]`
pub enum Update {}
/// What an operation returns of its result.
pub enum Written {}

impl Access for Read {}
impl Access for Write {}
impl Access for Update {}
impl Access for Written {}
impl Readable for Read {}
impl Readable for Update {}
impl Readable for Written {}
impl Writable for Write {}
impl Writable for Update {}
impl Writable for Written {}
impl Fresh for Write {}
impl Updatable for Update {}
impl Updatable for Written {}

/// The tile of one parameter in a body, or what an operation has made of it.
pub struct TaskTile<E, A, const R: usize, const C: usize>(Tile<E, R, C>, PhantomData<A>);

impl<E, A: Readable, const R: usize, const C: usize> Clone for TaskTile<E, A, R, C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}
// What is only written is named once: by the operation that writes it.
impl<E, A: Readable, const R: usize, const C: usize> Copy for TaskTile<E, A, R, C> {}

impl<E: Element, A: Access, const R: usize, const C: usize> TaskTile<E, A, R, C> {
    /// For generated code: `A` is the access of the parameter that `tile` is of.
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

    #[inline(always)]
    pub(crate) fn written(self) -> TaskTile<E, Written, R, C> {
        TaskTile(self.0, PhantomData)
    }
}

impl<E: Element, A: Readable, const R: usize, const C: usize> TaskTile<E, A, R, C> {
    /// See [`Tile::by_element`].
    #[inline(always)]
    pub fn by_element(self, condition: bool) -> Self {
        TaskTile(self.0.by_element(condition), PhantomData)
    }

    /// See [`Tile::tile`].
    #[inline(always)]
    pub fn tile(self, k: u32) -> Operand<E, R, C> {
        self.0.tile(k)
    }
}

/// All of what an operation reads is [`Readable`]. A trait of its own: rustc then points to the argument, or the member of a tuple, that is not.
pub trait AllReadable {}

/// All of what an operation writes is [`Writable`].
pub trait AllWritable {}

impl AllReadable for () {}
impl<E, A: Readable, const R: usize, const C: usize> AllReadable for TaskTile<E, A, R, C> {}
impl<E, A: Writable, const R: usize, const C: usize> AllWritable for TaskTile<E, A, R, C> {}

/// What an operation reads: a tile, a tuple, or nothing.
pub trait Sources {
    /// The same for roles.
    type Raw: Inputs + RowInputs;
    #[doc(hidden)]
    fn raw(self) -> Self::Raw;
}

/// What an operation writes: a tile, or a tuple.
pub trait Results {
    /// The same for roles.
    type Raw: RowOutputs;
    /// What it is when it is written.
    type Written;
    #[doc(hidden)]
    fn split(self) -> (Self::Raw, Self::Written);
}

impl<E: Element, A: Access, const R: usize, const C: usize> Sources for TaskTile<E, A, R, C> {
    type Raw = Tile<E, R, C>;
    #[inline(always)]
    fn raw(self) -> Tile<E, R, C> {
        self.0
    }
}

impl Sources for () {
    type Raw = ();
    #[inline(always)]
    fn raw(self) {}
}

impl<E: Element, A: Access, const R: usize, const C: usize> Results for TaskTile<E, A, R, C> {
    type Raw = Tile<E, R, C>;
    type Written = TaskTile<E, Written, R, C>;
    #[inline(always)]
    fn split(self) -> (Tile<E, R, C>, TaskTile<E, Written, R, C>) {
        (self.0, self.written())
    }
}

macro_rules! tuples {
    ($($name:ident $n:tt),+) => {
        impl<$($name: AllReadable),+> AllReadable for ($($name,)+) {}
        impl<$($name: AllWritable),+> AllWritable for ($($name,)+) {}
        impl<$($name: Sources),+> Sources for ($($name,)+) {
            type Raw = ($($name::Raw,)+);
            #[inline(always)]
            fn raw(self) -> Self::Raw {
                ($(self.$n.raw(),)+)
            }
        }
        impl<$($name: Results),+> Results for ($($name,)+) {
            type Raw = ($($name::Raw,)+);
            type Written = ($($name::Written,)+);
            #[inline(always)]
            fn split(self) -> (Self::Raw, Self::Written) {
                let all = ($(self.$n.split(),)+);
                (($(all.$n.0,)+), ($(all.$n.1,)+))
            }
        }
    };
}
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
