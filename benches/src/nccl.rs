//! The peer: NCCL on a stream of ours, so that it can be captured into a CUDA graph.

use anyhow::{Context, bail, ensure};
use cudarc::driver::result as driver;
use cudarc::nccl::{result, sys};
use maco::{Communicator, Stream, Tensor, bf16};

/// A communicator of NCCL with the ranks of ours, each of which has its GPU.
pub struct Nccl {
    comm: sys::ncclComm_t,
}

impl Nccl {
    /// All ranks call it, each on a thread of its own, which works on GPU [`Communicator::local_rank`] from then on.
    pub fn new(communicator: &Communicator) -> anyhow::Result<Nccl> {
        // SAFETY: probing for the library loads it and nothing else.
        if !unsafe { sys::is_culib_present() } {
            bail!("libnccl.so was not found: put its folder into LD_LIBRARY_PATH");
        }
        // NCCL takes the thread's current device; MACO leaves none behind its calls.
        let gpu = driver::device::get(communicator.local_rank() as i32)?;
        // SAFETY: a device that there is; the primary context is kept for as long as the process.
        unsafe { driver::ctx::set_current(driver::primary_ctx::retain(gpu)?)? };
        let id = if communicator.rank() == 0 { Some(result::get_uniqueid().map_err(failed)?) } else { None };
        let bytes: Vec<u8> = id.iter().flat_map(|id| id.internal.map(|byte| byte as u8)).collect();
        let all = communicator.all_gather_bytes(&bytes)?;
        let first: &[u8; 128] = all[0].as_slice().try_into().context("rank 0 gave no id")?;
        let id = sys::ncclUniqueId { internal: first.map(|byte| byte as core::ffi::c_char) };
        let mut comm = std::ptr::null_mut();
        // SAFETY: `comm` is writable; all ranks call it with one id, each by its number.
        unsafe { result::comm_init_rank(&mut comm, communicator.ranks() as i32, id, communicator.rank() as i32) }.map_err(failed)?;
        Ok(Nccl { comm })
    }

    /// Queues y = the sum of x over all ranks.
    pub fn all_reduce(&self, stream: &Stream, x: &Tensor<bf16>, y: &mut Tensor<bf16>) -> anyhow::Result<()> {
        ensure!(x.len() == y.len(), "x and y differ in size");
        let (ty, op) = (sys::ncclDataType_t::ncclBfloat16, sys::ncclRedOp_t::ncclSum);
        // SAFETY: live tensors of so many elements on this rank's GPU, and a stream of it.
        unsafe { result::all_reduce(x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len(), ty, op, self.comm, stream.as_raw().cast()) }
            .map_err(failed)?;
        Ok(())
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: of this value alone. Each rank has its own thread, so that none waits for the other's turn.
        let _ = unsafe { result::comm_destroy(self.comm) };
    }
}

fn failed(error: result::NcclError) -> anyhow::Error {
    anyhow::anyhow!("NCCL failed: {error:?}")
}
