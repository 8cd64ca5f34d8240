//! Events. Their times are virtual ones.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};

use super::graphs::{Captured, Work, permitted};
use super::streams::{self, Stream};
use super::*;

#[derive(Default)]
struct State {
    recorded: u64,
    done: u64,
    time: u64,
    captured: Option<Captured>,
}

#[derive(Default)]
pub struct Event {
    state: Mutex<State>,
    changed: Condvar,
}

unsafe fn of(handle: *mut c_void) -> Arc<Event> {
    let raw = handle as *const Event;
    // SAFETY: the caller has a live event.
    unsafe {
        Arc::increment_strong_count(raw);
        Arc::from_raw(raw)
    }
}

/// Of a record or a wait in a capture: a piece of the graph's work, and no edge.
const EXTERNAL: u32 = 1;

impl Event {
    /// Records this point of `stream`.
    pub fn record(self: &Arc<Event>, stream: &Stream) {
        let number = {
            let mut state = self.state.lock().unwrap();
            state.recorded += 1;
            state.captured = None;
            state.recorded
        };
        let event = self.clone();
        stream.push_now(Arc::new(move || {
            let mut state = event.state.lock().unwrap();
            state.done = state.done.max(number);
            state.time = crate::exec::time();
            event.changed.notify_all();
        }));
    }

    /// Holds `stream` until what was recorded so far has passed.
    pub fn hold(self: &Arc<Event>, stream: &Stream) {
        let (event, number) = (self.clone(), self.state.lock().unwrap().recorded);
        stream.push_now(Arc::new(move || {
            let mut state = event.state.lock().unwrap();
            while state.done < number {
                state = event.changed.wait(state).unwrap();
            }
        }));
    }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(to: *mut *mut c_void, _flags: u32) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    unsafe { *to = Arc::into_raw(Arc::new(Event::default())) as *mut c_void };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(handle: *mut c_void) -> Status {
    // SAFETY: made by `cuEventCreate`, and destroyed once.
    drop(unsafe { Arc::from_raw(handle as *const Event) });
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(handle: *mut c_void, stream: *mut c_void) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let (event, stream) = unsafe { (of(handle), streams::of(stream)) };
    if let Some(captured) = &*stream.capture.lock().unwrap() {
        event.state.lock().unwrap().captured = Some(captured.clone());
        return SUCCESS;
    }
    event.record(&stream);
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecordWithFlags(handle: *mut c_void, stream: *mut c_void, flags: u32) -> Status {
    healthy!();
    if flags & EXTERNAL != 0 {
        // SAFETY: promised by the caller.
        let (event, stream) = unsafe { (of(handle), streams::of(stream)) };
        let mut own = stream.capture.lock().unwrap();
        // It means something in a capture alone.
        let Some(own) = &mut *own else { return INVALID_VALUE };
        own.push(Work::Record(event));
        return SUCCESS;
    }
    // SAFETY: passed on.
    unsafe { cuEventRecord(handle, stream) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventQuery(handle: *mut c_void) -> Status {
    healthy!();
    permitted!();
    // SAFETY: promised by the caller.
    let event = unsafe { of(handle) };
    let state = event.state.lock().unwrap();
    if state.captured.is_some() {
        return CAPTURED_EVENT;
    }
    if state.done >= state.recorded { SUCCESS } else { NOT_READY }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(handle: *mut c_void) -> Status {
    permitted!();
    // SAFETY: promised by the caller.
    let event = unsafe { of(handle) };
    let mut state = event.state.lock().unwrap();
    if state.captured.is_some() {
        return CAPTURED_EVENT;
    }
    let number = state.recorded;
    while state.done < number {
        state = event.changed.wait(state).unwrap();
    }
    fault()
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(to: *mut f32, start: *mut c_void, end: *mut c_void) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let (start, end) = unsafe { (of(start), of(end)) };
    let read = |event: &Event| {
        let state = event.state.lock().unwrap();
        (state.recorded > 0, state.done >= state.recorded, state.time)
    };
    let (a, b) = (read(&start), read(&end));
    if !a.0 || !b.0 {
        return INVALID_HANDLE;
    }
    if !a.1 || !b.1 {
        return NOT_READY;
    }
    // SAFETY: promised by the caller.
    unsafe { *to = (b.2 as f64 - a.2 as f64) as f32 / 1e6 };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime_v2(to: *mut f32, start: *mut c_void, end: *mut c_void) -> Status {
    // SAFETY: passed on.
    unsafe { cuEventElapsedTime(to, start, end) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamWaitEvent(stream: *mut c_void, handle: *mut c_void, flags: u32) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let (event, stream) = unsafe { (of(handle), streams::of(stream)) };
    let (number, captured) = {
        let state = event.state.lock().unwrap();
        (state.recorded, state.captured.clone())
    };
    let mut own = stream.capture.lock().unwrap();
    match (&mut *own, captured) {
        (own, _) if flags & EXTERNAL != 0 => {
            let Some(own) = own else { return INVALID_VALUE };
            own.push(Work::Wait(event));
            return SUCCESS;
        }
        (Some(own), Some(other)) => {
            own.join(&other.behind);
            return SUCCESS;
        }
        (None, Some(other)) => {
            *own = Some(other);
            return SUCCESS;
        }
        (Some(_), None) if number > 0 => return CAPTURE_ISOLATION,
        (Some(_), None) => return SUCCESS,
        (None, None) => {}
    }
    drop(own);
    event.hold(&stream);
    SUCCESS
}
