//! Encodes tensor maps for TMA. Which views need one is decided in [`crate::lower`].

use std::mem::MaybeUninit;

use cudarc::driver::sys;
use maco_abi::{PIECE, TensorMap};
use maco_graph::spec::Element;

use super::context::Context;
use crate::error::Error;
use crate::lower::{BoxShape, TensorMapRequest};

/// Boxes of one plane, as wide as their swizzle, zeros outside: of outlines 128 bytes × 64 or 32 rows, of bodies what they declare, of weights that stream rows in pieces. Maps that round have the type `TFLOAT32`: copies to shared
/// memory are converted on their way, to the nearest and ties to even, which the driver API does not say. It has been seen by others:
/// CUTLASS gives tf32 operands of `float` this type, and Triton tests its rounding (`round_f32_to_tf32`).
///
/// `zeros` is the address of zeroed device memory of at least 16 bytes: an empty view is encoded as one zero with nothing around it.
pub(super) fn encode(context: &Context, request: &TensorMapRequest, zeros: u64) -> Result<TensorMap, Error> {
    use sys::{CUtensorMapDataType as Type, CUtensorMapSwizzle as Swizzle};
    let one_zero = TensorMapRequest { address: zeros, element: request.element, extents: [1; 3], strides: [16; 2], boxes: request.boxes };
    let request = if request.empty() { &one_zero } else { request };
    let ty = match request.element {
        Element::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        Element::F32 if request.boxes.rounds => Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        Element::F32 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Element::Bf16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        Element::I32 => Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        Element::U32 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        // There is no signed one; copies do not look at it.
        Element::I8 => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    };
    let swizzle = match request.boxes.swizzle {
        64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        16 => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        _ => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let BoxShape { swizzle: width, rows, pieces, .. } = request.boxes;
    let boxes = if pieces > 0 { [PIECE, pieces, rows] } else { [width / request.element.bytes(), rows, 1] };
    let mut map = MaybeUninit::<sys::CUtensorMap>::uninit();
    // SAFETY: all arrays have as many entries as rank 3 asks for, and `map` is aligned as its type says. The driver checks values.
    unsafe {
        let code = sys::cuTensorMapEncodeTiled(
            map.as_mut_ptr(),
            ty,
            3,
            request.address as *mut _,
            request.extents.as_ptr(),
            request.strides.as_ptr(),
            boxes.as_ptr(),
            [1u32; 3].as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        );
        context.check("cuTensorMapEncodeTiled", code)?;
        Ok(TensorMap(map.assume_init().opaque))
    }
}
