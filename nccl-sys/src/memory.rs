//! Memory: NCCL's own, registered buffers, symmetric windows and what peers do in them.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::bindings::{cudaStream_t, ncclComm_t, ncclDataType_t, ncclInvalidArgument, ncclWaitSignalDesc_t, ncclWindow_t};
use crate::error::Error;
use crate::load::{Nccl, Status, function};

impl Nccl {
    /// Memory of the current GPU that every kind of registration takes: of at least `bytes`, in NCCL's granularity.
    ///
    /// # Errors
    /// The memory is used up.
    ///
    /// # Safety
    /// A CUDA context is current.
    pub unsafe fn mem_alloc(&self, bytes: usize) -> Result<*mut c_void, Error> {
        let mut memory = null_mut();
        // SAFETY: `memory` is writable; the rest is the caller's promise.
        self.done("ncclMemAlloc", unsafe { function!(self, ncclMemAlloc)(&mut memory, bytes) })?;
        Ok(memory)
    }

    /// Frees memory of [`mem_alloc`](Nccl::mem_alloc).
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// The memory is of `mem_alloc`, not freed, not registered any more, and nobody uses it.
    pub unsafe fn mem_free(&self, memory: *mut c_void) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        self.done("ncclMemFree", unsafe { function!(self, ncclMemFree)(memory) })
    }

    /// Registers a buffer, so that collectives read and write it without a copy. Gives the handle for
    /// [`comm_deregister`](Nccl::comm_deregister), which may be null if NCCL has no use for it.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// The communicator is live, and the buffer is memory of its GPU that lives until it is deregistered.
    pub unsafe fn comm_register(&self, comm: ncclComm_t, buffer: *mut c_void, bytes: usize) -> Result<*mut c_void, Error> {
        let mut handle = null_mut();
        // SAFETY: `handle` is writable; the rest is the caller's promise.
        self.done("ncclCommRegister", unsafe { function!(self, ncclCommRegister)(comm, buffer, bytes, &mut handle) })?;
        Ok(handle)
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// NCCL's.
    ///
    /// # Safety
    /// The handle is of [`comm_register`](Nccl::comm_register) with this live communicator, and no call that uses the buffer is under way.
    pub unsafe fn comm_deregister(&self, comm: ncclComm_t, handle: *mut c_void) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        self.done("ncclCommDeregister", unsafe { function!(self, ncclCommDeregister)(comm, handle) })
    }

    /// Registers a buffer as a window; all ranks do it in the same order, with buffers of the same size where `flags` has
    /// `NCCL_WIN_COLL_SYMMETRIC`. NCCL 2.27.3 or newer.
    ///
    /// Let `window` hold null before: NCCL leaves it so, and says that it succeeded, where it cannot register windows. Collectives go on
    /// without; pointers and puts do not.
    ///
    /// # Errors
    /// The library is too old, or NCCL's.
    ///
    /// # Safety
    /// As for [`comm_register`](Nccl::comm_register). `window` is valid for a write until the call, its group and, with `blocking` 0,
    /// the communicator are no longer in progress.
    pub unsafe fn comm_window_register(
        &self,
        comm: ncclComm_t,
        buffer: *mut c_void,
        bytes: usize,
        window: *mut ncclWindow_t,
        flags: c_uint,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclCommWindowRegister)(comm, buffer, bytes, window, flags.cast_signed()) };
        self.status("ncclCommWindowRegister", result)
    }

    /// Ends a window. NCCL 2.27.3 or newer.
    ///
    /// # Errors
    /// The library is too old, or NCCL's.
    ///
    /// # Safety
    /// The window is of this live communicator, and nobody uses it or a pointer into it any more.
    pub unsafe fn comm_window_deregister(&self, comm: ncclComm_t, window: ncclWindow_t) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclCommWindowDeregister)(comm, window) };
        self.status("ncclCommWindowDeregister", result)
    }

    /// Address of `offset` in the window of rank `lsa_rank` of those that this GPU reaches by loads and stores. NCCL 2.29.3 or newer.
    ///
    /// # Errors
    /// The library is too old, or NCCL's.
    ///
    /// # Safety
    /// The window is live. The address is of this GPU's code, and valid as long as the window.
    pub unsafe fn lsa_device_pointer(&self, window: ncclWindow_t, offset: usize, lsa_rank: c_int) -> Result<*mut c_void, Error> {
        let mut address = null_mut();
        // SAFETY: `address` is writable; the rest is the caller's promise.
        let result = unsafe { function!(self, ncclGetLsaDevicePointer)(window, offset, lsa_rank, &mut address) };
        self.done("ncclGetLsaDevicePointer", result).map(|()| address)
    }

    /// Address of `offset` in the windows of all ranks that this GPU reaches, for `multimem` instructions; null without multicast.
    /// NCCL 2.29.3 or newer.
    ///
    /// # Errors
    /// The library is too old, or NCCL's.
    ///
    /// # Safety
    /// As for [`lsa_device_pointer`](Nccl::lsa_device_pointer).
    pub unsafe fn lsa_multimem_device_pointer(&self, window: ncclWindow_t, offset: usize) -> Result<*mut c_void, Error> {
        let mut address = null_mut();
        // SAFETY: `address` is writable; the rest is the caller's promise.
        let result = unsafe { function!(self, ncclGetLsaMultimemDevicePointer)(window, offset, &mut address) };
        self.done("ncclGetLsaMultimemDevicePointer", result).map(|()| address)
    }

    /// Address of `offset` in the window of rank `peer`; null if this GPU cannot reach it by loads and stores. NCCL 2.29.3 or newer.
    ///
    /// # Errors
    /// The library is too old, or NCCL's.
    ///
    /// # Safety
    /// As for [`lsa_device_pointer`](Nccl::lsa_device_pointer).
    pub unsafe fn peer_device_pointer(&self, window: ncclWindow_t, offset: usize, peer: c_int) -> Result<*mut c_void, Error> {
        let mut address = null_mut();
        // SAFETY: `address` is writable; the rest is the caller's promise.
        let result = unsafe { function!(self, ncclGetPeerDevicePointer)(window, offset, peer, &mut address) };
        self.done("ncclGetPeerDevicePointer", result).map(|()| address)
    }

    /// Writes `count` elements to `offset` in `window` on rank `peer`, then signals there. NCCL 2.29.3 or newer.
    ///
    /// # Errors
    /// The library is too old, or NCCL's.
    ///
    /// # Safety
    /// The communicator and the window are live, and the stream is one of its GPU. `local` lies in a window of this rank and has `count`
    /// elements, as has the place in the peer's window; nobody else uses either until `peer` has waited for the signal.
    #[expect(clippy::too_many_arguments, reason = "as NCCL's function")]
    pub unsafe fn put_signal(
        &self,
        local: *const c_void,
        count: usize,
        element: ncclDataType_t,
        peer: c_int,
        window: ncclWindow_t,
        offset: usize,
        signal: c_int,
        context: c_int,
        flags: c_uint,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        let function = function!(self, ncclPutSignal);
        // SAFETY: the caller's promise.
        let result = unsafe { function(local, count, element, peer, window, offset, signal, context, flags, comm, stream) };
        self.status("ncclPutSignal", result)
    }

    /// Signals on rank `peer`. NCCL 2.29.3 or newer.
    ///
    /// # Errors
    /// The library is too old, or NCCL's.
    ///
    /// # Safety
    /// The communicator is live, and the stream is one of its GPU.
    pub unsafe fn signal(
        &self,
        peer: c_int,
        signal: c_int,
        context: c_int,
        flags: c_uint,
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        // SAFETY: the caller's promise.
        let result = unsafe { function!(self, ncclSignal)(peer, signal, context, flags, comm, stream) };
        self.status("ncclSignal", result)
    }

    /// The stream waits for these signals. NCCL 2.29.3 or newer.
    ///
    /// # Errors
    /// The library is too old, or NCCL's.
    ///
    /// # Safety
    /// As for [`signal`](Nccl::signal).
    pub unsafe fn wait_signal(
        &self,
        signals: &mut [ncclWaitSignalDesc_t],
        comm: ncclComm_t,
        stream: cudaStream_t,
    ) -> Result<Status, Error> {
        let function = function!(self, ncclWaitSignal);
        let Ok(count) = c_int::try_from(signals.len()) else {
            return Err(self.failed("ncclWaitSignal", ncclInvalidArgument));
        };
        // SAFETY: there are `count` signals; the rest is the caller's promise.
        self.status("ncclWaitSignal", unsafe { function(count, signals.as_mut_ptr(), comm, stream) })
    }
}
