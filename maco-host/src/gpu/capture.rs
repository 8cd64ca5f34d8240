//! Launches in a capture: the graph that it becomes keeps what they use, and those of one plan come one after another.
//!
//! A capture may be another library's, and may have forked to other streams. So nothing is kept with a stream or with a
//! [`crate::CudaGraph`]: the driver says which graph a stream is captured into, and that graph owns what it needs.

use std::any::Any;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureStatus};

use super::context::Context;
use crate::error::Error;

/// Something that a graph keeps alive.
pub(super) type Kept = Arc<dyn Any + Send + Sync>;

thread_local! {
    /// How many closures of [`crate::CudaGraph::capture`] this thread is in.
    static RECORDING: Cell<u32> = const { Cell::new(0) };
}

/// What the captures of [`crate::CudaGraph::capture`] that go on keep, by their numbers.
static OWN: Mutex<BTreeMap<u64, Vec<Kept>>> = Mutex::new(BTreeMap::new());

fn own() -> MutexGuard<'static, BTreeMap<u64, Vec<Kept>>> {
    OWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, this thread is in the closure of [`crate::CudaGraph::capture`].
pub(super) struct Recording(u64);

impl Recording {
    /// Of a capture that has begun.
    pub(super) fn begin(capture: &Capture) -> Recording {
        RECORDING.set(RECORDING.get() + 1);
        own().insert(capture.id, Vec::new());
        Recording(capture.id)
    }

    /// What was launched in the capture, on any stream: whoever has the graph keeps it.
    pub(super) fn end(self) -> Vec<Kept> {
        own().get_mut(&self.0).map(std::mem::take).unwrap_or_default()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        RECORDING.set(RECORDING.get() - 1);
        // Dropped behind the lock: what is kept may be a plan.
        let _kept = own().remove(&self.0);
    }
}

/// Whether this thread is in the closure of [`crate::CudaGraph::capture`].
pub(super) fn is_recording() -> bool {
    RECORDING.get() != 0
}

/// Refuses `what` in the closure of [`crate::CudaGraph::capture`]: it would be done at once, and not by the graph.
pub(super) fn refuse_while_recording(what: impl Display) -> Result<(), Error> {
    if is_recording() { Err(not_recorded(what)) } else { Ok(()) }
}

/// The error for what cannot be a part of a graph.
pub(super) fn not_recorded(what: impl Display) -> Error {
    Error::NotRecorded { what: what.to_string().into() }
}

/// The capture that a stream is in.
pub(super) struct Capture {
    /// No other capture of the process has it.
    id: u64,
    graph: sys::CUgraph,
    /// What the next piece of work on the stream comes behind.
    behind: Vec<sys::CUgraphNode>,
}

/// The last launch of a plan in a capture.
#[derive(Clone, Copy)]
pub(super) struct CapturedLaunch {
    capture: u64,
    node: sys::CUgraphNode,
}

// SAFETY: the node is only compared and handed back to the driver, which accepts it from any thread.
unsafe impl Send for CapturedLaunch {}

