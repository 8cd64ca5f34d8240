//! What symmetric memory is made of: memory files of CPU ranks, or memory of GPUs. How it is divided does not belong here.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use maco_device::channel::{CpuThread, System};
use maco_ranks::{Arena, Group, RankMemory, SharedMemory};

use crate::device::Device;
use crate::error::Error;
use crate::gpu::PeerMemory;

/// Memory of all ranks.
#[derive(Debug)]
pub(super) enum Backing {
    Host(SharedMemory),
    Gpu(PeerMemory),
}

impl Backing {
    /// See `Communicator::symmetric`. `control` are the control blocks of all ranks.
    pub(super) fn new(group: &Group, device: &Device, bytes: usize, control: &Arc<SharedMemory>) -> Result<Backing, Error> {
        let bytes = Arena::rounded(bytes);
        match device.context() {
            None => Ok(Backing::Host(group.share(bytes)?)),
            Some(context) => Ok(Backing::Gpu(PeerMemory::new(group, context, bytes, control)?)),
        }
    }

    /// Where this rank has the memory of `rank`: of a GPU that is an address for its kernels alone.
    ///
    /// # Panics
    /// If there is no such rank.
    pub(super) fn pointer(&self, rank: u32) -> *mut u8 {
        match self {
            Backing::Host(memory) => memory.pointer(rank).as_ptr(),
            Backing::Gpu(memory) => std::ptr::without_provenance_mut(memory.address(rank) as usize),
        }
    }

    /// Two ranks that have one GPU, if there are any.
    pub(super) fn same_gpu(&self) -> Option<[u32; 2]> {
        match self {
            Backing::Host(_) => None,
            Backing::Gpu(memory) => memory.same_gpu(),
        }
    }

    /// Whether threads of the host load and store it.
    pub(super) fn is_host(&self) -> bool {
        matches!(self, Backing::Host(_))
    }

    /// Stores bytes in the memory of `rank`.
    ///
    /// # Panics
    /// Outside of it.
    pub(super) fn write(&self, rank: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let memory = match self {
            Backing::Gpu(memory) => return memory.write(rank, offset, bytes),
            Backing::Host(memory) => memory,
        };
        let to = inside(memory, rank, offset, bytes.len());
        let system = CpuThread::new(|| 0);
        let (front, rest) = bytes.split_at(to.align_offset(4).min(bytes.len()));
        let (words, back) = rest.as_chunks::<4>();
        let each = |to: *mut u8, bytes: &[u8]| {
            for (n, byte) in bytes.iter().enumerate() {
                // SAFETY: (of all) inside the mapped memory, as was checked, which others use by atomics, too.
                unsafe { system.store1(to.wrapping_add(n), *byte) };
            }
        };
        each(to, front);
        for (n, word) in words.iter().enumerate() {
            // SAFETY: as above; the first word is aligned.
            unsafe { system.store4(to.wrapping_add(front.len() + 4 * n).cast(), u32::from_ne_bytes(*word)) };
        }
        each(to.wrapping_add(bytes.len() - back.len()), back);
        Ok(())
    }

    /// Loads bytes of the memory of `rank`.
    ///
    /// # Panics
    /// Outside of it.
    pub(super) fn read(&self, rank: u32, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let memory = match self {
            Backing::Gpu(memory) => return memory.read(rank, offset, bytes),
            Backing::Host(memory) => memory,
        };
        let from = inside(memory, rank, offset, bytes.len()).cast_const();
        let system = CpuThread::new(|| 0);
        let (front, rest) = bytes.split_at_mut(from.align_offset(4).min(bytes.len()));
        let (words, back) = rest.as_chunks_mut::<4>();
        let each = |from: *const u8, bytes: &mut [u8]| {
            for (n, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: (of all) as of `write`.
                *byte = unsafe { system.load1(from.wrapping_add(n)) };
            }
        };
        each(from, front);
        for (n, word) in words.iter_mut().enumerate() {
            // SAFETY: as above; the first word is aligned.
            *word = unsafe { system.load4(from.wrapping_add(front.len() + 4 * n).cast()) }.to_ne_bytes();
        }
        each(from.wrapping_add(front.len() + 4 * words.len()), back);
        Ok(())
    }
}

/// The place of these bytes.
fn inside(memory: &SharedMemory, rank: u32, offset: usize, bytes: usize) -> *mut u8 {
    assert!(offset.checked_add(bytes).is_some_and(|end| end <= memory.bytes()), "{bytes} bytes at {offset} of {}", memory.bytes());
    memory.pointer(rank).as_ptr().wrapping_add(offset)
}

impl RankMemory for Backing {
    fn bytes(&self) -> usize {
        match self {
            Backing::Host(memory) => memory.bytes(),
            Backing::Gpu(memory) => memory.bytes(),
        }
    }

    fn settle(&self) -> Result<(), String> {
        match self {
            Backing::Host(memory) => memory.settle(),
            Backing::Gpu(memory) => memory.settle(),
        }
    }

    fn clear(&self, bytes: Range<usize>) -> Result<(), String> {
        match self {
            Backing::Host(memory) => memory.clear(bytes),
            Backing::Gpu(memory) => memory.clear(bytes),
        }
    }
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backing::Host(_) => f.write_str("the CPUs of this host"),
            Backing::Gpu(memory) => memory.fmt(f),
        }
    }
}
