//! Tiles of an all-reduce that a GEMM sends: the store role copies boxes to the messages of the other ranks, or of the tile's owner, as it does to the result, and tells them
//! when all are there.
//!
//! Where messages lie is [`maco_abi::PushedTiles`]'; when their places are used again, and what signals are, is [`TileMessages`]'.

use crate::channel::{TileMessages, Which};
use crate::data::task::Task;
use crate::hardware::{fence, tma};
use crate::operations::collective::system;
use crate::sync::tensor_map_cache::TensorMapCache;
use maco_abi::{MapIndex, PushedTiles};

/// Copies a box to all other ranks, in the open bulk group (PTX ISA §9.7.9.25.5 `cp.async.bulk.tensor`). `at` is its first row and column in the result, and `shared` where
/// it is.
///
/// # Safety
/// As of [`tma::store`]; the task pushes, and the box begins inside the result.
#[inline(always)]
pub(crate) unsafe fn store_box(tensor_maps: &mut TensorMapCache, task: Task, at: [i32; 2], shared: u32) {
    let (ranks, tiles) = task.pushed();
    let (tile, [row, col]) = tiles.place(at.map(|at| at as u32));
    let first = tiles.map + ranks.launch % 2 * ranks.ranks;
    let row = tile * u32::from(tiles.rows) + row;
    let mut n = 1;
    while n < ranks.ranks {
        // Ranks send to different ones at a time.
        let peer = ranks.behind(n);
        if tiles.goes_to(tile, peer, ranks.ranks) {
            let map = tensor_maps.get::<1>(MapIndex::new(first + peer, true));
            // SAFETY: passed on from the caller. The plan has a map for each parity and rank; a place is used again as in `TileMessages`.
            unsafe { tma::store(map, col as i32, row as i32, 0, shared) };
        }
        n += 1;
    }
}

/// Tells all other ranks that the tiles from row and column `at` of the result on, `rows` × `cols` elements, are there.
///
/// # Safety
/// The task pushes; all bulk groups of this thread are complete, not only read, and they have the boxes of these tiles.
#[inline(always)]
pub(crate) unsafe fn signal(task: Task, at: [i32; 2], [rows, cols]: [u32; 2]) {
    // What copies have written comes before the signals, which are stores of another proxy.
    fence::proxy_async_global();
    let (ranks, tiles) = task.pushed();
    let PushedTiles { rows: height, cols: width, .. } = tiles;
    let mut down = 0;
    while down < rows {
        let mut right = 0;
        while right < cols {
            let (tile, _) = tiles.place([at[0] as u32 + down, at[1] as u32 + right]);
            let to = if tiles.to_owner == 0 { Which::All } else { Which::One(maco_abi::owner(tile, ranks.ranks)) };
            // SAFETY: as above: the messages of this tile are stored, by this thread. It signals other ranks alone.
            unsafe { TileMessages::new(ranks, tiles.messages(), [tile; 2], false).signal(&system(), to) };
            right += u32::from(width);
        }
        down += u32::from(height);
    }
}
