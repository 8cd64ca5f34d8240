//! The peer: NCCL on a stream of ours, so that it can be captured into a CUDA graph.

use anyhow::{Context, ensure};
use cudarc::driver::result as driver;
use maco::{Communicator, Stream, Tensor, bf16};
use nccl_sys::{Status, ncclBfloat16, ncclComm_t, ncclConfig_t, ncclSum, ncclUniqueId};

/// By this variable NCCL is told whether to use multicast.
const MULTICAST: &str = "NCCL_NVLS_ENABLE";

/// A communicator of NCCL with the ranks of ours, each of which has its GPU.
pub struct Nccl {
    library: nccl_sys::Nccl,
    comm: ncclComm_t,
    ranks: usize,
}

/// Fails unless NCCL was told to leave multicast alone: nothing here uses it, and numbers with it are not to be compared.
fn multicast_is_off(value: Option<&str>) -> anyhow::Result<()> {
    let found = value.map_or("not set".to_owned(), |value| format!("`{value}`"));
    ensure!(
        value == Some("0"),
        "{MULTICAST} is {found}, and must be 0: NCCL would use multicast; start it by `cargo xtask bench`, or with {MULTICAST}=0 before the program"
    );
    Ok(())
}

/// Fails if a call may go on behind its return: nobody here asks for its end.
fn done(status: Status) -> anyhow::Result<()> {
    ensure!(status == Status::Done, "NCCL's calls do not block: unset NCCL_COMM_BLOCKING");
    Ok(())
}

impl Nccl {
    /// All ranks call it, each on a thread of its own, which works on GPU [`Communicator::local_rank`] from then on.
    pub fn new(communicator: &Communicator) -> anyhow::Result<Nccl> {
        Nccl::configured(communicator, ncclConfig_t::default())
    }

    /// The same with as many CTAs as NCCL has beside a megakernel, and no clusters.
    pub fn with_ctas(communicator: &Communicator, ctas: u32) -> anyhow::Result<Nccl> {
        let ctas = ctas as i32;
        Nccl::configured(communicator, ncclConfig_t { cgaClusterSize: 1, minCTAs: ctas, maxCTAs: ctas, ..ncclConfig_t::default() })
    }

    /// Calls block, unless the configuration says otherwise.
    fn configured(communicator: &Communicator, mut config: ncclConfig_t) -> anyhow::Result<Nccl> {
        multicast_is_off(std::env::var(MULTICAST).ok().as_deref())?;
        let library = nccl_sys::Nccl::load()?;
        // NCCL takes the thread's current device; MACO leaves none behind its calls.
        let gpu = driver::device::get(communicator.local_rank() as i32)?;
        // SAFETY: a device that there is; the primary context is kept for as long as the process.
        unsafe { driver::ctx::set_current(driver::primary_ctx::retain(gpu)?)? };
        let id = if communicator.rank() == 0 { Some(library.unique_id()?) } else { None };
        let bytes: Vec<u8> = id.iter().flat_map(|id| id.internal.map(|byte| byte as u8)).collect();
        let all = communicator.all_gather_bytes(&bytes)?;
        let first: &[u8; 128] = all[0].as_slice().try_into().context("rank 0 gave no id")?;
        let id = ncclUniqueId { internal: first.map(|byte| byte as core::ffi::c_char) };
        let mut comm = std::ptr::null_mut();
        let (ranks, rank) = (communicator.ranks() as i32, communicator.rank() as i32);
        // SAFETY: `comm` is null and writable, the configuration is a whole one; all ranks call it with one id, each by its number. A context is current.
        done(unsafe { library.comm_init_rank_config(&mut comm, ranks, id, rank, &mut config) }?)?;
        Ok(Nccl { library, comm, ranks: ranks as usize })
    }

    /// What was loaded: `NCCL 2.28.9`.
    pub fn version(&self) -> String {
        format!("NCCL {}", self.library.version())
    }

    /// Queues y = the sum of x over all ranks.
    pub fn all_reduce(&self, stream: &Stream, x: &Tensor<bf16>, y: &mut Tensor<bf16>) -> anyhow::Result<()> {
        ensure!(x.len() == y.len(), "x and y differ in size");
        // SAFETY: live tensors of so many elements on this rank's GPU, and a stream of it.
        unsafe { self.sum(stream, x.as_ptr(), y.as_mut_ptr(), x.len()) }
    }

    /// Queues x = the sum of x over all ranks.
    pub fn all_reduce_in_place(&self, stream: &Stream, x: &mut Tensor<bf16>) -> anyhow::Result<()> {
        let (at, count) = (x.as_mut_ptr(), x.len());
        // SAFETY: as above, with one tensor.
        unsafe { self.sum(stream, at, at, count) }
    }

    /// # Safety
    /// Memory of this rank's GPU with so many elements each, the same or apart, which lives until `stream`, one of that GPU, has passed the call.
    unsafe fn sum(&self, stream: &Stream, x: *const bf16, y: *mut bf16, count: usize) -> anyhow::Result<()> {
        let (element, stream) = (ncclBfloat16, stream.as_raw().cast());
        // SAFETY: the caller's promise; the communicator is live.
        done(unsafe { self.library.all_reduce(x.cast(), y.cast(), count, element, ncclSum, self.comm, stream) }?)
    }

    /// Queues: part r of y = the x of rank r.
    pub fn all_gather(&self, stream: &Stream, x: &Tensor<bf16>, y: &mut Tensor<bf16>) -> anyhow::Result<()> {
        self.parts(x.len(), y.len())?;
        let (from, to, count) = (x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len());
        // SAFETY: live tensors on this rank's GPU, of so many elements and as many for each rank; a stream of it. The communicator is live.
        done(unsafe { self.library.all_gather(from, to, count, ncclBfloat16, self.comm, stream.as_raw().cast()) }?)
    }

    /// Queues y = this rank's part of the sum of x over all ranks.
    pub fn reduce_scatter(&self, stream: &Stream, x: &Tensor<bf16>, y: &mut Tensor<bf16>) -> anyhow::Result<()> {
        self.parts(y.len(), x.len())?;
        let (from, to, count) = (x.as_ptr().cast(), y.as_mut_ptr().cast(), y.len());
        // SAFETY: as above, the other way round.
        done(unsafe { self.library.reduce_scatter(from, to, count, ncclBfloat16, ncclSum, self.comm, stream.as_raw().cast()) }?)
    }

    /// A tensor has a part for each rank.
    fn parts(&self, part: usize, whole: usize) -> anyhow::Result<()> {
        ensure!(part * self.ranks == whole, "{whole} elements are not {part} for each of {} ranks", self.ranks);
        Ok(())
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: of this value alone. Each rank has its own thread, so that none waits for the other's turn. An error at the end of a benchmark has no taker.
        let _ = unsafe { self.library.comm_destroy(self.comm) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_must_be_off() {
        multicast_is_off(Some("0")).unwrap();
        for (value, found) in [(None, "is not set"), (Some("1"), "is `1`"), (Some(""), "is ``")] {
            let error = multicast_is_off(value).unwrap_err().to_string();
            assert!(error.contains(found) && error.contains("must be 0") && error.contains("cargo xtask bench"), "{error}");
        }
    }
}
