//! Streams: queues of work of one GPU, owned or borrowed. On a CPU device a stream is a formality: work runs at once.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys;

use super::capture::{Capture, not_recorded, refuse_while_recording};
use super::context::{Context, FIRST_STREAM, UNKNOWN_STREAM};
use crate::device::Device;
use crate::error::Error;

/// A queue of work on one device.
pub struct Stream {
    device: Device,
    raw: sys::CUstream,
    /// Number among all streams of the process, or [`UNKNOWN_STREAM`] when borrowed.
    id: u64,
}

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream of `device`, not synchronised with the default stream.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails.
    pub fn new(device: &Device) -> Result<Stream, Error> {
        static NEXT: AtomicU64 = AtomicU64::new(FIRST_STREAM);
        let mut raw = std::ptr::null_mut();
        if let Some(context) = device.context() {
            let _entered = context.enter()?;
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the context is current and `raw` writable.
            context.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Stream { device: device.clone(), raw, id })
    }

    /// The default stream of `device`, the legacy one, whose `CUstream` is null. No CUDA graph can be captured from it.
    pub fn default_of(device: &Device) -> Stream {
        Stream { device: device.clone(), raw: std::ptr::null_mut(), id: UNKNOWN_STREAM }
    }

    /// A stream of another library, as a `CUstream`; it is not destroyed. That library may capture it into a CUDA graph, which then keeps the plans and
    /// arguments that were launched in the capture. Copies, runs that are waited for, and allocations are not on any stream of that library: they are
    /// done at once, also during its capture.
    ///
    /// # Errors
    /// MACO0056 on a CPU device.
    ///
    /// # Safety
    /// `raw` is a stream of the primary context of `device`, or one of CUDA's handles of default streams, and lives as long as the value.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void) -> Result<Stream, Error> {
        if !device.is_gpu() {
            return Err(Error::NeedsGpu { what: "a borrowed stream", device: device.to_string().into() });
        }
        Ok(Stream { device: device.clone(), raw: raw.cast(), id: UNKNOWN_STREAM })
    }

    /// The `CUstream`; null on a CPU device, and of the default stream.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits on the host until everything queued so far has ended. What launches have reported, such as a hang, [`crate::Plan::check`] says.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails, or a launch is found that never ends; MACO0090 in a capture.
    pub fn synchronize(&self) -> Result<(), Error> {
        let Some(context) = self.device.context() else { return Ok(()) };
        refuse_while_recording("waiting for a stream")?;
        let _entered = context.enter()?;
        // SAFETY: a live stream of the context.
        if unsafe { Capture::of(context, self.raw)? }.is_some() {
            return Err(not_recorded("waiting for a stream"));
        }
        // SAFETY: as above; not captured.
        unsafe { context.drain(self.raw) }
    }

    /// The handle, if the stream belongs to `context`.
    pub(super) fn of(&self, context: &Arc<Context>) -> Result<sys::CUstream, Error> {
        match self.device.context() {
            Some(own) if Arc::ptr_eq(own, context) => Ok(self.raw),
            _ => Err(Error::WrongDevice {
                what: "the stream".into(),
                expected: context.to_string().into(),
                found: self.device.to_string().into(),
            }),
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.id == UNKNOWN_STREAM {
            return;
        }
        if let Some(context) = self.device.context()
            && let Ok(_entered) = context.enter()
        {
            // SAFETY: made by `new` and destroyed once; the driver lets queued work finish.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:p} of {})", self.raw, self.device)
    }
}
