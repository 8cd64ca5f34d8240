//! Communicators: how they begin, what state they are in, how they end; groups of calls.

use std::ffi::c_int;

use crate::bindings::{ncclComm_t, ncclConfig_t, ncclInProgress, ncclInvalidArgument, ncclResult_t, ncclSuccess, ncclUniqueId};
use crate::error::Error;
use crate::load::{Nccl, Status, function};

impl Nccl {
    /// What a result means for a call that may return before it is done.
    pub(crate) fn status(&self, function: &'static str, result: ncclResult_t) -> Result<Status, Error> {
        if result == ncclInProgress {
            return Ok(Status::InProgress);
        }
        self.done(function, result).map(|()| Status::Done)
    }

    /// What a result means for a call that is done when it returns.
    pub(crate) fn done(&self, function: &'static str, result: ncclResult_t) -> Result<(), Error> {
        if result == ncclSuccess { Ok(()) } else { Err(self.failed(function, result)) }
    }

    /// A new identity of a communicator, which one rank makes and all ranks pass to
    /// [`comm_init_rank_config`](Nccl::comm_init_rank_config). Opens a socket on which this process answers the ranks.
    ///
    /// # Errors
    /// NCCL finds no network interface.
    pub fn unique_id(&self) -> Result<ncclUniqueId, Error> {
        let mut id = ncclUniqueId { internal: [0; _] };
        // SAFETY: `id` is writable.
        let result = unsafe { function!(self, ncclGetUniqueId)(&mut id) };
        self.done("ncclGetUniqueId", result).map(|()| id)
    }

    /// Joins a communicator of `ranks` as `rank`, with the GPU that is current in this thread. All ranks call it, each from its own
    /// process or thread, or from one thread between `group_start` and `group_end`.
    ///
    /// # Errors
    /// A rank or a value of the configuration is out of range, or a rank did not come.
    ///
    /// # Safety
    /// `comm` holds null, and is valid for reads and writes until the call, its group and, with `blocking` 0, the communicator are no longer in progress.
    /// `config` began as `ncclConfig_t::default()`, its texts are null or end with 0, and live as long. A CUDA context is current.
    pub unsafe fn comm_init_rank_config(
        &self,
        comm: *mut ncclComm_t,
        ranks: c_int,
        id: ncclUniqueId,
        rank: c_int,
        config: &mut ncclConfig_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclCommInitRankConfig)(comm, ranks, id, rank, config) };
        self.status("ncclCommInitRankConfig", result)
    }

    /// A communicator of GPUs of this process: one handle for each device, in `comms`.
    ///
    /// # Errors
    /// The slices differ in length, or there is no such device.
    ///
    /// # Safety
    /// CUDA is initialised. `comms` holds nulls.
    pub unsafe fn comm_init_all(&self, comms: &mut [ncclComm_t], devices: &[c_int]) -> Result<(), Error> {
        let function = function!(self, ncclCommInitAll);
        let Some(count) = c_int::try_from(comms.len()).ok().filter(|_| comms.len() == devices.len()) else {
            let text = format!("{} communicators were asked for on {} devices", comms.len(), devices.len()).into();
            return Err(Error::Call { function: "ncclCommInitAll", result: ncclInvalidArgument, text, last_error: "".into() });
        };
        // SAFETY: both have `count` elements; the rest is the caller's promise.
        self.done("ncclCommInitAll", unsafe { function(comms.as_mut_ptr(), count, devices.as_ptr()) })
    }

    /// State of a communicator: `InProgress` while a call that did not block goes on, an error once something failed on any rank.
    ///
    /// # Errors
    /// The communicator failed: only [`comm_abort`](Nccl::comm_abort) is left. Or it could not be asked.
    ///
    /// # Safety
    /// The communicator is live.
    pub unsafe fn comm_async_status(&self, comm: ncclComm_t) -> Result<Status, Error> {
        let mut state = ncclSuccess;
        // SAFETY: `state` is writable; the rest is the caller's promise.
        let result = unsafe { function!(self, ncclCommGetAsyncError)(comm, &mut state) };
        self.done("ncclCommGetAsyncError", result)?;
        self.status("ncclCommGetAsyncError", state)
    }

    /// Ends a communicator and what of it still runs on the GPU.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// The communicator is live, no other thread is in a call with it, and nobody uses it any more.
    pub unsafe fn comm_abort(&self, comm: ncclComm_t) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        self.status("ncclCommAbort", unsafe { function!(self, ncclCommAbort)(comm) })
    }

    /// Begins the end of a communicator: what was enqueued is flushed.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// The communicator is live; from now on it is only asked for its state, destroyed or aborted.
    pub unsafe fn comm_finalize(&self, comm: ncclComm_t) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        self.status("ncclCommFinalize", unsafe { function!(self, ncclCommFinalize)(comm) })
    }

    /// Frees a communicator. It waits for the other ranks: ranks of one process do it in one group or in a thread each, for one after
    /// the other blocks for ever.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// As for [`comm_abort`](Nccl::comm_abort).
    pub unsafe fn comm_destroy(&self, comm: ncclComm_t) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        self.status("ncclCommDestroy", unsafe { function!(self, ncclCommDestroy)(comm) })
    }

    /// Ranks of a communicator.
    ///
    /// # Errors
    /// The communicator is still in progress, or failed.
    ///
    /// # Safety
    /// The communicator is live.
    pub unsafe fn comm_count(&self, comm: ncclComm_t) -> Result<c_int, Error> {
        let mut count = 0;
        // SAFETY: `count` is writable; the rest is the caller's promise.
        self.done("ncclCommCount", unsafe { function!(self, ncclCommCount)(comm, &mut count) })?;
        Ok(count)
    }

    /// The CUDA device of this rank of a communicator.
    ///
    /// # Errors
    /// As for [`comm_count`](Nccl::comm_count).
    ///
    /// # Safety
    /// The communicator is live.
    pub unsafe fn comm_cu_device(&self, comm: ncclComm_t) -> Result<c_int, Error> {
        let mut device = 0;
        // SAFETY: `device` is writable; the rest is the caller's promise.
        self.done("ncclCommCuDevice", unsafe { function!(self, ncclCommCuDevice)(comm, &mut device) })?;
        Ok(device)
    }

    /// This rank of a communicator.
    ///
    /// # Errors
    /// As for [`comm_count`](Nccl::comm_count).
    ///
    /// # Safety
    /// The communicator is live.
    pub unsafe fn comm_user_rank(&self, comm: ncclComm_t) -> Result<c_int, Error> {
        let mut rank = 0;
        // SAFETY: `rank` is writable; the rest is the caller's promise.
        self.done("ncclCommUserRank", unsafe { function!(self, ncclCommUserRank)(comm, &mut rank) })?;
        Ok(rank)
    }

    /// Begins a group of calls of this thread, which NCCL starts together at [`group_end`](Nccl::group_end).
    ///
    /// # Errors
    /// NCCL's.
    pub fn group_start(&self) -> Result<(), Error> {
        // SAFETY: no requirements: it counts groups of this thread.
        self.done("ncclGroupStart", unsafe { function!(self, ncclGroupStart)() })
    }

    /// Ends a group and starts its calls. Their errors are told here, too.
    ///
    /// # Errors
    /// A call of the group failed.
    ///
    /// # Safety
    /// What the calls of the group were given still is as they need it.
    pub unsafe fn group_end(&self) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        self.status("ncclGroupEnd", unsafe { function!(self, ncclGroupEnd)() })
    }
}
