//! Memory behind a tensor: owned on the host, owned on a GPU, or borrowed from the user.

use std::alloc;
use std::sync::OnceLock;

use crate::device::Device;
use crate::error::Error;
use crate::exchange::SymmetricPart;
use crate::gpu;
use crate::hang::Hang;

/// Alignment of every tensor: a line of the L2 cache and more than a tensor map asks for.
pub(crate) const BASE_ALIGN: u64 = 256;

/// Zeroed host memory, aligned to [`BASE_ALIGN`]; accessed through raw pointers only.
#[derive(Debug)]
pub(crate) struct HostMemory {
    base: *mut u8,
    layout: alloc::Layout,
}

// SAFETY: a plain allocation; who may access it when is settled by the owners (tensors and plans).
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// `what` names it in the error message.
    pub(crate) fn zeroed(bytes: u64, what: &str) -> Result<HostMemory, Error> {
        let out_of_memory = || Error::OutOfMemory { what: what.into(), device: "host memory".into(), needed: bytes, free: None };
        let size = usize::try_from(bytes.max(1)).map_err(|_| out_of_memory())?;
        let layout = alloc::Layout::from_size_align(size, BASE_ALIGN as usize).map_err(|_| out_of_memory())?;
        // SAFETY: the size is not 0.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        if base.is_null() { Err(out_of_memory()) } else { Ok(HostMemory { base, layout }) }
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn address(&self) -> u64 {
        self.base as u64
    }

    /// Zeroes everything.
    ///
    /// # Safety
    /// Nobody else accesses it meanwhile.
    pub(crate) unsafe fn clear(&self) {
        // SAFETY: the allocation has this size; the caller promises exclusive access.
        unsafe { self.fill(self.layout.size() as u64, 0) }
    }

    /// Makes the first `bytes` bytes `byte`.
    ///
    /// # Safety
    /// There are as many, and nobody else accesses them meanwhile.
    pub(crate) unsafe fn fill(&self, bytes: u64, byte: u8) {
        // SAFETY: passed on from the caller.
        unsafe { self.base.write_bytes(byte, bytes as usize) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.base, self.layout) }
    }
}

/// Who frees the memory.
#[derive(Debug)]
enum Memory {
    Host(HostMemory),
    Gpu(gpu::DeviceMemory),
    /// The symmetric memory of a communicator, of which this is a part.
    Symmetric(SymmetricPart),
    /// The user; this is the address.
    Borrowed(u64),
}

/// Memory on a device. Launches in flight keep it alive.
#[derive(Debug)]
pub(crate) struct Buffer {
    device: Device,
    memory: Memory,
    /// Who uses it for ever.
    lost: OnceLock<Box<str>>,
}

impl Buffer {
    /// Zeroed memory.
    pub(crate) fn zeroed(device: &Device, bytes: u64, what: &str) -> Result<Buffer, Error> {
        let memory = match device.context() {
            None => Memory::Host(HostMemory::zeroed(bytes, what)?),
            Some(context) => Memory::Gpu(gpu::DeviceMemory::zeroed(context, bytes, what)?),
        };
        Ok(Buffer { device: device.clone(), memory, lost: OnceLock::new() })
    }

    /// Memory that other ranks store.
    pub(crate) fn symmetric(device: &Device, part: SymmetricPart) -> Buffer {
        Buffer { device: device.clone(), memory: Memory::Symmetric(part), lost: OnceLock::new() }
    }

    /// Memory that the user keeps alive.
    pub(crate) fn borrowed(device: &Device, address: u64) -> Buffer {
        Buffer { device: device.clone(), memory: Memory::Borrowed(address), lost: OnceLock::new() }
    }

    /// A thread goes on to use it, and nobody else may.
    pub(crate) fn lose(&self, hang: &Hang) {
        let _ = self.lost.set(hang.what().to_string().into());
    }

    /// An error if it was lost: MACO0092.
    pub(crate) fn usable(&self) -> Result<(), Error> {
        self.lost.get().map_or(Ok(()), |user| Err(Error::LostTensor { user: user.clone() }))
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn address(&self) -> u64 {
        match &self.memory {
            Memory::Host(memory) => memory.address(),
            Memory::Gpu(memory) => memory.address(),
            Memory::Symmetric(part) => part.address(),
            Memory::Borrowed(address) => *address,
        }
    }

    /// Whether it was allocated here.
    pub(crate) fn owned(&self) -> bool {
        !matches!(self.memory, Memory::Borrowed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_aligned_and_zero() {
        let memory = HostMemory::zeroed(1000, "a test").unwrap();
        assert_eq!(memory.address() % BASE_ALIGN, 0);
        // SAFETY: 1000 bytes are allocated, and nobody else has them.
        unsafe {
            assert!((0..1000).all(|at| memory.pointer().add(at).read() == 0));
            memory.pointer().add(999).write(7);
            memory.clear();
            assert_eq!(memory.pointer().add(999).read(), 0);
        }
    }

    #[test]
    fn too_much_host_memory_is_an_error() {
        let error = HostMemory::zeroed(1 << 62, "tensor `x`").unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { needed, .. } if needed == 1 << 62), "{error}");
        assert!(error.to_string().contains("tensor `x`"), "{error}");
        assert!(HostMemory::zeroed(u64::MAX, "tensor `x`").is_err());
    }
}
