//! Memory that all ranks of a host map: a memory file of each rank, passed on as a file descriptor. It has no name, so that nothing is left of it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};

use crate::agree::variants;
use crate::arena::RankMemory;
use crate::error::Error;
use crate::failure::Failure;
use crate::group::{Group, all_of};
use crate::link::MAX_DESCRIPTORS;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A piece of memory of every rank, mapped by this one. It is freed when the last rank has dropped it; a rank that ends does not take it from the others.
#[derive(Debug)]
pub struct SharedMemory {
    rank: u32,
    bytes: usize,
    pieces: Vec<MmapRaw>,
}

impl Group {
    /// Every rank gives a value and a file, and gets those of all, in their order: for memory that others map.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0096 when one gives an error, on several hosts, and for more than 253 ranks; the same on every rank.
    pub fn exchange_files(&self, operation: &str, given: Result<(&[u8], OwnedFd), &str>) -> Result<Vec<(Vec<u8>, OwnedFd)>, Error> {
        let refused = if !self.one_host() {
            Some("the ranks met over TCP, and only those of one host can share memory".to_owned())
        } else if self.ranks() as usize > MAX_DESCRIPTORS {
            Some(format!("{} ranks, at most {MAX_DESCRIPTORS} can share memory", self.ranks()))
        } else {
            None
        };
        let (value, file) = match (&refused, given) {
            (Some(text), _) => (Err(text.as_str()), None),
            (None, Ok((value, file))) => (Ok(value), Some(file)),
            (None, Err(text)) => (Err(text), None),
        };
        let answer = self.exchange(operation, value, file)?;
        let values = all_of(operation, answer.values)?;
        if answer.descriptors.len() != values.len() {
            // The hub has a file of everybody who has a value.
            return Err(Failure::Garbled { rank: 0 }.into());
        }
        Ok(values.into_iter().zip(answer.descriptors).collect())
    }

    /// Every rank makes `bytes` bytes of zeros, a multiple of 8 and the same on all, and maps those of all.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0096 when one cannot make or map the memory, and on several hosts, MACO0097 when sizes differ;
    /// the same on every rank.
    pub fn share(&self, bytes: usize) -> Result<SharedMemory, Error> {
        let operation = "share memory";
        let made = if bytes == 0 || !bytes.is_multiple_of(8) {
            Err(format!("{bytes} bytes were asked for, expected a multiple of 8 above 0"))
        } else {
            make(bytes).map_err(|why| format!("{bytes} bytes of shared memory could not be made: {why}"))
        };
        let size = (bytes as u64).to_le_bytes();
        let given = match made {
            Ok(file) => Ok((&size[..], file)),
            Err(ref text) => Err(text.as_str()),
        };
        let (sizes, files): (Vec<_>, Vec<_>) = self.exchange_files(operation, given)?.into_iter().unzip();
        if sizes.iter().any(|other| *other != sizes[0]) {
            let words = |size: &Vec<u8>| format!("{} bytes", size.first_chunk().map_or(0, |size| u64::from_le_bytes(*size)));
            return Err(Error::Differs { operation: operation.into(), variants: variants(sizes.iter().map(words)) });
        }
        let mapped = files.iter().map(|file| map(file, bytes)).collect::<io::Result<Vec<_>>>();
        let mapped = mapped.map_err(|why| format!("{bytes} bytes of each rank could not be mapped: {why}"));
        // Nobody goes on alone.
        self.vote("map shared memory", mapped.as_ref().map(|_| &[][..]).map_err(String::as_str))?;
        Ok(SharedMemory { rank: self.rank(), bytes, pieces: mapped.unwrap_or_default() })
    }
}

fn make(bytes: usize) -> io::Result<OwnedFd> {
    let file = memfd_create("maco", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, bytes as u64)?;
    fcntl_add_seals(&file, SEALS)?;
    Ok(file)
}

fn map(file: &OwnedFd, bytes: usize) -> io::Result<MmapRaw> {
    // A file that becomes shorter would kill whoever touches what was mapped.
    if fstat(file.as_fd())?.st_size as u64 != bytes as u64 || !fcntl_get_seals(file)?.contains(SEALS) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "its size may change, or is another one"));
    }
    MmapOptions::new().len(bytes).map_raw(file)
}

impl SharedMemory {
    /// Bytes of each rank's piece.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many pieces there are: one of each rank.
    pub fn ranks(&self) -> u32 {
        self.pieces.len() as u32
    }

    /// Which of them is this rank's own.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Where this rank has the piece of `rank`: [`SharedMemory::bytes`] bytes, at the beginning of a page, mapped as long as this value lives.
    /// Other ranks read and write it at the same time.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn pointer(&self, rank: u32) -> NonNull<u8> {
        NonNull::new(self.pieces[rank as usize].as_mut_ptr()).expect("a mapping is not at 0")
    }

    /// The piece of `rank` as words, for ranks that only use atomics.
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn words(&self, rank: u32) -> &[AtomicU64] {
        // SAFETY: `pointer` is the beginning of a page with `bytes` mapped bytes, as long as `self` lives; every bit pattern is a word, and others that
        // use safe code access it by atomics too. The file cannot become shorter (`map`).
        unsafe { std::slice::from_raw_parts(self.pointer(rank).as_ptr().cast::<AtomicU64>(), self.bytes / 8) }
    }
}

impl RankMemory for SharedMemory {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn settle(&self) -> Result<(), String> {
        Ok(())
    }

    fn clear(&self, bytes: Range<usize>) -> Result<(), String> {
        let words = self.words(self.rank).get(bytes.start / 8..bytes.end.div_ceil(8)).unwrap_or_default();
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        fence(Ordering::Release);
        Ok(())
    }
}
