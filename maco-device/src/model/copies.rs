//! Bulk tensor copies on their way. Boxes are 128 bytes × 64 or 32 rows × 1 plane, with the 128-byte swizzle.

use super::load::{Load, Source, TensorBox};
use super::memory::swizzled;
use super::shared::Shared;
use super::thread::Modelled;
use super::{phase, special};
use crate::math::tf32;
use maco_abi::{self as abi, ROW_BYTES, TensorMap};

/// A row of a box.
type Row = [u8; ROW_BYTES as usize];

/// The map of a tensor for modelled copies of boxes of `rows` rows: extents are columns, of `bytes` bytes each, rows and planes, strides the
/// bytes from row to row and from plane to plane. With `pieces` the extents are columns of a piece, pieces and rows, and a box has so many pieces of each of its rows. With `rounds` elements of `f32` become tf32 on their way to shared memory.
pub fn tensor_map(address: u64, extents: [u64; 3], strides: [u64; 2], bytes: u32, (rows, pieces): (u32, u32), rounds: bool) -> TensorMap {
    let mut words = [0; 16];
    words[0] = address;
    words[1..4].copy_from_slice(&extents);
    words[4..6].copy_from_slice(&strides);
    words[6..10].copy_from_slice(&[bytes.into(), rows.into(), rounds.into(), pieces.into()]);
    TensorMap(words)
}

/// A piece of a row.
const PIECE_BYTES: u32 = abi::PIECE * 2;

impl Load {
    /// Copies, with zeros outside the tensor, and tells the mbarrier.
    ///
    /// # Safety
    /// Map and tensor are live, and nobody writes the box; the space is the copy's.
    unsafe fn make(self, shared: &Shared) {
        let tensor_box = match self.from {
            Source::Box(tensor_box) => tensor_box,
            Source::Row { from, bytes } => {
                // SAFETY: passed on from the caller.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, shared.pointer(self.to, bytes), bytes as usize) };
                phase::complete(shared, self.mbarrier, bytes);
                return;
            }
        };
        // SAFETY: passed on from the caller.
        if let Some((rows, pieces)) = unsafe { tensor_box.pieces() } {
            for at in 0..rows * pieces {
                let to = shared.pointer(self.to + at * PIECE_BYTES, PIECE_BYTES).cast::<u8>();
                // SAFETY: (of all) passed on from the caller; the piece is inside the tensor.
                unsafe {
                    match tensor_box.piece(at / pieces, at % pieces) {
                        Some(from) => std::ptr::copy_nonoverlapping(from, to, PIECE_BYTES as usize),
                        None => to.write_bytes(0, PIECE_BYTES as usize),
                    }
                }
            }
            phase::complete(shared, self.mbarrier, rows * pieces * PIECE_BYTES);
            return;
        }
        // SAFETY: passed on from the caller.
        let (rows, rounds) = unsafe { tensor_box.shape() };
        for row in 0..rows {
            let mut bytes: Row = [0; ROW_BYTES as usize];
            // SAFETY: passed on from the caller; the elements are inside the tensor.
            unsafe {
                if let Some((from, first, count)) = tensor_box.row(row) {
                    std::ptr::copy_nonoverlapping(from, bytes[first..][..count].as_mut_ptr(), count);
                }
                if rounds {
                    bytes.as_chunks_mut().0.iter_mut().for_each(|word| *word = tf32(f32::from_ne_bytes(*word)).to_ne_bytes());
                }
                for (block, bytes) in bytes.as_chunks::<16>().0.iter().enumerate() {
                    let to = shared.pointer(swizzled(self.to + row * ROW_BYTES + block as u32 * 16), 16);
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), 16);
                }
            }
        }
        phase::complete(shared, self.mbarrier, rows * ROW_BYTES);
    }
}

/// Makes one of the copies on their way; false if there is none.
pub(super) fn advance(thread: &Modelled<'_>) -> bool {
    let load = {
        let mut loads = thread.shared.loads();
        if loads.is_empty() {
            return false;
        }
        let number = thread.choose(loads.len() as u32) as usize;
        loads.remove(number)
    };
    // SAFETY: the loader promised it when it issued the copy.
    unsafe { load.make(thread.shared) };
    true
}

/// A box that has been read from shared memory, and where it goes.
pub(super) struct Stored {
    to: TensorBox,
    rows: Box<[Row]>,
}

/// Reads a box from shared memory.
///
/// # Safety
/// The map is live; `at` is a box that nobody writes.
pub(super) unsafe fn read(shared: &Shared, at: u32, to: TensorBox) -> Stored {
    let row = |row: u32| {
        let mut bytes: Row = [0; ROW_BYTES as usize];
        for (block, bytes) in bytes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
            let from = shared.pointer(swizzled(at + row * ROW_BYTES + block as u32 * 16), 16);
            // SAFETY: 16 bytes of shared memory.
            unsafe { std::ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), 16) };
        }
        bytes
    };
    // SAFETY: passed on from the caller.
    let (rows, _) = unsafe { to.shape() };
    Stored { to, rows: (0..rows).map(row).collect() }
}

/// Writes a box to its tensor, clipped.
///
/// # Safety
/// Map and tensor are live; the box is nobody else's.
pub(super) unsafe fn write(stored: Stored) {
    for (row, bytes) in stored.rows.iter().enumerate() {
        // SAFETY: passed on from the caller; the elements are inside the tensor.
        unsafe {
            if let Some((to, first, count)) = stored.to.row(row as u32) {
                std::ptr::copy_nonoverlapping(bytes[first..][..count].as_ptr(), to, count);
            }
        }
    }
}

/// Whether a box may lie at `at`.
pub(super) fn check(at: u32) {
    assert!((at - special::BASE).is_multiple_of(1024), "a swizzled box at {at:#x} is not aligned");
}
