//! Memory that all ranks map, by its users: buffers at the same place on all ranks, and how the ranks stop. Channels do not belong here.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use maco_device::channel::{Control, CpuThread, DEADLINE, Operation, Peer, STOPPED_BY_HOST, System, Watch};
use maco_ranks::{Arena, Block, Cause, Error as RanksError, Failure, Group, Stall};

use super::channels::{ChannelOptions, Channels};
use crate::error::Error;

/// How long the report of a rank that has stopped may take to come.
const REPORT: Duration = Duration::from_secs(1);

/// An arena of each rank that all ranks map: `Communicator::symmetric`. Cloning gives the same; with the last clone, buffer and channel this rank's part is
/// freed. The communicator lives as long.
///
/// CPU ranks of one host have it: threads or processes, with memory files that have no name, so that nothing is left of them.
#[derive(Clone, Debug)]
pub struct SymmetricMemory(pub(super) Arc<Shared>);

/// What channels and buffers of a rank share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) arena: Arena,
    /// Where each rank has its control block.
    control: Block,
    /// Why this rank has stopped, once it is known.
    error: Mutex<Option<RanksError>>,
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
    pub(crate) fn new(group: Arc<Group>, bytes: usize) -> Result<SymmetricMemory, Error> {
        let arena = Arena::new(group, bytes)?;
        let control = arena.allocate("control block", size_of::<Control>())?;
        Ok(SymmetricMemory(Arc::new(Shared { arena, control, error: Mutex::new(None) })))
    }

    /// `bytes` bytes of zeros of every rank, at the same place. All ranks call it with the same name, which is for messages, and the same size.
    ///
    /// # Errors
    /// MACO0100 when there is no room, MACO0097 when ranks differ, MACO0095 when one does not come; the same on every rank.
    pub fn allocate(&self, name: &str, bytes: usize) -> Result<SymmetricBuffer, Error> {
        Ok(SymmetricBuffer { shared: self.0.clone(), block: self.0.arena.allocate(name, bytes)? })
    }

    /// Channels to every rank. All ranks call it with the same options.
    ///
    /// # Errors
    /// As [`SymmetricMemory::allocate`]; MACO0100 for options out of range.
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

    /// Ends all waits in channels of this memory, on all ranks, with an error: for a rank that does not go on.
    pub fn stop(&self) {
        self.0.spread(STOPPED_BY_HOST);
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

    /// Stores bytes in this rank's part.
    ///
    /// # Errors
    /// MACO0100 when they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let to = self.shared.own().wrapping_add(self.at(offset).of(bytes.len())? as usize);
        let system = CpuThread::new(|| 0);
        let (front, rest) = bytes.split_at(to.align_offset(4).min(bytes.len()));
        let (words, back) = rest.as_chunks::<4>();
        let each = |to: *mut u8, bytes: &[u8]| {
            for (n, byte) in bytes.iter().enumerate() {
                // SAFETY: (of all) inside this rank's mapped memory, as was checked, which others use by atomics, too.
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

    /// Loads bytes of this rank's part: what a peer has put there is visible behind the wait for its signal.
    ///
    /// # Errors
    /// MACO0100 when there are not so many.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let from = self.shared.own().wrapping_add(self.at(offset).of(bytes.len())? as usize).cast_const();
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

    /// Frees it on every rank, when all have come here. Dropping a buffer does not: ranks may drop in different orders.
    ///
    /// # Errors
    /// MACO0097 when ranks free different ones, MACO0095 when one does not come.
    pub fn free(self) -> Result<(), Error> {
        Ok(self.shared.arena.free(self.block)?)
    }
}

impl Shared {
    pub(super) fn group(&self) -> &Arc<Group> {
        self.arena.group()
    }

    /// Where this rank's memory is.
    pub(super) fn own(&self) -> *mut u8 {
        self.arena.pointer(self.group().rank()).as_ptr()
    }

    /// The memory of `rank`.
    pub(super) fn of(&self, rank: u32) -> Peer<u8> {
        // SAFETY: mapped as long as `self` lives, which every executor holds; all accesses are atomics.
        unsafe { Peer::new(self.arena.pointer(rank).as_ptr()) }
    }

    fn control(&self, rank: u32) -> *mut Control {
        self.arena.pointer(rank).as_ptr().wrapping_add(self.control.offset()).cast()
    }

    pub(super) fn watch(&self) -> Watch {
        let (rank, deadline) = (self.group().rank(), self.group().deadline());
        Watch { control: self.control(rank), rank, deadline_ns: deadline.as_nanos().try_into().unwrap_or(u64::MAX) }
    }

    /// This thread as an executor.
    pub(super) fn system(&self) -> CpuThread<impl Fn() -> u32> {
        CpuThread::new(|| match self.group().try_check() {
            Err(RanksError::Failed(failure)) => match *failure {
                Failure::Lost { rank, .. } => rank + 1,
                _ => 0,
            },
            _ => 0,
        })
    }

    /// Whether the ranks go on.
    pub(super) fn check(&self) -> Result<(), Error> {
        // SAFETY: of this rank, mapped.
        match unsafe { self.system().load4(&raw const (*self.control(self.group().rank())).stop) } {
            0 => Ok(()),
            _ => Err(self.stopped()),
        }
    }

    /// All ranks stop: because of `origin`, which is a rank plus 1, or the host.
    fn spread(&self, origin: u32) {
        let system = self.system();
        for rank in 0..self.group().ranks() {
            // SAFETY: (of all) mapped. Who reads the word goes on to read the report of `origin`, which is complete. A rank that stops by itself meanwhile is
            // told of this one instead: both reports are true.
            unsafe {
                let stop = &raw mut (*self.control(rank)).stop;
                if system.load4(stop) == 0 {
                    system.publish(stop, origin);
                }
            }
        }
    }

    /// Why the ranks do not go on: of the rank that stopped first, as far as this one knows. The others are told.
    pub(super) fn stopped(&self) -> Error {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.get_or_insert_with(|| self.find()).clone().into()
    }

    fn find(&self) -> RanksError {
        let system = self.system();
        // SAFETY: (of all) mapped words.
        let origin = unsafe { system.load4(&raw const (*self.control(self.group().rank())).stop) };
        std::sync::atomic::fence(Ordering::Acquire);
        let ended = || RanksError::Memory {
            what: "the channels were stopped by a rank (`SymmetricMemory::stop`)".into(),
            help: "make the symmetric memory again to go on",
        };
        if origin == STOPPED_BY_HOST || origin == 0 || origin > self.group().ranks() {
            return ended();
        }
        let control = self.control(origin - 1);
        let until = Instant::now() + REPORT;
        // Another thread of this rank may be at it.
        // SAFETY: as above.
        while unsafe { system.load4(&raw const (*control).complete) } == 0 {
            if Instant::now() >= until {
                return ended();
            }
            std::thread::yield_now();
        }
        system.acquire();
        // SAFETY: as above.
        let stall = unsafe {
            let word = |at: *const u32| system.load4(at);
            let elapsed = (&raw const (*control).elapsed).cast::<u32>();
            let operation = Operation::of(word(&raw const (*control).operation));
            Stall {
                rank: origin - 1,
                operation: operation.map_or("?", name),
                peer: word(&raw const (*control).peer),
                word: Some(word(&raw const (*control).word)).filter(|word| *word != u32::MAX).map(|word| u64::from(word) * 4),
                expected: word(&raw const (*control).expected),
                seen: word(&raw const (*control).seen),
                waited: Duration::from_nanos(u64::from(word(elapsed)) | u64::from(word(elapsed.add(1))) << 32),
                cause: match word(&raw const (*control).cause) {
                    _ if operation == Some(Operation::Trigger) => Cause::Outside,
                    DEADLINE => Cause::Deadline,
                    lost => Cause::Lost(lost - 1),
                },
            }
        };
        self.spread(origin);
        RanksError::Stalled(Box::new(stall))
    }
}

/// What a user calls it.
fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Wait => "wait",
        Operation::Packets => "receive packets",
        Operation::Credit => "send (for a slot that is free)",
        Operation::Room => "put (for room in the FIFO)",
        Operation::Flush => "flush",
        Operation::Trigger => "put",
    }
}
