//! Launches of kernels.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::modules::function;
use super::*;
use crate::exec::races::order;
use crate::exec::{self, Config};

/// `CUlaunchAttribute`.
#[repr(C)]
pub struct Attribute {
    id: u32,
    pad: u32,
    value: [u32; 16],
}

/// `CUlaunchConfig`.
#[repr(C)]
pub struct LaunchConfig {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: *mut c_void,
    attributes: *const Attribute,
    count: u32,
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernelEx(
    config: *const LaunchConfig,
    handle: *mut c_void,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    unsafe {
        let (config, function) = (&*config, function(handle));
        let program = function.program.clone();
        let (mut cooperative, mut cluster) = (false, program.cluster[0].max(1));
        for at in 0..config.count as usize {
            let attribute = &*config.attributes.add(at);
            match attribute.id {
                2 => cooperative = attribute.value[0] != 0,
                4 => {
                    if attribute.value[1] > 1 || attribute.value[2] > 1 {
                        eprintln!("[emu] clusters along y or z are not emulated");
                        return NOT_SUPPORTED;
                    }
                    cluster = attribute.value[0].max(1);
                }
                _ => {}
            }
        }
        let threads: u32 = config.block.iter().product();
        let ctas: u64 = config.grid.iter().map(|&n| u64::from(n)).product();
        if threads == 0 || threads > 1024 || ctas == 0 || config.grid[0] % cluster != 0 {
            return INVALID_VALUE;
        }
        if program.max_threads != 0 && threads > program.max_threads || config.shared > function.dynamic.load(Ordering::Relaxed) {
            return INVALID_VALUE;
        }
        let multiprocessors = super::context::multiprocessors();
        let most = u64::from(super::modules::resident(function, threads, config.shared)) * u64::from(multiprocessors);
        if cooperative && ctas > most {
            return LAUNCH_TOO_LARGE;
        }
        let mut bytes = vec![0u8; program.parameters as usize];
        for (index, &(offset, size)) in program.parameter_list.iter().enumerate() {
            let from = *parameters.add(index);
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), bytes.as_mut_ptr().add(offset as usize), size as usize);
        }
        let stream = super::streams::of(config.stream);
        if function.device != stream.device {
            return INVALID_HANDLE;
        }
        let launch = Config {
            device: stream.device,
            program,
            parameters: bytes,
            grid: config.grid,
            block: config.block,
            dynamic_shared: config.shared,
            cluster,
            multiprocessors,
        };
        stream.push(Arc::new(move || {
            if fault() != 0 {
                return;
            }
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exec::run(launch.clone())));
            match result {
                Ok(Ok(_)) => {}
                Ok(Err(fault)) => {
                    eprintln!("[emu] {} ({})", fault.text, fault.code);
                    set_fault(fault.code);
                }
                Err(_) => {
                    eprintln!("[emu] the emulator itself has failed");
                    set_fault(exec::LAUNCH_FAILED);
                }
            }
        }));
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cuLaunchKernel(
    handle: *mut c_void,
    gx: u32,
    gy: u32,
    gz: u32,
    bx: u32,
    by: u32,
    bz: u32,
    shared: u32,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Status {
    let config = LaunchConfig { grid: [gx, gy, gz], block: [bx, by, bz], shared, stream, attributes: std::ptr::null(), count: 0 };
    // SAFETY: passed on.
    unsafe { cuLaunchKernelEx(&config, handle, parameters, extra) }
}

/// # Safety
/// As [`cuInit`]; `work` may be called with `data` from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchHostFunc(stream: *mut c_void, work: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> Status {
    healthy!();
    let data = data.expose_provenance();
    // SAFETY: promised by the caller.
    unsafe { super::streams::of(stream) }.push(Arc::new(move || {
        order::host_saw(&order::of_stream());
        // SAFETY: as above.
        unsafe { work(std::ptr::with_exposed_provenance_mut(data)) }
        order::stream_behind(&order::of_host());
    }));
    SUCCESS
}
