//! What the threads of an `unsafe` SIMT body call: scratch, barriers, copies, pipelines and the tensor cores.

pub mod acc;
pub mod mbarrier;
pub mod pipeline;
pub mod smem;
pub mod swizzle;
pub mod tensor_copies;
pub mod warp;
pub mod warpgroup;
pub mod wgmma_queue;

#[cfg(not(target_arch = "nvptx64"))]
pub mod give_up;

use crate::hardware::scratch;
use crate::sync::gate::Gate;

/// Threads of the consumers, for `unsafe` SIMT tasks; `SHARED` bytes of shared memory are theirs while the body runs, the `shared` of
/// `#[task(simt, shared = 32768)]`: see [`Simt::shared`].
pub struct Simt<'a, const SHARED: usize = 0> {
    /// This thread, below `threads`.
    pub thread: u32,
    /// Threads that run the body: 256 on a GPU, 1 in a CPU reference.
    pub threads: u32,
    /// None on a host thread that plays all roles: it has waited before.
    pub(crate) gate: Option<&'a mut Gate>,
    pub(crate) scratch: scratch::Address,
}

impl Simt<'_> {
    /// One thread that runs the whole body: for a reference on the CPU. Of a body with scratch: [`Simt::alone_with`].
    pub fn alone() -> Self {
        Simt { thread: 0, threads: 1, gate: None, scratch: scratch::NOWHERE }
    }
}

impl<const SHARED: usize> Simt<'_, SHARED> {
    /// In a body of a `#[task(simt, prologue)]`, which begins before the tasks that it waits for have ended: waits for them. Before this
    /// call the body may read only what no task of the graph writes (weights), and may write nothing; what PDL's `griddepcontrol.wait`
    /// (PTX ISA §9.7.13.13) is to a kernel. Every thread calls it, once. False when the launch is aborted first: then the body must
    /// return without touching anything.
    #[inline(always)]
    #[must_use]
    pub fn wait_for_inputs(&mut self) -> bool {
        // SAFETY: the consumer lends the gate of the task it runs.
        self.gate.as_mut().is_none_or(|gate| unsafe { gate.pass(self.thread / 32) })
    }

    /// Barrier among all threads of the body (PTX ISA §9.7.13.1 `bar.sync` on named barrier 4).
    #[inline(always)]
    pub fn sync(&self) {
        #[cfg(target_arch = "nvptx64")]
        crate::ptx::barrier::sync_user();
    }

    /// Waits until `condition`, a flag in memory, holds for thread 0; false when the launch is aborted first. All threads of the body
    /// come here and get the same answer. A loop of your own on a flag is beyond the deadline: nothing can end it.
    #[inline(always)]
    pub fn wait_until(&self, condition: impl FnMut() -> bool) -> bool {
        #[cfg(target_arch = "nvptx64")]
        return crate::ptx::barrier::any_user(self.thread == 0 && poll(condition));
        #[cfg(not(target_arch = "nvptx64"))]
        give_up::wait_until(condition)
    }
}

/// Asks until `condition` holds; false when the launch is aborted first. One thread calls.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
pub(crate) fn poll(mut condition: impl FnMut() -> bool) -> bool {
    let smem = crate::shared_memory::SharedMemory(crate::ptx::special::shared_base());
    loop {
        let holds = condition();
        if holds || smem.halted() >= crate::shared_memory::FALL_THROUGH {
            return holds;
        }
    }
}
