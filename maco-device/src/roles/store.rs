//! The store role: one thread that sends staged results to global memory by TMA while the consumers go on.

use crate::data::element::MmaElement;
use crate::data::epilogue::Epilogue;
use crate::data::split_k::SplitK;
use crate::data::task::Task;
use crate::data::tile::Tile;
use crate::data::tile_shape::shape_of;
use crate::hardware::{mbarrier, memory, tma};
use crate::operations::pushed_tiles;
use crate::operations::staging::{buffer, parity};
use crate::role::{Role, Sharing};
use crate::shared_memory::{FALL_THROUGH, SharedMemory};
use crate::sync::tensor_map_cache::TensorMapCache;
use maco_abi::{self as abi, BOX};

/// The store thread's state. `PUSHES`: GEMMs may send their tiles to other ranks.
pub struct Store<const PUSHES: bool> {
    smem: SharedMemory,
    tensor_maps: TensorMapCache,
    /// Chunks sent so far (the same for both warpgroups).
    sent: u32,
    /// Rows and columns of the tile, and whether its elements have four bytes, if the code that runs is for several.
    tile: Option<(u32, u32)>,
    four_bytes: bool,
}

impl<const PUSHES: bool> Store<PUSHES> {
    /// # Safety
    /// Made by the store thread of a CTA whose shared memory is initialised; `tensor_maps` is the launch's table of tensor maps.
    #[inline(always)]
    pub unsafe fn new(smem: SharedMemory, tensor_maps: u64) -> Self {
        Store { smem, tensor_maps: TensorMapCache::new(tensor_maps), sent: 0, tile: None, four_bytes: false }
    }

    /// The `n`-th chunks of both warpgroups have been read: the consumers may refill them.
    #[inline(always)]
    fn free(&self, n: u32) {
        // SAFETY: initialised barriers; the bulk reads of these chunks are complete.
        unsafe {
            mbarrier::arrive(self.smem.free(buffer(0, n)));
            mbarrier::arrive(self.smem.free(buffer(1, n)));
        }
    }
}

impl<const PUSHES: bool> Role for Store<PUSHES> {
    const SHARING: Sharing = Sharing::Bodies;
    type Accumulator<const I: usize, const J: usize> = ();

    #[inline(always)]
    fn set_tile(&mut self, tile: Option<(u32, u32)>) {
        self.tile = tile;
    }

    #[inline(always)]
    fn set_four_bytes(&mut self, four_bytes: bool) {
        self.four_bytes = four_bytes;
    }

    #[inline(always)]
    fn tile_rows(&self, rows: u32) -> i32 {
        self.tile.map_or(rows, |(rows, _)| rows) as i32
    }

    #[inline(always)]
    fn tile_columns(&self, columns: u32) -> i32 {
        self.tile.map_or(columns, |(_, columns)| columns) as i32
    }

    #[inline(always)]
    fn zeros<const I: usize, const J: usize>(&mut self) {}

    #[inline(always)]
    fn store_pair<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(
        &mut self,
        _: ((), ()),
        y: Tile<E, I, J>,
        task: Task,
        _: impl Fn(f32, f32) -> f32,
    ) {
        self.store::<T, E, I, J>((), y, SplitK::WHOLE, task);
    }

    #[inline(always)]
    fn store<T: Epilogue, E: MmaElement, const I: usize, const J: usize>(&mut self, _: (), y: Tile<E, I, J>, split: SplitK, task: Task) {
        let map = self.tensor_maps.get::<0>(y.view.map);
        let shape = shape_of(self.tile, I, J);
        let four_bytes = if self.tile.is_some() { self.four_bytes } else { E::BYTES == 4 };
        let width = if four_bytes { abi::columns(4) } else { abi::columns(2) };
        let chunks = shape.own_columns() / width;
        let each = BOX / width;
        let in_parts = split.parts > 1;
        // All chunks of a tile, or of one made in parts those that the consumers add up: from `chunk` to `end`, then those of `others`.
        let (mut chunk, mut end, mut others) = (0, chunks, 0);
        if in_parts {
            // SAFETY: an initialised barrier; once it completes, the task's word is written, and stays until its first chunks are free.
            let owners = unsafe {
                let staged = self.smem.wait(self.smem.staged(buffer(0, self.sent)), parity(self.sent));
                if staged { memory::load_shared(self.smem.owners(self.sent)) } else { 0 }
            };
            others = split.known(owners, chunks / each);
            (chunk, end) = split.staged(&mut others, chunks / each, each);
        }
        let mut sent = 0;
        loop {
            let mut group = 0;
            while group < 2 {
                let (row, col) = shape.position(group, chunk * width);
                let source = buffer(group, self.sent);
                // SAFETY: an initialised barrier; once it completes, the chunk holds a swizzled box that the consumers fenced for the
                // async proxy, or there is none. The plan gave every staged result a tensor map.
                unsafe {
                    if self.smem.wait(self.smem.staged(source), parity(self.sent)) && chunk < chunks {
                        let (at, chunk) = ([y.row + row, y.col + col], self.smem.chunk(source));
                        tma::store(map, at[1], at[0], y.plane, chunk);
                        if PUSHES && task.pushes() && (at[0] as u32) < y.view.rows && (at[1] as u32) < y.view.cols {
                            pushed_tiles::store_box(&mut self.tensor_maps, task, at, chunk);
                        }
                    }
                }
                group += 1;
            }
            tma::commit();
            if sent > 0 {
                tma::wait_read::<1>();
                self.free(self.sent - 1);
            }
            sent += 1;
            self.sent += 1;
            chunk += 1;
            if chunk >= end {
                if others == 0 {
                    break;
                }
                (chunk, end) = split.staged(&mut others, chunks / each, each);
            }
        }
        tma::wait_read::<0>();
        self.free(self.sent - 1);
        // Not `.read`: a signal follows, and the data must be in global memory before it.
        tma::wait_all();
        // If the CTA was let through in the midst of the task, chunks are anything: nobody is told of them. Who made them so saw the word before it handed them over.
        if PUSHES && task.pushes() && self.smem.halted() < FALL_THROUGH {
            let inside = [y.view.rows - y.row as u32, y.view.cols - y.col as u32];
            let tile = [inside[0].min(shape.rows()), inside[1].min(shape.columns())];
            // SAFETY: as above; nothing of this thread is under way.
            unsafe { pushed_tiles::signal(task, [y.row, y.col], tile) };
        }
    }
}
