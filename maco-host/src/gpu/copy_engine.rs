//! Copies to other GPUs while a kernel runs, and the triggers that its tasks push. What a proxy does with them does not belong here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;
use maco_abi::Fifo;

use super::context::Context;
use super::events::EventHandle;
use super::memory::{DeviceMemory, PinnedMemory};
use super::virtual_memory::settle;
use crate::error::Error;

/// Looks for the end of copies before the thread sleeps between two of them.
const EAGER: u32 = 2000;
const REST: Duration = Duration::from_micros(50);

/// A stream of its own, for copies between GPUs: copy engines make them, so that they need no multiprocessor, and wait for no kernel.
pub(crate) struct CopyEngine {
    context: Arc<Context>,
    stream: sys::CUstream,
}

// SAFETY: streams may be used from any thread; the driver locks its own state.
unsafe impl Send for CopyEngine {}
// SAFETY: as above.
unsafe impl Sync for CopyEngine {}

impl CopyEngine {
    pub(crate) fn new(context: &Arc<Context>) -> Result<CopyEngine, Error> {
        let _entered = context.enter()?;
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current and `stream` writable.
        context.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&mut stream, flags) })?;
        Ok(CopyEngine { context: context.clone(), stream })
    }

    /// Queues a copy behind the ones before.
    ///
    /// # Safety
    /// Both places are memory of GPUs that is mapped for this one until [`CopyEngine::finish`].
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        // SAFETY: passed on from the caller; a live stream of the context.
        self.context.check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) })
    }

    /// Returns when all copies have been made.
    pub(crate) fn finish(&self) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        let end = EventHandle::new(&self.context)?;
        // SAFETY: a live stream of the context, which nobody captures.
        unsafe { end.record(&self.context, self.stream)? };
        let mut looks = 0;
        while !end.done(&self.context)? {
            looks += 1;
            if looks < EAGER { std::thread::yield_now() } else { std::thread::sleep(REST) }
        }
        Ok(())
    }

    /// Waits for what was launched on the GPU.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        settle(&self.context)
    }
}

impl Drop for CopyEngine {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: made by `new` and destroyed once; the driver lets queued work finish.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
    }
}

impl fmt::Debug for CopyEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyEngine({})", self.context)
    }
}

/// Triggers in pinned memory, which tasks of a GPU push and a thread of the host takes, and the word from which tasks draw tickets.
pub(crate) struct TriggerMemory {
    context: Arc<Context>,
    /// The ring, and behind it the triggers taken and completed.
    pinned: Option<PinnedMemory>,
    head: DeviceMemory,
    size: u32,
}

impl TriggerMemory {
    /// For `size` triggers, a power of two.
    pub(crate) fn new(context: &Arc<Context>, size: u32) -> Result<TriggerMemory, Error> {
        let bytes = 16 * size as usize + 2 * size_of::<u32>();
        let pinned = PinnedMemory::new(context, bytes, "triggers of a proxy")?;
        let head = DeviceMemory::zeroed(context, 4, "tickets of a proxy")?;
        Ok(TriggerMemory { context: context.clone(), pinned: Some(pinned), head, size })
    }

    /// The ring, for the host.
    pub(crate) fn ring(&self) -> *mut u64 {
        self.pinned.as_ref().map_or(std::ptr::null_mut(), |pinned| pinned.pointer().cast())
    }

    /// What is behind it, likewise.
    pub(crate) fn progress(&self) -> *mut u32 {
        self.ring().wrapping_add(2 * self.size as usize).cast()
    }

    /// The same for tasks.
    pub(crate) fn table(&self, rank: u32) -> Result<Fifo, Error> {
        let _entered = self.context.enter()?;
        let ring = self.pinned.as_ref().map_or(Ok(0), |pinned| pinned.device_address(&self.context))?;
        Ok(Fifo { ring, head: self.head.address(), progress: ring + 16 * u64::from(self.size), size: self.size, rank })
    }

    /// All words are 0 again. No task runs, and no thread takes triggers.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        if let Some(pinned) = &self.pinned {
            // SAFETY: so many bytes; nobody else uses them, as the caller promises.
            unsafe { pinned.pointer().write_bytes(0, pinned.bytes()) };
        }
        self.head.clear()
    }
}

impl Drop for TriggerMemory {
    fn drop(&mut self) {
        if settle(&self.context).is_err() {
            // A kernel that may run for ever may store there: the pages stay.
            std::mem::forget(self.pinned.take());
        }
    }
}
