//! Tasks of one phase: each makes one row out of rows that the phase before made, of which data says which.
//!
//! Phases cannot be merged: the row that a tile needs is known only when its number arrives.

use maco::{ReadTile, Tile};

#[cfg(target_arch = "nvptx64")]
use {super::body, maco_device::ptx::memory};

/// One word of the result: odd multipliers keep every input bit.
#[inline(always)]
pub const fn mix(word: u32, salt: u32) -> u32 {
    word.wrapping_mul(0x9e37_79b1).wrapping_add(salt)
}

/// What a phase mixes in.
#[inline(always)]
pub const fn salt(phase: u32, seed: u32) -> u32 {
    phase.wrapping_mul(0x85eb_ca77) ^ seed
}

/// Words that come from one row before the next of several follows.
pub const CHUNK: u32 = super::plain::TILE / 8;

/// y = mix(x\[ids\]), a chunk of columns from each of the rows in turn.
fn gather_reference<const C: usize>(ids: ReadTile<u32, 1, C>, x: ReadTile<u32, 0, 0>, y: Tile<u32, 1, 0>, add: u32, salt: u32) {
    for column in 0..y.cols() {
        let row = word(ids, column / CHUNK % ids.cols());
        // SAFETY: the numbers of rows are rows of `x`; the tensors are live and have as many columns.
        unsafe {
            let word = x.pointer(row as i32, column as i32).read();
            y.pointer(0, column as i32).write(mix(word.wrapping_add(add), salt));
        }
    }
}

fn word<const C: usize>(tile: ReadTile<u32, 1, C>, column: u32) -> u32 {
    // SAFETY: the columns of a tile lie in a live tensor.
    unsafe { tile.pointer(0, column as i32).read() }
}

fn identity_reference(ids: ReadTile<u32, 1, 1>, x: ReadTile<u32, 0, 0>, y: Tile<u32, 1, 0>, salt: u32) {
    gather_reference(ids, x, y, 0, salt);
}

/// y\[i\] = mix(x\[ids\[i\]\]): a tile needs one tile of the phase before.
///
/// # Safety
/// C is [`super::plain::TILE`]; `ids` are rows of `x`.
#[maco::task(simt, prologue, tile(i = 1), cpu = identity_reference)]
pub unsafe fn identity(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, T>,
    #[read(ids[i], ..)] x: Tensor<u32, R, C>,
    #[write(i, ..)] y: Tensor<u32, T, C>,
    salt: u32,
) {
    // SAFETY: the author promises rows of `TILE` words; rows lie at 16-byte boundaries.
    unsafe {
        let row = memory::load(ids.pointer(0, 0));
        if !cta.wait_for_inputs() {
            return;
        }
        body::gather(cta.thread, [x.pointer(row as i32, 0)], y.pointer(0, 0), salt)
    }
}

fn halo_reference(ids: ReadTile<u32, 1, 0>, x: ReadTile<u32, 0, 0>, y: Tile<u32, 1, 0>, salt: u32) {
    gather_reference(ids, x, y, 0, salt);
}

/// y\[i\] = mix of chunks of three rows of x: a tile needs three tiles of the phase before.
///
/// # Safety
/// C is [`super::plain::TILE`], N is 3; `ids` are rows of `x`.
#[maco::task(simt, prologue, tile(i = 1), cpu = halo_reference)]
pub unsafe fn halo(
    cta: &mut Cta,
    #[read(i, ..)] ids: Tensor<u32, T, N>,
    #[read(ids[i], ..)] x: Tensor<u32, R, C>,
    #[write(i, ..)] y: Tensor<u32, T, C>,
    salt: u32,
) {
    // SAFETY: as for `identity`.
    unsafe {
        let row = |n: i32| x.pointer(memory::load(ids.pointer(0, n)) as i32, 0);
        let rows = [row(0), row(1), row(2)];
        if !cta.wait_for_inputs() {
            return;
        }
        body::gather(cta.thread, rows, y.pointer(0, 0), salt)
    }
}

