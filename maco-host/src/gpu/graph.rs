//! CUDA graphs: capture once, replay often. MACO's own task graphs are in `maco-graph`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;

use super::capture::{Capture, Kept, Recording, not_recorded, refuse_while_recording};
use super::context::Context;
use super::events::EventHandle;
use super::nccl::InGraph;
use super::stream::Stream;
use crate::error::Error;

/// A CUDA graph that can be replayed. It keeps the plans and arguments that were launched in its capture, on whichever stream.
pub struct CudaGraph {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
    /// Plans and arguments, which are dropped behind the graph.
    kept: Vec<Kept>,
}

// SAFETY: executable graphs may be used from any thread, one at a time: `launch` holds the launch order.
unsafe impl Send for CudaGraph {}
// SAFETY: as above.
unsafe impl Sync for CudaGraph {}

/// Ends a capture that `work` left by an error or a panic.
struct OpenCapture<'a> {
    context: &'a Context,
    stream: &'a Stream,
    active: bool,
}

impl OpenCapture<'_> {
    fn end(&mut self) -> Result<sys::CUgraph, Error> {
        self.active = false;
        let mut graph = std::ptr::null_mut();
        // SAFETY: a live stream that is being captured; `graph` is writable.
        let code = unsafe { sys::cuStreamEndCapture(self.stream.as_raw().cast(), &mut graph) };
        self.context.check("cuStreamEndCapture", code)?;
        Ok(graph)
    }
}

impl Drop for OpenCapture<'_> {
    fn drop(&mut self) {
        if self.active
            && let Ok(graph) = self.end()
            && !graph.is_null()
        {
            // SAFETY: the graph was made by this capture and nobody has it.
            let _ = unsafe { sys::cuGraphDestroy(graph) };
        }
    }
}

impl CudaGraph {
    /// Captures what `work` queues on `stream`, and on streams that it forks to: [`crate::Bound::launch_on`], and work of other libraries. Launches of one
    /// plan come one after another in the graph, also on several streams: they share the plan's memory.
    ///
    /// What would be done at once and not by the graph is refused in `work` (MACO0090): copies, allocations, plans, runs that are waited for.
    ///
    /// # Errors
    /// What `work` returns; MACO0056 on a CPU device; MACO0049 or MACO0050 when the GPU fails.
    pub fn capture<E: From<Error>>(stream: &Stream, work: impl FnOnce(&Stream) -> Result<(), E>) -> Result<CudaGraph, E> {
        let device = stream.device();
        let context = device.context().ok_or_else(|| Error::NeedsGpu { what: "a CUDA graph", device: device.to_string().into() })?;
        let entered = context.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream of the context, which is current.
        context.check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.as_raw().cast(), mode) })?;
        let mut capture = OpenCapture { context, stream, active: true };
        // SAFETY: a live stream of the context.
        let Some(begun) = (unsafe { Capture::of(context, stream.as_raw().cast())? }) else {
            return Err(not_recorded("a capture that has ended at once").into());
        };
        let kept = {
            let recording = Recording::begin(&begun);
            let _strict = entered.strict();
            work(stream)?;
            recording.end()
        };
        let graph = capture.end()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the graph was just captured; the executable one does not need it.
        unsafe {
            let code = sys::cuGraphInstantiateWithFlags(&mut raw, graph, 0);
            let _ = sys::cuGraphDestroy(graph);
            context.check("cuGraphInstantiate", code)?;
        }
        let made = CudaGraph { context: context.clone(), raw, kept };
        // The first launch would otherwise do it.
        // SAFETY: a live graph and a live stream of the context.
        context.check("cuGraphUpload", unsafe { sys::cuGraphUpload(made.raw, stream.as_raw().cast()) })?;
        Ok(made)
    }

    /// Replays on `stream`, behind everything launched before on the device. What the megakernels in it report is found by
    /// [`crate::Plan::check`] once the stream is synchronised.
    ///
    /// # Errors
    /// MACO0033 when the stream is another device's, MACO0049 or MACO0050 when the GPU fails, MACO0090 in a capture, MACO0098 when NCCL was to exchange for it and was
    /// aborted since.
    pub fn launch(&self, stream: &Stream) -> Result<(), Error> {
        self.replay(stream, 1).map(|_| ())
    }

    /// Mean device time of one replay over `replays` of them, back to back. Waits for the last.
    ///
    /// # Errors
    /// Those of [`CudaGraph::launch`].
    pub fn time(&self, stream: &Stream, replays: u32) -> Result<Duration, Error> {
        let replays = replays.max(1);
        let (begin, end) = self.replay(stream, replays)?;
        end.synchronize(&self.context)?;
        Ok(end.since(&begin, &self.context)? / replays)
    }

    fn replay(&self, stream: &Stream, replays: u32) -> Result<(Arc<EventHandle>, Arc<EventHandle>), Error> {
        let context = &self.context;
        let raw = stream.of(context)?;
        refuse_while_recording("replaying a CUDA graph")?;
        if self.kept.iter().filter_map(|kept| kept.downcast_ref::<InGraph>()).any(|nccl| !nccl.is_live()) {
            return Err(Error::StaleGraph);
        }
        let _entered = context.enter()?;
        // SAFETY: a live stream of the context.
        if unsafe { Capture::of(context, raw)? }.is_some() {
            return Err(not_recorded("replaying a CUDA graph"));
        }
        let (begin, end) = (EventHandle::new(context)?, EventHandle::new(context)?);
        let order = context.turn(raw, stream.id())?;
        // SAFETY: a live graph and a live stream of the context; the graph keeps what its kernels use, and dropping it waits.
        unsafe {
            begin.record(context, raw)?;
            for _ in 0..replays {
                context.check("cuGraphLaunch", sys::cuGraphLaunch(self.raw, raw))?;
            }
            end.record(context, raw)?;
        }
        order.end(&end);
        Ok((begin, end))
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // As for a plan: what a lost device may still run is leaked.
        if let Ok(_entered) = self.context.enter()
            && self.context.settle().is_ok()
        {
            // SAFETY: instantiated once and destroyed once; its launches have ended.
            let _ = unsafe { sys::cuGraphExecDestroy(self.raw) };
        }
    }
}

impl fmt::Debug for CudaGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaGraph(of {}, keeps {})", self.context, self.kept.len())
    }
}
