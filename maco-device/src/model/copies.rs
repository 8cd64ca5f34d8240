//! Bulk tensor copies on their way. Boxes are 64 columns × 64 rows × 1 plane of two-byte elements, with the 128-byte swizzle.

use super::memory::swizzled;
use super::shared::Shared;
use super::thread::Modelled;
use super::{mbarrier, special};
use crate::abi::{BOX, TensorMap};

const COLUMNS: usize = BOX as usize;
/// Bytes of a box.
pub(super) const BYTES: u32 = BOX * BOX * 2;

/// The map of a tensor of two-byte elements for modelled copies: extents are columns, rows and planes, strides the bytes from row to
/// row and from plane to plane.
pub fn tensor_map(address: u64, extents: [u64; 3], strides: [u64; 2]) -> TensorMap {
    let mut words = [0; 16];
    words[0] = address;
    words[1..4].copy_from_slice(&extents);
    words[4..6].copy_from_slice(&strides);
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
    /// Row `row` of the box: the host's address of its first element inside the tensor, that element's column in the box, and how many
    /// there are. `None` outside the tensor.
    ///
    /// # Safety
    /// `map` is live.
    unsafe fn row(self, row: i32) -> Option<(*mut u16, usize, usize)> {
        // SAFETY: the caller promises a live map.
        let TensorMap([address, columns, rows, planes, row_stride, plane_stride, ..]) = unsafe { (self.map as *const TensorMap).read() };
        let inside = |at: i64, extent: u64| (0..extent as i64).contains(&at);
        let (first, end) = (i64::from(self.col).max(0), (i64::from(self.col) + i64::from(BOX)).min(columns as i64));
        let row = i64::from(self.row) + i64::from(row);
        if first >= end || !inside(row, rows) || !inside(self.plane.into(), planes) {
            return None;
        }
        let offset = self.plane as u64 * plane_stride + row as u64 * row_stride + first as u64 * 2;
        Some(((address + offset) as *mut u16, (first - i64::from(self.col)) as usize, (end - first) as usize))
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
        for row in 0..COLUMNS {
            let mut elements = [0u16; COLUMNS];
            // SAFETY: passed on from the caller; the elements are inside the tensor.
            unsafe {
                if let Some((from, column, count)) = place.row(row as i32) {
                    std::ptr::copy_nonoverlapping(from, elements[column..][..count].as_mut_ptr(), count);
                }
                for (block, elements) in elements.as_chunks::<8>().0.iter().enumerate() {
                    let to = shared.pointer(swizzled(self.to + (row * 128 + block * 16) as u32), 16);
                    std::ptr::copy_nonoverlapping(elements.as_ptr(), to.cast(), 8);
                }
            }
        }
        mbarrier::complete(shared, self.mbarrier, BYTES);
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
    rows: Box<[[u16; COLUMNS]]>,
}

/// Reads a box from shared memory.
///
/// # Safety
/// `at` is a box that nobody writes.
pub(super) unsafe fn read(shared: &Shared, at: u32, to: Place) -> Stored {
    let row = |row: usize| {
        let mut elements = [0; COLUMNS];
        for (block, elements) in elements.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let from = shared.pointer(swizzled(at + (row * 128 + block * 16) as u32), 16);
            // SAFETY: 16 bytes of shared memory.
            unsafe { std::ptr::copy_nonoverlapping(from.cast(), elements.as_mut_ptr(), 8) };
        }
        elements
    };
    Stored { to, rows: (0..COLUMNS).map(row).collect() }
}

/// Writes a box to its tensor, clipped.
///
/// # Safety
/// Map and tensor are live; the box is nobody else's.
pub(super) unsafe fn write(stored: Stored) {
    for (row, elements) in stored.rows.iter().enumerate() {
        // SAFETY: passed on from the caller; the elements are inside the tensor.
        unsafe {
            if let Some((to, column, count)) = stored.to.row(row as i32) {
                std::ptr::copy_nonoverlapping(elements[column..][..count].as_ptr(), to, count);
            }
        }
    }
}

/// Whether a box may lie at `at`.
pub(super) fn check(at: u32) {
    assert!((at - special::BASE).is_multiple_of(1024), "a swizzled box at {at:#x} is not aligned");
}
