//! A piece of memory on every rank's GPU, which all ranks of a host have mapped. How it is divided does not belong here.
//!
//! Pieces go from rank to rank as file descriptors, between the threads of a process as between processes.

use std::fmt;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use maco_ranks::{Error as RanksError, Group, RankMemory, SharedMemory};

use super::capture::refuse_while_recording;
use super::context::Context;
use super::registered::Registered;
use super::topology::{Gpu, Reach, reach};
use super::virtual_memory::{Mapping, Physical, missing, settle};
use crate::agreement::own_or_all;
use crate::error::Error;
use crate::tensor::Rows;

/// Pieces of memory, one of each rank, mapped for the GPU of this one. A piece is freed when the last rank has dropped it; a rank that ends does not take it
/// from the others.
pub(crate) struct PeerMemory {
    context: Arc<Context>,
    rank: u32,
    bytes: usize,
    pieces: Vec<Mapping>,
    control: Registered,
    gpus: Vec<(Gpu, Reach)>,
}

impl PeerMemory {
    /// Whether this GPU can have such memory at all.
    ///
    /// # Errors
    /// MACO0100 if it cannot, MACO0090 in a capture, MACO0049 for a lost device.
    pub(crate) fn check(context: &Context, bytes: usize) -> Result<(), Error> {
        refuse_while_recording("making symmetric memory")?;
        context.alive()?;
        let what = match missing(context)? {
            Some(what) => format!("{context} has no {what}, so that other ranks cannot map its memory"),
            None if bytes == 0 => "0 bytes of symmetric memory were asked for".to_owned(),
            None => return Ok(()),
        };
        Err(RanksError::Memory { what: what.into(), help: "symmetric memory of GPUs has a byte or more, and needs both in driver and GPU" }
            .into())
    }

    /// Every rank makes `bytes` bytes of zeros on its GPU, the same on all, and maps those of all; `control` becomes a part of the GPU's address space.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0096 when one cannot do its part; the same on every rank. If all say the same, that is the error.
    pub(crate) fn new(group: &Group, context: &Arc<Context>, bytes: usize, control: &Arc<SharedMemory>) -> Result<PeerMemory, Error> {
        let own = Gpu::of(context);
        let (encoded, text) = (own.as_ref().map_or(Vec::new(), Gpu::encode), own.as_ref().err().map(Error::to_string));
        let all = group.vote("compare GPUs", text.as_deref().map_or(Ok(&encoded), Err));
        let gpus: Vec<Gpu> = both(own, all)?.1.iter().map(|gpu| Gpu::decode(gpu)).collect();

        let rank = group.rank() as usize;
        let made = reach(context, rank, &gpus).and_then(|reach| Ok((reach, Piece::new(context, bytes)?)));
        let (made, file) = match made {
            Ok((reach, piece)) => (Ok((reach, piece.mapping, piece.bytes)), Some(piece.file)),
            Err(error) => (Err(error), None),
        };
        let (size, text) = match &made {
            Ok((.., bytes)) => ((*bytes as u64).to_le_bytes(), String::new()),
            Err(error) => ([0; 8], error.to_string()),
        };
        let files = group.exchange_files("share memory of GPUs", file.map(|file| (&size[..], file)).ok_or(text.as_str()));
        let ((reach, own, _), files) = both(made, files)?;

        let mut own = Some(own);
        let map = |(peer, (size, file)): (usize, (Vec<u8>, OwnedFd))| match own.take_if(|_| peer == rank) {
            Some(own) => Ok(own),
            None => {
                let bytes = size.first_chunk().map_or(0, |size| u64::from_le_bytes(*size) as usize);
                let named = |error: Error| {
                    let what =
                        format!("the memory of rank {peer}, on {}, could not be mapped for {context}: {error}", gpus[peer].name).into();
                    Error::from(RanksError::Memory { what, help: "see whether the two GPUs have peer access: `nvidia-smi topo -p2p rw`" })
                };
                Physical::import(context, &file).and_then(|memory| memory.map(bytes)).map_err(named)
            }
        };
        let mapped = files.into_iter().enumerate().map(map).collect::<Result<Vec<_>, Error>>();
        let mapped = mapped.and_then(|pieces| Ok((pieces, Registered::new(context, control)?)));
        let text = mapped.as_ref().err().map(Error::to_string);
        // Nobody goes on alone.
        let all = group.vote("map memory of GPUs", text.as_deref().map_or(Ok(&[]), Err));
        let ((pieces, control), _) = both(mapped, all)?;
        let gpus = gpus.into_iter().zip(reach).collect();
        Ok(PeerMemory { context: context.clone(), rank: group.rank(), bytes, pieces, control, gpus })
    }

