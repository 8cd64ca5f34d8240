//! What closures of single elements hold, as the device compiler can say it: a file of its own, since stable Rust does not read `auto trait`.

use core::cell::UnsafeCell;

/// What has no atomic or cell in it, nor behind its references and pointers. All that closures of single elements hold is so.
///
/// Lanes run such closures apart, and each has an atomic of its own where a closure of rows makes one. What they leave there differs, and a condition on it would part
/// them before a reduction, which needs all of them. On the CPU a row is one thread's, and stable Rust cannot say this of a type: there everything is so.
#[diagnostic::on_unimplemented(
    message = "MACO0101: a closure holds something that can change",
    label = "this holds `{Self}`, or a reference to it",
    note = "each lane of a row runs it apart, and has an atomic or a cell of its own: lanes would part by it; what a row has in common is a reduction: `x.max(|v| v)`",
    note = "a type parameter of which nothing is known may be such a thing: it has the bound `maco::Unchanging`"
)]
pub auto trait Unchanging {}

impl<T: ?Sized> !Unchanging for UnsafeCell<T> {}
