//! Memory files of ranks in the address space of a GPU: words that hosts of all ranks and a running kernel share. What they say does not belong here.

use std::sync::Arc;

use cudarc::driver::sys;
use maco_ranks::SharedMemory;

use super::context::Context;
use super::virtual_memory::settle;
use crate::error::Error;

/// This rank's piece of a memory file, page-locked and mapped for its GPU.
#[derive(Debug)]
pub(super) struct Registered {
    context: Arc<Context>,
    /// Keeps the pages that are locked.
    memory: Arc<SharedMemory>,
    address: u64,
}

impl Registered {
    pub(super) fn new(context: &Arc<Context>, memory: &Arc<SharedMemory>) -> Result<Registered, Error> {
        let _entered = context.enter()?;
        let at = memory.pointer(memory.rank()).as_ptr();
        let flags = sys::CU_MEMHOSTREGISTER_DEVICEMAP | sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: so many bytes are mapped there, from the beginning of a page, as long as `memory` lives.
        context.check("cuMemHostRegister", unsafe { sys::cuMemHostRegister_v2(at.cast(), memory.bytes(), flags) })?;
        let mut registered = Registered { context: context.clone(), memory: memory.clone(), address: 0 };
        // SAFETY: registered with the flag for mapping; the address is writable.
        let code = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut registered.address, at.cast(), 0) };
        context.check("cuMemHostGetDevicePointer", code)?;
        Ok(registered)
    }

    /// Where the GPU has it.
    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let context = &self.context;
        if let (Ok(()), Ok(_entered)) = (settle(context), context.enter()) {
            // SAFETY: registered by `new`, once, and used by no launch any more.
            let _ = unsafe { sys::cuMemHostUnregister(self.memory.pointer(self.memory.rank()).as_ptr().cast()) };
        } else {
            // A kernel that may run for ever may store there: the pages stay.
            std::mem::forget(self.memory.clone());
        }
    }
}
