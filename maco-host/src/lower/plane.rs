//! A view of a strided tensor as columns, rows and planes, and the rules of tensor maps.

use maco_abi::{self as abi, MAP_STRIDE, NO_MAP};
use maco_graph::ir;
use maco_graph::spec::{BoxSpec, Element, Index, TensorParam};

use crate::tensor::Layout;

const MAP_ALIGN: u64 = abi::MAP_ALIGN as u64;
/// Coordinates on the device are signed.
const MAX_EXTENT: u64 = i32::MAX as u64;

/// Why a view cannot be lowered to the device's form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ViewError {
    /// It has no rows and columns the device could address.
    Layout { reason: Box<str>, help: &'static str },
    /// TMA cannot copy it.
    Staging { reason: Box<str>, help: &'static str },
}

/// One axis: how many, and how many elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    extent: u64,
    stride: u64,
}

impl Axis {
    /// An axis that is not there.
    const NONE: Axis = Axis { extent: 1, stride: 0 };
}

/// A view as planes of rows of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plane {
    /// Elements from the tensor's first to the view's first.
    offset: u64,
    cols: Axis,
    rows: Axis,
    planes: Axis,
}

/// The box of a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BoxShape {
    /// Rows of a box.
    pub(crate) rows: u32,
    /// Elements of `f32` are rounded to tf32 on their way to shared memory.
    pub(crate) rounds: bool,
    /// Bytes of a row of a box, and of its swizzle; 16 for none.
    pub(crate) swizzle: u32,
    /// For operand B of a GEMV: pieces of [`abi::PIECE`] columns per row of a box; 0: rows are not in pieces.
    pub(crate) pieces: u32,
}

impl BoxShape {
    /// For results, and for GEMM operands of two-byte elements.
    pub(crate) const PLAIN: BoxShape = BoxShape { rows: abi::BOX, rounds: false, swizzle: abi::ROW_BYTES, pieces: 0 };
    /// For operand B of a GEMV: whole rows of a stage.
    pub(crate) const BULK_ROWS: BoxShape =
        BoxShape { rows: abi::WEIGHT_BOX_ROWS, rounds: false, swizzle: 16, pieces: abi::WEIGHT_BOX_PIECES };

    /// For column reductions and transpositions.
    pub(crate) const PANELS: BoxShape = BoxShape { rows: abi::PANEL_ROWS, rounds: false, swizzle: abi::ROW_BYTES, pieces: 0 };

    /// For tensor parameter `param`, of type `element`, of a call with tiles of `tile`; if the body declares a box, that one. A GEMM operand that is
    /// contiguous along K has one box for all rows of its tile.
    pub(super) fn of(param: &TensorParam, tile: &[u32], declared: Option<BoxSpec>, element: Element) -> BoxShape {
        if let Some(BoxSpec { rows, swizzle, .. }) = declared {
            return BoxShape { rows, rounds: false, swizzle, pieces: 0 };
        }
        if !param.staged || param.access.writes() {
            return BoxShape::PLAIN;
        }
        let rows = match *param.region {
            [.., Index::Tile(axis), Index::All] => tile.get(usize::from(axis)).copied().unwrap_or(abi::BOX),
            // An operand that is not contiguous along K has the rows of one K step.
            _ => abi::columns(element.bytes()),
        };
        BoxShape { rows, rounds: element == Element::F32, ..BoxShape::PLAIN }
    }
}

/// A tensor map to encode: extents and strides, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorMapRequest {
    pub(crate) address: u64,
    pub(crate) element: Element,
    /// Columns, rows, planes; or columns of a piece, pieces of a row, rows.
    pub(crate) extents: [u64; 3],
    /// Bytes from one to the next, of the second and of the third.
    pub(crate) strides: [u64; 2],
    pub(crate) boxes: BoxShape,
}

impl TensorMapRequest {
    /// A place in the table that no view names.
    pub(super) fn nothing(element: Element) -> TensorMapRequest {
        TensorMapRequest { address: 0, element, extents: [0; 3], strides: [MAP_ALIGN; 2], boxes: BoxShape::PLAIN }
    }

    /// Whether the view has no element, so that every copy is of zeros.
    pub(crate) fn empty(&self) -> bool {
        self.extents.contains(&0)
    }
}

