//! Functions of the driver that the process has loaded.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use crate::{CUDA_ERROR, SUCCESS, Status};

type Result = u32;

macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*);)*) => {
        struct Driver {
            $($field: unsafe extern "C" fn($($argument),*) -> Result,)*
        }

        fn driver() -> &'static Driver {
            static DRIVER: OnceLock<Driver> = OnceLock::new();
            // SAFETY: the library is there, as somebody has made the streams that calls are for; its functions have these types (CUDA driver API).
            DRIVER.get_or_init(|| unsafe {
                let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
                Driver { $($field: std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Result>(find(library, $name)),)* }
            })
        }
    };
}
functions! {
    device = c"cuCtxGetDevice": fn(*mut c_int);
    allocate = c"cuMemAlloc_v2": fn(*mut u64, usize);
    free = c"cuMemFree_v2": fn(u64);
    pinned = c"cuMemHostAlloc": fn(*mut *mut c_void, usize, u32);
    from_gpu = c"cuMemcpyDtoHAsync_v2": fn(*mut c_void, u64, usize, *mut c_void);
    to_gpu = c"cuMemcpyHtoDAsync_v2": fn(u64, *const c_void, usize, *mut c_void);
    host = c"cuLaunchHostFunc": fn(*mut c_void, unsafe extern "C" fn(*mut c_void), *mut c_void);
    capture = c"cuStreamGetCaptureInfo_v3": fn(*mut c_void, *mut u32, *mut u64, *mut *mut c_void, *mut *const usize, *mut *const c_void, *mut usize);
    object = c"cuUserObjectCreate": fn(*mut *mut c_void, *mut c_void, unsafe extern "C" fn(*mut c_void), u32, u32);
    retain = c"cuGraphRetainUserObject": fn(*mut c_void, *mut c_void, u32, u32);
    mode = c"cuThreadExchangeStreamCaptureMode": fn(*mut u32);
}

/// # Safety
/// A library that is loaded, or null.
unsafe fn find(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: promised by the caller.
    let found = if library.is_null() { library } else { unsafe { libc::dlsym(library, name.as_ptr()) } };
    assert!(!found.is_null(), "the driver has no {name:?}");
    found
}

fn checked(result: Result) -> std::result::Result<(), Status> {
    if result == 0 { Ok(()) } else { Err(CUDA_ERROR) }
}

/// The current context's device.
pub fn device() -> Option<c_int> {
    let mut device = 0;
    // SAFETY: a place for the answer.
    (unsafe { (driver().device)(&mut device) } == 0).then_some(device)
}

/// # Safety
/// `to` is writable.
pub unsafe fn allocate(to: *mut u64, bytes: usize) -> Status {
    // SAFETY: promised by the caller.
    checked(unsafe { (driver().allocate)(to, bytes) }).err().unwrap_or(SUCCESS)
}

pub fn free(memory: u64) -> Status {
    // SAFETY: the driver says so if it is none.
    checked(unsafe { (driver().free)(memory) }).err().unwrap_or(SUCCESS)
}

/// Pinned memory of the host, also while this thread captures a stream.
pub fn pinned(bytes: usize) -> std::result::Result<*mut u8, Status> {
    let (mut mode, mut memory) = (2, std::ptr::null_mut());
    // SAFETY: places for the answers; the mode is put back.
    unsafe {
        checked((driver().mode)(&mut mode))?;
        let result = (driver().pinned)(&mut memory, bytes, 0);
        checked((driver().mode)(&mut mode))?;
        checked(result)?;
    }
    Ok(memory.cast())
}

/// The graph that a stream is captured into; null for none.
///
/// # Safety
/// The stream lives.
pub unsafe fn graph_of(stream: *mut c_void) -> std::result::Result<*mut c_void, Status> {
    let (mut status, mut graph) = (0, std::ptr::null_mut());
    let [id, none] = [std::ptr::null_mut(); 2];
    // SAFETY: places for the answers, or null; the caller promises the stream.
    checked(unsafe { (driver().capture)(stream, &mut status, id, &mut graph, none.cast(), std::ptr::null_mut(), std::ptr::null_mut()) })?;
    Ok(if status == 1 { graph } else { std::ptr::null_mut() })
}

/// # Safety
/// A stream that lives, and memory that does until it has passed the copy.
pub unsafe fn from_gpu(to: *mut u8, from: u64, bytes: usize, stream: *mut c_void) -> std::result::Result<(), Status> {
    // SAFETY: promised by the caller.
    checked(if bytes == 0 { 0 } else { unsafe { (driver().from_gpu)(to.cast(), from, bytes, stream) } })
}

/// # Safety
/// As [`from_gpu`].
pub unsafe fn to_gpu(to: u64, from: *const u8, bytes: usize, stream: *mut c_void) -> std::result::Result<(), Status> {
    // SAFETY: promised by the caller.
    checked(if bytes == 0 { 0 } else { unsafe { (driver().to_gpu)(to, from.cast(), bytes, stream) } })
}

/// # Safety
/// A stream that lives; the function may be called with `data` from any thread, when the stream comes to it.
pub unsafe fn host(stream: *mut c_void, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) -> std::result::Result<(), Status> {
    // SAFETY: promised by the caller.
    checked(unsafe { (driver().host)(stream, function, data) })
}

/// A graph and all that is made of it own `data`: `destroy` is called when the last of these is gone.
///
/// # Safety
/// A graph that lives; `destroy` may be called with `data` from any thread.
pub unsafe fn owned_by(
    graph: *mut c_void,
    data: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
) -> std::result::Result<(), Status> {
    let mut object = std::ptr::null_mut();
    // SAFETY: promised by the caller. The flags: no synchronisation by the destructor, and the reference becomes the graph's.
    unsafe {
        checked((driver().object)(&mut object, data, destroy, 1, 1))?;
        checked((driver().retain)(graph, object, 1, 1))
    }
}