    /// Where this rank's GPU has the piece of `rank`: [`RankMemory::bytes`] bytes, mapped as long as this value lives.
    ///
    /// # Panics
    /// If there is no such rank.
    pub(crate) fn address(&self, rank: u32) -> u64 {
        self.pieces[rank as usize].address()
    }

    /// Two ranks that have one GPU, if there are any: the same two on all ranks.
    pub(crate) fn same_gpu(&self) -> Option<[u32; 2]> {
        let later = |first: usize| (first + 1..self.gpus.len()).find(move |&second| self.gpus[first].0.is(&self.gpus[second].0));
        (0..self.gpus.len()).find_map(|first| Some([first as u32, later(first)? as u32]))
    }

    /// Where this rank's GPU has its piece of the control blocks.
    pub(crate) fn control(&self) -> u64 {
        self.control.address()
    }

    /// Stores bytes in the piece of `rank`, behind what was launched on this GPU so far, and waits for it.
    pub(crate) fn write(&self, rank: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let Some(to) = self.address_within(rank, offset, bytes.len()) else { return Ok(()) };
        // SAFETY: `bytes` are there, and so is the place: mapped for this GPU as long as `self` lives.
        unsafe { self.context.upload(to, row(bytes.len()), bytes.as_ptr()) }
    }

    /// Loads bytes from the piece of `rank`, behind what was launched on this GPU so far.
    pub(crate) fn read(&self, rank: u32, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let Some(from) = self.address_within(rank, offset, bytes.len()) else { return Ok(()) };
        // SAFETY: as above.
        unsafe { self.context.download(bytes.as_mut_ptr(), from, row(bytes.len())) }
    }

    /// None for no bytes.
    fn address_within(&self, rank: u32, offset: usize, bytes: usize) -> Option<u64> {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{bytes} bytes at {offset} of {}", self.bytes);
        (bytes > 0).then(|| self.address(rank) + offset as u64)
    }
}

fn row(bytes: usize) -> Rows {
    Rows { count: 1, bytes, pitch: bytes }
}

/// The own value and what all gave. An error that all ranks have alike is the own one.
fn both<T, A>(own: Result<T, Error>, all: Result<A, RanksError>) -> Result<(T, A), Error> {
    let mut given = None;
    let own = own_or_all(own, all.map(|all| given = Some(all)))?;
    Ok((own, given.expect("there is one if there is no error")))
}

/// What this rank gives.
struct Piece {
    mapping: Mapping,
    file: OwnedFd,
    /// All of it: with what the granularity adds.
    bytes: usize,
}

impl Piece {
    fn new(context: &Arc<Context>, bytes: usize) -> Result<Piece, Error> {
        let (memory, bytes) = Physical::new(context, bytes, "symmetric memory")?;
        let mapping = memory.map(bytes)?;
        mapping.clear(0..bytes)?;
        Ok(Piece { mapping, file: memory.export()?, bytes })
    }
}

impl RankMemory for PeerMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn settle(&self) -> Result<(), String> {
        settle(&self.context).map_err(|error| error.to_string())
    }

    fn clear(&self, bytes: Range<usize>) -> Result<(), String> {
        self.pieces[self.rank as usize].clear(bytes).map_err(|error| error.to_string())
    }
}

impl fmt::Display for PeerMemory {
    /// `GPU 0 (NVIDIA H200); rank 1: GPU 1 (NVIDIA H200), peer access with native atomics`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.gpus[self.rank as usize].0.name)?;
        let others = (0..).zip(&self.gpus).filter(|(rank, _)| *rank != self.rank);
        others.into_iter().try_for_each(|(rank, (gpu, reach))| write!(f, "; rank {rank}: {}, {reach}", gpu.name))
    }
}

impl fmt::Debug for PeerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerMemory({} bytes on {self})", self.bytes)
    }
}