impl Plane {
    /// The last two axes are rows and columns; those before are folded into planes.
    pub(super) fn of(view: &ir::View, layout: &Layout) -> Result<Plane, ViewError> {
        let strides = layout.strides();
        let offset = view.offset.iter().zip(strides).map(|(offset, stride)| offset.saturating_mul(stride)).fold(0, u64::saturating_add);
        let axes = view.axes.iter().map(|axis| Axis {
            extent: axis.extent,
            stride: strides.get(axis.axis as usize).map_or(0, |stride| stride.saturating_mul(axis.step)),
        });
        let axes: Vec<Axis> = axes.collect();
        let (planes, rows, cols) = match *axes.as_slice() {
            [cols] => (Axis::NONE, Axis::NONE, cols),
            [rows, cols] => (Axis::NONE, rows, cols),
            [planes, rows, cols] => (planes, rows, cols),
            [outer, inner, rows, cols] => (fold(outer, inner)?, rows, cols),
            _ => {
                return Err(ViewError::Layout {
                    reason: format!("has {} axes, expected 1 to 4", axes.len()).into(),
                    help: "slice or merge axes first",
                });
            }
        };
        Ok(Plane { offset, cols, rows, planes })
    }

    fn address(&self, base: u64, element: Element) -> u64 {
        base + self.offset * element.bytes() as u64
    }

    /// What the device addresses it by.
    pub(super) fn view(&self, base: u64, element: Element) -> Result<abi::View, ViewError> {
        let fit = |what: &str, value: u64, max: u64| {
            u32::try_from(value).ok().filter(|&value| value as u64 <= max).ok_or_else(|| ViewError::Layout {
                reason: format!("has {what} {value}, at most {max} can be addressed").into(),
                help: "split the tensor along its outer axis",
            })
        };
        // A stride that is never used may be anything.
        let stride = |axis: Axis| if axis.extent > 1 { axis.stride } else { 0 };
        Ok(abi::View {
            base: self.address(base, element),
            rows: fit("a row count of", self.rows.extent, MAX_EXTENT)?,
            cols: fit("a column count of", self.cols.extent, MAX_EXTENT)?,
            row_stride: fit("a row stride of", stride(self.rows), u32::MAX as u64)?,
            col_stride: fit("a column stride of", if self.cols.extent > 1 { self.cols.stride } else { 1 }, u32::MAX as u64)?,
            plane_stride: fit("a plane stride of", stride(self.planes), u32::MAX as u64)?,
            map: NO_MAP,
        })
    }

    /// Its tensor map in pieces of rows, if its rows consist of whole pieces, and TMA can copy them; else they come one by one.
    pub(super) fn pieces(&self, base: u64, element: Element) -> Option<TensorMapRequest> {
        let (bytes, piece) = (element.bytes() as u64, u64::from(abi::PIECE));
        let whole = bytes == 2 && self.planes.extent == 1 && self.cols.extent > 0 && self.cols.extent.is_multiple_of(piece);
        let plain = whole.then(|| self.map(base, element, BoxShape::BULK_ROWS).ok()).flatten()?;
        let (extents, strides) = ([piece, self.cols.extent / piece, self.rows.extent], [piece * bytes, plain.strides[0]]);
        // Each stride is a multiple of the one before (CUDA driver API, `cuTensorMapEncodeTiled`).
        (!plain.empty() && strides[1].is_multiple_of(strides[0])).then_some(TensorMapRequest { extents, strides, ..plain })
    }

    /// Its tensor map.
    pub(super) fn map(&self, base: u64, element: Element, boxes: BoxShape) -> Result<TensorMapRequest, ViewError> {
        let bytes = element.bytes() as u64;
        let address = self.address(base, element);
        let extents = [self.cols.extent, self.rows.extent, self.planes.extent];
        // A stride that is never used must still be legal.
        let legal = (self.cols.extent * bytes).next_multiple_of(MAP_ALIGN).max(MAP_ALIGN);
        let stride = |axis: Axis| if axis.extent > 1 { axis.stride.saturating_mul(bytes) } else { legal };
        let request = TensorMapRequest { address, element, extents, strides: [stride(self.rows), stride(self.planes)], boxes };
        if request.empty() {
            return Ok(request);
        }
        if self.cols.extent > 1 && self.cols.stride != 1 {
            let reason = format!("its columns are {} elements apart, not 1", self.cols.stride).into();
            return Err(ViewError::Staging {
                reason,
                help: "pass it without `.t()` to a task that tiles the other axis (`#[read(.., j)]`), or transpose it by a task",
            });
        }
        if !address.is_multiple_of(MAP_ALIGN) {
            let past = address % MAP_ALIGN;
            let reason = format!("its first element is {past} bytes past a multiple of {MAP_ALIGN}").into();
            return Err(ViewError::Staging {
                reason,
                help: "begin slices at multiples of 16 bytes (8 columns of two-byte elements), and borrow memory at such",
            });
        }
        for (stride, what) in request.strides.into_iter().zip(["rows", "planes"]) {
            if !stride.is_multiple_of(MAP_ALIGN) || stride >= MAP_STRIDE {
                let reason = format!("its {what} are {stride} bytes apart, expected a multiple of {MAP_ALIGN} below 2^40").into();
                return Err(ViewError::Staging {
                    reason,
                    help: "use tensors made by the device (their rows are padded), or a row stride of a multiple of 16 bytes",
                });
            }
        }
        Ok(request)
    }
}

