//! The table of views: views of tensors in memory, and records of prologues and messages in place of a call's last one; tensor maps.

use crate::ranks::{Gates, Messages, PushedTiles};

/// Index into [`crate::Launch::tensor_maps`], with what the loader has to know of the tensor; or none.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MapIndex(u32);

/// A view without a tensor map.
pub const NO_MAP: MapIndex = MapIndex(u32::MAX);
/// Bit of a [`MapIndex`]: no task of the graph writes the tensor.
const UNWRITTEN: u32 = 1 << 31;

impl MapIndex {
    /// Map `index`, below 2³¹ - 1; `written` by a task of the graph.
    pub const fn new(index: u32, written: bool) -> MapIndex {
        MapIndex(if written { index } else { index | UNWRITTEN })
    }

    /// From its word.
    pub const fn decode(word: u32) -> MapIndex {
        MapIndex(word)
    }

    /// In a word.
    pub const fn encode(self) -> u32 {
        self.0
    }

    /// Whether there is none.
    pub const fn is_none(self) -> bool {
        self.0 == NO_MAP.0
    }

    /// The index, if there is one.
    pub const fn index(self) -> u32 {
        self.0 & !UNWRITTEN
    }

    /// Whether no task of the graph writes the tensor, if there is a map.
    pub const fn is_unwritten(self) -> bool {
        self.0 & UNWRITTEN != 0
    }
}

impl Default for MapIndex {
    fn default() -> MapIndex {
        NO_MAP
    }
}

/// A rectangular view of a tensor in memory, 32 bytes. Rank 1 is one row; axes before the last two are folded into planes.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Address of element (0, 0, 0): device memory on a GPU, host memory on the CPU.
    pub base: u64,
    /// Rows of a plane.
    pub rows: u32,
    /// Columns of a plane.
    pub cols: u32,
    /// Elements from one row to the next.
    pub row_stride: u32,
    /// Elements from one column to the next; 1 unless transposed.
    pub col_stride: u32,
    /// Elements from one plane to the next. A tensor of one axis has no planes: see [`View::names`].
    pub plane_stride: u32,
    /// Its tensor map.
    pub map: MapIndex,
}

impl View {
    /// This view of one axis, whose elements name planes of other tensors, of which there are `planes`.
    pub const fn naming(self, planes: u32) -> View {
        View { plane_stride: planes, ..self }
    }

    /// How many planes there are that the elements of this view, of one axis, name.
    pub const fn names(self) -> u32 {
        self.plane_stride
    }
}

/// An RMSNorm that a GEMV computes on operand A ([`crate::RMSNORM_PROLOGUE`]): 32 bytes.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmsNormPrologue {
    /// Address of the first weight.
    pub weights: u64,
    /// Rows of the weights: 1.
    pub rows: u32,
    /// How many weights there are.
    pub cols: u32,
    /// Elements from one row to the next.
    pub row_stride: u32,
    /// Elements from one weight to the next.
    pub col_stride: u32,
    /// Another one for each prologue of a plan, a multiple of eight above 0.
    pub number: u32,
    /// Bits of what is added to the mean square, an `f32`.
    pub epsilon: u32,
}

/// An elementwise task that a GEMV computes on operand A ([`crate::ELEMENTWISE_PROLOGUE`]): 32 bytes.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElementwisePrologue {
    /// Address of the first element of the task's input.
    pub input: u64,
    /// Its rows.
    pub rows: u32,
    /// Its columns, which lie side by side.
    pub cols: u32,
    /// Elements from one row to the next.
    pub row_stride: u32,
    /// Rows of the GEMV's tiles.
    pub tile_rows: u8,
    /// Grid axis of the GEMV's rows.
    pub axis: u8,
    /// First entry of the task's scalars in [`crate::Launch::scalars`].
    pub scalar: u16,
    /// As [`RmsNormPrologue::number`].
    pub number: u32,
    /// The task's instance: the arm of the dispatch.
    pub instance: u32,
}

/// An entry of the table of views, 32 bytes: a [`View`], or in the last of a call's [`crate::OPERANDS`] places the record of its prologue, of its messages, or of those
/// that it sends for an all-reduce. The descriptor's flags say which; the body of a collective knows that it is one.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewEntry([u32; 8]);

const fn low(address: u64) -> u32 {
    address as u32
}

