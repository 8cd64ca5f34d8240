//! What consumers do with tiles: GEMM, GEMV, and work on rows, elements and indices.
//!
//! Which role takes part in what does not belong here: see [`crate::role`].

pub mod all_reduce_rmsnorm;
pub mod channel;
pub mod collective;
pub mod column_reduction;
pub mod gather_rows;
pub mod gemv;
pub mod generic_loads;
mod grid_stride;
pub mod in_band_flags;
pub mod index_add;
pub mod lean;
#[cfg(target_arch = "nvptx64")]
pub mod mma_sync;
#[cfg(not(target_arch = "nvptx64"))]
#[path = "modelled_mma_sync.rs"]
pub mod mma_sync;
pub mod order;
pub(crate) mod pushed_tiles;
pub mod rmsnorm_prologue;
pub mod row_stages;
pub mod scatter;
pub mod simt_consumer;
pub mod staging;
pub mod symmetric;
mod turns;
#[cfg(target_arch = "nvptx64")]
pub mod wgmma_accumulator;
#[cfg(not(target_arch = "nvptx64"))]
#[path = "modelled_wgmma_accumulator.rs"]
pub mod wgmma_accumulator;
