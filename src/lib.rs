//! MACO: annotated Rust functions become one persistent GPU kernel.
//!
//! `#[maco::task]` and `#[maco::megakernel]` turn functions into a task graph at compile time; stock rustc compiles the same source to
//! PTX; one kernel runs the whole graph, and the same graph runs on the CPU. README.md shows the way in; this crate is the facade and
//! the [task library](tasks). Planning, devices and the device runtime live in `maco-graph`, `maco-host` and `maco-device`.
#![cfg_attr(target_arch = "nvptx64", no_std)]

pub use maco_device::{
    Acc, AccElement, Accumulator, AccumulatorPair, Across, Along, Boxes, Channels, Collectives, Combine, Consumer, Cta, E4M3, E5M2,
    Element, Elements, Elementwise, Entry, Exchange, Fragments, HalfElement, HalfOperandType, Mapped, Max, Mbarrier, Mbarriers, Mean, Min,
    MmaElement, OperandA, OperandType, Operations, Pipeline, Producer, Products, Queue, ReadTile, Reduction, Row, RowMut, S8, Scratch,
    SharedOperand, Simt, SimtWarp, Smem, Steps, Sum, Swizzled, SwizzledTiles, Tf32, Tile, U8, Unchanging, Warp, Warpgroup, bf16, f16, math,
    prepared,
};
pub use maco_macros::{graph, helper, megakernel, task};

/// The tasks that graphs built at run time may call: `maco::task_set! { pub ops: linear<bf16>, relu<bf16, f32>, mylib::scale }`.
///
/// Makes a function `ops() -> maco::TaskSet`, and a device entry with the instances of these tasks: for the elements in `<..>`, or for all
/// that the task has. GEMMs are the larger part of most sets: naming their element makes a set a third as large. GEMV forms are left out: a
/// set lists such a task by its own name.
#[macro_export]
macro_rules! task_set {
    ($($set:tt)*) => { $crate::__private::task_set! { $crate; $($set)* } };
}

pub use maco_device::{access, channels, given, kind, region};

pub mod tasks;

mod not_a_task;
#[cfg(not(target_arch = "nvptx64"))]
mod task_graph;

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    pub use crate::task_graph::{
        CompiledGraph, DependsOn, Future, Node, Operand, Outputs, Overlapping, Phase, Phased, Region, Results, Stage, TaskGraph, TaskSet,
        overlapped,
    };
    pub use maco_graph::spec::{Reduction as Reduced, TaskSpec, Via};
    pub use maco_host::*;
}
#[cfg(not(target_arch = "nvptx64"))]
pub use host::*;

/// What a file of kernels imports: `use maco::prelude::*;`
pub mod prelude {
    /// Also what every file has: one whose tasks are all its own uses the prelude by them, and its import is not "unused".
    pub use core::primitive::{f32, i8, i32, u32};

    pub use crate::math;
    pub use crate::tasks::*;
    pub use maco_device::{Combine, Element, Elementwise, Max, Mean, Min, MmaElement, Sum, bf16, f16};
}

/// What generated code refers to. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use maco_device::{
        After, All, Anchored, Callable, Channels, Collectives, Combine, Cta, Each, Element, Elementwise, Epilogue, Filter, First,
        HalfElement, Identity, Instance, Instances, Mapped, MmaElement, NO_AXIS, Operations, ReadTile, ResultCode, ResultElement, Role,
        Rounded, Simt, SimtConsumer, SimtWarp, Task, Then, Tile, WithEpilogue, WithScalar, WithTensor, bf16, body_id, elementwise, f16,
        fuses_elementwise_prologues, gemvs, warp_tasks,
    };
    pub use maco_device::{access, given, kind, pure, region};
    pub use maco_graph::spec;
    pub use maco_macros::task_set;

    pub use crate::not_a_task::{NotATask, check_task};

    #[cfg(target_arch = "nvptx64")]
    pub use {maco_abi::Launch, maco_device::megakernel};

    #[cfg(not(target_arch = "nvptx64"))]
    pub use crate::task_graph::TaskSet;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use maco_device::Cpu;
    #[cfg(not(target_arch = "nvptx64"))]
    pub use maco_host::{
        Arguments, Device, DeviceModule, Embedded, Error, Pending, Plan, PlanOptions, Program, Report, Stream, Tensor, TensorElement,
        on_cpu,
    };
}