const fn high(address: u64) -> u32 {
    (address >> 32) as u32
}

const fn halves(low: u16, high: u16) -> u32 {
    low as u32 | (high as u32) << 16
}

const fn address(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

impl ViewEntry {
    /// Of a view.
    pub const fn view(view: View) -> ViewEntry {
        let View { base, rows, cols, row_stride, col_stride, plane_stride, map } = view;
        ViewEntry([low(base), high(base), rows, cols, row_stride, col_stride, plane_stride, map.encode()])
    }

    /// Of an RMSNorm prologue.
    pub const fn rmsnorm(prologue: RmsNormPrologue) -> ViewEntry {
        let RmsNormPrologue { weights, rows, cols, row_stride, col_stride, number, epsilon } = prologue;
        ViewEntry([low(weights), high(weights), rows, cols, row_stride, col_stride, number, epsilon])
    }

    /// Of an elementwise prologue.
    pub const fn elementwise(prologue: ElementwisePrologue) -> ViewEntry {
        let ElementwisePrologue { input, rows, cols, row_stride, tile_rows, axis, scalar, number, instance } = prologue;
        let call = tile_rows as u32 | (axis as u32) << 8 | (scalar as u32) << 16;
        ViewEntry([low(input), high(input), rows, cols, row_stride, call, number, instance])
    }

    /// Of a collective's messages.
    pub const fn messages(messages: Messages) -> ViewEntry {
        let Messages { offset, bytes, tiles, grid: [second, third], first, sources, rows } = messages;
        ViewEntry([low(offset), high(offset), bytes, tiles, second, third, first, halves(sources, rows)])
    }

    /// Of a call that NCCL exchanges.
    pub const fn gates(gates: Gates) -> ViewEntry {
        let Gates { address, count, unused: [a, b, c, d, e] } = gates;
        ViewEntry([low(address), high(address), count, a, b, c, d, e])
    }

    /// Of tiles that a GEMM sends.
    pub const fn pushed(pushed: PushedTiles) -> ViewEntry {
        let PushedTiles { offset, bytes, tiles, along, sources, to_owner, map, rows, cols } = pushed;
        ViewEntry([low(offset), high(offset), bytes, tiles, along, halves(sources, to_owner), map, halves(rows, cols)])
    }

    /// From its words.
    pub const fn decode(words: [u32; 8]) -> ViewEntry {
        ViewEntry(words)
    }

    /// Its words.
    pub const fn encode(self) -> [u32; 8] {
        self.0
    }

    /// The view that it is.
    pub const fn as_view(self) -> View {
        let [low, high, rows, cols, row_stride, col_stride, plane_stride, map] = self.0;
        View { base: address(low, high), rows, cols, row_stride, col_stride, plane_stride, map: MapIndex::decode(map) }
    }

    /// The RMSNorm prologue that it is.
    pub const fn as_rmsnorm(self) -> RmsNormPrologue {
        let [low, high, rows, cols, row_stride, col_stride, number, epsilon] = self.0;
        RmsNormPrologue { weights: address(low, high), rows, cols, row_stride, col_stride, number, epsilon }
    }

    /// The elementwise prologue that it is.
    pub const fn as_elementwise(self) -> ElementwisePrologue {
        let [low, high, rows, cols, row_stride, call, number, instance] = self.0;
        let (tile_rows, axis, scalar) = (call as u8, (call >> 8) as u8, (call >> 16) as u16);
        ElementwisePrologue { input: address(low, high), rows, cols, row_stride, tile_rows, axis, scalar, number, instance }
    }

    /// The messages that it is of.
    pub const fn as_messages(self) -> Messages {
        let [low, high, bytes, tiles, second, third, first, way] = self.0;
        Messages { offset: address(low, high), bytes, tiles, grid: [second, third], first, sources: way as u16, rows: (way >> 16) as u16 }
    }

    /// The gates that it is of.
    pub const fn as_gates(self) -> Gates {
        let [low, high, count, a, b, c, d, e] = self.0;
        Gates { address: address(low, high), count, unused: [a, b, c, d, e] }
    }

    /// The tiles that it is of, which a GEMM sends.
    pub const fn as_pushed(self) -> PushedTiles {
        let [low, high, bytes, tiles, along, way, map, tile] = self.0;
        let (sources, to_owner, rows, cols) = (way as u16, (way >> 16) as u16, tile as u16, (tile >> 16) as u16);
        PushedTiles { offset: address(low, high), bytes, tiles, along, sources, to_owner, map, rows, cols }
    }
}

impl RmsNormPrologue {
    /// Its weights as a view.
    pub const fn view(self) -> View {
        let RmsNormPrologue { weights, rows, cols, row_stride, col_stride, .. } = self;
        View { base: weights, rows, cols, row_stride, col_stride, plane_stride: 0, map: NO_MAP }
    }
}

impl ElementwisePrologue {
    /// The rows of the input that a task of the GEMV reads whose coordinate along [`ElementwisePrologue::axis`] is `coord`; elements have `bytes` bytes.
    pub const fn view(self, coord: u32, bytes: u32) -> View {
        let ElementwisePrologue { input, rows, cols, row_stride, tile_rows, .. } = self;
        let most = tile_rows as u32;
        let first = coord * most;
        let rows = if rows - first < most { rows - first } else { most };
        let base = input + first as u64 * row_stride as u64 * bytes as u64;
        View { base, rows, cols, row_stride, col_stride: 1, plane_stride: 0, map: NO_MAP }
    }
}

/// A `CUtensorMap`: 128 opaque bytes at a 64-byte boundary, encoded by the driver.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap(pub [u64; 16]);

const _: () = {
    assert!(size_of::<View>() == 32 && size_of::<ViewEntry>() == 32);
    assert!(size_of::<RmsNormPrologue>() == 32 && size_of::<ElementwisePrologue>() == 32);
    // The number of a prologue is looked at before its record.
    assert!(core::mem::offset_of!(RmsNormPrologue, number) == core::mem::offset_of!(ElementwisePrologue, number));
    assert!(size_of::<TensorMap>() == 128);
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What a structure is in memory.
    fn words<T: Copy>(of: &T) -> [u32; 8] {
        assert_eq!(size_of::<T>(), 32);
        // SAFETY: 32 bytes of plain data without padding.
        unsafe { core::ptr::from_ref(of).cast::<[u32; 8]>().read() }
    }

    proptest! {
        #[test]
        fn maps_survive(index in 0..(1u32 << 31) - 1, written: bool) {
            let map = MapIndex::new(index, written);
            prop_assert!(!map.is_none());
            prop_assert_eq!((map.index(), map.is_unwritten()), (index, !written));
            prop_assert_eq!(MapIndex::decode(map.encode()), map);
        }

        /// Every entry is what its record is in memory, whatever the bits.
        #[test]
        fn entries_survive(all: [u32; 8]) {
            let entry = ViewEntry::decode(all);
            prop_assert_eq!(entry.encode(), all);
            prop_assert_eq!((ViewEntry::view(entry.as_view()), words(&entry.as_view())), (entry, all));
            prop_assert_eq!((ViewEntry::rmsnorm(entry.as_rmsnorm()), words(&entry.as_rmsnorm())), (entry, all));
            prop_assert_eq!((ViewEntry::elementwise(entry.as_elementwise()), words(&entry.as_elementwise())), (entry, all));
            prop_assert_eq!((ViewEntry::messages(entry.as_messages()), words(&entry.as_messages())), (entry, all));
            prop_assert_eq!((ViewEntry::gates(entry.as_gates()), words(&entry.as_gates())), (entry, all));
            prop_assert_eq!((ViewEntry::pushed(entry.as_pushed()), words(&entry.as_pushed())), (entry, all));
        }

        #[test]
        fn tiles_of_an_elementwise_prologue_cover_its_input(rows in 1u32..2000, tile_rows in 1u8..=255, cols in 1u32..100) {
            let prologue = ElementwisePrologue { input: 1 << 40, rows, cols, row_stride: cols + 3, tile_rows, ..ElementwisePrologue::default() };
            let mut next = 0;
            for coord in 0..rows.div_ceil(tile_rows.into()) {
                let tile = prologue.view(coord, 2);
                prop_assert_eq!(tile.base, (1 << 40) + u64::from(next) * u64::from(cols + 3) * 2);
                prop_assert!(tile.rows > 0 && tile.cols == cols);
                next += tile.rows;
            }
            prop_assert_eq!(next, rows);
        }
    }

    #[test]
    fn no_map_is_no_index() {
        assert!(NO_MAP.is_none() && MapIndex::default() == NO_MAP);
    }
}
