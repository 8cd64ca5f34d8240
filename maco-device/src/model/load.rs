//! Copies to shared memory that have been issued: what they copy, and where from.

use maco_abi::{self as abi, TensorMap};

/// Where in which tensor a box lies.
#[derive(Clone, Copy)]
pub(super) struct TensorBox {
    /// Address of a [`super::tensor_map`].
    pub map: u64,
    pub col: i32,
    pub row: i32,
    pub plane: i32,
}

impl TensorBox {
    /// Row `row` of the box: the host's address of its first byte inside the tensor, that byte's place in the row, and how many there are.
    /// `None` outside the tensor.
    ///
    /// # Safety
    /// `map` is live.
    pub unsafe fn row(self, row: u32) -> Option<(*mut u8, usize, usize)> {
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
    pub unsafe fn shape(self) -> (u32, bool) {
        // SAFETY: the caller promises a live map.
        let TensorMap([_, _, _, _, _, _, _, rows, rounds, ..]) = unsafe { (self.map as *const TensorMap).read() };
        (rows as u32, rounds != 0)
    }
}

impl TensorBox {
    /// How many rows a box in pieces has, and how many pieces of each; none of another kind.
    ///
    /// # Safety
    /// `map` is live.
    pub unsafe fn pieces(self) -> Option<(u32, u32)> {
        // SAFETY: the caller promises a live map.
        let TensorMap([_, _, _, _, _, _, _, rows, _, pieces, ..]) = unsafe { (self.map as *const TensorMap).read() };
        (pieces > 0).then_some((rows as u32, pieces as u32))
    }

    /// The host's address of piece `piece` of row `row` of the box; none outside the tensor.
    ///
    /// # Safety
    /// `map` is live, and of a box in pieces.
    pub unsafe fn piece(self, row: u32, piece: u32) -> Option<*const u8> {
        // SAFETY: the caller promises a live map.
        let TensorMap([address, _, pieces, rows, stride, row_stride, ..]) = unsafe { (self.map as *const TensorMap).read() };
        let (row, piece) = (i64::from(self.plane) + i64::from(row), i64::from(self.row) + i64::from(piece));
        let inside = (0..rows as i64).contains(&row) && (0..pieces as i64).contains(&piece);
        inside.then(|| (address + row as u64 * row_stride + piece as u64 * stride) as *const u8)
    }
}

/// What is copied to shared memory.
pub(super) enum Source {
    Box(TensorBox),
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
