//! What tests break in a launch, so that it hangs: read by the CPU's executors, and by device code that is built for it (`maco_build::Build::faults`).

/// What is wrong with which task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InjectedFault {
    /// [`NO_FAULT`], [`LOST_ARRIVE`], [`EXTRA_BYTES`], [`LOST_PUSH`] or [`EARLY_FREE`].
    pub kind: u32,
    /// Index of the task in the plan; with [`LOST_PUSH`] of its descriptor.
    pub of: u32,
}

/// None.
pub const NO_FAULT: u32 = 0;
/// One consumer warp does not arrive at the end of the task.
pub const LOST_ARRIVE: u32 = 1;
/// The loader announces more bytes than it copies.
pub const EXTRA_BYTES: u32 = 2;
/// The scheduler does not send the push that it has noted.
pub const LOST_PUSH: u32 = 3;
/// The store role gives chunks back that its copies have not read. Of modelled copies alone: nothing hangs, results are wrong.
pub const EARLY_FREE: u32 = 4;

const _: () = assert!(size_of::<InjectedFault>() == 8);
