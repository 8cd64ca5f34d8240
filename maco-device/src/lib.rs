//! The device runtime: roles, ring, worker, counters. The same source is compiled to PTX and for the host.
//!
//! CUDA API calls, planning and errors do not belong here. On `nvptx64` this crate is `no_std` and inline PTX lives in
//! `ptx` only; on the host the role [`Cpu`] runs the same task bodies, alone or as the roles of a modelled CTA ([`modelled`]).
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch, abi_ptx, stdarch_nvptx, core_float_math))]

pub mod abi;
pub mod element;
pub mod held;
pub mod math;
pub mod protocol;
#[cfg(target_arch = "nvptx64")]
pub mod ptx;
pub mod row;
pub mod task;
pub mod tile;

mod collective;
mod cta;
mod exchange;
mod largest;
mod mbarrier;
#[cfg(not(target_arch = "nvptx64"))]
mod model;
mod norm;
mod profile;
mod ragged;
mod role;
mod smem;
mod split;
mod worker;

/// What loader, consumers and store are built on: instructions, or a model of them.
#[cfg(not(target_arch = "nvptx64"))]
use model as hardware;
#[cfg(target_arch = "nvptx64")]
use ptx as hardware;

pub use collective::Warp;
pub use cta::{Accumulator, AccumulatorPair, Cta, Simt, Steps};
pub use element::{Element, HalfElement, MmaElement, bf16, f16};
pub use exchange::Exchange;
pub use held::Held;
pub use largest::Entry;
pub use mbarrier::{Mbarrier, Mbarriers};
#[cfg(not(target_arch = "nvptx64"))]
pub use role::cpu::{Cpu, giving_up};
pub use role::{Role, Share};
pub use row::{Row, RowInputs, RowMut, RowOutputs, RowValues};
pub use smem::{Scratch, Smem};
pub use task::{After, All, Callable, Elementwise, Filter, Identity, Slot, Task, Then};
pub use tile::{Inputs, Operand, Reader, Tile};
#[cfg(target_arch = "nvptx64")]
pub use worker::megakernel;
#[cfg(not(target_arch = "nvptx64"))]
pub use worker::modelled;
