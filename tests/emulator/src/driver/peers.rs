//! Access of devices to each other's memory.

use std::ffi::{c_int, c_void};

use super::context::{current, device, device_of, is_part};
use super::*;
use crate::memory;

/// Whether a device can use the memory of another one: all can, as over NVLink, but for those that `EMU_NO_PEER` names, or none with `EMU_NO_PEERS=1`. Parts of GPUs
/// cannot.
pub fn reaches(device: usize, other: usize) -> bool {
    let none = crate::settings::number("EMU_NO_PEERS", 0) != 0 || is_part();
    device != other && !none && !is_listed(&std::env::var("EMU_NO_PEER").unwrap_or_default(), device, other)
}

/// Whether `pairs`, such as `0>1,2>0`, have this one.
fn is_listed(pairs: &str, device: usize, other: usize) -> bool {
    pairs.split(',').any(|pair| {
        let ends = pair.split_once('>').map(|(from, to)| [from, to].map(|number| number.trim().parse().ok()));
        ends == Some([Some(device), Some(other)])
    })
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(to: *mut c_int, device: c_int, other: c_int) -> Status {
    let reaches = reaches(device!(device), device!(other));
    // SAFETY: promised by the caller.
    unsafe { *to = c_int::from(reaches) };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetP2PAttribute(to: *mut c_int, attribute: u32, device: c_int, other: c_int) -> Status {
    let (device, other) = (device!(device), device!(other));
    if device == other {
        return INVALID_DEVICE;
    }
    let value = match attribute {
        // All pairs are equally fast.
        1 => 0,
        // Access, native atomics, and access to arrays.
        2..=4 => c_int::from(reaches(device, other)),
        // Only some native atomics.
        5 => 0,
        _ => return INVALID_VALUE,
    };
    // SAFETY: promised by the caller.
    unsafe { *to = value };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxEnablePeerAccess(context: *mut c_void, flags: u32) -> Status {
    healthy!();
    let device = current!();
    let Some(other) = device_of(context) else { return INVALID_CONTEXT };
    if flags != 0 {
        return INVALID_VALUE;
    }
    if other == device {
        return INVALID_DEVICE;
    }
    if !reaches(device, other) {
        return PEER_ACCESS_UNSUPPORTED;
    }
    if memory::set_peer(device, other, true) { SUCCESS } else { PEER_ACCESS_ALREADY_ENABLED }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxDisablePeerAccess(context: *mut c_void) -> Status {
    healthy!();
    let device = current!();
    let Some(other) = device_of(context) else { return INVALID_CONTEXT };
    if memory::set_peer(device, other, false) { SUCCESS } else { PEER_ACCESS_NOT_ENABLED }
}
