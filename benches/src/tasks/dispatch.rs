//! Tasks that do next to nothing, tasks that only take time, and tasks that only move bytes.

use maco::{ReadTile, Tile};

#[cfg(target_arch = "nvptx64")]
use super::body;

fn start_reference(x: Tile<u32, 1, 1>) {
    // SAFETY: one tile is one word of a live tensor.
    unsafe { x.pointer(0, 0).write(0) };
}

/// x = 0: what a chain begins with.
///
/// # Safety
/// The tensor has a word for every tile.
#[maco::task(simt, tile(i = 1), cpu = start_reference)]
pub unsafe fn start(cta: &mut Cta, #[write(i)] x: Tensor<u32, N>) {
    if cta.thread == 0 {
        // SAFETY: one tile is one word of a live tensor, and one thread writes it.
        unsafe { x.pointer(0, 0).write(0) };
    }
}

fn empty_reference(_: Tile<u32, 1, 1>) {}

/// An empty body of a warp.
///
/// # Safety
/// Nothing is accessed.
#[maco::task(simt, warp, tile(i = 1), cpu = empty_reference)]
pub unsafe fn empty(cta: &mut Cta, #[update(i)] x: Tensor<u32, N>) {
    let _ = (&cta, x);
}

/// An empty body of all threads.
///
/// # Safety
/// Nothing is accessed.
#[maco::task(simt, tile(i = 1), cpu = empty_reference)]
pub unsafe fn idle(cta: &mut Cta, #[update(i)] x: Tensor<u32, N>) {
    let _ = (&cta, x);
}

/// An empty body that begins before its inputs are there, and waits for them.
///
/// # Safety
/// Nothing is accessed.
#[maco::task(simt, warp, prologue, tile(i = 1), cpu = empty_reference)]
pub unsafe fn awaited(cta: &mut Cta, #[update(i)] x: Tensor<u32, N>) {
    let _ = (cta.wait_for_inputs(), x);
}

fn bump_reference(x: Tile<u32, 1, 1>) {
    let at = x.pointer(0, 0);
    // SAFETY: one tile is one word of a live tensor.
    unsafe { at.write(at.read().wrapping_add(1)) };
}

/// x += 1: every thread reads the word that the task before wrote, one writes it.
///
/// # Safety
/// The tensor has a word for every tile.
#[maco::task(simt, tile(i = 1), cpu = bump_reference)]
pub unsafe fn bump(cta: &mut Cta, #[update(i)] x: Tensor<u32, N>) {
    // SAFETY: one tile is one word of a live tensor; all threads of the body are here.
    unsafe { body::bump(cta.thread, x.pointer(0, 0), || cta.sync()) }
}

fn relay_reference(x: Tile<u32, 1, 4>) {
    for column in 0..4 {
        let at = x.pointer(0, column);
        // SAFETY: one tile is four words of a live tensor.
        unsafe { at.write(at.read().wrapping_add(1)) };
    }
}

/// x += 1 in four words: one thread reads and writes 16 bytes.
///
/// # Safety
/// The tensor has four words for every tile, at a 16-byte boundary.
#[maco::task(simt, warp, prologue, tile(i = 4), cpu = relay_reference)]
pub unsafe fn relay(cta: &mut Cta, #[update(i)] x: Tensor<u32, N>) {
    let at = maco::prepared(x.pointer(0, 0));
    if cta.wait_for_inputs() && cta.lane == 0 {
        // SAFETY: one tile is 16 aligned bytes of a live tensor, and one thread touches them.
        unsafe { body::relay(at) }
    }
}

fn busy_reference(cycles: ReadTile<u32, 1, 1>, done: Tile<u32, 1, 1>) {
    // SAFETY: one tile is one word of a live tensor.
    unsafe { done.pointer(0, 0).write(cycles.pointer(0, 0).read()) };
}

/// Spins for `cycles` of the multiprocessor's clock, then `done = cycles`.
///
/// # Safety
/// The tensors have a word for every tile.
#[maco::task(simt, tile(i = 1), cpu = busy_reference)]
pub unsafe fn busy(cta: &mut Cta, #[read(i)] cycles: Tensor<u32, N>, #[write(i)] done: Tensor<u32, N>) {
    // SAFETY: one tile is one word of a live tensor, and one thread writes it.
    unsafe { body::busy(cta.thread, cycles.pointer(0, 0), done.pointer(0, 0)) }
}

fn transfer_reference(x: ReadTile<u32, 1, 0>, y: Tile<u32, 1, 0>) {
    for column in 0..y.cols() as i32 {
        // SAFETY: rows of live tensors with as many columns.
        unsafe { y.pointer(0, column).write(super::boundary::mix(x.pointer(0, column).read(), 0)) };
    }
}

/// y = mix(x), a row of [`super::plain::TILE`] words by every task: a task that only moves bytes.
///
/// # Safety
/// C is [`super::plain::TILE`].
#[maco::task(simt, tile(i = 1), cpu = transfer_reference)]
pub unsafe fn transfer(cta: &mut Cta, #[read(i, ..)] x: Tensor<u32, T, C>, #[write(i, ..)] y: Tensor<u32, T, C>) {
    // SAFETY: a tile is a row of `TILE` words; rows lie at 16-byte boundaries.
    unsafe { body::gather(cta.thread, [x.pointer(0, 0)], y.pointer(0, 0), 0) }
}
