//! Symmetric memory: an arena of each rank that all map, in which an allocation has the same offset on all. What is stored there does not belong here.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::group::Group;
use crate::memory::SharedMemory;

/// Where allocations begin, and what their sizes are rounded up to, in bytes: two cache lines, which processors fetch together.
pub const ALIGNMENT: usize = 128;

/// Memory of every rank, of one size that is set once, mapped by all. It is freed with the last arena, on each rank by itself; another one may be made then,
/// or at the same time.
#[derive(Debug)]
pub struct Arena {
    group: Arc<Group>,
    memory: SharedMemory,
    layout: Mutex<Layout>,
}

/// An allocation: the same offset and size on all ranks. Dropping it does not free it, since ranks would drop in different orders: [`Arena::free`] does, or the
/// end of the arena.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    name: Box<str>,
    offset: usize,
    bytes: usize,
}

impl Block {
    /// What it was called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes from the beginning of each rank's memory, a multiple of [`ALIGNMENT`].
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What is free, first fit. The same calls give the same places.
#[derive(Debug)]
struct Layout {
    /// Offset → bytes of free pieces, none of which touch.
    free: BTreeMap<usize, usize>,
    bytes: usize,
    used: usize,
    high_water: usize,
    /// Behind it nothing was ever allocated, so that there are zeros.
    touched: usize,
}

impl Layout {
    fn new(bytes: usize) -> Layout {
        Layout { free: BTreeMap::from([(0, bytes)]), bytes, used: 0, high_water: 0, touched: 0 }
    }

    fn allocate(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let (&offset, &found) = self.free.iter().find(|(_, free)| **free >= bytes)?;
        self.free.remove(&offset);
        if found > bytes {
            self.free.insert(offset + bytes, found - bytes);
        }
        self.used += bytes;
        self.high_water = self.high_water.max(self.used);
        Some(offset)
    }

    fn free(&mut self, mut offset: usize, bytes: usize) {
        let mut bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        self.used -= bytes;
        if let Some(next) = self.free.remove(&(offset + bytes)) {
            bytes += next;
        }
        if let Some((&before, &free)) = self.free.range(..offset).next_back()
            && before + free == offset
        {
            (offset, bytes) = (before, free + bytes);
        }
        self.free.insert(offset, bytes);
    }

    fn largest(&self) -> usize {
        self.free.values().copied().max().unwrap_or(0)
    }
}

impl Arena {
    /// Every rank makes `bytes` bytes of zeros, the same on all, rounded up to [`ALIGNMENT`], and maps those of all.
    ///
    /// # Errors
    /// MACO0095 when a rank does not come, MACO0096 when one cannot make or map its memory, and on several hosts, MACO0097 when sizes differ; the same on
    /// every rank.
    pub fn new(group: Arc<Group>, bytes: usize) -> Result<Arena, Error> {
        // Too much is refused where it is made, so that all learn of it.
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX & !(ALIGNMENT - 1));
        let memory = group.share(bytes)?;
        Ok(Arena { group, memory, layout: Mutex::new(Layout::new(bytes)) })
    }

    /// `bytes` bytes of zeros in the memory of every rank, at the same offset. All ranks call it with the same name and size.
    ///
    /// # Errors
    /// MACO0100 when there is no room, MACO0097 when ranks differ, MACO0095 when one does not come; the same on every rank. Nothing is allocated then.
    pub fn allocate(&self, name: &str, bytes: usize) -> Result<Block, Error> {
        let mut layout = self.layout();
        let placed = layout.allocate(bytes).ok_or_else(|| Error::Memory {
            what: format!(
                "`{name}` needs {bytes} bytes of symmetric memory, but of {} bytes {} are used, and the largest free piece has {}",
                layout.bytes,
                layout.used,
                layout.largest()
            )
            .into(),
            help: "make the symmetric memory larger, on all ranks, or free what is not needed any more",
        });
        if let Ok(offset) = placed {
            let end = offset + bytes;
            self.clear(offset, end.min(layout.touched));
            layout.touched = layout.touched.max(end);
        }
        let place = placed.as_ref().map_or(String::new(), |offset| format!(" at offset {offset}"));
        let line = format!("allocation `{name}`: {bytes} bytes{place}");
        let why = placed.as_ref().err().map(Error::to_string);
        let agreed = self.group.agree("allocate symmetric memory", &[line], why.as_deref().map_or(Ok(()), Err));
        match (agreed, placed) {
            (Ok(()), Ok(offset)) => Ok(Block { name: name.into(), offset, bytes }),
            // All have the same one.
            (Err(Error::Refused { alike: true, .. }), Err(own)) => Err(own),
            (Ok(()), Err(error)) | (Err(error), Err(_)) => Err(error),
            (Err(error), Ok(offset)) => {
                layout.free(offset, bytes);
                Err(error)
            }
        }
    }

