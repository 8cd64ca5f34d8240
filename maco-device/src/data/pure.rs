//! What a body may hold: nothing that can change behind its outline.

#[cfg(target_arch = "nvptx64")]
mod unchanging;

#[cfg(target_arch = "nvptx64")]
pub use unchanging::Unchanging;

/// What closures of operations hold, and what bodies name: numbers, tiles and functions, which are copied. What can change is not copied: a cell, an atomic.
///
/// All roles run a body's outline, and one of them its closures. A value that a closure left behind would be seen by that role alone.
#[diagnostic::on_unimplemented(
    message = "MACO0101: a body holds something that can change, or that is not copied",
    label = "this, or something in it, can change or is not copied",
    note = "closures run on other threads, and at other times, than the loops and conditions around them: a value that a closure leaves behind is seen by some threads only",
    note = "a constant of a type of your own derives `Clone` and `Copy`; what a closure needs of a result is asked for before it: `let cols = y.cols();`",
    note = "numbers from outside are copied into a closure; values go from one operation to the next in tiles"
)]
pub trait Pure: Copy + Unchanging + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Copy + Unchanging + 'static> Pure for T {}

/// For generated code, which never runs: whether what a body names is [`Pure`], such as a constant or a static.
#[doc(hidden)]
#[inline(always)]
pub fn named<T: Pure>(_: T) {}

/// What has no atomic or cell in it, nor behind its references and pointers. Device code checks it of what closures hold; here it is so of every type.
#[cfg(not(target_arch = "nvptx64"))]
pub trait Unchanging {}

#[cfg(not(target_arch = "nvptx64"))]
impl<T: ?Sized> Unchanging for T {}
