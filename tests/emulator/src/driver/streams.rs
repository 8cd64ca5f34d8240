//! Streams: queues that a thread each works off.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};

use super::context::current;
use super::graphs::{Capture, Captured, Work, permitted};
use super::*;
use crate::exec::races::order::{self, Known};

/// What is done in its turn; graphs do it again and again.
pub type Task = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Queue {
    /// With what the host had seen when they were queued.
    tasks: VecDeque<(Task, Known)>,
    /// What has happened before, and in what was done.
    known: Known,
    /// A task is being done.
    busy: bool,
    closed: bool,
}

pub struct Stream {
    pub device: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
    pub capture: Mutex<Option<Captured>>,
}

fn all() -> &'static Mutex<Vec<Weak<Stream>>> {
    static ALL: OnceLock<Mutex<Vec<Weak<Stream>>>> = OnceLock::new();
    ALL.get_or_init(Mutex::default)
}

impl Stream {
    pub fn new(device: usize) -> Arc<Stream> {
        let stream = Arc::new(Stream { device, queue: Mutex::default(), changed: Condvar::new(), capture: Mutex::new(None) });
        let worker = stream.clone();
        std::thread::Builder::new()
            .name("emulated stream".into())
            .stack_size(8 << 20)
            .spawn(move || {
                super::context::cuCtxSetCurrent(super::context::primary(device));
                worker.work();
            })
            .expect("a thread for a stream");
        let mut all = all().lock().unwrap();
        all.retain(|stream| stream.strong_count() > 0);
        all.push(Arc::downgrade(&stream));
        stream
    }

    fn work(&self) {
        loop {
            let (task, known) = {
                let mut queue = self.queue.lock().unwrap();
                loop {
                    if let Some(task) = queue.tasks.pop_front() {
                        queue.busy = true;
                        break task;
                    }
                    queue.busy = false;
                    self.changed.notify_all();
                    if queue.closed {
                        return;
                    }
                    queue = self.changed.wait(queue).unwrap();
                }
            };
            order::stream_behind(&known);
            task();
            self.queue.lock().unwrap().known = order::of_stream();
        }
    }

    /// Queues a task, or records it in the capture.
    pub fn push(&self, task: Task) {
        if let Some(captured) = &mut *self.capture.lock().unwrap() {
            return captured.push(Work::Task(task));
        }
        self.push_now(task);
    }

    pub fn push_now(&self, task: Task) {
        self.queue.lock().unwrap().tasks.push_back((task, order::of_host()));
        self.changed.notify_all();
    }

    /// Its thread ends when all is done.
    pub fn close(&self) {
        self.queue.lock().unwrap().closed = true;
        self.changed.notify_all();
    }

    pub fn idle(&self) -> bool {
        let queue = self.queue.lock().unwrap();
        let idle = queue.tasks.is_empty() && !queue.busy;
        if idle {
            order::host_saw(&queue.known);
        }
        idle
    }

    pub fn settle(&self) {
        let mut queue = self.queue.lock().unwrap();
        while !queue.tasks.is_empty() || queue.busy {
            queue = self.changed.wait(queue).unwrap();
        }
        order::host_saw(&queue.known);
    }
}

/// The stream of a handle; of null and the two special ones, the default one of the current context.
///
/// # Safety
/// The handle is one of these, or of a stream that lives.
pub unsafe fn of(handle: *mut c_void) -> Arc<Stream> {
    static DEFAULTS: [OnceLock<Arc<Stream>>; DEVICES] = [const { OnceLock::new() }; DEVICES];
    if (handle as usize) < 16 {
        let device = super::context::current_device().unwrap_or(0);
        return DEFAULTS[device].get_or_init(|| Stream::new(device)).clone();
    }
    let raw = handle as *const Stream;
    // SAFETY: promised by the caller.
    unsafe {
        Arc::increment_strong_count(raw);
        Arc::from_raw(raw)
    }
}

/// The capture has ended: no stream is in it any more.
pub fn leave(capture: &Arc<Capture>) {
    let streams: Vec<_> = all().lock().unwrap().iter().filter_map(Weak::upgrade).collect();
    for stream in streams {
        let mut captured = stream.capture.lock().unwrap();
        if captured.as_ref().is_some_and(|captured| Arc::ptr_eq(&captured.capture, capture)) {
            *captured = None;
        }
    }
}

/// Waits for all streams of a device.
pub fn settle_all(device: usize) {
    let streams: Vec<_> = all().lock().unwrap().iter().filter_map(Weak::upgrade).collect();
    for stream in streams.into_iter().filter(|stream| stream.device == device) {
        stream.settle();
    }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(to: *mut *mut c_void, _flags: u32) -> Status {
    healthy!();
    let device = current!();
    // SAFETY: promised by the caller.
    unsafe { *to = Arc::into_raw(Stream::new(device)) as *mut c_void };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreateWithPriority(to: *mut *mut c_void, flags: u32, _priority: i32) -> Status {
    // SAFETY: passed on.
    unsafe { cuStreamCreate(to, flags) }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(handle: *mut c_void) -> Status {
    // SAFETY: made by `cuStreamCreate`, and destroyed once.
    unsafe { Arc::from_raw(handle as *const Stream) }.close();
    fault()
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(handle: *mut c_void) -> Status {
    permitted!();
    // SAFETY: promised by the caller.
    let stream = unsafe { of(handle) };
    if stream.capture.lock().unwrap().is_some() {
        return CAPTURE_UNSUPPORTED;
    }
    stream.settle();
    fault_of(stream.device)
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(handle: *mut c_void) -> Status {
    healthy!();
    permitted!();
    // SAFETY: promised by the caller.
    if unsafe { of(handle) }.idle() { SUCCESS } else { NOT_READY }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCtx(handle: *mut c_void, to: *mut *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *to = super::context::primary(of(handle).device) };
    SUCCESS
}
