//! The kernel of collectives outside of megakernels, for GPUs alone: each warp is an executor, and there are no roles.

#[cfg(target_arch = "nvptx64")]
use maco_device::ptx::special;
#[cfg(target_arch = "nvptx64")]
use maco_device::{GpuWarp, LeanCall, lean};

/// One call, for every element and operation: both are values of it.
///
/// # Safety
/// CTAs of [`maco_device::LEAN_WARPS`] warps; what `lean::run` asks for.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn lean_collectives(call: LeanCall) {
    let number = special::block() * maco_device::LEAN_WARPS + special::thread() / 32;
    // SAFETY: passed on from the host; warps have different numbers. Why ranks do not go on is in the control block.
    let _ = unsafe { lean::run(&GpuWarp, &call, number) };
}
