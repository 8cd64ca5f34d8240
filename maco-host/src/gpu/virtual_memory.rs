//! Physical memory of a GPU by the driver's virtual memory calls: made, handed to other processes as a file, mapped. Who has which piece does not belong here.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute, CUmemAllocationHandleType, CUresult};

use super::context::Context;
use super::memory::free_memory;
use crate::error::Error;

const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Physical memory. The driver frees it when all its handles, files and mappings are gone, in whatever process.
pub(super) struct Physical {
    context: Arc<Context>,
    handle: sys::CUmemGenericAllocationHandle,
}

/// Physical memory in the address space of this process, for this GPU. Whoever drops it makes sure that no other library's work uses it any more.
#[derive(Debug)]
pub(super) struct Mapping {
    // Dropped behind `Mapping::drop`.
    at: Addresses,
}

/// Addresses that nobody else gets.
#[derive(Debug)]
struct Addresses {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

/// What this GPU lacks to share memory; none if it lacks nothing.
pub(super) fn missing(context: &Context) -> Result<Option<&'static str>, Error> {
    let needed = [
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"),
        (
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            "memory that is passed on as a file descriptor",
        ),
    ];
    for (attribute, what) in needed {
        let mut value = 0;
        // SAFETY: `value` is writable, and the device exists.
        context.check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, context.device()) })?;
        if value == 0 {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// Waits for what was launched on this GPU, by replays of other libraries too, as far as they can be seen.
pub(super) fn settle(context: &Context) -> Result<(), Error> {
    let _entered = context.enter()?;
    context.settle().and_then(|()| context.settle_replays())
}

/// Memory on the GPU itself that can be handed on as a file.
fn properties(context: &Context) -> sys::CUmemAllocationProp {
    // SAFETY: plain data, whose zeros mean "nothing special"; enums are set below, and have a variant 0 where they are not.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = FILE;
    properties.location = location(context);
    properties
}

fn location(context: &Context) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: context.device() }
}

/// Of what sizes and addresses are multiples.
fn granularity(context: &Context) -> Result<usize, Error> {
    let mut granularity = 0;
    let least = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    // SAFETY: the properties are complete, and `granularity` is writable.
    let code = unsafe { sys::cuMemGetAllocationGranularity(&mut granularity, &properties(context), least) };
    context.check("cuMemGetAllocationGranularity", code).map(|()| granularity.max(1))
}

impl Physical {
    /// At least `bytes` bytes of this GPU, and how many they are. What is in them is not known. `what` names them in the error message.
    pub(super) fn new(context: &Arc<Context>, bytes: usize, what: &str) -> Result<(Physical, usize), Error> {
        let _entered = context.enter()?;
        let no_memory = || {
            let device = context.to_string().into();
            Error::OutOfMemory { what: what.into(), device, needed: bytes as u64, free: free_memory() }
        };
        let size = bytes.checked_next_multiple_of(granularity(context)?).ok_or_else(no_memory)?;
        let mut handle = 0;
        // SAFETY: the properties are complete, the size is a multiple of the granularity, and `handle` is writable.
        match unsafe { sys::cuMemCreate(&mut handle, size, &properties(context), 0) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(no_memory()),
            code => context.check("cuMemCreate", code)?,
        }
        Ok((Physical { context: context.clone(), handle }, size))
    }

    /// A file that stands for the memory, and keeps it.
    pub(super) fn export(&self) -> Result<OwnedFd, Error> {
        let mut descriptor: c_int = -1;
        // SAFETY: a live handle of memory that was made to be handed on so; for this type the driver writes a descriptor, which is an `int`.
        let code = unsafe { sys::cuMemExportToShareableHandle((&raw mut descriptor).cast(), self.handle, FILE, 0) };
        self.context.check("cuMemExportToShareableHandle", code)?;
        // SAFETY: the driver has just opened it for the caller, and nobody else knows it.
        let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // Another one, that programs which this one starts do not inherit.
        file.try_clone().map_err(|why| {
            Error::Ranks(Box::new(maco_ranks::Error::Memory {
                what: format!("the file of GPU memory could not be passed on: {why}").into(),
                help: "see the limit of open files: `ulimit -n`",
            }))
        })
    }

