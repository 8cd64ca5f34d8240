//! NCCL for ranks that are threads of one process, as a library `libnccl.so.2`: its host API, with sums in the order of ranks.
//!
//! A call queues three things on the stream it is given, all by functions of the driver: a copy of what the rank sends to pinned memory, a function of the
//! host that waits for the other ranks' and computes what all of them get, and a copy of that. So it works in a captured stream as well, and whatever
//! orders these copies on the GPU orders NCCL's kernels. [`calls`] queues, [`world`] is where ranks meet, [`numbers`] computes, [`faults`] is what it is
//! told to do wrong.
#![allow(non_snake_case)]

mod calls;
mod driver;
mod faults;
mod numbers;
mod world;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use calls::{Buffers, Call, Kind};
use world::{Comm, World};

/// `ncclResult_t`.
pub type Status = u32;

pub const SUCCESS: Status = 0;
pub const CUDA_ERROR: Status = 1;
pub const INTERNAL_ERROR: Status = 3;
pub const INVALID_ARGUMENT: Status = 4;
pub const INVALID_USAGE: Status = 5;
pub const REMOTE_ERROR: Status = 6;
pub const IN_PROGRESS: Status = 7;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id([u8; 128]);

impl Id {
    fn new() -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut id = [0; 128];
        id[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        Id(id)
    }
}

/// The communicator of a handle.
///
/// # Safety
/// The handle is of a communicator that lives.
unsafe fn of(comm: *mut c_void) -> Arc<Comm> {
    let raw = comm as *const Comm;
    // SAFETY: promised by the caller; handles are what `Arc::into_raw` gave.
    unsafe {
        Arc::increment_strong_count(raw);
        Arc::from_raw(raw)
    }
}

/// `ncclConfig_t`, as far as it is looked at: `size`, `magic`, `version`, `blocking`.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

/// # Safety
/// As NCCL's functions all: pointers are valid for what the function reads and writes, and communicators live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut c_int) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *version = faults::version() };
    SUCCESS
}

/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut Id) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *id = Id::new() };
    SUCCESS
}

/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut *mut c_void,
    ranks: c_int,
    id: Id,
    rank: c_int,
    config: *const Config,
) -> Status {
    let (Ok(ranks), Ok(rank)) = (usize::try_from(ranks), usize::try_from(rank)) else { return INVALID_ARGUMENT };
    // SAFETY: promised by the caller: null, or a configuration.
    let config = unsafe { config.as_ref() };
    if rank >= ranks || config.is_some_and(|config| config.magic != 0xcafe_beef) {
        return INVALID_ARGUMENT;
    }
    let Some(device) = driver::device() else { return CUDA_ERROR };
    let Some(world) = World::join(id.0, ranks, rank) else { return INVALID_USAGE };
    let new = Arc::new(Comm::new(world, rank, device));
    // SAFETY: promised by the caller.
    unsafe { *comm = Arc::into_raw(new.clone()) as *mut c_void };
    if config.is_some_and(|config| config.blocking == 0) {
        return new.state();
    }
    new.until_complete()
}

/// # Safety
/// As [`ncclGetVersion`]: so many handles and numbers of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitAll(comms: *mut *mut c_void, count: c_int, devices: *const c_int) -> Status {
    let id = Id::new();
    for rank in 0..count.max(0) as usize {
        let Some(world) = World::join(id.0, count as usize, rank) else { return INVALID_USAGE };
        // SAFETY: promised by the caller.
        unsafe {
            let device = if devices.is_null() { rank as c_int } else { *devices.add(rank) };
            *comms.add(rank) = Arc::into_raw(Arc::new(Comm::new(world, rank, device))) as *mut c_void;
        }
    }
    SUCCESS
}

/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(comm: *mut c_void, state: *mut Status) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *state = of(comm).state() };
    SUCCESS
}

/// # Safety
/// As [`ncclGetVersion`]; nobody uses the handle any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommAbort(comm: *mut c_void) -> Status {
    // SAFETY: promised by the caller; work that is still queued has a reference of its own.
    unsafe { Arc::from_raw(comm as *const Comm) }.abort();
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(_comm: *mut c_void) -> Status {
    SUCCESS
}

