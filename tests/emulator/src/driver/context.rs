//! The devices, and their primary contexts.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use super::*;
use crate::memory::DEVICES;

/// Multiprocessors of the device.
pub fn multiprocessors() -> u32 {
    crate::settings::number("EMU_SMS", 132).clamp(1, 1024) as u32
}

/// Shared memory that a CTA may have.
pub const OPT_IN: u32 = 227 * 1024;

/// Devices of this host.
pub fn devices() -> usize {
    static DEVICES_OF_HOST: OnceLock<usize> = OnceLock::new();
    *DEVICES_OF_HOST.get_or_init(|| crate::settings::number("EMU_GPUS", 1).clamp(1, DEVICES as u64) as usize)
}

/// What stands for the primary context of each device.
static CONTEXTS: [u64; DEVICES] = [0x4354_5854; DEVICES];

/// How often each primary context is retained.
static RETAINED: [AtomicU32; DEVICES] = [const { AtomicU32::new(0) }; DEVICES];

/// Whether devices are parts of a GPU, with `EMU_MIG=1`: each has a name that says so, and no peers.
pub fn is_part() -> bool {
    crate::settings::number("EMU_MIG", 0) != 0
}

pub fn primary(device: usize) -> *mut c_void {
    (&raw const CONTEXTS[device]).cast_mut().cast()
}

/// The device of a context.
pub fn device_of(context: *mut c_void) -> Option<usize> {
    (0..devices()).find(|&device| primary(device) == context)
}

thread_local! {
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The device of the thread's current context.
pub fn current_device() -> Option<usize> {
    device_of(CURRENT.with_borrow(|stack| stack.last().copied().unwrap_or(0)) as *mut c_void)
}

/// The device of the current context, or returns that there is none.
macro_rules! current {
    () => {
        match $crate::driver::context::current_device() {
            Some(device) => device,
            None => return INVALID_CONTEXT,
        }
    };
}
pub(crate) use current;

/// A device by its number, or returns that there is none.
macro_rules! device {
    ($ordinal:expr) => {
        match usize::try_from($ordinal) {
            Ok(device) if device < $crate::driver::context::devices() => device,
            _ => return INVALID_DEVICE,
        }
    };
}
pub(crate) use device;

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *count = devices() as c_int };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(to: *mut c_int, ordinal: c_int) -> Status {
    let device = device!(ordinal);
    // SAFETY: promised by the caller.
    unsafe { *to = device as c_int };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(to: *mut c_char, length: c_int, device: c_int) -> Status {
    device!(device);
    let name: &[u8] = if is_part() { b"NVIDIA H200 MIG 1g.18gb (emulated)\0" } else { b"NVIDIA H200 (emulated)\0" };
    let count = name.len().min(length.max(0) as usize);
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), to, count) };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(to: *mut [u8; 16], device: c_int) -> Status {
    let mut name = *b"emulated-gpu-000";
    name[15] += device!(device) as u8;
    // SAFETY: promised by the caller.
    unsafe { *to = name };
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
pub unsafe extern "C" fn cuDeviceTotalMem_v2(to: *mut usize, device: c_int) -> Status {
    device!(device);
    // SAFETY: promised by the caller.
    unsafe { *to = crate::memory::capacity() as usize };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(to: *mut c_char, length: c_int, device: c_int) -> Status {
    let name = format!("0000:{:02x}:00.0\0", device!(device));
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(name.as_ptr().cast(), to, name.len().min(length.max(0) as usize)) };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(to: *mut c_int, attribute: u32, device: c_int) -> Status {
    let device = device!(device);
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
        // 102 and 103: memory that is mapped, and shared by descriptors.
        15 | 18..=20 | 31 | 41 | 83 | 90..=96 | 102 | 120 | 127 => 1,
        103 => c_int::from(crate::settings::number("EMU_NO_DESCRIPTORS", 0) == 0),
        16 => multiprocessors() as c_int,
        // Number of the PCI bus.
        33 => device as c_int,
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
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(to: *mut *mut c_void, device: c_int) -> Status {
    let device = device!(device);
    match fault_of(device) {
        0 => {}
        code => return code,
    }
    RETAINED[device].fetch_add(1, Ordering::Relaxed);
    // SAFETY: promised by the caller.
    unsafe { *to = primary(device) };
    SUCCESS
}

/// The last release destroys the context, which waits for all that runs in it.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> Status {
    let device = device!(device);
    if RETAINED[device].fetch_sub(1, Ordering::Relaxed) == 1 {
        super::streams::settle_all(device);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: u32) -> Status {
    device!(device);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> Status {
    match device_of(context).map(fault_of) {
        Some(0) => {}
        Some(code) => return code,
        None => return INVALID_CONTEXT,
    }
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
    if !context.is_null() && device_of(context).is_none() {
        return INVALID_CONTEXT;
    }
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
    let device = current!();
    // SAFETY: promised by the caller.
    unsafe { *to = device as c_int };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Status {
    super::streams::settle_all(current!());
    super::fault()
}

#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetLimit(_limit: u32, _value: usize) -> Status {
    SUCCESS
}
