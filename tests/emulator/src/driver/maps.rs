//! Tensor maps: the driver's checks of arguments (driver API, `cuTensorMapEncodeTiled`).

use std::ffi::c_void;

use super::*;
use crate::exec::tensor::{Map, element_bytes};

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(
    to: *mut [u64; 16],
    ty: u32,
    rank: u32,
    address: *mut c_void,
    extents: *const u64,
    strides: *const u64,
    boxes: *const u32,
    steps: *const u32,
    interleave: u32,
    swizzle: u32,
    _promotion: u32,
    fill: u32,
) -> Status {
    healthy!();
    let refuse = |why: String| {
        eprintln!("[emu] cuTensorMapEncodeTiled: {why}");
        INVALID_VALUE
    };
    if !(to as usize).is_multiple_of(64) {
        return refuse("the map is not at a multiple of 64".into());
    }
    if ty > 12 || !(1..=5).contains(&rank) {
        return refuse(format!("type {ty}, rank {rank}"));
    }
    if interleave != 0 {
        eprintln!("[emu] interleaved tensor maps are not emulated");
        return NOT_SUPPORTED;
    }
    if swizzle > 3 {
        return refuse(format!("swizzle {swizzle}"));
    }
    if !(address as u64).is_multiple_of(16) {
        return refuse(format!("address {address:p} is not a multiple of 16"));
    }
    let bytes = element_bytes(ty as u8);
    let mut map =
        Map { ty: ty as u8, rank: rank as u8, swizzle: swizzle as u8, address: address as u64, nan_fill: fill == 1, ..Map::default() };
    map.strides[0] = bytes;
    map.extents = [1; 5];
    map.boxes = [1; 5];
    map.steps = [1; 5];
    for dim in 0..rank as usize {
        // SAFETY: arrays have as many entries as the rank, strides one less.
        unsafe {
            map.extents[dim] = *extents.add(dim);
            map.boxes[dim] = *boxes.add(dim);
            map.steps[dim] = *steps.add(dim);
            if dim > 0 {
                map.strides[dim] = *strides.add(dim - 1);
            }
        }
        if map.extents[dim] == 0 || map.extents[dim] > 1 << 32 {
            return refuse(format!("extent {} of dimension {dim}", map.extents[dim]));
        }
        if map.boxes[dim] == 0 || map.boxes[dim] > 256 {
            return refuse(format!("box of {} in dimension {dim}", map.boxes[dim]));
        }
        if map.steps[dim] == 0 || map.steps[dim] > 8 {
            return refuse(format!("element stride {} of dimension {dim}", map.steps[dim]));
        }
        if dim > 0 && (!map.strides[dim].is_multiple_of(16) || map.strides[dim] >= 1 << 40) {
            return refuse(format!("stride {} of dimension {dim}", map.strides[dim]));
        }
        if map.steps[dim] != 1 {
            eprintln!("[emu] element strides are not emulated");
            return NOT_SUPPORTED;
        }
    }
    let inner = u64::from(map.boxes[0]) * bytes;
    if !inner.is_multiple_of(16) {
        return refuse(format!("rows of boxes of {inner} bytes, which is not a multiple of 16"));
    }
    if swizzle != 0 && inner > 16 << swizzle {
        return refuse(format!("rows of boxes of {inner} bytes with a swizzle of {}", 16 << swizzle));
    }
    if fill == 1 && !matches!(ty, 6..=12) {
        return refuse("filling with what is not a number, of integers".into());
    }
    // SAFETY: promised by the caller.
    unsafe { *to = map.pack() };
    SUCCESS
}
