//! Faults that tests inject into a launch.
//!
//! Device code asks for them only if it is built for that (`maco_build::Build::faults`). Otherwise the question is a constant.

use maco_abi::{InjectedFault, Launch};

/// Whether a fault of this kind is injected into a task, or the descriptor, `of`.
///
/// # Safety
/// The launch is live.
#[inline(always)]
pub unsafe fn hit(launch: *const Launch, kind: u32, of: impl FnOnce() -> u32) -> bool {
    if cfg!(all(target_arch = "nvptx64", not(maco_faults))) {
        return false;
    }
    // SAFETY: passed on from the caller; nobody writes it while a launch runs.
    unsafe {
        let fault = (*launch).fault as *const InjectedFault;
        if fault.is_null() {
            return false;
        }
        let InjectedFault { kind: injected, of: broken } = fault.read();
        injected == kind && broken == of()
    }
}
