//! Communicators of NCCL: what all plans of a rank share, and the calls that go through them.
//!
//! When a call belongs to which chunk of a launch is `beside.rs`'s.

use std::ffi::c_void;
use std::fmt;
use std::sync::mpsc::{SendError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use maco_graph::spec::{Collective, Element, Reduction};
use maco_ranks::Group;
use nccl_sys::{Nccl, Status, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};

use super::context::Context;

/// Between two looks at a communicator that is not done.
const NAP: Duration = Duration::from_micros(100);

/// The library, loaded once; why it cannot be.
fn library() -> Result<&'static Nccl, String> {
    static LIBRARY: OnceLock<Result<Nccl, String>> = OnceLock::new();
    LIBRARY.get_or_init(|| Nccl::load().map_err(|error| error.to_string())).as_ref().map_err(Clone::clone)
}

/// NCCL's communicators of a rank's [`crate::Communicator`], made when a plan first needs one, and kept for the plans behind it: making one takes part of a second and memory.
#[derive(Default)]
pub(crate) struct NcclCommunicators(Mutex<Vec<Arc<NcclCommunicator>>>);

impl NcclCommunicators {
    /// That of a GPU and of so many CTAs; it may have to be [connected](NcclCommunicator::connect).
    pub(super) fn of(&self, context: &Arc<Context>, group: &Arc<Group>, ctas: u32) -> Arc<NcclCommunicator> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.iter().find(|one| Arc::ptr_eq(&one.context, context) && one.ctas == ctas) {
            return found.clone();
        }
        let made = NcclCommunicator { context: context.clone(), group: group.clone(), ctas, state: Mutex::default() };
        all.push(Arc::new(made));
        all[all.len() - 1].clone()
    }
}

impl fmt::Debug for NcclCommunicators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NcclCommunicators").finish_non_exhaustive()
    }
}

/// One communicator of NCCL, on this rank. Plans use it one after another, in the same order on all ranks.
pub(super) struct NcclCommunicator {
    context: Arc<Context>,
    group: Arc<Group>,
    /// Multiprocessors that its kernels have.
    ctas: u32,
    state: Mutex<Connection>,
}

/// NCCL's communicator.
struct Connection {
    /// Null before the first plan, and once it was aborted.
    raw: ncclComm_t,
    /// Another one for each time that it was connected.
    number: u64,
}

// SAFETY: NCCL's calls may come from any thread, one at a time: it is behind a lock.
unsafe impl Send for Connection {}

impl Default for Connection {
    fn default() -> Connection {
        Connection { raw: std::ptr::null_mut(), number: 0 }
    }
}

/// What ranks exchange of a chunk: where this rank's rows begin, where the result goes, and how many elements of each plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub from: u64,
    pub to: u64,
    pub count: usize,
    /// Bytes from one plane to the next, of what is read and of the result.
    pub planes: [u64; 2],
    pub element: Element,
    pub collective: Collective,
    /// The call's scalars: the root of a broadcast, the ranks that send and receive, how far around the ring.
    pub numbers: [u32; 2],
}

impl NcclCommunicator {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the connection that is there; none before the first plan, and once it was aborted.
    pub(super) fn connection(&self) -> Option<u64> {
        let state = self.lock();
        (!state.raw.is_null()).then_some(state.number)
    }

    /// What a graph keeps that has calls of this communicator.
    pub(super) fn in_graph(self: &Arc<Self>) -> Arc<InGraph> {
        Arc::new(InGraph { nccl: self.clone(), connection: self.connection() })
    }

    /// Connects all ranks anew, unless all are connected; `name` says what for. All ranks call it.
    ///
    /// # Errors
    /// The outer one is the same on all ranks. The inner one is this rank's alone: the caller votes on it.
    pub(super) fn connect(&self, name: &str) -> Result<Result<(), String>, maco_ranks::Error> {
        let connected = [u8::from(self.connection().is_some())];
        if self.group.vote(name, Ok(&connected))?.iter().all(|rank| rank[..] == [1]) {
            return Ok(Ok(()));
        }
        self.abort();
        // Rank 0's identity goes to all, unless one has no library.
        let own = library().and_then(|library| match self.group.rank() {
            0 => library.unique_id().map(|id| id.internal.iter().map(|&byte| byte as u8).collect()).map_err(|error| error.to_string()),
            _ => Ok(Vec::new()),
        });
        let all = self.group.vote(name, own.as_ref().map(Vec::as_slice).map_err(String::as_str))?;
        Ok(library().and_then(|library| self.join(library, &all[0])))
    }

