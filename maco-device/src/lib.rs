//! The device runtime: roles, ring, worker, counters. The same source is compiled to PTX and for the host.
//!
//! CUDA API calls, planning and errors do not belong here. On `nvptx64` this crate is `no_std` and inline PTX lives in
//! `ptx` only; on the host the role [`Cpu`] runs the same task bodies, alone or as the roles of a modelled CTA ([`modelled`]).
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, abi_ptx, stdarch_nvptx, core_float_math))]

pub mod abi;
pub mod element;
pub mod math;
pub mod protocol;
#[cfg(target_arch = "nvptx64")]
pub mod ptx;
pub mod row;
pub mod task;
pub mod tile;

mod acc;
mod argmax;
mod collective;
mod cta;
mod epilogue;
mod exchange;
mod lane_pairs;
#[cfg(target_arch = "nvptx64")]
mod machine;
mod mbarrier;
#[cfg(not(target_arch = "nvptx64"))]
mod model;
mod operand_type;
mod pipeline;
mod profile;
mod rmsnorm;
mod role;
mod smem;
mod split_k;
mod swizzle;
mod tensor_copies;
mod unaligned;
mod warpgroup;
mod wgmma_queue;
mod worker;

/// What loader, consumers and store are built on: instructions, or a model of them.
#[cfg(not(target_arch = "nvptx64"))]
use model as hardware;
#[cfg(target_arch = "nvptx64")]
use ptx as hardware;

pub use acc::{Acc, Fragments};
pub use argmax::Entry;
pub use collective::{SimtWarp, Warp, prepared};
pub use cta::{Accumulator, AccumulatorPair, Cta, Simt, Steps};
pub use element::{Element, HalfElement, MmaElement, bf16, f16};
#[doc(hidden)]
pub use epilogue::{Anchored, Epilogue, First, NO_AXIS, ResultCode, ResultElement};
pub use epilogue::{Combine, Each, Elementwise, Identity, Rounded, Then, WithScalar, WithTensor};
pub use exchange::Exchange;
pub use mbarrier::{Mbarrier, Mbarriers};
pub use operand_type::{AccElement, E4M3, E5M2, HalfMultiplicand, Multiplicand, Products, S8, Tf32, U8};
pub use pipeline::{Consumer, Pipeline, Producer};
#[cfg(not(target_arch = "nvptx64"))]
pub use role::cpu::{Cpu, giving_up};
pub use role::{Role, SimtConsumer};
pub use row::{Elements, Row, RowInputs, RowMut, RowOutputs, RowValues};
pub use smem::{Scratch, Smem};
pub use swizzle::{Across, Along, Factor, Swizzled, SwizzledTiles};
pub use task::{After, All, Callable, Filter, Slot, Task, elementwise, fuses_elementwise_prologues, gemvs, warp_tasks};
pub use tensor_copies::{Boxes, Mapped};
pub use tile::{Inputs, Operand, Reader, Tile};
pub use warpgroup::Warpgroup;
pub use wgmma_queue::{FirstFactor, Queue};
#[cfg(target_arch = "nvptx64")]
pub use worker::megakernel;
#[cfg(not(target_arch = "nvptx64"))]
pub use worker::modelled;
