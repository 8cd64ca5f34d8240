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

    /// The same, if MACO's version was this one when the device code was compiled: host and device read each other's memory.
    ///
    /// # Panics
    /// In const evaluation, if it was another one.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_version(self, compiled: &str) -> Embedded {
        let (own, compiled) = (env!("CARGO_PKG_VERSION").as_bytes(), compiled.as_bytes());
        let mut same = own.len() == compiled.len();
        let mut n = 0;
        while same && n < own.len() {
            same = own[n] == compiled[n];
            n += 1;
        }
        assert!(
            same,
            "MACO: the GPU half was compiled with another version of MACO than the host half\n  = help: set `MACO_WORKSPACE` to the folder of the workspace that is being built"
        );
        self
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_code_is_of_the_same_version() {
        assert!(Embedded::NONE.of_version(env!("CARGO_PKG_VERSION")).modules.is_empty());
        for other in ["", "0", "0.1.00", "99.0.0"] {
            assert!(std::panic::catch_unwind(|| Embedded::NONE.of_version(other)).is_err(), "{other}");
        }
    }
}
