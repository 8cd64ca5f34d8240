//! What the threads of an `unsafe` SIMT body call: scratch, barriers, copies, pipelines and the tensor cores.

pub mod acc;
pub mod mbarrier;
pub mod pipeline;
pub mod smem;
pub mod swizzle;
pub mod tensor_copies;
pub mod warp;
pub mod warpgroup;
pub mod wgmma_queue;
