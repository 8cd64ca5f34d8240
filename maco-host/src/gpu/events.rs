//! Events: points in a stream that can be waited for and timed.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult};

use super::capture::refuse_while_recording;
use super::context::{Context, SpareEvent};
use super::driver;
use super::stream::Stream;
use super::watchdog::Watchdog;
use crate::device::Device;
use crate::error::Error;

/// Looks at an event before the host sleeps between looks.
const SPIN: Duration = Duration::from_millis(2);
const NAP: Duration = Duration::from_micros(50);

/// An event of a context; goes back to it when nobody needs it any more.
pub(super) struct EventHandle {
    raw: sys::CUevent,
    context: Weak<Context>,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for EventHandle {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for EventHandle {}

impl EventHandle {
    /// A spare event of the context, or a new one. The context is current.
    pub(super) fn new(context: &Arc<Context>) -> Result<Arc<EventHandle>, Error> {
        let spare = context.spare_events().pop();
        let raw = match spare {
            Some(event) => event.0,
            None => {
                let mut raw = std::ptr::null_mut();
                // SAFETY: the context is current and `raw` writable.
                let code = unsafe { sys::cuEventCreate(&mut raw, sys::CUevent_flags::CU_EVENT_DEFAULT as u32) };
                context.check("cuEventCreate", code)?;
                raw
            }
        };
        Ok(Arc::new(EventHandle { raw, context: Arc::downgrade(context) }))
    }

    pub(super) fn raw(&self) -> sys::CUevent {
        self.raw
    }

    /// Marks this point of `stream`.
    ///
    /// # Safety
    /// `stream` is a live stream of `context`.
    pub(super) unsafe fn record(&self, context: &Context, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: a live event; the caller promises the stream.
        context.check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw, stream) })
    }

    /// In a capture: each replay of the graph marks this point of its own.
    ///
    /// # Safety
    /// `stream` is a live stream of `context` that is captured, and the event lives as long as the graph.
    pub(super) unsafe fn record_in_replays(&self, context: &Context, stream: sys::CUstream) -> Result<(), Error> {
        let external = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
        // SAFETY: a live event; the caller promises the rest.
        context.check("cuEventRecordWithFlags", unsafe { sys::cuEventRecordWithFlags(self.raw, stream, external) })
    }

    /// In a capture: each replay of the graph waits here for the point that was marked last when it began.
    ///
    /// # Safety
    /// As for [`EventHandle::record_in_replays`].
    pub(super) unsafe fn hold_replays(&self, context: &Context, stream: sys::CUstream) -> Result<(), Error> {
        let external = sys::CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL as u32;
        // SAFETY: a live event; the caller promises the rest.
        context.check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, self.raw, external) })
    }

    /// Has `stream` wait for the point.
    ///
    /// # Safety
    /// `stream` is a live stream of `context`.
    pub(super) unsafe fn hold(&self, context: &Context, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: a live event; the caller promises the stream.
        context.check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(stream, self.raw, 0) })
    }

    /// Whether the stream has passed the point. Behind a launch that never ends it never has: an error once another thread has found that.
    pub(super) fn done(&self, context: &Context) -> Result<bool, Error> {
        context.alive()?;
        // SAFETY: a live event.
        match unsafe { sys::cuEventQuery(self.raw) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => context.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits on the host until the stream has passed the point, or a launch is found that never ends.
    pub(super) fn synchronize(&self, context: &Context) -> Result<(), Error> {
        let (mut patience, mut watchdog) = (Patience::new(), Watchdog::new(context));
        while !self.done(context)? {
            if let Some(reason) = watchdog.look()?
                && !self.done(context)?
            {
                return Err(context.lose(&reason));
            }
            patience.wait();
        }
        Ok(())
    }

    /// Time from `earlier` to this event; the streams have passed both.
    pub(super) fn since(&self, earlier: &EventHandle, context: &Context) -> Result<Duration, Error> {
        let mut milliseconds = 0f32;
        // SAFETY: live events with timing; `milliseconds` is writable.
        context.check("cuEventElapsedTime", unsafe { driver::elapsed_time(&mut milliseconds, earlier.raw, self.raw) })?;
        Ok(Duration::from_secs_f64(milliseconds.max(0.0) as f64 / 1e3))
    }
}

impl Drop for EventHandle {
    fn drop(&mut self) {
        // Without a context, the primary context was released, and the event went with it.
        if let Some(context) = self.context.upgrade() {
            context.spare_events().push(SpareEvent(self.raw));
        }
    }
}

impl fmt::Debug for EventHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventHandle").field(&self.raw).finish()
    }
}

/// How the host waits: it looks often at first, then naps between looks.
pub(super) struct Patience(Instant);

impl Patience {
    pub(super) fn new() -> Patience {
        Patience(Instant::now())
    }

    pub(super) fn wait(&mut self) {
        if self.0.elapsed() < SPIN { std::hint::spin_loop() } else { std::thread::sleep(NAP) }
    }
}

/// A point in a stream, for timing.
#[derive(Debug)]
pub struct Event {
    handle: Arc<EventHandle>,
    context: Arc<Context>,
}

impl Event {
    /// An event of `device`, not recorded yet.
    ///
    /// # Errors
    /// MACO0056 on a CPU device, MACO0049 or MACO0050 when the GPU fails.
    pub fn new(device: &Device) -> Result<Event, Error> {
        let context = device.context().ok_or_else(|| Error::NeedsGpu { what: "an event", device: device.to_string().into() })?;
        let _entered = context.enter()?;
        Ok(Event { handle: EventHandle::new(context)?, context: context.clone() })
    }

    /// Marks the end of what `stream` holds now.
    ///
    /// # Errors
    /// MACO0033 when the stream is another device's, MACO0049 or MACO0050 when the GPU fails.
    pub fn record(&self, stream: &Stream) -> Result<(), Error> {
        let raw = stream.of(&self.context)?;
        let _entered = self.context.enter()?;
        // SAFETY: `of` checked that the stream belongs to the context.
        unsafe { self.handle.record(&self.context, raw) }
    }

    /// Waits on the host until the point is passed; at once when never recorded.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails, MACO0090 in a capture.
    pub fn synchronize(&self) -> Result<(), Error> {
        refuse_while_recording("waiting for an event")?;
        let _entered = self.context.enter()?;
        self.handle.synchronize(&self.context)
    }

    /// Device time from `earlier` to this event. Waits for both.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails, or when one was never recorded.
    pub fn since(&self, earlier: &Event) -> Result<Duration, Error> {
        earlier.synchronize()?;
        self.synchronize()?;
        let _entered = self.context.enter()?;
        self.handle.since(&earlier.handle, &self.context)
    }
}