/// Two axes as one, if the outer one continues where the inner one ends.
fn fold(outer: Axis, inner: Axis) -> Result<Axis, ViewError> {
    let extent = outer.extent.saturating_mul(inner.extent);
    if outer.extent == 1 || extent == 0 || inner.stride.saturating_mul(inner.extent) == outer.stride {
        return Ok(Axis { extent, stride: inner.stride });
    }
    if inner.extent == 1 {
        return Ok(Axis { extent, stride: outer.stride });
    }
    let reason = "has two outer axes that do not lie one after the other in memory".into();
    Err(ViewError::Layout { reason, help: "slice the outermost axis only, or merge the outer axes first" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Shape;
    use maco_graph::ir::ViewAxis;

    fn layout(extents: &[u64]) -> Layout {
        Layout::padded(Shape::new(extents).unwrap(), 2).unwrap()
    }

    fn view(offset: &[u64], axes: &[(u8, u64, u64)]) -> ir::View {
        let axes = axes.iter().map(|&(axis, step, extent)| ViewAxis { axis, step, extent }).collect();
        ir::View { tensor: 0, offset: offset.into(), axes }
    }

    const BASE: u64 = 0x1000;

    fn lowered(view: &ir::View, layout: &Layout) -> abi::View {
        Plane::of(view, layout).unwrap().view(BASE, Element::Bf16).unwrap()
    }

    #[test]
    fn whole_tensors_of_each_rank() {
        let v = lowered(&view(&[0], &[(0, 1, 100)]), &layout(&[100]));
        assert_eq!((v.rows, v.cols, v.row_stride, v.col_stride, v.plane_stride), (1, 100, 0, 1, 0));
        let v = lowered(&view(&[0, 0], &[(0, 1, 7), (1, 1, 100)]), &layout(&[7, 100]));
        assert_eq!((v.rows, v.cols, v.row_stride, v.col_stride, v.plane_stride), (7, 100, 104, 1, 0));
        let v = lowered(&view(&[0, 0, 0], &[(0, 1, 3), (1, 1, 7), (2, 1, 100)]), &layout(&[3, 7, 100]));
        assert_eq!((v.rows, v.cols, v.row_stride, v.plane_stride), (7, 100, 104, 7 * 104));
        let v = lowered(&view(&[0; 4], &[(0, 1, 2), (1, 1, 3), (2, 1, 7), (3, 1, 100)]), &layout(&[2, 3, 7, 100]));
        assert_eq!((v.rows, v.cols, v.row_stride, v.plane_stride), (7, 100, 104, 7 * 104));
    }

    #[test]
    fn slices_splits_and_transposes() {
        let l = layout(&[7, 96]);
        let v = lowered(&view(&[2, 32], &[(0, 1, 4), (1, 1, 64)]), &l);
        assert_eq!((v.base, v.rows, v.cols, v.row_stride), (BASE + (2 * 96 + 32) * 2, 4, 64, 96));
        // x.split(1, 3): [7, 3, 32]
        let v = lowered(&view(&[0, 0], &[(0, 1, 7), (1, 32, 3), (1, 1, 32)]), &l);
        assert_eq!((v.plane_stride, v.rows, v.row_stride, v.cols), (96, 3, 32, 32));
        // x.t()
        let v = lowered(&view(&[0, 0], &[(1, 1, 96), (0, 1, 7)]), &l);
        assert_eq!((v.rows, v.cols, v.row_stride, v.col_stride), (96, 7, 1, 96));
    }

    #[test]
    fn outer_axes_that_do_not_continue_are_refused() {
        let l = layout(&[2, 3, 7, 8]);
        let sliced = view(&[0; 4], &[(0, 1, 2), (1, 1, 2), (2, 1, 7), (3, 1, 8)]);
        assert!(matches!(Plane::of(&sliced, &l), Err(ViewError::Layout { .. })));
        let single = view(&[0; 4], &[(0, 1, 2), (1, 1, 1), (2, 1, 7), (3, 1, 8)]);
        assert_eq!(lowered(&single, &l).plane_stride, 3 * 7 * 8);
        let first = view(&[0; 4], &[(0, 1, 1), (1, 1, 2), (2, 1, 7), (3, 1, 8)]);
        assert_eq!(lowered(&first, &l).plane_stride, 7 * 8);
    }

    #[test]
    fn too_large_for_the_device() {
        let l = layout(&[2, 1 << 20, 1 << 13]);
        let whole = view(&[0; 3], &[(0, 1, 2), (1, 1, 1 << 20), (2, 1, 1 << 13)]);
        let Err(ViewError::Layout { reason, .. }) = Plane::of(&whole, &l).unwrap().view(BASE, Element::Bf16) else { panic!() };
        assert!(reason.contains("plane stride of 8589934592"), "{reason}");
    }

    #[test]
    fn tensor_maps_of_whole_tensors_are_legal() {
        for (extents, strides) in
            [(&[7u64, 100][..], [208, 208]), (&[100], [208, 208]), (&[1, 1], [16, 16]), (&[3, 7, 100], [208, 7 * 208])]
        {
            let axes: Vec<_> = extents.iter().enumerate().map(|(axis, &extent)| (axis as u8, 1, extent)).collect();
            let whole = view(&vec![0; extents.len()], &axes);
            let map = Plane::of(&whole, &layout(extents)).unwrap().map(BASE, Element::Bf16, BoxShape::PLAIN).unwrap();
            assert_eq!(map.strides, strides, "{extents:?}");
            assert!(!map.empty());
        }
    }

    #[test]
    fn tensor_maps_follow_the_rules_of_tma() {
        let l = layout(&[7, 96]);
        let map = |view: &ir::View, layout: &Layout| Plane::of(view, layout).unwrap().map(BASE, Element::F16, BoxShape::PLAIN);
        assert!(map(&view(&[0, 8], &[(0, 1, 7), (1, 1, 64)]), &l).is_ok());
        for bad in [
            view(&[0, 4], &[(0, 1, 7), (1, 1, 64)]),
            view(&[0, 0], &[(1, 1, 96), (0, 1, 7)]),
            view(&[0, 0], &[(0, 1, 7), (1, 12, 8), (1, 1, 12)]),
        ] {
            assert!(matches!(map(&bad, &l), Err(ViewError::Staging { .. })), "{bad:?}");
        }
        let unpadded = Layout::strided(Shape::new(&[7, 10]).unwrap(), 10, 2).unwrap();
        assert!(matches!(map(&view(&[0, 0], &[(0, 1, 7), (1, 1, 10)]), &unpadded), Err(ViewError::Staging { .. })));
        assert!(map(&view(&[0, 0], &[(0, 1, 7), (1, 1, 0)]), &l).unwrap().empty());
    }

    /// Rows of whole pieces, where TMA can copy them.
    #[test]
    fn rows_in_pieces() {
        let l = layout(&[40, 768]);
        let pieces = |offset: &[u64], axes: &[(u8, u64, u64)], base: u64, l: &Layout| {
            Plane::of(&view(offset, axes), l).unwrap().pieces(base, Element::Bf16)
        };
        let all = pieces(&[0, 0], &[(0, 1, 40), (1, 1, 768)], 0x1000, &l).unwrap();
        assert_eq!((all.address, all.extents, all.strides, all.boxes), (0x1000, [256, 3, 40], [512, 1536], BoxShape::BULK_ROWS));
        // Some rows, and some columns of each.
        let some = pieces(&[8, 8], &[(0, 1, 17), (1, 1, 512)], 0x1000, &l).unwrap();
        assert_eq!((some.address, some.extents, some.strides), (0x1000 + 8 * 1536 + 16, [256, 2, 17], [512, 1536]));
        let one = pieces(&[39, 0], &[(0, 1, 1), (1, 1, 768)], 0x1000, &l).unwrap();
        assert_eq!((one.extents, one.strides), ([256, 3, 1], [512, 1536]));
        // Columns that are no whole pieces, none, or not side by side; rows that are not whole pieces apart, or begin anywhere; planes.
        let odd = |offset: &[u64], axes: &[(u8, u64, u64)], base: u64, l: &Layout| assert_eq!(pieces(offset, axes, base, l), None);
        odd(&[0, 0], &[(0, 1, 40), (1, 1, 760)], 0x1000, &l);
        odd(&[0, 0], &[(0, 1, 40), (1, 1, 0)], 0x1000, &l);
        odd(&[0, 0], &[(0, 1, 0), (1, 1, 768)], 0x1000, &l);
        odd(&[0, 0], &[(0, 1, 40), (1, 3, 256)], 0x1000, &l);
        odd(&[0, 0], &[(0, 1, 40), (1, 1, 768)], 0x1000, &layout(&[40, 776]));
        odd(&[0, 4], &[(0, 1, 40), (1, 1, 256)], 0x1000, &l);
        odd(&[0, 0], &[(0, 1, 40), (1, 1, 768)], 0x1008, &l);
        odd(&[0, 0, 0], &[(0, 1, 2), (1, 1, 40), (2, 1, 768)], 0x1000, &layout(&[2, 40, 768]));
    }
}
