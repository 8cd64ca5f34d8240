//! CUDA graphs: capture once, replay often. MACO's own task graphs are in `maco-graph`.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;

use super::context::Context;
use super::events::EventHandle;
use super::stream::Stream;
use crate::error::Error;

/// A CUDA graph that can be replayed. It keeps the plans and arguments that were launched in its capture.
pub struct CudaGraph {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
    kept: Vec<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: executable graphs may be used from any thread, one at a time: `launch` holds the launch order.
unsafe impl Send for CudaGraph {}
// SAFETY: as above.
unsafe impl Sync for CudaGraph {}

/// Ends a capture that `work` left by an error or a panic.
struct Capture<'a> {
    context: &'a Context,
    stream: &'a Stream,
    active: bool,
}

impl Capture<'_> {
    fn end(&mut self) -> Result<sys::CUgraph, Error> {
        self.active = false;
        let mut graph = std::ptr::null_mut();
        // SAFETY: a live stream that is being captured; `graph` is writable.
        let code = unsafe { sys::cuStreamEndCapture(self.stream.as_raw().cast(), &mut graph) };
        self.context.check("cuStreamEndCapture", code)?;
        Ok(graph)
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.active {
            if let Ok(graph) = self.end()
                && !graph.is_null()
            {
                // SAFETY: the graph was made by this capture and nobody has it.
                let _ = unsafe { sys::cuGraphDestroy(graph) };
            }
            self.stream.take_kept();
        }
    }
}

impl CudaGraph {
    /// Captures what `work` queues on `stream`: [`crate::Bound::launch_on`], and work of other libraries.
    ///
    /// # Errors
    /// What `work` returns; MACO0056 on a CPU device; MACO0049 or MACO0050 when the GPU fails.
    pub fn capture<E: From<Error>>(stream: &Stream, work: impl FnOnce(&Stream) -> Result<(), E>) -> Result<CudaGraph, E> {
        let device = stream.device();
        let context = device.context().ok_or_else(|| Error::NeedsGpu { what: "a CUDA graph", device: device.to_string().into() })?;
        let _entered = context.enter()?;
        stream.take_kept();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream of the context, which is current.
        context.check("cuStreamBeginCapture", unsafe { sys::cuStreamBeginCapture_v2(stream.as_raw().cast(), mode) })?;
        let mut capture = Capture { context, stream, active: true };
        work(stream)?;
        let graph = capture.end()?;
        let kept = stream.take_kept();
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
    /// MACO0033 when the stream is another device's, MACO0049 or MACO0050 when the GPU fails.
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
        let _entered = context.enter()?;
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
        if let Ok(_entered) = self.context.enter() {
            let _ = self.context.settle();
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
