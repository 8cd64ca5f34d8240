//! Launches of hand-written kernels without a plan, and what the driver says of memory.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUresult};

#[track_caller]
fn check(code: CUresult) {
    assert_eq!(code, CUresult::CUDA_SUCCESS);
}

/// GPU `ordinal` is this thread's while it lives.
struct Current(sys::CUdevice);

impl Current {
    fn of(ordinal: u32) -> Current {
        let (mut device, mut context) = (0, null_mut());
        // SAFETY: `Device::gpu` has initialised the driver; the out-pointers are writable.
        unsafe {
            check(sys::cuDeviceGet(&mut device, ordinal as i32));
            check(sys::cuDevicePrimaryCtxRetain(&mut context, device));
            check(sys::cuCtxPushCurrent_v2(context));
        }
        Current(device)
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        // SAFETY: pushed and retained by `of`, on this thread.
        unsafe {
            check(sys::cuCtxPopCurrent_v2(&mut null_mut()));
            check(sys::cuDevicePrimaryCtxRelease_v2(self.0));
        }
    }
}

/// Free bytes of a GPU.
pub fn free(ordinal: u32) -> usize {
    let _current = Current::of(ordinal);
    let (mut free, mut total) = (0, 0);
    // SAFETY: the out-pointers are writable.
    check(unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) });
    free
}

/// A kernel that runs.
pub struct Running {
    _current: Current,
    module: sys::CUmodule,
    stream: sys::CUstream,
}

/// Starts a kernel of `kernel.ptx` on a stream of its own.
///
/// # Safety
/// Its arguments are what it expects, and stay so until it has ended.
pub unsafe fn start(ordinal: u32, name: &CStr, mut arguments: [u64; 2]) -> Running {
    let _current = Current::of(ordinal);
    let text = concat!(include_str!("kernel.ptx"), "\0");
    let (mut module, mut function, mut stream) = (null_mut(), null_mut(), null_mut());
    // SAFETY: the text ends with a zero; the out-pointers are writable; the caller promises the arguments.
    unsafe {
        check(sys::cuModuleLoadData(&mut module, text.as_ptr().cast()));
        check(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()));
        check(sys::cuStreamCreate(&mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32));
        let mut config: sys::CUlaunchConfig = std::mem::zeroed();
        (config.gridDimX, config.gridDimY, config.gridDimZ) = (1, 1, 1);
        (config.blockDimX, config.blockDimY, config.blockDimZ) = (1, 1, 1);
        config.hStream = stream;
        let mut pointers = arguments.each_mut().map(|argument| (argument as *mut u64).cast::<c_void>());
        check(sys::cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), null_mut()));
    }
    Running { _current, module, stream }
}

impl Running {
    pub fn has_ended(&self) -> bool {
        // SAFETY: a live stream.
        match unsafe { sys::cuStreamQuery(self.stream) } {
            CUresult::CUDA_ERROR_NOT_READY => false,
            code => {
                check(code);
                true
            }
        }
    }

    pub fn wait(self) {
        // SAFETY: a live stream and module, which nobody uses afterwards.
        unsafe {
            check(sys::cuStreamSynchronize(self.stream));
            check(sys::cuStreamDestroy_v2(self.stream));
            check(sys::cuModuleUnload(self.module));
        }
    }
}
