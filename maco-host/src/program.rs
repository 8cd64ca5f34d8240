//! What a macro hands over: the call graph and the code that runs its tasks. Planning does not belong here.

use maco_device::{Cpu, Task};
use maco_graph::ir;

/// Runs one instance of the dispatch on the CPU.
pub type Dispatch = fn(&mut Cpu, Task, u32);

/// A megakernel before its plan.
#[derive(Clone, Debug)]
pub struct Program {
    /// The megakernel's name, for messages.
    pub name: &'static str,
    /// Calls and tensors with their sizes.
    pub graph: ir::Graph,
    /// Name of the device entry in the embedded code.
    pub entry: &'static str,
    /// Device code.
    pub embedded: Embedded,
    /// Host code of the same tasks.
    pub cpu: Dispatch,
    /// Whether unary element-wise calls can be fused into GEMVs as prologues: the device code supports it, see [`maco_device::fuses_elementwise_prologues`].
    pub fuse_elementwise: bool,
    /// `#[megakernel(workers = n)]`.
    pub workers: Option<u32>,
    /// `#[megakernel(schedulers = n)]`: more than 0 asks for [`maco_graph::plan::Schedule::Schedulers`].
    pub schedulers: Option<u32>,
}

/// Device code that the build script embedded.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// One per target.
    pub modules: &'static [DeviceModule],
    /// The same code, but such that it records what it does; none unless the program was built with `MACO_PROFILE=1`.
    pub profiled: &'static [DeviceModule],
    /// Why there is none.
    pub error: Option<&'static str>,
}

impl Embedded {
    /// No build script made device code.
    pub const NONE: Embedded = Embedded { modules: &[], profiled: &[], error: None };
}

/// Device code for one target.
#[derive(Clone, Copy, Debug)]
pub struct DeviceModule {
    /// `sm_90a`
    pub target: &'static str,
    /// The code, with the functions that it calls.
    pub ptx: &'static str,
    /// The same for [`target`](DeviceModule::target) as machine code, if the build had an assembler: the driver need not compile it.
    pub cubin: Option<&'static [u8]>,
    /// Hash of the code.
    pub hash: u64,
}
