//! Bulk tensor copies on their way. Boxes are 128 bytes × 64 or 32 rows × 1 plane, with the 128-byte swizzle.

use super::memory::swizzled;
use super::shared::Shared;
use super::thread::Modelled;
use super::{mbarrier, special};
use crate::abi::{self, ROW_BYTES, TensorMap};
use crate::data::element::tf32;

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

/// Where in which tensor a box lies.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Address of a [`tensor_map`].
    pub map: u64,
    pub col: i32,
    pub row: i32,
    pub plane: i32,
}

impl Place {
    /// Row `row` of the box: the host's address of its first byte inside the tensor, that byte's place in the row, and how many there are.
    /// `None` outside the tensor.
    ///
    /// # Safety
    /// `map` is live.
    unsafe fn row(self, row: u32) -> Option<(*mut u8, usize, usize)> {
        // SAFETY: the caller promises a live map.
        let TensorMap([address, columns, rows, planes, row_stride, plane_stride, bytes, ..]) =
            unsafe { (self.map as *const TensorMap).read() };
        let inside = |at: i64, extent: u64| (0..extent as i64).contains(&at);
        let width = i64::from(abi::columns(bytes as u32));
        let (first, end) = (i64::from(self.col).max(0), (i64::from(self.col) + width).min(columns as i64));
        let row = i64::from(self.row) + i64::from(row);
        if first >= end || !inside(row, rows) || !inside(self.plane.into(), planes) {
            return None;
        }
        let offset = self.plane as u64 * plane_stride + row as u64 * row_stride + first as u64 * bytes;
        let bytes = bytes as usize;
        Some(((address + offset) as *mut u8, (first - i64::from(self.col)) as usize * bytes, (end - first) as usize * bytes))
    }

    /// How many rows the box has, and whether its elements are rounded.
    ///
    /// # Safety
    /// `map` is live.
    unsafe fn shape(self) -> (u32, bool) {
        // SAFETY: the caller promises a live map.
        let TensorMap([_, _, _, _, _, _, _, rows, rounds, ..]) = unsafe { (self.map as *const TensorMap).read() };
        (rows as u32, rounds != 0)
    }
}

/// A piece of a row.
const PIECE_BYTES: u32 = abi::PIECE * 2;

impl Place {
    /// How many rows a box in pieces has, and how many pieces of each; none of another kind.
    ///
    /// # Safety
    /// `map` is live.
    unsafe fn pieces(self) -> Option<(u32, u32)> {
        // SAFETY: the caller promises a live map.
        let TensorMap([_, _, _, _, _, _, _, rows, _, pieces, ..]) = unsafe { (self.map as *const TensorMap).read() };
        (pieces > 0).then_some((rows as u32, pieces as u32))
    }

    /// The host's address of piece `piece` of row `row` of the box; none outside the tensor.
    ///
    /// # Safety
    /// `map` is live, and of a box in pieces.
    unsafe fn piece(self, row: u32, piece: u32) -> Option<*const u8> {
        // SAFETY: the caller promises a live map.
        let TensorMap([address, _, pieces, rows, stride, row_stride, ..]) = unsafe { (self.map as *const TensorMap).read() };
        let (row, piece) = (i64::from(self.plane) + i64::from(row), i64::from(self.row) + i64::from(piece));
        let inside = (0..rows as i64).contains(&row) && (0..pieces as i64).contains(&piece);
        inside.then(|| (address + row as u64 * row_stride + piece as u64 * stride) as *const u8)
    }
}

/// What is copied to shared memory.
pub(super) enum Source {
    Box(Place),
    /// Bytes of the host's memory, as they lie.
    Row {
        from: u64,
        bytes: u32,
    },
}

/// A copy from a tensor to shared memory.
pub(super) struct Load {
    pub to: u32,
    pub from: Source,
    pub mbarrier: u32,
}

impl Load {
    /// Copies, with zeros outside the tensor, and tells the mbarrier.
    ///
    /// # Safety
    /// Map and tensor are live, and nobody writes the box; the space is the copy's.
    unsafe fn make(self, shared: &Shared) {
        let place = match self.from {
            Source::Box(place) => place,
            Source::Row { from, bytes } => {
                // SAFETY: passed on from the caller.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, shared.pointer(self.to, bytes), bytes as usize) };
                mbarrier::complete(shared, self.mbarrier, bytes);
                return;
            }
        };
        // SAFETY: passed on from the caller.
        if let Some((rows, pieces)) = unsafe { place.pieces() } {
            for at in 0..rows * pieces {
                let to = shared.pointer(self.to + at * PIECE_BYTES, PIECE_BYTES).cast::<u8>();
                // SAFETY: (of all) passed on from the caller; the piece is inside the tensor.
                unsafe {
                    match place.piece(at / pieces, at % pieces) {
                        Some(from) => std::ptr::copy_nonoverlapping(from, to, PIECE_BYTES as usize),
                        None => to.write_bytes(0, PIECE_BYTES as usize),
                    }
                }
            }
            mbarrier::complete(shared, self.mbarrier, rows * pieces * PIECE_BYTES);
            return;
        }
        // SAFETY: passed on from the caller.
        let (rows, rounds) = unsafe { place.shape() };
        for row in 0..rows {
            let mut bytes: Row = [0; ROW_BYTES as usize];
            // SAFETY: passed on from the caller; the elements are inside the tensor.
            unsafe {
                if let Some((from, first, count)) = place.row(row) {
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
        mbarrier::complete(shared, self.mbarrier, rows * ROW_BYTES);
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
    to: Place,
    rows: Box<[Row]>,
}

/// Reads a box from shared memory.
///
/// # Safety
/// The map is live; `at` is a box that nobody writes.
pub(super) unsafe fn read(shared: &Shared, at: u32, to: Place) -> Stored {
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
