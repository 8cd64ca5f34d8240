//! Memory that all ranks map, by its users: buffers at the same place on all ranks. Channels and how the ranks stop do not belong here.

use std::fmt;
use std::sync::Arc;

use maco_device::channel::{CpuThread, STOPPED_BY_HOST};
use maco_ranks::{Block, Error as RanksError, Group};

use super::channels::{ChannelOptions, Channels};
use super::control::Shared;
use super::port::Service;
use super::proxy::Signals;
use crate::device::Device;
use crate::error::Error;

/// An arena of each rank that all ranks map: `Communicator::symmetric`. Cloning gives the same; with the last clone, buffer and channel this rank's part is
/// freed, and others keep it as long as they use it. The communicator lives as long.
///
/// Ranks of one host have it, threads or processes: memory of their GPUs, or, on CPUs, memory files. Neither has a name, so that nothing is left of it.
#[derive(Clone)]
pub struct SymmetricMemory(pub(super) Arc<Shared>);

/// What kernels need: addresses of one rank's GPU, or of this process on a CPU.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymmetricTable {
    /// This rank's `maco_device::channel::Control`.
    pub control: u64,
    /// The memory of each rank, in their order.
    pub bases: Vec<u64>,
}

/// Memory of every rank, at the same place on all.
#[derive(Debug)]
pub struct SymmetricBuffer {
    shared: Arc<Shared>,
    block: Block,
}

/// A place in a [`SymmetricBuffer`], which is one on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymmetricPlace {
    /// From the beginning of the symmetric memory.
    offset: u64,
    /// Bytes up to the buffer's end; none if it is behind that.
    left: Option<u64>,
}

impl SymmetricPlace {
    /// The offset in the symmetric memory, if `bytes` bytes from here are in the buffer.
    ///
    /// # Errors
    /// MACO0100 if not.
    pub(super) fn of(self, bytes: usize) -> Result<u64, Error> {
        let left = self.left.filter(|left| bytes as u64 <= *left);
        left.map(|_| self.offset).ok_or_else(|| {
            let what = match self.left {
                Some(left) => format!("{bytes} bytes from a place in a symmetric buffer that has {left} bytes from there on"),
                None => "a place behind the end of its symmetric buffer".to_owned(),
            };
            RanksError::Memory { what: what.into(), help: "see offset and size: both are in bytes" }.into()
        })
    }

    /// The same of a word.
    pub(super) fn of_word(self) -> Result<u64, Error> {
        let offset = self.of(4)?;
        if offset.is_multiple_of(4) {
            return Ok(offset);
        }
        let what = format!("a word at offset {offset} of the symmetric memory, which is no multiple of 4").into();
        Err(RanksError::Memory { what, help: "`read` and `write` are of words of 4 bytes; `get` and `put` copy any bytes" }.into())
    }

    /// So many bytes further.
    pub fn plus(self, bytes: usize) -> SymmetricPlace {
        let left = self.left.and_then(|left| left.checked_sub(bytes as u64));
        SymmetricPlace { offset: self.offset.saturating_add(bytes as u64), left }
    }
}

impl SymmetricMemory {
    /// See `Communicator::symmetric`.
    pub(crate) fn new(group: Arc<Group>, device: &Device, bytes: usize) -> Result<SymmetricMemory, Error> {
        Ok(SymmetricMemory(Arc::new(Shared::new(group, device, bytes)?)))
    }

    /// `bytes` bytes of zeros of every rank, at the same place. All ranks call it with the same name, which is for messages, and the same size.
    ///
    /// # Errors
    /// MACO0100 when there is no room, MACO0097 when ranks differ, MACO0096 when a GPU fails, MACO0095 when a rank does not come; the same on every rank.
    pub fn allocate(&self, name: &str, bytes: usize) -> Result<SymmetricBuffer, Error> {
        Ok(SymmetricBuffer { shared: self.0.clone(), block: self.0.arena.allocate(name, bytes)? })
    }

    /// Channels to every rank, for threads of CPU ranks. All ranks call it with the same options.
    ///
    /// # Errors
    /// As [`SymmetricMemory::allocate`]; MACO0100 for options out of range, and for memory of GPUs, which threads do not load and store.
    pub fn channels(&self, options: &ChannelOptions) -> Result<Channels, Error> {
        Channels::new(&self.0, options)
    }

    /// Bytes of each rank.
    pub fn bytes(&self) -> usize {
        self.0.arena.bytes()
    }

    /// Bytes that are allocated now, on each rank, with what channels need.
    pub fn used(&self) -> usize {
        self.0.arena.used()
    }

    /// Most bytes that were allocated at once, on each rank.
    pub fn high_water(&self) -> usize {
        self.0.arena.high_water()
    }

    /// Ends all waits in channels of this memory, on all ranks, with an error: for a rank that does not go on. Waits of a kernel that runs end, too.
    pub fn stop(&self) {
        self.0.spread(STOPPED_BY_HOST);
    }

