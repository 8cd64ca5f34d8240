//! Memory of the host that is registered: page-locked afterwards, and mapped for all devices.

use std::ffi::c_void;

use super::context::current;
use super::*;
use crate::memory::registered;

/// # Safety
/// As [`cuInit`]; so many bytes are mapped there until they are unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostRegister_v2(at: *mut c_void, bytes: usize, _flags: u32) -> Status {
    healthy!();
    let device = current!();
    // SAFETY: promised by the caller.
    if unsafe { registered::register(at as u64, bytes as u64, device) } {
        return SUCCESS;
    }
    eprintln!("[emu] only shared memory that begins at a page is registered, and only once");
    INVALID_VALUE
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(at: *mut c_void) -> Status {
    if registered::unregister(at as u64) { SUCCESS } else { INVALID_VALUE }
}
