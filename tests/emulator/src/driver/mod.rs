//! Functions of the CUDA driver, as far as MACO's host uses them.

mod context;
mod copies;
mod events;
mod graphs;
mod launches;
mod maps;
mod modules;
mod peers;
mod registered;
mod replay;
mod reservations;
mod streams;
#[cfg(test)]
mod tests;
mod words;

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::DEVICES;
pub use context::devices;

pub type Status = u32;

pub const SUCCESS: Status = 0;
pub const INVALID_VALUE: Status = 1;
pub const OUT_OF_MEMORY: Status = 2;
pub const INVALID_DEVICE: Status = 101;
pub const INVALID_CONTEXT: Status = 201;
pub const NO_BINARY_FOR_GPU: Status = 209;
pub const PEER_ACCESS_UNSUPPORTED: Status = 217;
pub const INVALID_PTX: Status = 218;
pub const INVALID_HANDLE: Status = 400;
pub const NOT_FOUND: Status = 500;
pub const NOT_READY: Status = 600;
pub const PEER_ACCESS_ALREADY_ENABLED: Status = 704;
pub const PEER_ACCESS_NOT_ENABLED: Status = 705;
pub const LAUNCH_TOO_LARGE: Status = 720;
pub const NOT_SUPPORTED: Status = 801;
pub const CAPTURE_UNSUPPORTED: Status = 900;
pub const CAPTURE_UNMATCHED: Status = 903;
pub const CAPTURE_ISOLATION: Status = 905;
pub const CAPTURED_EVENT: Status = 907;
pub const CAPTURE_WRONG_THREAD: Status = 908;

const ERRORS: &[(Status, &str, &str)] = &[
    (0, "CUDA_SUCCESS\0", "no error\0"),
    (1, "CUDA_ERROR_INVALID_VALUE\0", "invalid argument\0"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY\0", "out of memory\0"),
    (3, "CUDA_ERROR_NOT_INITIALIZED\0", "initialization error\0"),
    (100, "CUDA_ERROR_NO_DEVICE\0", "no CUDA-capable device is detected\0"),
    (101, "CUDA_ERROR_INVALID_DEVICE\0", "invalid device ordinal\0"),
    (200, "CUDA_ERROR_INVALID_IMAGE\0", "device kernel image is invalid\0"),
    (201, "CUDA_ERROR_INVALID_CONTEXT\0", "invalid device context\0"),
    (209, "CUDA_ERROR_NO_BINARY_FOR_GPU\0", "no kernel image is available for execution on the device\0"),
    (217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED\0", "peer access is not supported between these two devices\0"),
    (218, "CUDA_ERROR_INVALID_PTX\0", "a PTX JIT compilation failed\0"),
    (400, "CUDA_ERROR_INVALID_HANDLE\0", "invalid resource handle\0"),
    (500, "CUDA_ERROR_NOT_FOUND\0", "named symbol not found\0"),
    (600, "CUDA_ERROR_NOT_READY\0", "device not ready\0"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS\0", "an illegal memory access was encountered\0"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT\0", "the launch timed out and was terminated\0"),
    (704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED\0", "peer access is already enabled\0"),
    (705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED\0", "peer access has not been enabled\0"),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION\0", "an illegal instruction was encountered\0"),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS\0", "misaligned address\0"),
    (719, "CUDA_ERROR_LAUNCH_FAILED\0", "unspecified launch failure\0"),
    (720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE\0", "too many blocks in cooperative launch\0"),
    (801, "CUDA_ERROR_NOT_SUPPORTED\0", "operation not supported\0"),
    (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED\0", "operation not permitted when stream is capturing\0"),
    (903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED\0", "capture was not initiated in this stream\0"),
    (905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION\0", "dependency created on uncaptured work in another stream\0"),
    (907, "CUDA_ERROR_CAPTURED_EVENT\0", "operation not permitted on an event last recorded in a capturing stream\0"),
    (908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD\0", "attempt to terminate a thread-local capture sequence from another thread\0"),
];

/// What a launch of each device ended with: from then on every call in its context returns it, as with a destroyed context.
static FAULTS: [AtomicU32; DEVICES] = [const { AtomicU32::new(0) }; DEVICES];

pub fn fault_of(device: usize) -> Status {
    FAULTS[device].load(Ordering::Acquire)
}

/// The fault of the current context's device. Threads of streams have their stream's context.
pub fn fault() -> Status {
    fault_of(context::current_device().unwrap_or(0))
}

pub fn set_fault(code: Status) {
    let fault = &FAULTS[context::current_device().unwrap_or(0)];
    let _ = fault.compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire);
}

/// Returns the fault, if there was one.
macro_rules! healthy {
    () => {
        match $crate::driver::fault() {
            0 => {}
            code => return code,
        }
    };
}
pub(crate) use healthy;

/// Functions that nobody has needed yet: they say so.
macro_rules! unsupported {
    ($($name:ident)*) => {
        $(
            /// Not emulated.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name() -> Status {
                eprintln!(concat!("[emu] ", stringify!($name), " is not emulated"));
                NOT_SUPPORTED
            }
        )*
    };
}
unsupported!(
    cuMemAllocManaged cuMemAllocAsync cuMemFreeAsync
    cuMemAllocFromPoolAsync cuLaunchCooperativeKernel cuStreamAddCallback cuGraphAddKernelNode_v2 cuGraphKernelNodeGetParams_v2
    cuTensorMapEncodeIm2col cuTensorMapReplaceAddress cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize cuModuleGetGlobal_v2
    cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuLibraryLoadData cuLibraryGetKernel cuProfilerStart cuProfilerStop cuMemAllocPitch_v2 cuMemcpy3DAsync_v2
);

/// # Safety
/// As the driver's functions all: pointers are null or valid for what the function reads and writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuInit(_flags: u32) -> Status {
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *version = 13_000 };
    SUCCESS
}

fn text(code: Status, of: impl Fn(&(Status, &'static str, &'static str)) -> &'static str, to: *mut *const c_char) -> Status {
    let found = ERRORS.iter().find(|error| error.0 == code);
    // SAFETY: promised by the caller; the texts end with zeros.
    unsafe { *to = found.map_or(std::ptr::null(), |error| of(error).as_ptr().cast()) };
    if found.is_some() { SUCCESS } else { INVALID_VALUE }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: Status, to: *mut *const c_char) -> Status {
    text(code, |error| error.1, to)
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: Status, to: *mut *const c_char) -> Status {
    text(code, |error| error.2, to)
}
