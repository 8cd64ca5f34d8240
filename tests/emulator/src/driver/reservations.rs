//! Memory that is created and mapped (driver API, "Virtual Memory Management").

use std::ffi::{c_int, c_void};
use std::os::fd::IntoRawFd;

use super::context::devices;
use super::peers::reaches;
use super::*;
use crate::memory::mapped::{self, GRANULE, Refusal};
use crate::memory::{Kind, find};

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub ty: u32,
    pub id: c_int,
}

impl Location {
    fn device(self) -> Result<usize, Status> {
        match usize::try_from(self.id) {
            Ok(device) if self.ty == DEVICE && device < devices() => Ok(device),
            _ if self.ty != DEVICE => Err(NOT_SUPPORTED),
            _ => Err(INVALID_DEVICE),
        }
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    pub ty: u32,
    pub handle_types: u32,
    pub location: Location,
    pub windows: u64,
    pub flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    pub location: Location,
    pub flags: u32,
}

/// Of a location: a device. Of an allocation: pinned. Of a handle: a file descriptor.
const DEVICE: u32 = 1;
const PINNED: u32 = 1;
const DESCRIPTOR: u32 = 1;
/// Of an access: reading and writing.
const BOTH: u32 = 3;

fn status<T>(result: Result<T, Refusal>, done: impl FnOnce(T)) -> Status {
    match result {
        Ok(value) => {
            done(value);
            SUCCESS
        }
        Err(Refusal::Invalid) => INVALID_VALUE,
        Err(Refusal::NoMemory) => OUT_OF_MEMORY,
    }
}

/// Checks what memory is asked for: its device, and whether it may be exported.
fn wanted(properties: &Properties) -> Result<(usize, bool), Status> {
    if properties.ty != PINNED {
        return Err(INVALID_VALUE);
    }
    if properties.handle_types & !DESCRIPTOR != 0 {
        return Err(NOT_SUPPORTED);
    }
    Ok((properties.location.device()?, properties.handle_types & DESCRIPTOR != 0))
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationGranularity(to: *mut usize, properties: *const Properties, option: u32) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        if let Err(code) = wanted(&*properties) {
            return code;
        }
        if option > 1 {
            return INVALID_VALUE;
        }
        *to = GRANULE as usize;
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemCreate(to: *mut u64, bytes: usize, properties: *const Properties, flags: u64) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let (device, shareable) = match wanted(unsafe { &*properties }) {
        Ok(wanted) if flags == 0 => wanted,
        Ok(_) => return INVALID_VALUE,
        Err(code) => return code,
    };
    // SAFETY: promised by the caller.
    status(mapped::create(bytes as u64, device, shareable), |handle| unsafe { *to = handle })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemRelease(handle: u64) -> Status {
    status(mapped::release(handle), |()| {})
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAddressReserve(to: *mut u64, bytes: usize, align: usize, _wish: u64, flags: u64) -> Status {
    healthy!();
    if flags != 0 {
        return INVALID_VALUE;
    }
    // SAFETY: promised by the caller.
    status(mapped::reserve(bytes as u64, align as u64), |start| unsafe { *to = start })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemAddressFree(start: u64, bytes: usize) -> Status {
    status(mapped::unreserve(start, bytes as u64), |()| {})
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemMap(start: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Status {
    healthy!();
    // As the driver says of offsets: zero, for now.
    if offset != 0 || flags != 0 {
        return INVALID_VALUE;
    }
    status(mapped::map(start, bytes as u64, handle), |()| {})
}

#[unsafe(no_mangle)]
pub extern "C" fn cuMemUnmap(start: u64, bytes: usize) -> Status {
    status(mapped::unmap(start, bytes as u64), |()| {})
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemSetAccess(start: u64, bytes: usize, accesses: *const Access, count: usize) -> Status {
    healthy!();
    let owners = match mapped::owners(start, bytes as u64) {
        Ok(owners) => owners,
        Err(_) => return INVALID_VALUE,
    };
    // SAFETY: promised by the caller.
    let accesses = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(accesses, count) } };
    for access in accesses {
        let device = match access.location.device() {
            Ok(device) => device,
            Err(code) => return code,
        };
        if access.flags != 0 && access.flags != BOTH {
            eprintln!("[emu] mappings that are only read are not emulated");
            return NOT_SUPPORTED;
        }
        if access.flags != 0 && owners.iter().any(|&owner| owner != device && !reaches(device, owner)) {
            return INVALID_DEVICE;
        }
        match status(mapped::allow(start, bytes as u64, device, access.flags == BOTH), |()| {}) {
            SUCCESS => {}
            code => return code,
        }
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAccess(to: *mut u64, location: *const Location, address: u64) -> Status {
    // SAFETY: promised by the caller.
    let device = match unsafe { (*location).device() } {
        Ok(device) => device,
        Err(code) => return code,
    };
    let Some(found) = find(address).filter(|found| found.kind == Kind::Mapped) else { return INVALID_VALUE };
    // SAFETY: promised by the caller.
    unsafe { *to = if found.usable_by(device) { u64::from(BOTH) } else { 0 } };
    SUCCESS
}

/// # Safety
/// As [`cuInit`]; `to` is for a file descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemExportToShareableHandle(to: *mut c_int, handle: u64, ty: u32, flags: u64) -> Status {
    if ty != DESCRIPTOR || flags != 0 {
        return INVALID_VALUE;
    }
    // SAFETY: promised by the caller.
    status(mapped::export(handle), |file| unsafe { *to = file.into_raw_fd() })
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemImportFromShareableHandle(to: *mut u64, descriptor: *mut c_void, ty: u32) -> Status {
    healthy!();
    let Ok(file) = c_int::try_from(descriptor as isize) else { return INVALID_VALUE };
    if ty != DESCRIPTOR {
        return INVALID_VALUE;
    }
    // SAFETY: promised by the caller.
    status(mapped::import(file), |handle| unsafe { *to = handle })
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemRetainAllocationHandle(to: *mut u64, address: *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    status(mapped::retain(address as u64), |handle| unsafe { *to = handle })
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetAllocationPropertiesFromHandle(to: *mut Properties, handle: u64) -> Status {
    status(mapped::properties(handle), |(device, shareable)| {
        let handle_types = if shareable { DESCRIPTOR } else { 0 };
        let location = Location { ty: DEVICE, id: device as c_int };
        // SAFETY: promised by the caller.
        unsafe { *to = Properties { ty: PINNED, handle_types, location, windows: 0, flags: [0; 8] } };
    })
}
