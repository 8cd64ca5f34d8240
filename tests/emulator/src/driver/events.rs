//! Events. Their times are virtual ones.

use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex};

use super::context::current;
use super::graphs::{Captured, Work, permitted};
use super::streams::{self, Stream};
use super::*;
use crate::exec::races::order::{self, Known};

#[derive(Default)]
struct State {
    /// Where it was recorded last.
    last: Option<Arc<Point>>,
    captured: Option<Captured>,
}

/// A point of a stream. Whoever waits for it does so also if the event is recorded anew meanwhile (driver API, `cuStreamWaitEvent`).
#[derive(Default)]
struct Point {
    /// When the stream passed it, and what was before.
    passed: Mutex<Option<(u64, Known)>>,
    changed: Condvar,
}

impl Point {
    fn pass(&self) {
        *self.passed.lock().unwrap() = Some((crate::exec::time(), order::of_stream()));
        self.changed.notify_all();
    }

    /// Waits until the stream passes it. What was before.
    fn wait(&self) -> Known {
        let mut passed = self.passed.lock().unwrap();
        loop {
            match &*passed {
                Some((_, known)) => return known.clone(),
                None => passed = self.changed.wait(passed).unwrap(),
            }
        }
    }

    fn time(&self) -> Option<u64> {
        self.passed.lock().unwrap().as_ref().map(|&(time, _)| time)
    }

    /// Whether the stream has passed it: the host has seen so.
    fn seen(&self) -> bool {
        let passed = self.passed.lock().unwrap();
        if let Some((_, known)) = &*passed {
            order::host_saw(known);
        }
        passed.is_some()
    }
}

#[derive(Default)]
pub struct Event {
    device: usize,
    state: Mutex<State>,
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
    pub fn record(&self, stream: &Stream) {
        let point = Arc::new(Point::default());
        *self.state.lock().unwrap() = State { last: Some(point.clone()), captured: None };
        stream.push_now(Arc::new(move || point.pass()));
    }

    /// Holds `stream` until what was recorded so far has passed.
    pub fn hold(&self, stream: &Stream) {
        if let Some(point) = self.state.lock().unwrap().last.clone() {
            stream.push_now(Arc::new(move || order::stream_behind(&point.wait())));
        }
    }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(to: *mut *mut c_void, _flags: u32) -> Status {
    healthy!();
    let event = Event { device: current!(), state: Mutex::default() };
    // SAFETY: promised by the caller.
    unsafe { *to = Arc::into_raw(Arc::new(event)) as *mut c_void };
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
    if event.device != stream.device {
        return INVALID_HANDLE;
    }
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
    if state.last.as_ref().is_none_or(|point| point.seen()) { SUCCESS } else { NOT_READY }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventSynchronize(handle: *mut c_void) -> Status {
    permitted!();
    // SAFETY: promised by the caller.
    let event = unsafe { of(handle) };
    let last = {
        let state = event.state.lock().unwrap();
        if state.captured.is_some() {
            return CAPTURED_EVENT;
        }
        state.last.clone()
    };
    if let Some(point) = last {
        order::host_saw(&point.wait());
    }
    fault_of(event.device)
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(to: *mut f32, start: *mut c_void, end: *mut c_void) -> Status {
    healthy!();
    // SAFETY: promised by the caller.
    let (start, end) = unsafe { (of(start), of(end)) };
    let last = |event: &Event| event.state.lock().unwrap().last.clone();
    let (Some(start), Some(end)) = (last(&start), last(&end)) else { return INVALID_HANDLE };
    let (Some(start), Some(end)) = (start.time(), end.time()) else { return NOT_READY };
    // SAFETY: promised by the caller.
    unsafe { *to = (end as f64 - start as f64) as f32 / 1e6 };
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
    let (recorded, captured) = {
        let state = event.state.lock().unwrap();
        (state.last.is_some(), state.captured.clone())
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
        (Some(_), None) if recorded => return CAPTURE_ISOLATION,
        (Some(_), None) => return SUCCESS,
        (None, None) => {}
    }
    drop(own);
    event.hold(&stream);
    SUCCESS
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// The event is recorded on a stream that stands still, waited for, and recorded anew on one that goes on.
    #[test]
    fn a_wait_is_for_what_was_recorded_before_it() {
        let [stands, goes, waits] = [Stream::new(0), Stream::new(0), Stream::new(0)];
        let (release, released) = mpsc::channel::<()>();
        let released = Mutex::new(released);
        stands.push_now(Arc::new(move || released.lock().unwrap().recv().unwrap()));
        let (event, passed) = (Event::default(), Arc::new(AtomicBool::new(false)));
        event.record(&stands);
        event.hold(&waits);
        waits.push_now(Arc::new({
            let passed = passed.clone();
            move || passed.store(true, Ordering::SeqCst)
        }));
        event.record(&goes);
        goes.settle();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!passed.load(Ordering::SeqCst));
        release.send(()).unwrap();
        waits.settle();
        assert!(passed.load(Ordering::SeqCst));
    }
}
