//! One launch, queued by the driver. Waiting for it does not belong here.

use std::ffi::c_void;
use std::fmt::Display;
use std::mem::MaybeUninit;

use cudarc::driver::sys::{self, CUlaunchAttribute, CUlaunchAttributeID, CUresult};
use maco_abi::{SHARED_BYTES, THREADS};

use super::context::Context;
use super::module::Kernel;
use crate::error::Error;
use crate::plan_core::PlanCore;

/// Queues the kernel on `stream`: one CTA per worker and scheduler, the launch record its one parameter. A `dependent` launch may begin before the kernel in
/// front of it has ended.
///
/// # Safety
/// `stream` is a live stream of `context`; `launch` is the address of a launch record made for the kernel, whose memory lives until
/// the launch has ended.
pub(super) unsafe fn enqueue(
    context: &Context,
    kernel: &Kernel,
    core: &PlanCore,
    dependent: bool,
    launch: u64,
    stream: sys::CUstream,
) -> Result<(), Error> {
    // Unused bytes of the union are zero, as the driver's headers ask.
    // SAFETY: plain integers, valid when zero.
    let mut attributes = unsafe { MaybeUninit::<[CUlaunchAttribute; 2]>::zeroed().assume_init() };
    let mut count = 0;
    if core.cooperative {
        attributes[count].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        attributes[count].value.cooperative = 1;
        count += 1;
    }
    if dependent {
        attributes[count].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        attributes[count].value.programmaticStreamSerializationAllowed = 1;
        count += 1;
    }
    let config = sys::CUlaunchConfig {
        gridDimX: core.lowered.grid(),
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: THREADS,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: SHARED_BYTES,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: count as u32,
    };
    let mut parameter = launch;
    let mut parameters = [(&raw mut parameter).cast::<c_void>()];
    // SAFETY: a live function with one 64-bit parameter; the driver copies configuration and parameters before it returns.
    let code = unsafe { sys::cuLaunchKernelEx(&config, kernel.function, parameters.as_mut_ptr(), std::ptr::null_mut()) };
    match no_room(code, core.megakernel(), core.lowered.grid(), context) {
        Some(error) => Err(error),
        None => context.check("cuLaunchKernelEx", code),
    }
}

/// The error of a launch that the driver refuses because not all its CTAs would run at once.
fn no_room(code: CUresult, megakernel: &str, ctas: u32, device: &impl Display) -> Option<Error> {
    let reason = "the driver refused the cooperative launch (multiprocessors may be taken by MPS, MIG or other contexts)";
    let refused = code == CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    let device = || device.to_string().into();
    refused.then(|| Error::NotResident { megakernel: megakernel.into(), ctas, device: device(), reason: reason.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_without_room_is_recognised() {
        let error = |code| no_room(code, "mlp", 133, &"GPU 0 (of seven)");
        let refused = error(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE).unwrap();
        assert_eq!(refused.code(), 54);
        let text = refused.to_string();
        for part in
            ["MACO0054: the 133 CTAs of megakernel `mlp`", "resident on GPU 0 (of seven): ", "MPS, MIG", "help: ask for fewer workers"]
        {
            assert!(text.contains(part), "`{part}` is missing: {text}");
        }
        // Resources of one CTA, not of all of them.
        for code in [CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUresult::CUDA_ERROR_INVALID_VALUE] {
            assert!(error(code).is_none(), "{code:?}");
        }
    }
}
