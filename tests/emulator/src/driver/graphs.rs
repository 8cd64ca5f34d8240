//! Graphs: lists of captured work. Edges are not kept; the order of capture is one that they allow.

use std::ffi::c_void;
use std::sync::Arc;

use super::streams::{self, Capture, Task};
use super::*;

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: *mut c_void, _mode: u32) -> Status {
    healthy!();
    if stream.is_null() {
        return CAPTURE_UNSUPPORTED;
    }
    // SAFETY: promised by the caller.
    let stream = unsafe { streams::of(stream) };
    let mut capture = stream.capture.lock().unwrap();
    if capture.is_some() {
        return CAPTURE_UNMATCHED;
    }
    *capture = Some(Arc::new(Capture::default()));
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: *mut c_void, to: *mut *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    let stream = unsafe { streams::of(stream) };
    let Some(capture) = stream.capture.lock().unwrap().take() else { return CAPTURE_UNMATCHED };
    let tasks: Vec<Task> = std::mem::take(&mut capture.tasks.lock().unwrap());
    // SAFETY: promised by the caller.
    unsafe { *to = Box::into_raw(Box::new(tasks)).cast() };
    fault()
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamIsCapturing(stream: *mut c_void, to: *mut u32) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *to = streams::of(stream).capture.lock().unwrap().is_some() as u32 };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(_mode: *mut u32) -> Status {
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(to: *mut *mut c_void, graph: *mut c_void, _flags: u64) -> Status {
    healthy!();
    // SAFETY: a graph that lives.
    unsafe {
        let tasks = (*graph.cast::<Vec<Task>>()).clone();
        *to = Box::into_raw(Box::new(tasks)).cast();
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(graph: *mut c_void, _nodes: *mut *mut c_void, count: *mut usize) -> Status {
    // SAFETY: a graph that lives.
    unsafe { *count = (*graph.cast::<Vec<Task>>()).len() };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: *mut c_void) -> Status {
    // SAFETY: made here, and destroyed once.
    drop(unsafe { Box::from_raw(graph.cast::<Vec<Task>>()) });
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(graph: *mut c_void) -> Status {
    // SAFETY: as above.
    unsafe { cuGraphDestroy(graph) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphUpload(_graph: *mut c_void, _stream: *mut c_void) -> Status {
    fault()
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(graph: *mut c_void, stream: *mut c_void) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let (tasks, stream) = unsafe { (&*graph.cast::<Vec<Task>>(), streams::of(stream)) };
    for task in tasks {
        stream.push(task.clone());
    }
    SUCCESS
}
