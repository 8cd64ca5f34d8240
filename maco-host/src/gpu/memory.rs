//! Device memory and pinned host memory. Copies do not belong here.

use std::ops::Range;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{self, CUresult};

use super::capture::refuse_while_recording;
use super::context::Context;
use crate::error::Error;

/// Memory of a GPU. Whoever frees it makes sure that no launch uses it any more.
#[derive(Debug)]
pub(crate) struct DeviceMemory {
    context: Arc<Context>,
    address: u64,
    bytes: u64,
}

impl DeviceMemory {
    /// Zeroed memory of at least one byte; the driver aligns it to 256 bytes or more. `what` names it in the error message.
    pub(crate) fn zeroed(context: &Arc<Context>, bytes: u64, what: &str) -> Result<DeviceMemory, Error> {
        refuse_while_recording(format_args!("allocating {what}"))?;
        let _entered = context.enter()?;
        let bytes = bytes.max(256);
        let mut address = 0;
        // SAFETY: the context is current and `address` writable.
        match unsafe { sys::cuMemAlloc_v2(&mut address, bytes as usize) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                return Err(Error::OutOfMemory {
                    what: what.into(),
                    device: context.to_string().into(),
                    needed: bytes,
                    free: free_memory(),
                });
            }
            code => context.check("cuMemAlloc", code)?,
        }
        let memory = DeviceMemory { context: context.clone(), address, bytes };
        memory.clear()?;
        Ok(memory)
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Zeroes everything and waits for it. No launch may use the memory meanwhile.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        self.fill(0..self.bytes, 0)
    }

    /// Queues on `stream` that everything becomes zero.
    ///
    /// # Safety
    /// `stream` is a live stream of the context, which is entered, and the memory lives until it has come past that. Nothing beside what is before or behind it there uses
    /// the memory.
    pub(super) unsafe fn clear_on(&self, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: the caller's promise; so many bytes are this allocation's.
        self.context.check("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(self.address, 0, self.bytes as usize, stream) })
    }

    /// Makes these bytes of it `byte` and waits for it. No launch may use them meanwhile.
    pub(super) fn fill(&self, bytes: Range<u64>, byte: u8) -> Result<(), Error> {
        assert!(bytes.end <= self.bytes, "bytes {bytes:?} of {}", self.bytes);
        if bytes.is_empty() {
            return Ok(());
        }
        let context = &self.context;
        let _entered = context.enter()?;
        let (first, count) = (self.address + bytes.start, (bytes.end - bytes.start) as usize);
        // SAFETY: the range is inside this allocation; the stream is the context's.
        unsafe {
            context.check("cuMemsetD8Async", sys::cuMemsetD8Async(first, byte, count, context.copies()))?;
            context.drain(context.copies())
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // The driver waits for whatever runs before it frees, and has no watchdog. What a lost device may use is leaked.
        if let Ok(_entered) = self.context.enter()
            && self.context.settle().and_then(|()| self.context.settle_replays()).is_ok()
        {
            // SAFETY: allocated by `cuMemAlloc` in this context, and freed once.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Free and total bytes of the current context's GPU.
pub(super) fn free_memory() -> Option<(u64, u64)> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both out-pointers are writable.
    let code = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
    (code == CUresult::CUDA_SUCCESS).then_some((free as u64, total as u64))
}

/// Page-locked host memory, mapped into the address space of the GPU; zeroed.
#[derive(Debug)]
pub(super) struct PinnedMemory {
    context: Weak<Context>,
    pointer: *mut u8,
    bytes: usize,
}

// SAFETY: a plain allocation; who accesses it when is settled by its owner.
unsafe impl Send for PinnedMemory {}
// SAFETY: as above.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    pub(super) fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<PinnedMemory, Error> {
        let _entered = context.enter()?;
        let mut pointer = std::ptr::null_mut();
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: the context is current and `pointer` writable.
        match unsafe { sys::cuMemHostAlloc(&mut pointer, bytes, flags) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                let device = "pinned host memory".into();
                return Err(Error::OutOfMemory { what: what.into(), device, needed: bytes as u64, free: None });
            }
            code => context.check("cuMemHostAlloc", code)?,
        }
        let memory = PinnedMemory { context: Arc::downgrade(context), pointer: pointer.cast(), bytes };
        // SAFETY: just allocated with this size.
        unsafe { memory.pointer.write_bytes(0, bytes) };
        Ok(memory)
    }

    pub(super) fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its address on the GPU.
    pub(super) fn device_address(&self, context: &Context) -> Result<u64, Error> {
        let mut address = 0;
        // SAFETY: allocated with the flag for mapping; `address` is writable.
        context.check("cuMemHostGetDevicePointer", unsafe { sys::cuMemHostGetDevicePointer_v2(&mut address, self.pointer.cast(), 0) })?;
        Ok(address)
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let context = self.context.upgrade();
        let entered = context.as_deref().map(Context::enter);
        // Without a context left, the context is being dropped: it has made itself current and is not lost.
        if !matches!(entered, Some(Err(_))) {
            // SAFETY: allocated by `cuMemHostAlloc` and freed once.
            let _ = unsafe { sys::cuMemFreeHost(self.pointer.cast()) };
        }
    }
}