    fn join(&self, library: &'static Nccl, id: &[u8]) -> Result<(), String> {
        let mut unique = ncclUniqueId { internal: [0; _] };
        if id.len() != unique.internal.len() {
            return Err("rank 0 gave no identity".to_owned());
        }
        unique.internal.iter_mut().zip(id).for_each(|(to, &from)| *to = from as _);
        let ctas = self.ctas as i32;
        let (ranks, rank, context) = (self.group.ranks() as i32, self.group.rank() as i32, self.context.clone());
        // It blocks until all ranks have come, and who waits for it has a deadline. A communicator that does not block has a thread for each later call, some 100 µs of the
        // launch's.
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut made = Connection::default();
            let mut config = ncclConfig_t { blocking: 1, cgaClusterSize: 1, minCTAs: ctas, maxCTAs: ctas, ..ncclConfig_t::default() };
            let joined = context.enter().map_err(|error| error.to_string()).and_then(|_entered| {
                // SAFETY: `raw` is null and writable, the configuration whole, and the context is current.
                let status = unsafe { library.comm_init_rank_config(&mut made.raw, ranks, unique, rank, &mut config) };
                status.map_err(|error| error.to_string())
            });
            // Nobody waits any more.
            if let Err(SendError((mut late, _))) = sender.send((made, joined)) {
                abort(&mut late);
            }
        });
        let late = |_| format!("not all ranks were connected within {:.1?}", self.group.deadline());
        let (made, joined) = receiver.recv_timeout(self.group.deadline()).map_err(late)?;
        let mut state = self.lock();
        *state = Connection { raw: made.raw, number: state.number + 1 };
        self.until_done(library, &mut state, joined?)
    }

    /// Waits until a call is done that may return early: NCCL's variables have precedence over its configuration.
    fn until_done(&self, library: &Nccl, state: &mut Connection, mut status: Status) -> Result<(), String> {
        let end = Instant::now() + self.group.deadline();
        while status == Status::InProgress {
            if Instant::now() > end {
                abort(state);
                return Err(format!("a call did not end within {:.1?}", self.group.deadline()));
            }
            std::thread::sleep(NAP);
            // SAFETY: a live communicator.
            status = unsafe { library.comm_async_status(state.raw) }.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// What of NCCL's went wrong meanwhile on this rank's side, such as a connection that broke.
    pub(super) fn fault(&self) -> Option<String> {
        let state = self.lock();
        let library = library().ok().filter(|_| !state.raw.is_null())?;
        // SAFETY: a live communicator.
        unsafe { library.comm_async_status(state.raw) }.err().map(|error| error.to_string())
    }

    /// Queues the exchange of a chunk on `stream`.
    ///
    /// # Errors
    /// What went wrong.
    ///
    /// # Safety
    /// `stream` is a live one of the context, which is entered; the chunk's memory lives until the stream has come past it, and nobody else writes what is read or uses
    /// what is written until then.
    pub(super) unsafe fn exchange(&self, chunk: &Chunk, stream: sys::CUstream) -> Result<(), String> {
        let library = library()?;
        let mut state = self.lock();
        if state.raw.is_null() {
            return Err("its communicator was aborted, and the plan has not recovered".to_owned());
        }
        let calls = Calls { library, comm: state.raw, stream, ranks: self.group.ranks() as i32, rank: self.group.rank() as i32 };
        // SAFETY: passed on from the caller; the communicator is live and locked.
        let queued = unsafe { calls.queue(chunk) }.map_err(|error| error.to_string()).and_then(|status| {
            self.until_done(library, &mut state, status)?;
            // SAFETY: as above.
            unsafe { calls.copy_own(chunk) }
        });
        if queued.is_err() {
            // The others have queued it, and would be one exchange ahead from now on.
            abort(&mut state);
        }
        queued
    }

    /// Ends what is connected, and what of it still runs on this GPU.
    pub(super) fn abort(&self) {
        abort(&mut self.lock());
    }
}

impl Drop for NcclCommunicator {
    fn drop(&mut self) {
        // Ranks end at different times, and `ncclCommDestroy` would wait for the others. Nothing of it is running, and no graph has any of it: plans have it while they live.
        // What is freed behind this would wait for kernels of others, which wait for this rank.
        end(self.state.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Ends a communicator and what of it still runs, without waiting for that: graphs of users may have some of its calls, and NCCL waits until none has.
fn abort(state: &mut Connection) {
    let mut taken = Connection { raw: std::mem::replace(&mut state.raw, std::ptr::null_mut()), number: 0 };
    if !taken.raw.is_null() {
        std::thread::spawn(move || end(&mut taken));
    }
}

/// Ends a communicator and what of it still runs; no other rank is waited for.
fn end(state: &mut Connection) {
    let raw = std::mem::replace(&mut state.raw, std::ptr::null_mut());
    if let (false, Ok(library)) = (raw.is_null(), library()) {
        // SAFETY: a live communicator, which nobody else has: it is gone from where it was.
        let _ = unsafe { library.comm_abort(raw) };
    }
}

/// The connection whose calls are in a graph.
pub(super) struct InGraph {
    nccl: Arc<NcclCommunicator>,
    connection: Option<u64>,
}

impl InGraph {
    /// Whether it is still there: of one that was aborted, calls in graphs do nothing.
    pub(super) fn is_live(&self) -> bool {
        self.connection.is_some() && self.nccl.connection() == self.connection
    }
}

/// What calls of NCCL have in common.
#[derive(Clone, Copy)]
struct Calls<'a> {
    library: &'a Nccl,
    comm: ncclComm_t,
    stream: sys::CUstream,
    ranks: i32,
    rank: i32,
}

impl Calls<'_> {
    /// Queues the calls that exchange a chunk: one, or a group of as many as there are ranks, each of which has a plane.
    ///
    /// # Safety
    /// As for [`NcclCommunicator::exchange`].
    unsafe fn queue(&self, chunk: &Chunk) -> Result<Status, nccl_sys::Error> {
        let Calls { library, comm, ranks, rank, .. } = *self;
        let [first, second] = self.ranks_of(chunk);
        let (stream, count, element) = (self.stream.cast(), chunk.count, element(chunk.element));
        let plane = |base: u64, side: usize, n: i32| base + chunk.planes[side] * n as u64;
        let from = |n: i32| plane(chunk.from, 0, n) as *const c_void;
        let to = |n: i32| plane(chunk.to, 1, n) as *mut c_void;
        // SAFETY: (of all) the caller promises memory and stream; a live communicator.
        unsafe {
            match chunk.collective {
                Collective::AllReduce(reduction) => library.all_reduce(from(0), to(0), count, element, operation(reduction), comm, stream),
                Collective::Broadcast => library.broadcast(from(0), to(0), count, element, first, comm, stream),
                Collective::AllGather => self
                    .grouped(|| (0..ranks).try_for_each(|r| library.broadcast(from(0), to(r), count, element, r, comm, stream).map(drop))),
                Collective::ReduceScatter(reduction) => self.grouped(|| {
                    let operation = operation(reduction);
                    (0..ranks).try_for_each(|r| library.reduce(from(r), to(0), count, element, operation, r, comm, stream).map(drop))
                }),
                Collective::AllToAll => self.grouped(|| {
                    (0..ranks).try_for_each(|r| {
                        library.send(from(r), count, element, r, comm, stream).map(drop)?;
                        library.recv(to(r), count, element, r, comm, stream).map(drop)
                    })
                }),
                Collective::Ring => self.grouped(|| {
                    let by = (chunk.numbers[0] as i32).rem_euclid(ranks);
                    library.send(from(0), count, element, (rank + by) % ranks, comm, stream).map(drop)?;
                    library.recv(to(0), count, element, (rank + ranks - by) % ranks, comm, stream).map(drop)
                }),
                Collective::Send => self.grouped(|| {
                    if rank == first {
                        library.send(from(0), count, element, second, comm, stream).map(drop)?;
                    }
                    if rank == second {
                        library.recv(to(0), count, element, first, comm, stream).map(drop)?;
                    }
                    Ok(())
                }),
                // The planner gives NCCL none.
                Collective::Channel(_) => Ok(Status::Done),
            }
        }
    }

    /// The ranks that a call's scalars name, as its body has them: modulo the number of ranks.
    fn ranks_of(&self, chunk: &Chunk) -> [i32; 2] {
        chunk.numbers.map(|number| (number % self.ranks as u32) as i32)
    }

    /// Of a send, who receives nothing has what it had.
    ///
    /// # Safety
    /// As for [`NcclCommunicator::exchange`].
    unsafe fn copy_own(&self, chunk: &Chunk) -> Result<(), String> {
        if chunk.collective != Collective::Send || self.ranks_of(chunk)[1] == self.rank {
            return Ok(());
        }
        let bytes = chunk.count * chunk.element.bytes() as usize;
        // SAFETY: the caller promises memory and stream.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(chunk.to, chunk.from, bytes, self.stream) };
        if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("cuMemcpyDtoDAsync returned {code:?}")) }
    }

    /// Queues several calls as one; its end tells how far they are.
    fn grouped(&self, calls: impl FnOnce() -> Result<(), nccl_sys::Error>) -> Result<Status, nccl_sys::Error> {
        self.library.group_start()?;
        let queued = calls();
        // SAFETY: what was queued in the group has the caller's promises.
        let ended = unsafe { self.library.group_end() };
        queued.and(ended)
    }
}

fn element(element: Element) -> ncclDataType_t {
    match element {
        Element::Bf16 => nccl_sys::ncclBfloat16,
        Element::F16 => nccl_sys::ncclFloat16,
        Element::F32 => nccl_sys::ncclFloat32,
        Element::I32 => nccl_sys::ncclInt32,
        Element::U32 => nccl_sys::ncclUint32,
        Element::I8 => nccl_sys::ncclInt8,
    }
}

fn operation(reduction: Reduction) -> ncclRedOp_t {
    match reduction {
        // The planner gives NCCL no others.
        Reduction::Sum | Reduction::Other => nccl_sys::ncclSum,
        Reduction::Mean => nccl_sys::ncclAvg,
        Reduction::Max => nccl_sys::ncclMax,
        Reduction::Min => nccl_sys::ncclMin,
    }
}
