//! The device runtime: roles, ring, worker, counters. The same source is compiled to PTX and for the host.
//!
//! CUDA API calls, planning and errors do not belong here. On `nvptx64` this crate is `no_std` and inline PTX lives in
//! `ptx` only; on the host the role [`Cpu`] runs the same task bodies, alone or as the roles of a modelled CTA ([`modelled`]).
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, abi_ptx, auto_traits, negative_impls, stdarch_nvptx, core_float_math))]

pub mod channel;
pub mod math;
pub mod protocol;
#[cfg(target_arch = "nvptx64")]
pub mod ptx;

mod cta;
mod data;
mod dispatch;
#[cfg(target_arch = "nvptx64")]
mod machine;
#[cfg(not(target_arch = "nvptx64"))]
mod model;
mod operations;
mod profile;
mod role;
mod roles;
mod shared_memory;
mod simt;
mod sync;
mod worker;

/// What loader, consumers and store are built on: instructions, or a model of them.
#[cfg(not(target_arch = "nvptx64"))]
use model as hardware;
#[cfg(target_arch = "nvptx64")]
use ptx as hardware;

pub use cta::channels::{self, Channels};
pub use cta::collectives::Collectives;
pub use cta::operations::Operations;
pub use cta::{Accumulator, AccumulatorPair, Cta, Steps};
pub use data::argmax::Entry;
pub use data::element::{Element, HalfElement, MmaElement, bf16, f16};
#[doc(hidden)]
pub use data::epilogue::{Anchored, Epilogue, First, NO_AXIS, ResultCode, ResultElement, WithEpilogue};
pub use data::epilogue::{Combine, Each, Elementwise, Identity, Rounded, Then, WithScalar, WithTensor};
pub use data::exchange::Exchange;
pub use data::inputs::Inputs;
pub use data::operand_type::{AccElement, E4M3, E5M2, HalfOperandType, OperandType, Products, S8, Tf32, U8};
pub use data::pure::{self, Unchanging};
#[cfg(not(target_arch = "nvptx64"))]
pub use data::reader::OutsideRegion;
pub use data::reader::Reader;
pub use data::row::{Elements, FirstRow, Row, RowInputs, RowMut, RowOutputs, RowValues, RowView, Rows};
pub use data::task::Task;
pub use data::tile::{Operand, ReadTile, Tile};
pub use data::{access, element, given, kind, region, row, task, tile};
pub use dispatch::{
    After, All, Callable, Filter, Instance, Instances, body_id, elementwise, fuses_elementwise_prologues, gemvs, warp_tasks,
};
/// Executors of [`channel`]s on a GPU.
#[cfg(target_arch = "nvptx64")]
pub use machine::{Lane as GpuLane, Warp as GpuWarp};
pub use maco_abi::{LEAN_WARPS, LeanCall, Slot};
pub use operations::collective::{Max, Mean, Min, Reduction, Sum};
/// Collectives outside of megakernels: what one executor does of a call.
pub use operations::lean;
pub use operations::simt_consumer::SimtConsumer;
pub use role::Role;
#[cfg(not(target_arch = "nvptx64"))]
pub use roles::cpu::Cpu;
pub use simt::Simt;
pub use simt::acc::{Acc, Fragments};
#[cfg(not(target_arch = "nvptx64"))]
pub use simt::give_up::giving_up;
pub use simt::mbarrier::{Mbarrier, Mbarriers};
pub use simt::pipeline::{Consumer, Pipeline, Producer};
pub use simt::smem::{Scratch, Smem};
pub use simt::swizzle::{Across, Along, SharedOperand, Swizzled, SwizzledTiles};
pub use simt::tensor_copies::{Boxes, Mapped};
pub use simt::warp::{SimtWarp, Warp, prepared};
pub use simt::warpgroup::Warpgroup;
pub use simt::wgmma_queue::{OperandA, Queue};
#[cfg(target_arch = "nvptx64")]
pub use worker::megakernel;
#[cfg(not(target_arch = "nvptx64"))]
pub use worker::modelled;