    /// Fills this rank's part of a block with zeros. Others use it only after a vote that follows.
    pub fn clear_own(&self, block: &Block) {
        self.clear(block.offset, block.offset + block.bytes);
    }

    /// Frees a block, when all ranks have come here: none of them uses it any more.
    ///
    /// # Errors
    /// MACO0097 when ranks free different ones, MACO0095 when one does not come; the same on every rank. The block stays allocated then.
    pub fn free(&self, block: Block) -> Result<(), Error> {
        let mut layout = self.layout();
        let line = format!("allocation `{}`: {} bytes at offset {}", block.name, block.bytes, block.offset);
        self.group.agree("free symmetric memory", &[line], Ok(()))?;
        layout.free(block.offset, block.bytes);
        Ok(())
    }

    /// Zeros in this rank's memory, up to `end`. Others use it only after the vote that follows.
    fn clear(&self, offset: usize, end: usize) {
        let words = self.memory.words(self.memory.rank()).get(offset / 8..end.div_ceil(8)).unwrap_or_default();
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        fence(Ordering::Release);
    }

    fn layout(&self) -> std::sync::MutexGuard<'_, Layout> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ranks.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Bytes of each rank.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Bytes that are allocated now, on each rank.
    pub fn used(&self) -> usize {
        self.layout().used
    }

    /// Most bytes that were allocated at once, on each rank: how large the arena must be at least, if it is not fragmented.
    pub fn high_water(&self) -> usize {
        self.layout().high_water
    }

    /// Where this rank has the memory of `rank`: as [`SharedMemory::pointer`].
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn pointer(&self, rank: u32) -> NonNull<u8> {
        self.memory.pointer(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Blocks do not overlap, are inside, and what is freed can be had again: against a list of all bytes.
        #[test]
        fn blocks_are_apart(steps in prop::collection::vec((0usize..2000, 0usize..8), 1..60)) {
            const BYTES: usize = 64 * ALIGNMENT;
            let mut layout = Layout::new(BYTES);
            let mut blocks: Vec<(usize, usize)> = Vec::new();
            let units = |bytes: usize| bytes.max(1).div_ceil(ALIGNMENT);
            let mut most = 0;
            for (bytes, choice) in steps {
                if choice < 3 && !blocks.is_empty() {
                    let (offset, bytes) = blocks.remove(choice % blocks.len());
                    layout.free(offset, bytes);
                } else {
                    let mut taken = [false; BYTES / ALIGNMENT];
                    for &(offset, bytes) in &blocks {
                        taken[offset / ALIGNMENT..][..units(bytes)].fill(true);
                    }
                    let fits = taken.windows(units(bytes)).position(|run| !run.contains(&true));
                    let found = layout.allocate(bytes);
                    // First fit.
                    prop_assert_eq!(found, fits.map(|unit| unit * ALIGNMENT));
                    blocks.extend(found.map(|offset| (offset, bytes)));
                }
                let used: usize = blocks.iter().map(|(_, bytes)| units(*bytes) * ALIGNMENT).sum();
                most = most.max(used);
                prop_assert_eq!((layout.used, layout.high_water), (used, most));
            }
            for (offset, bytes) in blocks {
                layout.free(offset, bytes);
            }
            prop_assert_eq!(layout.free, BTreeMap::from([(0, BYTES)]));
        }
    }

    #[test]
    fn no_size_is_too_large_to_be_refused() {
        let mut layout = Layout::new(1024);
        for bytes in [1025, usize::MAX - 1, usize::MAX] {
            assert_eq!(layout.allocate(bytes), None);
        }
        assert_eq!(layout.allocate(1024), Some(0));
        assert_eq!(layout.allocate(0), None);
    }
}
