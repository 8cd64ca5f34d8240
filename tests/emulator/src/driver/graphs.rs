//! Captures and graphs: captured work with what it comes behind. How it is replayed is in [`super::replay`].

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use super::events::Event;
use super::replay::Replay;
use super::streams::{self, Task};
use super::*;

/// What a replay does with a piece of captured work.
#[derive(Clone)]
pub enum Work {
    Task(Task),
    /// Records an event anew, for streams outside of the graph.
    Record(Arc<Event>),
    /// Waits for what an event was recorded behind when the replay began.
    Wait(Arc<Event>),
}

/// A piece of captured work; its handle is the address.
pub struct Node {
    pub work: Work,
    /// Handles of what it comes behind.
    pub behind: Vec<usize>,
}

/// `CUgraph`.
#[derive(Default)]
pub struct Graph {
    nodes: Mutex<Vec<Arc<Node>>>,
    objects: Mutex<Vec<Arc<UserObject>>>,
}

/// `CUgraphExec`.
struct Executable {
    replay: Replay,
    objects: Vec<Arc<UserObject>>,
}

/// `CUuserObject`; the strong counts of its `Arc` are its references.
pub struct UserObject {
    pointer: usize,
    destroy: unsafe extern "C" fn(*mut c_void),
}

impl Drop for UserObject {
    fn drop(&mut self) {
        // SAFETY: promised by who made the object; this is the last reference.
        unsafe { (self.destroy)(std::ptr::with_exposed_provenance_mut(self.pointer)) }
    }
}

/// Work that is recorded instead of done, and where its streams are.
pub struct Capture {
    id: u64,
    mode: u32,
    thread: ThreadId,
    graph: Arc<Graph>,
}

/// A stream in a capture.
#[derive(Clone)]
pub struct Captured {
    pub capture: Arc<Capture>,
    /// Handles of what the next piece of work comes behind.
    pub behind: Vec<usize>,
}

impl Captured {
    /// Records a piece of work.
    pub fn push(&mut self, work: Work) {
        let node = Arc::new(Node { work, behind: std::mem::take(&mut self.behind) });
        self.behind = vec![Arc::as_ptr(&node) as usize];
        self.capture.graph.nodes.lock().unwrap().push(node);
    }

    /// The next piece of work comes behind these too.
    pub fn join(&mut self, others: &[usize]) {
        for other in others {
            if !self.behind.contains(other) {
                self.behind.push(*other);
            }
        }
    }
}

const GLOBAL: u32 = 0;
const RELAXED: u32 = 2;

