//! What device code reads of the ranks of a plan: where this GPU has the memory of each, and what tasks have waited for in vain.

use std::sync::Arc;

use maco_abi::{Fifo, Ranks};

use super::context::Context;
use super::memory::DeviceMemory;
use crate::error::Error;
use crate::tensor::Rows;

/// [`Ranks`] with what it points to, in device memory.
#[derive(Debug)]
pub(crate) struct RankTable {
    context: Arc<Context>,
    memory: DeviceMemory,
    missing: u64,
    tiles: u32,
}

impl RankTable {
    /// Of a plan with so many tiles of collectives; `bases` is where this GPU has the memory of each rank, and `fifo` leads to the proxy, if there is one.
    pub(crate) fn new(context: &Arc<Context>, rank: u32, bases: &[u64], tiles: u32, fifo: Option<Fifo>) -> Result<RankTable, Error> {
        let behind = size_of::<Ranks>() as u64;
        let head = behind + size_of::<Fifo>() as u64;
        let missing = head + size_of_val(bases) as u64;
        let memory = DeviceMemory::zeroed(context, missing + 4 * u64::from(tiles), "the table of ranks")?;
        let at = |offset: u64| memory.address() + offset;
        let ranks = Ranks {
            rank,
            ranks: bases.len() as u32,
            bases: at(head),
            missing: at(missing),
            fifo: if fifo.is_some() { at(behind) } else { 0 },
        };
        let row = |bytes: usize| Rows { count: 1, bytes, pitch: bytes };
        // SAFETY: (of all) plain data without padding; the memory was sized for them.
        unsafe {
            context.upload(at(0), row(size_of::<Ranks>()), (&raw const ranks).cast())?;
            if let Some(fifo) = &fifo {
                context.upload(at(behind), row(size_of::<Fifo>()), (&raw const *fifo).cast())?;
            }
            context.upload(at(head), row(size_of_val(bases)), bases.as_ptr().cast())?;
        }
        let missing = at(missing);
        Ok(RankTable { context: context.clone(), memory, missing, tiles })
    }

    /// Of the [`Ranks`].
    pub(crate) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// The words of all tiles; none if the GPU cannot say them any more.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let mut words = vec![0u32; self.tiles as usize];
        let bytes = size_of_val(&*words);
        if bytes == 0 {
            return words;
        }
        // SAFETY: these words of the table, and as many of this function.
        match unsafe { self.context.download(words.as_mut_ptr().cast(), self.missing, Rows { count: 1, bytes, pitch: bytes }) } {
            Ok(()) => words,
            Err(_) => Vec::new(),
        }
    }

    /// Forgets what was waited for. No launch may be running.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        let begin = self.missing - self.memory.address();
        self.memory.fill(begin..begin + 4 * u64::from(self.tiles), 0)
    }
}
