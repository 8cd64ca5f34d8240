//! Modules and functions.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::context::current;
use super::graphs::permitted;
use super::*;
use crate::memory::Kind;
use crate::ptx::Module;
use crate::ptx::inst::Program;

pub struct Loaded {
    device: usize,
    module: Module,
    functions: Mutex<HashMap<String, Arc<Function>>>,
}

pub struct Function {
    pub device: usize,
    pub program: Arc<Program>,
    /// Dynamic shared memory that was allowed.
    pub dynamic: AtomicU32,
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(to: *mut *mut c_void, image: *const c_void) -> Status {
    // SAFETY: passed on.
    unsafe { cuModuleLoadDataEx(to, image, 0, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    to: *mut *mut c_void,
    image: *const c_void,
    _count: u32,
    _options: *mut u32,
    _values: *mut *mut c_void,
) -> Status {
    healthy!();
    permitted!();
    let device = current!();
    // SAFETY: any image has four bytes.
    let magic = unsafe { image.cast::<[u8; 4]>().read() };
    // Texts begin with a comment or a directive; all else is machine code, or nothing.
    if !(magic[0].is_ascii_whitespace() || b"./".contains(&magic[0])) {
        return NO_BINARY_FOR_GPU;
    }
    // SAFETY: other images are terminated texts.
    let text = unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().into_owned();
    crate::exec::counts::keep_text(&text);
    match Module::new(text, &mut |bytes| crate::memory::allocate(bytes, device, Kind::Plain).unwrap_or(0)) {
        Ok(module) => {
            // SAFETY: promised by the caller.
            unsafe { *to = Box::into_raw(Box::new(Loaded { device, module, functions: Mutex::default() })).cast() };
            SUCCESS
        }
        Err(text) => {
            eprintln!("[emu] {text}");
            INVALID_PTX
        }
    }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: *mut c_void) -> Status {
    // SAFETY: made here, and unloaded once.
    let loaded = unsafe { Box::from_raw(module.cast::<Loaded>()) };
    for &(address, _) in &loaded.module.owned {
        crate::memory::free(address);
    }
    // Functions stay: launches may be queued.
    for (_, function) in loaded.functions.lock().unwrap().drain() {
        std::mem::forget(function);
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(to: *mut *mut c_void, module: *mut c_void, name: *const c_char) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let (loaded, name) = unsafe { (&*module.cast::<Loaded>(), CStr::from_ptr(name).to_string_lossy().into_owned()) };
    if !loaded.module.entries.contains(&name) {
        return NOT_FOUND;
    }
    let mut functions = loaded.functions.lock().unwrap();
    let function = match functions.get(&name) {
        Some(function) => function.clone(),
        None => match loaded.module.program(&name) {
            Ok(program) => {
                let (device, program) = (loaded.device, Arc::new(program));
                let function = Arc::new(Function { device, program, dynamic: AtomicU32::new(48 << 10) });
                functions.insert(name, function.clone());
                function
            }
            Err(text) => {
                eprintln!("[emu] {name}: {text}");
                return INVALID_PTX;
            }
        },
    };
    // SAFETY: promised by the caller; the module keeps the function.
    unsafe { *to = Arc::as_ptr(&function) as *mut c_void };
    SUCCESS
}

/// The function of a handle.
///
/// # Safety
/// The handle came from [`cuModuleGetFunction`].
pub unsafe fn function<'a>(handle: *mut c_void) -> &'a Function {
    // SAFETY: promised by the caller.
    unsafe { &*(handle as *const Function) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncSetAttribute(handle: *mut c_void, attribute: u32, value: c_int) -> Status {
    healthy!();
    if attribute == 8 {
        // SAFETY: promised by the caller.
        let function = unsafe { function(handle) };
        if value < 0 || value as u32 + function.program.shared > super::context::OPT_IN {
            return INVALID_VALUE;
        }
        function.dynamic.store(value as u32, Ordering::Relaxed);
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(to: *mut c_int, attribute: u32, handle: *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        let function = function(handle);
        *to = match attribute {
            0 => {
                if function.program.max_threads == 0 {
                    1024
                } else {
                    function.program.max_threads as c_int
                }
            }
            1 => function.program.shared as c_int,
            3 => function.program.local as c_int,
            4 => 168,
            5 | 6 => 90,
            8 => function.dynamic.load(Ordering::Relaxed) as c_int,
            _ => 0,
        };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetCacheConfig(_handle: *mut c_void, _config: u32) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncLoad(_handle: *mut c_void) -> Status {
    fault()
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    to: *mut c_int,
    handle: *mut c_void,
    threads: c_int,
    dynamic: usize,
) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    unsafe { *to = resident(function(handle), threads as u32, dynamic as u32) as c_int };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    to: *mut c_int,
    handle: *mut c_void,
    threads: c_int,
    dynamic: usize,
    _flags: u32,
) -> Status {
    // SAFETY: passed on.
    unsafe { cuOccupancyMaxActiveBlocksPerMultiprocessor(to, handle, threads, dynamic) }
}

/// CTAs that fit one multiprocessor.
pub fn resident(function: &Function, threads: u32, dynamic: u32) -> u32 {
    let shared = function.program.shared + dynamic + 1024;
    if dynamic + function.program.shared > super::context::OPT_IN {
        return 0;
    }
    (2048 / threads.max(1)).min(228 * 1024 / shared).min(32)
}