    /// The memory that a file stands for, of whatever process and GPU; it keeps the memory without the file.
    pub(super) fn import(context: &Arc<Context>, file: &OwnedFd) -> Result<Physical, Error> {
        let _entered = context.enter()?;
        let mut handle = 0;
        // For this type the driver takes the descriptor itself in the pointer's place (driver API, `cuMemImportFromShareableHandle`).
        let descriptor = std::ptr::without_provenance_mut::<c_void>(file.as_raw_fd() as usize);
        // SAFETY: the descriptor is open, and `handle` is writable. Of a file that is something else the driver makes an error.
        let code = unsafe { sys::cuMemImportFromShareableHandle(&mut handle, descriptor, FILE) };
        context.check("cuMemImportFromShareableHandle", code)?;
        Ok(Physical { context: context.clone(), handle })
    }

    /// Maps its first `bytes` bytes, all that there are, so that this GPU reads and writes them. The mapping keeps the memory.
    pub(super) fn map(&self, bytes: usize) -> Result<Mapping, Error> {
        let context = &self.context;
        let _entered = context.enter()?;
        let mut address = 0;
        // SAFETY: `address` is writable; 0 as address and flags mean anywhere.
        let code = unsafe { sys::cuMemAddressReserve(&mut address, bytes, granularity(context)?, 0, 0) };
        context.check("cuMemAddressReserve", code)?;
        let at = Addresses { context: context.clone(), address, bytes };
        // SAFETY: the range was reserved with this size and nothing is mapped there; the handle is live. If the memory is smaller, that is an error.
        context.check("cuMemMap", unsafe { sys::cuMemMap(address, bytes, 0, self.handle, 0) })?;
        let mapping = Mapping { at };
        let access =
            sys::CUmemAccessDesc { location: location(context), flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the range is mapped, and `access` is one description.
        context.check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(address, bytes, &access, 1) })?;
        Ok(mapping)
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        if let Ok(_entered) = self.context.enter() {
            // SAFETY: made or imported by this value, and released once; mappings keep the memory.
            let _ = unsafe { sys::cuMemRelease(self.handle) };
        }
    }
}

impl Mapping {
    pub(super) fn address(&self) -> u64 {
        self.at.address
    }

    /// Makes these bytes zeros and waits for it.
    pub(super) fn clear(&self, bytes: Range<usize>) -> Result<(), Error> {
        assert!(bytes.start <= bytes.end && bytes.end <= self.at.bytes, "bytes {bytes:?} of {}", self.at.bytes);
        let context = &self.at.context;
        let _entered = context.enter()?;
        // SAFETY: mapped for this GPU, and the range is inside; the stream is the context's.
        unsafe {
            let first = self.at.address + bytes.start as u64;
            context.check("cuMemsetD8Async", sys::cuMemsetD8Async(first, 0, bytes.len(), context.copies()))?;
            context.drain(context.copies())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // As `DeviceMemory`: what a lost device may use is leaked, and its addresses stay taken.
        let context = &self.at.context;
        if let (Ok(()), Ok(_entered)) = (settle(context), context.enter()) {
            // SAFETY: mapped by `Physical::map` as a whole, unmapped once, and used by no launch any more.
            let _ = unsafe { sys::cuMemUnmap(self.at.address, self.at.bytes) };
        } else {
            self.at.bytes = 0;
        }
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        if self.bytes > 0
            && let Ok(_entered) = self.context.enter()
        {
            // SAFETY: reserved with this size, nothing is mapped there any more, and freed once.
            let _ = unsafe { sys::cuMemAddressFree(self.address, self.bytes) };
        }
    }
}