thread_local! {
    /// What captures forbid this thread.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Captures that go on: number, mode, and the thread that began it.
static OPEN: Mutex<Vec<(u64, u32, ThreadId)>> = Mutex::new(Vec::new());

/// Whether a call that could be meant for a graph is forbidden to this thread (driver API, `cuThreadExchangeStreamCaptureMode`).
pub fn forbidden() -> bool {
    let mode = MODE.get();
    let own = thread::current().id();
    let forbids = |&(_, capture, thread): &(u64, u32, ThreadId)| thread == own && capture != RELAXED || mode == GLOBAL && capture == GLOBAL;
    mode != RELAXED && OPEN.lock().unwrap().iter().any(forbids)
}

/// Returns the error of a call that a capture forbids.
macro_rules! permitted {
    () => {
        if $crate::driver::graphs::forbidden() {
            return CAPTURE_UNSUPPORTED;
        }
    };
}
pub(crate) use permitted;

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: *mut c_void, mode: u32) -> Status {
    healthy!();
    if stream.is_null() {
        return CAPTURE_UNSUPPORTED;
    }
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // SAFETY: promised by the caller.
    let stream = unsafe { streams::of(stream) };
    let mut captured = stream.capture.lock().unwrap();
    if captured.is_some() {
        return CAPTURE_UNMATCHED;
    }
    let (id, thread) = (NEXT.fetch_add(1, Ordering::Relaxed), thread::current().id());
    let capture = Arc::new(Capture { id, mode, thread, graph: Arc::default() });
    *captured = Some(Captured { capture, behind: Vec::new() });
    OPEN.lock().unwrap().push((id, mode, thread));
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: *mut c_void, to: *mut *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    let stream = unsafe { streams::of(stream) };
    let Some(Captured { capture, .. }) = stream.capture.lock().unwrap().clone() else { return CAPTURE_UNMATCHED };
    if capture.mode != RELAXED && capture.thread != thread::current().id() {
        return CAPTURE_WRONG_THREAD;
    }
    OPEN.lock().unwrap().retain(|open| open.0 != capture.id);
    streams::leave(&capture);
    // SAFETY: promised by the caller.
    unsafe { *to = Arc::into_raw(capture.graph.clone()) as *mut c_void };
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
/// As [`cuInit`]. What is handed out lives until the next call about the capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: *mut c_void,
    status: *mut u32,
    id: *mut u64,
    graph: *mut *mut c_void,
    nodes: *mut *const usize,
    edges: *mut *const c_void,
    count: *mut usize,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        let stream = streams::of(stream);
        let captured = stream.capture.lock().unwrap();
        *status = captured.is_some() as u32;
        let Some(captured) = &*captured else { return SUCCESS };
        let put = |to: *mut *const c_void, value: *const c_void| {
            if !to.is_null() {
                *to = value;
            }
        };
        if !id.is_null() {
            *id = captured.capture.id;
        }
        put(graph.cast(), Arc::as_ptr(&captured.capture.graph).cast());
        put(nodes.cast(), captured.behind.as_ptr().cast());
        put(edges, std::ptr::null());
        if !count.is_null() {
            *count = captured.behind.len();
        }
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamUpdateCaptureDependencies_v2(
    stream: *mut c_void,
    nodes: *const usize,
    _edges: *const c_void,
    count: usize,
    flags: u32,
) -> Status {
    // SAFETY: promised by the caller.
    let (stream, nodes) = unsafe { (streams::of(stream), if count == 0 { &[] } else { std::slice::from_raw_parts(nodes, count) }) };
    let mut captured = stream.capture.lock().unwrap();
    let Some(captured) = &mut *captured else { return INVALID_VALUE };
    let known: Vec<usize> = captured.capture.graph.nodes.lock().unwrap().iter().map(|node| Arc::as_ptr(node) as usize).collect();
    if nodes.iter().any(|node| !known.contains(node)) {
        return INVALID_VALUE;
    }
    if flags & 1 != 0 {
        captured.behind.clear();
    }
    captured.join(nodes);
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut u32) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        if *mode > RELAXED {
            return INVALID_VALUE;
        }
        *mode = MODE.replace(*mode);
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`]; `destroy` may be called with `pointer` from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuUserObjectCreate(
    to: *mut *mut c_void,
    pointer: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
    count: u32,
    flags: u32,
) -> Status {
    if flags != 1 || count == 0 {
        return INVALID_VALUE;
    }
    let object = Arc::into_raw(Arc::new(UserObject { pointer: pointer.expose_provenance(), destroy }));
    // SAFETY: just made; the caller promises `to`.
    unsafe {
        (1..count).for_each(|_| Arc::increment_strong_count(object));
        *to = object as *mut c_void;
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuUserObjectRelease(object: *mut c_void, count: u32) -> Status {
    // SAFETY: the caller has so many references.
    (0..count).for_each(|_| unsafe { Arc::decrement_strong_count(object as *const UserObject) });
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphRetainUserObject(graph: *mut c_void, object: *mut c_void, count: u32, flags: u32) -> Status {
    // SAFETY: a graph that lives, and an object of which the caller has a reference; with the flag, it becomes the graph's.
    unsafe {
        for _ in 0..count {
            if flags & 1 == 0 {
                Arc::increment_strong_count(object as *const UserObject);
            }
            (*graph.cast::<Graph>()).objects.lock().unwrap().push(Arc::from_raw(object as *const UserObject));
        }
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(to: *mut *mut c_void, graph: *mut c_void, _flags: u64) -> Status {
    healthy!();
    permitted!();
    // SAFETY: a graph that lives.
    unsafe {
        let graph = &*graph.cast::<Graph>();
        let replay = Replay::new(&graph.nodes.lock().unwrap());
        let objects = graph.objects.lock().unwrap().clone();
        *to = Box::into_raw(Box::new(Executable { replay, objects })).cast();
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphGetNodes(graph: *mut c_void, nodes: *mut usize, count: *mut usize) -> Status {
    // SAFETY: a graph that lives.
    unsafe {
        let known = (*graph.cast::<Graph>()).nodes.lock().unwrap();
        hand_out(known.iter().map(|node| Arc::as_ptr(node) as usize), nodes, count);
    }
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetDependencies_v2(
    node: *mut c_void,
    nodes: *mut usize,
    _edges: *mut c_void,
    count: *mut usize,
) -> Status {
    // SAFETY: a node of a graph that lives.
    unsafe { hand_out((*node.cast::<Node>()).behind.iter().copied(), nodes, count) };
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphNodeGetType(node: *mut c_void, to: *mut u32) -> Status {
    // SAFETY: a node of a graph that lives.
    unsafe {
        *to = match (*node.cast::<Node>()).work {
            Work::Task(_) => 0,
            Work::Wait(_) => 6,
            Work::Record(_) => 7,
        };
    }
    SUCCESS
}

/// Fills an array as far as it goes; the number of all, where there is none.
unsafe fn hand_out(handles: impl ExactSizeIterator<Item = usize>, to: *mut usize, count: *mut usize) {
    // SAFETY: promised by the caller.
    unsafe {
        let room = if to.is_null() { 0 } else { *count };
        *count = if to.is_null() { handles.len() } else { handles.len().min(room) };
        for (n, handle) in handles.take(room).enumerate() {
            to.add(n).write(handle);
        }
    }
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: *mut c_void) -> Status {
    // SAFETY: handed out once, and destroyed once.
    drop(unsafe { Arc::from_raw(graph as *const Graph) });
    SUCCESS
}

/// # Safety
/// As [`cuInit`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(graph: *mut c_void) -> Status {
    // SAFETY: made here, and destroyed once.
    drop(unsafe { Box::from_raw(graph.cast::<Executable>()) });
    SUCCESS
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
    let (graph, stream) = unsafe { (&*graph.cast::<Executable>(), streams::of(stream)) };
    match &mut *stream.capture.lock().unwrap() {
        // A part of a larger graph.
        Some(captured) => graph.replay.works().for_each(|work| captured.push(work.clone())),
        None => graph.replay.launch(&stream),
    }
    // A graph may be destroyed while it runs: what it owns stays until its end.
    let objects = graph.objects.clone();
    stream.push(Arc::new(move || {
        let _until_here = &objects;
    }));
    SUCCESS
}
