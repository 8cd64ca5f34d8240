//! Symmetric memory: an arena of each rank that all map, in which an allocation has the same offset on all. Neither what is stored there nor where the memory
//! comes from belongs here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;
use crate::group::Group;
use crate::memory::SharedMemory;

/// Where allocations begin, and what their sizes are rounded up to, in bytes: two cache lines, which processors fetch together.
pub const ALIGNMENT: usize = 128;

/// A piece of memory of every rank, all of one size, that all ranks have mapped: [`SharedMemory`], or that of GPUs.
pub trait RankMemory {
    /// Bytes of each rank's piece, a multiple of [`ALIGNMENT`].
    fn bytes(&self) -> usize;

    /// Returns when nothing that this rank has started uses any piece.
    ///
    /// # Errors
    /// Why that is not known, which all ranks are told.
    fn settle(&self) -> Result<(), String>;

    /// Makes bytes of this rank's own piece zeros, and returns when they are. Others use them only after the vote that follows.
    ///
    /// # Errors
    /// Why it could not be done, which all ranks are told.
    fn clear(&self, bytes: Range<usize>) -> Result<(), String>;
}

/// Memory of every rank, of one size that is set once, mapped by all. It is freed with the last arena, on each rank by itself; another one may be made then,
/// or at the same time.
#[derive(Debug)]
pub struct Arena<M = SharedMemory> {
    group: Arc<Group>,
    memory: M,
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
        let memory = group.share(Arena::rounded(bytes))?;
        Ok(Arena::over(group, memory))
    }

    /// A size as arenas have it. Too much is refused where it is made, so that all learn of it.
    pub fn rounded(bytes: usize) -> usize {
        bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX & !(ALIGNMENT - 1))
    }

    /// Where this rank has the memory of `rank`: as [`SharedMemory::pointer`].
    ///
    /// # Panics
    /// If there is no such rank.
    pub fn pointer(&self, rank: u32) -> NonNull<u8> {
        self.memory.pointer(rank)
    }
}

impl<M: RankMemory> Arena<M> {
    /// Over memory that the ranks of `group` have made together, which is all zeros.
    pub fn over(group: Arc<Group>, memory: M) -> Arena<M> {
        let layout = Mutex::new(Layout::new(memory.bytes()));
        Arena { group, memory, layout }
    }

    /// `bytes` bytes of zeros in the memory of every rank, at the same offset. All ranks call it with the same name and size.
    ///
    /// # Errors
    /// MACO0100 when there is no room, MACO0097 when ranks differ, MACO0096 when one cannot clear what was used before, MACO0095 when one does not come; the
    /// same on every rank. Nothing is allocated then.
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
        let why = match &placed {
            Ok(offset) => self.renew(&mut layout, *offset, bytes).err(),
            Err(error) => Some(error.to_string()),
        };
        let place = placed.as_ref().map_or(String::new(), |offset| format!(" at offset {offset}"));
        let line = format!("allocation `{name}`: {bytes} bytes{place}");
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

    /// Zeros where something was before.
    fn renew(&self, layout: &mut Layout, offset: usize, bytes: usize) -> Result<(), String> {
        let end = offset + bytes;
        let old = offset..end.min(layout.touched);
        layout.touched = layout.touched.max(end);
        if old.is_empty() { Ok(()) } else { self.memory.clear(old) }
    }

    /// Makes this rank's part of a block zeros. Others use it only after the vote that follows.
    ///
    /// # Errors
    /// Why it could not be done.
    pub fn clear_own(&self, block: &Block) -> Result<(), String> {
        self.memory.clear(block.offset..block.offset + block.bytes)
    }

    /// Frees a block, when all ranks have come here: none of them uses it any more.
    ///
    /// # Errors
    /// MACO0097 when ranks free different ones, MACO0096 when one cannot say that nothing uses it, MACO0095 when one does not come; the same on every rank.
    /// The block stays allocated then.
    pub fn free(&self, block: Block) -> Result<(), Error> {
        let mut layout = self.layout();
        let line = format!("allocation `{}`: {} bytes at offset {}", block.name, block.bytes, block.offset);
        let why = self.memory.settle().err();
        self.group.agree("free symmetric memory", &[line], why.as_deref().map_or(Ok(()), Err))?;
        layout.free(block.offset, block.bytes);
        Ok(())
    }

    fn layout(&self) -> std::sync::MutexGuard<'_, Layout> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ranks.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// What it is made of.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Bytes of each rank.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Bytes that are allocated now, on each rank.
    pub fn used(&self) -> usize {
        self.layout().used
    }

    /// Bytes of the largest piece that is free now, on each rank.
    pub fn largest_free(&self) -> usize {
        self.layout().largest()
    }

    /// Most bytes that were allocated at once, on each rank: how large the arena must be at least, if it is not fragmented.
    pub fn high_water(&self) -> usize {
        self.layout().high_water
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
