//! Several devices through the driver's functions. A fault spoils a process, and variables are a process's: each test has one of its own.

mod mapped;
mod peers;
mod races;
mod registered;
mod words;

use std::ffi::{CString, c_void};
use std::process::Command;
use std::ptr::null_mut;

use super::context::*;
use super::copies::*;
use super::launches::*;
use super::modules::*;
use super::peers::*;
use super::streams::*;
use super::*;

/// Variable that says that a process is a test's own.
const ALONE: &str = "EMU_ALONE";

/// In the process of its own of the named test: none. Elsewhere runs it in one, with these variables, and gives what it wrote.
fn by_itself(test: &str, variables: &[(&str, &str)]) -> Option<String> {
    if std::env::var(ALONE).is_ok() {
        return None;
    }
    let test = test.split_once("::").unwrap().1;
    let mut command = Command::new(std::env::current_exe().unwrap());
    // Other tests of this process set some of these for a while.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EMU_")) {
        command.env_remove(name);
    }
    command.args([test, "--exact", "--nocapture"]).env(ALONE, "1").env("EMU_SMS", "4").envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{test} by itself: {text}");
    Some(text)
}

/// Body of a test in a process of its own; what the process wrote is `$text` behind it.
macro_rules! alone {
    ($test:ident, $variables:expr, $body:block) => {
        match $crate::driver::tests::by_itself(concat!(module_path!(), "::", stringify!($test)), $variables) {
            Some(text) => text,
            None => {
                $body;
                return;
            }
        }
    };
}
use alone;

/// Makes a device's context current in this thread.
fn enter(device: usize) {
    let mut context = null_mut();
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { cuDevicePrimaryCtxRetain(&mut context, device as i32) }, SUCCESS);
    assert_eq!(cuCtxSetCurrent(context), SUCCESS);
}

/// Zeros of the current device.
fn zeros(bytes: usize) -> u64 {
    let mut at = 0;
    // SAFETY: a place for the answer, and memory of this size.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&mut at, bytes), SUCCESS);
        assert_eq!(cuMemsetD8_v2(at, 0, bytes), SUCCESS);
    }
    at
}

/// A word of the GPU.
fn word(at: u64) -> u32 {
    let mut word = 0u32;
    // SAFETY: as large as a word.
    assert_eq!(unsafe { cuMemcpyDtoH_v2((&raw mut word).cast(), at, 4) }, SUCCESS);
    word
}

/// A kernel with the addresses `%own` and `%far`, loaded for the current device.
fn kernel(body: &str) -> *mut c_void {
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 k_0, .param .u64 k_1)\n{{\n\
         .reg .pred %p<9>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .b64 %own; .reg .b64 %far;\n\
         ld.param.u64 %own, [k_0]; ld.param.u64 %far, [k_1];\n{body}\nret;\n}}\n"
    );
    let (text, name) = (CString::new(text).unwrap(), CString::new("k").unwrap());
    let (mut module, mut function) = (null_mut(), null_mut());
    // SAFETY: terminated texts, and places for the answers.
    unsafe {
        assert_eq!(cuModuleLoadData(&mut module, text.as_ptr().cast()), SUCCESS);
        assert_eq!(cuModuleGetFunction(&mut function, module, name.as_ptr()), SUCCESS);
    }
    function
}

/// Launches one thread of a kernel on a stream.
fn launch_on(stream: *mut c_void, kernel: *mut c_void, own: u64, far: u64) -> Status {
    let mut parameters: [*mut c_void; 2] = [(&raw const own).cast_mut().cast(), (&raw const far).cast_mut().cast()];
    // SAFETY: a function with two parameters of this size.
    unsafe { cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), null_mut()) }
}

/// Launches it and waits for it.
fn run(kernel: *mut c_void, own: u64, far: u64) -> Status {
    assert_eq!(launch_on(null_mut(), kernel, own, far), SUCCESS);
    // SAFETY: the default stream.
    unsafe { cuStreamSynchronize(null_mut()) }
}

fn stream() -> *mut c_void {
    let mut stream = null_mut();
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { cuStreamCreate(&mut stream, 1) }, SUCCESS);
    stream
}