    /// Whether the ranks go on: a wait of any of them, on a GPU in a kernel, may have ended in vain. Does not wait, also beside a kernel that runs.
    ///
    /// # Errors
    /// MACO0099 with the wait, which from then on is the error of all ranks; MACO0100 after [`SymmetricMemory::stop`].
    pub fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    /// A thread of this rank that does what tasks of a plan hand over, of which so many may wait: it copies, and signals behind what it has copied.
    pub(crate) fn proxy(&self, device: &Device, triggers: u32) -> Result<Service, Error> {
        Service::start(self.0.clone(), device, Signals::Behind, triggers)
    }

    /// Two ranks that have one GPU, if there are any: the same two on all ranks.
    pub(crate) fn same_gpu(&self) -> Option<[u32; 2]> {
        self.0.arena.memory().same_gpu()
    }

    /// This thread as an executor.
    pub(crate) fn system(&self) -> CpuThread<impl Fn() -> u32> {
        self.0.system()
    }

    /// Why the ranks do not go on.
    pub(crate) fn stopped(&self) -> Error {
        self.0.stopped()
    }

    /// A part of every rank's memory, for the messages of a plan. All ranks call it.
    pub(crate) fn block(&self, name: &str, bytes: usize) -> Result<Block, Error> {
        Ok(self.0.arena.allocate(name, bytes)?)
    }

    /// Bytes of the largest piece that is free.
    pub(crate) fn largest_free(&self) -> usize {
        self.0.arena.largest_free()
    }

    /// Gives it back. All ranks call it.
    pub(crate) fn free(&self, block: Block) -> Result<(), RanksError> {
        self.0.arena.free(block)
    }

    /// Makes this rank's part zeros. Others use it only after the vote that follows.
    pub(crate) fn clear(&self, block: &Block) -> Result<(), Error> {
        let help = "the GPU has failed: end the program";
        self.0.arena.clear_own(block).map_err(|what| RanksError::Memory { what: what.into(), help }.into())
    }

    /// What kernels need to get at the memory: valid as long as this value, a buffer or a channel lives.
    #[doc(hidden)]
    pub fn table(&self) -> SymmetricTable {
        SymmetricTable { control: self.0.control_address(), bases: (0..self.0.group().ranks()).map(|rank| self.0.base(rank)).collect() }
    }
}

impl fmt::Debug for SymmetricMemory {
    /// Also where it is, and how this rank's GPU gets at the others'.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, ranks) = (self.0.group().rank(), self.0.group().ranks());
        write!(f, "SymmetricMemory({} bytes of rank {rank} of {ranks}, on {})", self.bytes(), self.0.arena.memory())
    }
}

impl SymmetricBuffer {
    /// The place `offset` bytes from the beginning, for channels.
    pub fn at(&self, offset: usize) -> SymmetricPlace {
        SymmetricPlace { offset: self.block.offset() as u64, left: Some(self.block.bytes() as u64) }.plus(offset)
    }

    /// Bytes of each rank.
    pub fn bytes(&self) -> usize {
        self.block.bytes()
    }

    /// Stores bytes in this rank's part. On a GPU it comes behind what was launched there, and waits for it.
    ///
    /// # Errors
    /// MACO0100 when they do not fit, MACO0049 or MACO0050 when the GPU fails, MACO0090 in a capture.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let offset = self.at(offset).of(bytes.len())? as usize;
        self.shared.arena.memory().write(self.shared.group().rank(), offset, bytes)
    }

    /// Loads bytes of this rank's part: what a peer has put there is visible behind the wait for its signal. On a GPU it comes behind what was launched there,
    /// and waits for it.
    ///
    /// # Errors
    /// MACO0100 when there are not so many, else as [`SymmetricBuffer::write`].
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.read_from(self.shared.group().rank(), offset, bytes)
    }

    /// Loads bytes of the part of `rank`: what that rank has stored before it said so, as by a barrier. It may have ended since.
    ///
    /// # Errors
    /// As [`SymmetricBuffer::read`]; MACO0100 when there is no such rank.
    pub fn read_from(&self, rank: u32, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let offset = self.at(offset).of(bytes.len())? as usize;
        let ranks = self.shared.group().ranks();
        if rank >= ranks {
            let what = format!("the part of rank {rank} of a symmetric buffer of {ranks} ranks").into();
            return Err(RanksError::Memory { what, help: "ranks count from 0" }.into());
        }
        self.shared.arena.memory().read(rank, offset, bytes)
    }

    /// Frees it on every rank, when all have come here. Dropping a buffer does not: ranks may drop in different orders.
    ///
    /// # Errors
    /// MACO0097 when ranks free different ones, MACO0095 when one does not come.
    pub fn free(self) -> Result<(), Error> {
        Ok(self.shared.arena.free(self.block)?)
    }
}
