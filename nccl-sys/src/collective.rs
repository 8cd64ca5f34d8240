//! Collectives, send and receive: each is enqueued on a stream.

use std::ffi::{c_int, c_void};

use crate::bindings::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclRedOp_t};
use crate::error::Error;
use crate::load::{Nccl, Status, function};

impl Nccl {
    /// Combines `count` elements of all ranks; all get the result.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// The communicator is live, and the stream is one of its GPU. Both buffers are memory of that GPU, with `count` elements, and
    /// live until the stream has passed the call; until then nobody else writes what is read, or uses what is written. The buffers are
    /// the same or do not overlap.
    #[expect(clippy::too_many_arguments, reason = "as NCCL's function")]
    pub unsafe fn all_reduce(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: ncclDataType_t,
        operation: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclAllReduce)(send, receive, count, element, operation, comm, stream) };
        self.status("ncclAllReduce", result)
    }

    /// Copies `count` elements of rank `root` to all ranks. `send` is read on `root` only.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// As for [`all_reduce`](Nccl::all_reduce).
    #[expect(clippy::too_many_arguments, reason = "as NCCL's function")]
    pub unsafe fn broadcast(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: ncclDataType_t,
        root: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclBroadcast)(send, receive, count, element, root, comm, stream) };
        self.status("ncclBroadcast", result)
    }

    /// Combines `count` elements of all ranks; rank `root` gets the result. `receive` is written on `root` only.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// As for [`all_reduce`](Nccl::all_reduce).
    #[expect(clippy::too_many_arguments, reason = "as NCCL's function")]
    pub unsafe fn reduce(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: ncclDataType_t,
        operation: ncclRedOp_t,
        root: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclReduce)(send, receive, count, element, operation, root, comm, stream) };
        self.status("ncclReduce", result)
    }

    /// Each rank sends `count` elements; all get those of all ranks, in the order of ranks.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// As for [`all_reduce`](Nccl::all_reduce), but `receive` has `count` elements for each rank; the same are `send` and this rank's place
    /// in `receive`.
    pub unsafe fn all_gather(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: ncclDataType_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclAllGather)(send, receive, count, element, comm, stream) };
        self.status("ncclAllGather", result)
    }

    /// Combines the elements of all ranks; each rank gets its `count` of the result.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// As for [`all_reduce`](Nccl::all_reduce), but `send` has `count` elements for each rank; the same are `receive` and this rank's place
    /// in `send`.
    #[expect(clippy::too_many_arguments, reason = "as NCCL's function")]
    pub unsafe fn reduce_scatter(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        element: ncclDataType_t,
        operation: ncclRedOp_t,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclReduceScatter)(send, receive, count, element, operation, comm, stream) };
        self.status("ncclReduceScatter", result)
    }

    /// Sends `count` elements to rank `peer`, which receives as many.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// As for [`all_reduce`](Nccl::all_reduce), with one buffer.
    pub unsafe fn send(
        &self,
        send: *const c_void,
        count: usize,
        element: ncclDataType_t,
        peer: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclSend)(send, count, element, peer, comm, stream) };
        self.status("ncclSend", result)
    }

    /// Receives `count` elements of rank `peer`, which sends as many.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// As for [`all_reduce`](Nccl::all_reduce), with one buffer.
    pub unsafe fn recv(
        &self,
        receive: *mut c_void,
        count: usize,
        element: ncclDataType_t,
        peer: c_int,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclRecv)(receive, count, element, peer, comm, stream) };
        self.status("ncclRecv", result)
    }
}