/// It waits for what this rank has queued, and so for the other ranks' part in it.
///
/// # Safety
/// As [`ncclCommAbort`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    unsafe { Arc::from_raw(comm as *const Comm) }.until_idle()
}

macro_rules! told {
    ($($name:ident $of:expr;)*) => {
        $(
            /// # Safety
            /// As [`ncclGetVersion`].
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name(comm: *mut c_void, to: *mut c_int) -> Status {
                let value: fn(&Comm) -> c_int = $of;
                // SAFETY: promised by the caller.
                unsafe { *to = value(&of(comm)) };
                SUCCESS
            }
        )*
    };
}

told! {
    ncclCommCount |comm| comm.world.ranks as c_int;
    ncclCommCuDevice |comm| comm.device;
    ncclCommUserRank |comm| comm.rank as c_int;
}

/// Calls of a group need not be started together: none of them waits on the host.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> Status {
    SUCCESS
}

/// Collectives: how many times `count` elements a rank of so many sends and receives.
macro_rules! collectives {
    ($($name:ident($($operation:ident)? $(; $root:ident)?) $kind:expr, |$ranks:ident| $send:expr, $receive:expr;)*) => {
        $(
            /// # Safety
            /// As [`ncclGetVersion`]: buffers live until the stream has passed the call.
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name(
                send: u64,
                receive: u64,
                count: usize,
                element: u32,
                $($operation: u32,)?
                $($root: c_int,)?
                comm: *mut c_void,
                stream: *mut c_void,
            ) -> Status {
                // SAFETY: promised by the caller.
                let comm = unsafe { of(comm) };
                let $ranks = comm.world.ranks;
                let call = Call { kind: $kind, count, element, operation: 0 $(+ $operation)? };
                let buffers = Buffers { send, sent: $send, receive, received: $receive };
                // SAFETY: as above.
                unsafe { calls::queue(comm, call, buffers, stream) }
            }
        )*
    };
}
collectives! {
    ncclAllReduce(operation) Kind::AllReduce, |_ranks| 1, 1;
    ncclReduceScatter(operation) Kind::ReduceScatter, |ranks| ranks, 1;
    ncclAllGather() Kind::AllGather, |ranks| 1, ranks;
    ncclBroadcast(; root) Kind::Broadcast(root as usize), |_ranks| 1, 1;
    ncclReduce(operation; root) Kind::Reduce(root as usize), |_ranks| 1, 1;
}

/// A send does not wait for who receives it.
///
/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(send: u64, count: usize, element: u32, peer: c_int, comm: *mut c_void, stream: *mut c_void) -> Status {
    let call = Call { kind: Kind::Send(peer as usize), count, element, operation: 0 };
    // SAFETY: passed on.
    unsafe { calls::queue(of(comm), call, Buffers { send, sent: 1, receive: 0, received: 0 }, stream) }
}

/// # Safety
/// As [`ncclAllReduce`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(receive: u64, count: usize, element: u32, peer: c_int, comm: *mut c_void, stream: *mut c_void) -> Status {
    let call = Call { kind: Kind::Receive(peer as usize), count, element, operation: 0 };
    // SAFETY: passed on.
    unsafe { calls::queue(of(comm), call, Buffers { send: 0, sent: 0, receive, received: 1 }, stream) }
}

/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclMemAlloc(to: *mut u64, bytes: usize) -> Status {
    // SAFETY: promised by the caller.
    unsafe { driver::allocate(to, bytes) }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(memory: u64) -> Status {
    driver::free(memory)
}

/// # Safety
/// As [`ncclGetVersion`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommRegister(_comm: *mut c_void, buffer: *mut c_void, _bytes: usize, handle: *mut *mut c_void) -> Status {
    // SAFETY: promised by the caller.
    unsafe { *handle = buffer };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(_comm: *mut c_void, _handle: *mut c_void) -> Status {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(result: Status) -> *const c_char {
    let text: &CStr = match result {
        SUCCESS => c"no error",
        CUDA_ERROR => c"unhandled cuda error",
        INTERNAL_ERROR => c"internal error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_comm: *mut c_void) -> *const c_char {
    c"".as_ptr()
}