/// The first word of a row stands for it.
fn part_reference(y: Tile<u32, 1, 0>, part: Tile<u32, 1, 1>) {
    // SAFETY: rows of live tensors are not empty.
    unsafe { part.pointer(0, 0).write(y.pointer(0, 0).read()) };
}

fn sum(parts: ReadTile<u32, 1, 0>) -> u32 {
    (0..parts.cols()).map(|column| word(parts, column)).fold(0, u32::wrapping_add)
}

fn all_reference(
    ids: ReadTile<u32, 1, 1>,
    x: ReadTile<u32, 0, 0>,
    parts: ReadTile<u32, 1, 0>,
    y: Tile<u32, 1, 0>,
    part: Tile<u32, 1, 1>,
    salt: u32,
) {
    gather_reference(ids, x, y, sum(parts), salt);
    part_reference(y, part);
}

/// y\[i\] = mix(x\[ids\[i\]\] + the sum of a word of every tile): a tile needs all tiles of the phase before.
///
/// # Safety
/// C is [`super::plain::TILE`]; R is a multiple of 4, at most [`super::plain::PARTS`]; `ids` are rows of `x`.
#[maco::task(simt, prologue, tile(i = 1), cpu = all_reference)]
pub unsafe fn all(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, T>,
    #[read(ids[i], ..)] x: Tensor<u32, R, C>,
    #[read(..)] parts: Tensor<u32, R>,
    #[write(i, ..)] y: Tensor<u32, T, C>,
    #[write(i)] part: Tensor<u32, T>,
    salt: u32,
) {
    // SAFETY: as for `identity`.
    unsafe {
        let row = memory::load(ids.pointer(0, 0));
        if !cta.wait_for_inputs() {
            return;
        }
        body::all(cta.thread, x.pointer(row as i32, 0), parts.pointer(0, 0), parts.cols(), y.pointer(0, 0), part.pointer(0, 0), salt)
    }
}

fn weights_reference(
    ids: ReadTile<u32, 1, 1>,
    x: ReadTile<u32, 0, 0>,
    w: ReadTile<u32, 1, 0>,
    parts: ReadTile<u32, 1, 0>,
    y: Tile<u32, 1, 0>,
    part: Tile<u32, 1, 1>,
    salt: u32,
) {
    let (row, sum) = (word(ids, 0) as i32, sum(parts));
    let own = y.cols() - w.cols();
    for column in 0..y.cols() {
        // SAFETY: `ids` are rows of `x`, which has as many columns as `y`; the tensors are live.
        unsafe {
            let word = if column < own { x.pointer(row, column as i32).read() } else { w.pointer(0, (column - own) as i32).read() };
            y.pointer(0, column as i32).write(mix(word.wrapping_add(sum), salt));
        }
    }
    part_reference(y, part);
}

/// As [`all`], but three quarters of the bytes are a row of w, which no task writes: they need not wait.
///
/// # Safety
/// As for [`all`]; D is three quarters of C.
#[maco::task(simt, prologue, tile(i = 1), cpu = weights_reference)]
pub unsafe fn weights(
    cta: &mut Cta,
    #[read(i)] ids: Tensor<u32, T>,
    #[read(ids[i], ..)] x: Tensor<u32, R, C>,
    #[read(i, ..)] w: Tensor<u32, T, D>,
    #[read(..)] parts: Tensor<u32, R>,
    #[write(i, ..)] y: Tensor<u32, T, C>,
    #[write(i)] part: Tensor<u32, T>,
    salt: u32,
) {
    // SAFETY: as for `identity`.
    unsafe {
        let w = body::load_weights(cta.thread, w.pointer(0, 0));
        let row = memory::load(ids.pointer(0, 0));
        if !cta.wait_for_inputs() {
            return;
        }
        body::weights(cta.thread, w, x.pointer(row as i32, 0), parts.pointer(0, 0), parts.cols(), y.pointer(0, 0), part.pointer(0, 0), salt)
    }
}