impl Capture {
    /// The capture of `stream`, if what is queued there now is recorded instead of run. The context is current.
    ///
    /// # Safety
    /// `stream` is a live stream of `context`.
    pub(super) unsafe fn of(context: &Context, stream: sys::CUstream) -> Result<Option<Capture>, Error> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut id, mut graph, mut nodes, mut edges, mut count) = (0, std::ptr::null_mut(), std::ptr::null(), std::ptr::null(), 0);
        // SAFETY: the caller promises the stream; all out-pointers are writable.
        let code = unsafe { sys::cuStreamGetCaptureInfo_v3(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut edges, &mut count) };
        if code == CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT {
            // The legacy default stream while a stream that waits for it is captured. The capture goes on (driver API,
            // `cuStreamGetCaptureInfo`), but what is queued here would have to be a part of it.
            return Err(not_recorded("work on the default stream while a stream that synchronises with it is captured"));
        }
        context.check("cuStreamGetCaptureInfo", code)?;
        if status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(None);
        }
        // SAFETY: the driver's array of so many nodes lives until the next call about this capture.
        let behind = if count == 0 { Vec::new() } else { unsafe { std::slice::from_raw_parts(nodes, count) }.to_vec() };
        Ok(Some(Capture { id, graph, behind }))
    }

    /// Whether it is one of [`crate::CudaGraph::capture`]: then MACO has the graph, and replays it.
    pub(super) fn is_own(&self) -> bool {
        own().contains_key(&self.id)
    }

    /// Makes whoever has the graph an owner of `kept`: the [`crate::CudaGraph`] that it becomes, or the graph itself and all that are made of it. That takes a
    /// user object, which replays of small graphs probably pay for.
    pub(super) fn keep(&self, context: &Context, kept: Kept) -> Result<(), Error> {
        if let Some(all) = own().get_mut(&self.id) {
            all.push(kept);
            return Ok(());
        }
        // Objects of graphs are not synchronised by the driver, and a capture may have streams of several threads.
        static GRAPHS: Mutex<()> = Mutex::new(());
        let _one_at_a_time = GRAPHS.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread is there before the first owner goes.
        releaser();
        let owner = Box::into_raw(Box::new(kept));
        let mut object = std::ptr::null_mut();
        let flags = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
        // SAFETY: `object` is writable; `release` takes the pointer of a boxed `Kept`, once, from any thread.
        let code = unsafe { sys::cuUserObjectCreate(&mut object, owner.cast(), Some(release), 1, flags) };
        if code != CUresult::CUDA_SUCCESS {
            // SAFETY: there is no object that would release it.
            drop(unsafe { Box::from_raw(owner) });
        }
        context.check("cuUserObjectCreate", code)?;
        let flags = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
        // SAFETY: the graph is being captured into, which allows everything but destroying it and removing nodes (driver API,
        // `cuStreamGetCaptureInfo`); the one reference to the object becomes the graph's.
        let code = unsafe { sys::cuGraphRetainUserObject(self.graph, object, 1, flags) };
        if code != CUresult::CUDA_SUCCESS {
            // SAFETY: the reference is still ours; the driver calls `release`.
            let _ = unsafe { sys::cuUserObjectRelease(object, 1) };
        }
        context.check("cuGraphRetainUserObject", code)
    }

    /// Has the next piece of work on `stream` come behind `last` too; whether it would not have.
    ///
    /// # Safety
    /// `stream` is a live stream of `context`, and `self` is what [`Capture::of`] said of it last.
    pub(super) unsafe fn order(&self, context: &Context, stream: sys::CUstream, last: Option<CapturedLaunch>) -> Result<bool, Error> {
        let Some(mut last) = last.filter(|last| last.capture == self.id && !self.behind.contains(&last.node)) else { return Ok(false) };
        let add = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_ADD_CAPTURE_DEPENDENCIES as u32;
        // SAFETY: one node of the same capture, which nobody may remove while it goes on; without data the edge is an ordinary one.
        let code = unsafe { sys::cuStreamUpdateCaptureDependencies_v2(stream, &mut last.node, std::ptr::null(), 1, add) };
        context.check("cuStreamUpdateCaptureDependencies", code)?;
        Ok(true)
    }

    /// The work that was queued last on the stream, where it is one piece.
    pub(super) fn last(&self) -> Option<CapturedLaunch> {
        match self.behind[..] {
            [node] => Some(CapturedLaunch { capture: self.id, node }),
            _ => None,
        }
    }
}

/// The last graph with `owner` is gone.
///
/// # Safety
/// `owner` is a boxed [`Kept`] that nobody else has.
unsafe extern "C" fn release(owner: *mut c_void) {
    // SAFETY: promised by the caller.
    let owner = unsafe { Box::from_raw(owner.cast::<Kept>()) };
    if let Err(owner) = releaser().send(*owner) {
        // There is no thread: better leaked than dropped here.
        std::mem::forget(owner);
    }
}

/// Where what graphs have kept is dropped: not in `release`, which may call nothing of the driver (CUDA programming guide, "User objects").
fn releaser() -> &'static Sender<Kept> {
    static RELEASER: OnceLock<Sender<Kept>> = OnceLock::new();
    RELEASER.get_or_init(|| {
        let (sender, receiver) = channel::<Kept>();
        let thread = std::thread::Builder::new().name("maco-graphs".into());
        // `release` knows what to do without it.
        let _ = thread.spawn(move || receiver.into_iter().for_each(drop));
        sender
    })
}
