//! Is there a driver, and what did a call of it return.

use std::ffi::CStr;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};

use crate::error::Error;

/// First driver with all that MACO calls: CUDA 12.4. Device code needs a newer one.
const OLDEST: u32 = 12_040;

/// The functions of the driver that MACO calls. cudarc looks for one when it is first called, and panics if it is not there.
const FUNCTIONS: [&str; 71] = [
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent_v2",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetP2PAttribute",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuFuncLoad",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphRetainUserObject",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchKernelEx",
    "cuMemAddressFree",
    "cuMemAddressReserve",
    "cuMemAlloc_v2",
    "cuMemCreate",
    "cuMemExportToShareableHandle",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
    "cuMemGetAllocationGranularity",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemcpy2DAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuPointerGetAttribute",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v3",
    "cuStreamUpdateCaptureDependencies_v2",
    "cuStreamWaitEvent",
    "cuTensorMapEncodeTiled",
    "cuThreadExchangeStreamCaptureMode",
    "cuUserObjectCreate",
    "cuUserObjectRelease",
];

/// Those that NCCL beside a megakernel needs, looked for when a plan has it ([`find_stream_words`]).
const STREAM_WORDS: [&str; 4] =
    ["cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority", "cuStreamWaitValue32_v2", "cuStreamWriteValue32_v2"];

/// Whether the library has what streams need that wait for words and have priorities.
///
/// # Errors
/// MACO0091 if one is missing.
pub(super) fn find_stream_words() -> Result<(), Error> {
    STREAM_WORDS.into_iter().try_for_each(find)
}

/// Whether the library has a function.
///
/// # Errors
/// MACO0091 if it has not.
fn find(function: &'static str) -> Result<(), Error> {
    // SAFETY: the callers found the library; only the address is looked up, and nothing is called through it.
    match unsafe { sys::culib().get::<*const ()>(function.as_bytes()) } {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::DriverFunction { function }),
    }
}

/// Loads and initialises the driver; its version, as 1000 × major + 10 × minor.
pub(super) fn initialise() -> Result<u32, Error> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    // cudarc panics where the library is missing, so nothing of it may be called before this probe.
    // SAFETY: loading libcuda runs its initialisers, which have no requirements.
    if !*FOUND.get_or_init(|| unsafe { sys::is_culib_present() }) {
        return Err(Error::NoDriver);
    }
    for function in ["cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"] {
        find(function)?;
    }
    // SAFETY: no requirements; the flags must be 0.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_SUCCESS => {}
        CUresult::CUDA_ERROR_STUB_LIBRARY => return Err(Error::NoDriver),
        CUresult::CUDA_ERROR_NO_DEVICE => return Err(Error::NoGpu { index: 0, count: 0 }),
        code => return Err(failed("cuInit", "the CUDA driver", code)),
    }
    let mut version = 0;
    // SAFETY: `version` is writable.
    match unsafe { sys::cuDriverGetVersion(&mut version) } {
        CUresult::CUDA_SUCCESS => {}
        code => return Err(failed("cuDriverGetVersion", "the CUDA driver", code)),
    }
    let version = version.unsigned_abs();
    if version < OLDEST {
        return Err(Error::DriverTooOld { found: version, needed: OLDEST, what: "MACO".into() });
    }
    static COMPLETE: OnceLock<Option<&'static str>> = OnceLock::new();
    match *COMPLETE.get_or_init(|| FUNCTIONS.into_iter().find(|function| find(function).is_err())) {
        None => Ok(version),
        Some(function) => Err(Error::DriverFunction { function }),
    }
}

/// The error of a call that did not succeed.
pub(super) fn failed(call: &'static str, device: &str, code: CUresult) -> Error {
    let (name, text) = describe(code);
    Error::Driver { call, device: device.into(), code: name, text }
}

/// `cuEventElapsedTime`, which every driver has; cudarc binds only its second version, which drivers before CUDA 12.8 lack.
///
/// # Safety
/// `initialise` succeeded, the events are live and have timing, and `milliseconds` is writable.
pub(super) unsafe fn elapsed_time(milliseconds: *mut f32, start: sys::CUevent, end: sys::CUevent) -> CUresult {
    type ElapsedTime = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
    static SYMBOL: OnceLock<Option<ElapsedTime>> = OnceLock::new();
    // SAFETY: the library is present, and the symbol has this signature in all versions of the driver API; the caller promises
    // the arguments.
    unsafe {
        let found = SYMBOL.get_or_init(|| sys::culib().get::<ElapsedTime>(b"cuEventElapsedTime\0").ok().map(|symbol| *symbol));
        found.map_or(CUresult::CUDA_ERROR_NOT_FOUND, |elapsed_time| elapsed_time(milliseconds, start, end))
    }
}

/// Name and text of a code.
pub(super) fn describe(code: CUresult) -> (Box<str>, Box<str>) {
    let mut name = std::ptr::null();
    let mut text = std::ptr::null();
    // SAFETY: both are writable; on success the driver points them at static strings, on failure at null.
    unsafe {
        if sys::cuGetErrorName(code, &mut name) != CUresult::CUDA_SUCCESS {
            name = std::ptr::null();
        }
        if sys::cuGetErrorString(code, &mut text) != CUresult::CUDA_SUCCESS {
            text = std::ptr::null();
        }
        let read =
            |at: *const std::ffi::c_char, or: &str| if at.is_null() { or.into() } else { CStr::from_ptr(at).to_string_lossy().into() };
        (read(name, "unknown code"), read(text, "the driver has no text for it"))
    }
}

/// Whether a code means that the context is destroyed: every later call fails with it (driver API, `CUresult`).
pub(super) fn destroys_context(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// What is called and not in the list would be a panic on a driver without it.
    #[test]
    fn all_functions_that_are_called_are_looked_for() {
        // Not there where only the test program is.
        let Ok(files) = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gpu").read_dir() else { return };
        let mut called = BTreeSet::from(["cuEventElapsedTime".to_owned()]);
        for file in files {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for rest in text.split("sys::").skip(1) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if name.starts_with("cu") && name != "culib" {
                    called.insert(name);
                }
            }
        }
        assert_eq!(called, FUNCTIONS.into_iter().chain(STREAM_WORDS).map(str::to_owned).collect());
    }
}
