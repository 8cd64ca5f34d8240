//! Streams: queues of work of one GPU, owned or borrowed. On a CPU device a stream is a formality: work runs at once.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureStatus};

use super::context::{Context, FIRST_STREAM, UNKNOWN_STREAM};
use crate::device::Device;
use crate::error::Error;

/// A queue of work on one device.
pub struct Stream {
    device: Device,
    raw: sys::CUstream,
    /// Number among all streams of the process, or [`UNKNOWN_STREAM`] when borrowed.
    id: u64,
    /// What a capture in progress must keep alive.
    captured: Mutex<Vec<Arc<dyn Any + Send + Sync>>>,
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
        Ok(Stream { device: device.clone(), raw, id, captured: Mutex::default() })
    }

    /// The default stream of `device`, the legacy one, whose `CUstream` is null. No CUDA graph can be captured from it.
    pub fn default_of(device: &Device) -> Stream {
        Stream { device: device.clone(), raw: std::ptr::null_mut(), id: UNKNOWN_STREAM, captured: Mutex::default() }
    }

    /// A stream of another library, as a `CUstream`; it is not destroyed.
    ///
    /// # Errors
    /// MACO0056 on a CPU device.
    ///
    /// # Safety
    /// `raw` is a stream of the primary context of `device`, or one of CUDA's handles of default streams, and lives as long as the value. If it is captured into a CUDA graph
    /// by other means than [`crate::CudaGraph`], everything launched in the capture must outlive that graph.
    pub unsafe fn from_raw(device: &Device, raw: *mut c_void) -> Result<Stream, Error> {
        if !device.is_gpu() {
            return Err(Error::NeedsGpu { what: "a borrowed stream", device: device.to_string().into() });
        }
        Ok(Stream { device: device.clone(), raw: raw.cast(), id: UNKNOWN_STREAM, captured: Mutex::default() })
    }

    /// The `CUstream`; null on a CPU device, and of the default stream.
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits on the host until everything queued so far has ended.
    ///
    /// # Errors
    /// MACO0049 or MACO0050 when the GPU fails.
    pub fn synchronize(&self) -> Result<(), Error> {
        let Some(context) = self.device.context() else { return Ok(()) };
        let _entered = context.enter()?;
        // SAFETY: a live stream of the context.
        context.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(self.raw) })
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

    /// Whether what is queued now is recorded instead of run.
    pub(super) fn capturing(&self, context: &Context) -> Result<bool, Error> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a live stream of the context; `status` is writable.
        let code: CUresult = unsafe { sys::cuStreamIsCapturing(self.raw, &mut status) };
        context.check("cuStreamIsCapturing", code)?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// Keeps `value` for the graph that the capture in progress becomes.
    pub(super) fn keep(&self, value: Arc<dyn Any + Send + Sync>) {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }

    /// What was kept since the last call.
    pub(super) fn take_kept(&self) -> Vec<Arc<dyn Any + Send + Sync>> {
        std::mem::take(&mut *self.captured.lock().unwrap_or_else(PoisonError::into_inner))
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
