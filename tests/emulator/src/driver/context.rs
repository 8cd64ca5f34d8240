//! The one device and its primary context.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};

use super::*;

/// Multiprocessors of the device.
pub fn multiprocessors() -> u32 {
    crate::settings::number("EMU_SMS", 132).clamp(1, 1024) as u32
}

/// Shared memory that a CTA may have.
pub const OPT_IN: u32 = 227 * 1024;

/// What stands for the primary context.
static CONTEXT: u64 = 0x4354_5854;

/// How often the primary context is retained.
static RETAINED: AtomicU32 = AtomicU32::new(0);

pub fn primary() -> *mut c_void {
    (&raw const CONTEXT).cast_mut().cast()
}

thread_local! {
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *count = 1 };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
    if ordinal != 0 {
        return INVALID_DEVICE;
    }
    // SAFETY: promised by the caller.
    unsafe { *device = 0 };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(to: *mut c_char, length: c_int, _device: c_int) -> Status {
    let name = b"NVIDIA H200 (emulated)\0";
    let count = name.len().min(length.max(0) as usize);
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), to, count) };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(to: *mut [u8; 16], _device: c_int) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *to = *b"emulated-gpu-000" };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid(to: *mut [u8; 16], device: c_int) -> Status {
    // SAFETY: passed on.
    unsafe { cuDeviceGetUuid_v2(to, device) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(to: *mut usize, _device: c_int) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *to = crate::memory::capacity() as usize };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(to: *mut c_char, length: c_int, _device: c_int) -> Status {
    let name = b"0000:00:00.0\0";
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), to, name.len().min(length.max(0) as usize)) };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(to: *mut c_int, attribute: u32, _device: c_int) -> Status {
    let value = match attribute {
        1..=4 => [1024, 1024, 1024, 64][attribute as usize - 1],
        5 => i32::MAX,
        6 | 7 => 65535,
        8 => 49152,
        9 => 65536,
        10 => 32,
        11 => i32::MAX,
        12 => 65536,
        13 => 1_980_000,
        14 => 512,
        15 | 18..=20 | 31 | 41 | 83 | 90..=96 | 120 | 127 => 1,
        16 => multiprocessors() as c_int,
        36 => 3_201_000,
        // Memory of 6144 bits is an H200's, of 132 multiprocessors: a share for each, so that plans are those of such a GPU.
        37 => (6144 * multiprocessors() / 132) as c_int,
        38 => 50 << 20,
        39 => 2048,
        75 => 9,
        76 => 0,
        81 => 228 * 1024,
        82 => 65536,
        97 => OPT_IN as c_int,
        106 => 32,
        108 => 30 << 20,
        109 => 128 << 20,
        111 => 1024,
        _ => 0,
    };
    // SAFETY: promised by the caller.
    unsafe { *to = value };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut *mut c_void, _device: c_int) -> Status {
    healthy!();
    RETAINED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: promised by the caller.
    unsafe { *to = primary() };
    SUCCESS
}

/// The last release destroys the context, which waits for all that runs in it.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> Status {
    if RETAINED.fetch_sub(1, Ordering::Relaxed) == 1 {
        super::streams::settle_all();
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxSetFlags_v2(_device: c_int, _flags: u32) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> Status {
    healthy!();
    CURRENT.with_borrow_mut(|stack| stack.push(context as usize));
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(to: *mut *mut c_void) -> Status {
    match CURRENT.with_borrow_mut(Vec::pop) {
        Some(context) => {
            if !to.is_null() {
                // SAFETY: promised by the caller.
                unsafe { *to = context as *mut c_void };
            }
            SUCCESS
        }
        None => INVALID_CONTEXT,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> Status {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        if !context.is_null() {
            stack.push(context as usize);
        }
    });
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(to: *mut *mut c_void) -> Status {
    let top = CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or(0));
    // SAFETY: promised by the caller.
    unsafe { *to = top as *mut c_void };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetDevice(to: *mut c_int) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *to = 0 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Status {
    super::streams::settle_all();
    super::fault()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetLimit(_limit: u32, _value: usize) -> Status {
    SUCCESS
}
