//! Is there a GPU that tests can use?

use std::ffi::c_int;

/// Number of GPUs the driver offers; why there is none, in words.
pub fn count() -> Result<c_int, &'static str> {
    // SAFETY: loading libcuda runs its initialisers, which have no requirements.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") }.map_err(|_| "no libcuda.so.1")?;
    // SAFETY: `CUresult cuInit(unsigned int)` since the first CUDA driver API.
    let init = unsafe { driver.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuInit") }.map_err(|_| "libcuda without cuInit")?;
    // SAFETY: `CUresult cuDeviceGetCount(int *)` since the first CUDA driver API.
    let devices = unsafe { driver.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDeviceGetCount") };
    let devices = devices.map_err(|_| "libcuda without cuDeviceGetCount")?;
    let mut count = 0;
    // SAFETY: flags must be 0; the count is written to a live integer.
    let found = unsafe { init(0) == 0 && devices(&raw mut count) == 0 };
    if found && count > 0 { Ok(count) } else { Err("a driver without a GPU") }
}
