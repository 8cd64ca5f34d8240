//! NCCL beside a running megakernel: a stream of its own waits for gates that tasks open, has NCCL exchange the chunk, and opens those that other tasks wait at.
//!
//! NCCL's kernels need multiprocessors that no worker has, and no clusters, for which scattered ones might not do. Where chunks lie is in the plan (`lower/messages.rs`), what
//! tasks do at gates in the device crate (`operations/collective.rs`).

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUstreamWaitValue_flags};
use maco_abi::{Gates, View};
use maco_graph::spec::{Element, Reduction};
use maco_ranks::Group;
use nccl_sys::{Nccl, Status, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclUniqueId};

use super::context::Context;
use super::driver;
use super::events::EventHandle;
use super::memory::DeviceMemory;
use crate::error::Error;
use crate::lower::{NcclCall, Tables};

/// The library, loaded once; why it cannot be.
fn library() -> Result<&'static Nccl, String> {
    static LIBRARY: OnceLock<Result<Nccl, String>> = OnceLock::new();
    LIBRARY.get_or_init(|| Nccl::load().map_err(|error| error.to_string())).as_ref().map_err(Clone::clone)
}

/// How long looks at a communicator that is not done follow one another.
const SPIN: Duration = Duration::from_millis(2);
/// Between two looks behind that.
const NAP: Duration = Duration::from_micros(200);
/// How long work that no task will come to may go on once its gates are open.
const GRACE: Duration = Duration::from_secs(2);

/// NCCL for the calls of one plan, on this rank.
pub(crate) struct Beside {
    context: Arc<Context>,
    group: Arc<Group>,
    megakernel: Box<str>,
    /// Multiprocessors that it has for itself.
    ctas: u32,
    comm: Mutex<Comm>,
    stream: sys::CUstream,
    gates: DeviceMemory,
    calls: Vec<NcclCall>,
    /// When all gates were opened, since a launch was aborted.
    opened: Mutex<Option<Instant>>,
}

// SAFETY: streams may be used from any thread, and the communicator is behind a lock.
unsafe impl Send for Beside {}
// SAFETY: as above.
unsafe impl Sync for Beside {}

/// NCCL's communicator; null once it was aborted.
struct Comm(ncclComm_t);

// SAFETY: NCCL's calls may come from any thread, one at a time.
unsafe impl Send for Comm {}

/// A part of a launch that NCCL exchanges: where this rank's rows begin, where the result goes, and how many elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    from: u64,
    to: u64,
    count: usize,
    element: ncclDataType_t,
    operation: ncclRedOp_t,
}

impl Beside {
    /// For the calls of megakernel `name`. All ranks call it, and get the same error, if one has any. It returns when chunks of all sizes have been
    /// exchanged once, and one through a gate: what a first call of NCCL's sets up cannot wait for a kernel that waits for it.
    pub(crate) fn new(context: &Arc<Context>, group: &Arc<Group>, name: &str, calls: &[NcclCall], ctas: u32) -> Result<Beside, Error> {
        let made = Beside::make(context, group, name, calls, ctas);
        let text = made.as_ref().err().map(Error::to_string);
        group.vote(&format!("NCCL beside megakernel {name}"), text.as_deref().map_or(Ok(&[]), Err))?;
        let beside = made?;
        beside.connect()?;
        Ok(beside)
    }

    /// What a rank makes by itself: gates and a stream, and no communicator yet.
    fn make(context: &Arc<Context>, group: &Arc<Group>, name: &str, calls: &[NcclCall], ctas: u32) -> Result<Beside, Error> {
        driver::find_stream_words()?;
        let count: u32 = calls.iter().map(|call| call.chunks).sum();
        let gates = DeviceMemory::zeroed(context, u64::from(count) * Gates::BYTES, &format!("the gates of megakernel `{name}`"))?;
        let _entered = context.enter()?;
        let (mut least, mut greatest, mut stream) = (0, 0, std::ptr::null_mut());
        // SAFETY: the context is current, and all that is written to writable.
        unsafe {
            context.check("cuCtxGetStreamPriorityRange", sys::cuCtxGetStreamPriorityRange(&mut least, &mut greatest))?;
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            context.check("cuStreamCreateWithPriority", sys::cuStreamCreateWithPriority(&mut stream, flags, greatest))?;
        }
        Ok(Beside {
            context: context.clone(),
            group: group.clone(),
            megakernel: name.into(),
            ctas,
            comm: Mutex::new(Comm(std::ptr::null_mut())),
            stream,
            gates,
            calls: calls.to_vec(),
            opened: Mutex::new(None),
        })
    }

    /// Address of the gates.
    pub(crate) fn gates(&self) -> u64 {
        self.gates.address()
    }

    fn comm(&self) -> MutexGuard<'_, Comm> {
        self.comm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of one rank, in a sentence.
    fn failed(&self, what: &str) -> Error {
        Error::Collectives {
            megakernel: self.megakernel.clone(),
            what: format!("NCCL cannot exchange chunks beside it: {what}").into(),
            ranks: self.group.ranks(),
            help: "leave `.via(Nccl)` out, and the kernel exchanges them itself",
        }
    }

    /// A new communicator, warm. All ranks call it.
    fn connect(&self) -> Result<(), Error> {
        let name = format!("NCCL beside megakernel {}", self.megakernel);
        // Rank 0's identity goes to all, unless one has no library.
        let own = library().and_then(|library| match self.group.rank() {
            0 => library.unique_id().map(|id| id.internal.iter().map(|&byte| byte as u8).collect()).map_err(|error| error.to_string()),
            _ => Ok(Vec::new()),
        });
        let all = self.group.vote(&name, own.as_ref().map(Vec::as_slice).map_err(String::as_str))?;
        let connected = library().and_then(|library| self.join(library, &all[0]).and_then(|()| self.warm_up(library)));
        // Who has no communicator, of whatever rank, leaves none behind.
        let voted = self.group.vote(&name, connected.as_ref().map(|()| &[][..]).map_err(String::as_str));
        if voted.is_err() {
            self.abort();
        }
        voted?;
        connected.map_err(|what| self.failed(&what))
    }

    fn join(&self, library: &Nccl, id: &[u8]) -> Result<(), String> {
        let mut unique = ncclUniqueId { internal: [0; _] };
        if id.len() != unique.internal.len() {
            return Err("rank 0 gave no identity".to_owned());
        }
        unique.internal.iter_mut().zip(id).for_each(|(to, &from)| *to = from as _);
        let ctas = self.ctas as i32;
        let mut config = ncclConfig_t { blocking: 0, cgaClusterSize: 1, minCTAs: ctas, maxCTAs: ctas, ..ncclConfig_t::default() };
        let _entered = self.context.enter().map_err(|error| error.to_string())?;
        let mut comm = self.comm();
        let (ranks, rank) = (self.group.ranks() as i32, self.group.rank() as i32);
        // SAFETY: `comm` holds null, and outlives what is under way, as `config` does: this waits for it. The context is current.
        let status = unsafe { library.comm_init_rank_config(&mut comm.0, ranks, unique, rank, &mut config) };
        self.until_done(library, &mut comm, status)
    }

    /// Waits until a call that may return early is done.
    fn until_done(&self, library: &Nccl, comm: &mut Comm, status: Result<Status, nccl_sys::Error>) -> Result<(), String> {
        let begun = Instant::now();
        let end = begun + self.group.deadline();
        let mut status = status.map_err(|error| error.to_string())?;
        while status == Status::InProgress {
            if Instant::now() > end {
                abort(comm);
                return Err(format!("a call did not end within {:.1?}", self.group.deadline()));
            }
            // A call takes tens of microseconds, and there is one for each chunk of each launch.
            if begun.elapsed() < SPIN {
                std::thread::yield_now()
            } else {
                std::thread::sleep(NAP)
            }
            // SAFETY: a live communicator.
            status = unsafe { library.comm_async_status(comm.0) }.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Exchanges a chunk of each size in memory of its own, then the first one once more, through a gate: before a communicator has been used, its calls set up what waits for
    /// all that the GPU does.
    fn warm_up(&self, library: &Nccl) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let _entered = self.context.enter().map_err(text)?;
        let bytes = self.calls.iter().map(|call| u64::from(call.rows) * call.row_bytes).max().unwrap_or(0);
        let memory = DeviceMemory::zeroed(&self.context, 2 * bytes, "what NCCL is warmed up with").map_err(text)?;
        let chunk = |call: &NcclCall| {
            let count = (u64::from(call.rows) * call.row_bytes / u64::from(call.element.bytes())) as usize;
            Chunk { from: memory.address(), to: memory.address() + bytes, count, ..call.kind() }
        };
        for call in &self.calls {
            // SAFETY: memory of two chunks, which stays until the stream has ended.
            unsafe { self.exchange(library, &chunk(call)).map_err(text)? };
        }
        self.drain("a first exchange")?;
        if let Some(call) = self.calls.first() {
            let gate = Gates::new(self.gates.address(), 1);
            // SAFETY: as above; streams of the context, and a live gate.
            unsafe {
                self.wait(gate.ready(0)).map_err(text)?;
                self.exchange(library, &chunk(call)).map_err(text)?;
                self.write(self.stream, gate.ready(0), 0).map_err(text)?;
                self.write(self.context.probe(), gate.ready(0), 1).map_err(text)?;
            }
        }
        self.drain("an exchange through a gate")
    }

    /// Waits until the stream has ended; the context is entered.
    fn drain(&self, what: &str) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let end = EventHandle::new(&self.context).map_err(text)?;
        // SAFETY: a live stream of the context.
        unsafe { end.record(&self.context, self.stream).map_err(text)? };
        let late = Instant::now() + self.group.deadline();
        while !end.done(&self.context).map_err(text)? {
            if Instant::now() > late {
                self.abort();
                return Err(format!("{what} did not end within {:.1?}", self.group.deadline()));
            }
            std::thread::sleep(NAP);
        }
        Ok(())
    }

    /// What a launch with these tables has NCCL exchange.
    ///
    /// # Errors
    /// MACO0098 for a tensor whose rows have gaps.
    pub(super) fn chunks(&self, tables: &Tables) -> Result<Vec<Chunk>, Error> {
        let mut chunks = Vec::new();
        for call in &self.calls {
            let [from, to]: [View; 2] = call.views.map(|view| tables.views[view].as_view());
            let row = u64::from(from.row_stride) * u64::from(call.element.bytes());
            if row != call.row_bytes || to.row_stride != from.row_stride {
                return Err(self.failed("rows of a tensor that it reads or writes do not follow one another"));
            }
            for n in 0..call.chunks {
                let first = n * call.rows;
                let rows = call.rows.min(from.rows - first);
                let at = |base: u64| base + u64::from(first) * row;
                chunks.push(Chunk { from: at(from.base), to: at(to.base), count: rows as usize * from.row_stride as usize, ..call.kind() });
            }
        }
        Ok(chunks)
    }

    /// Queues `launch` on `stream`, and on this value's own stream what belongs beside it. What comes behind it on `stream` comes behind both.
    ///
    /// # Safety
    /// `stream` is a live stream of the context, which is entered; `chunks` are those of the launch, and their memory lives as long as that.
    pub(super) unsafe fn around(
        &self,
        stream: sys::CUstream,
        chunks: &[Chunk],
        launch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = &self.context;
        let library = library().map_err(|what| self.failed(&what))?;
        let (begin, end) = (EventHandle::new(context)?, EventHandle::new(context)?);
        let gates = Gates::new(self.gates.address(), chunks.len() as u32);
        // SAFETY: (of all) live streams of the context and live gates; the caller promises the rest.
        unsafe {
            begin.record(context, stream)?;
            begin.hold(context, self.stream)?;
            launch()?;
            for (n, chunk) in (0..).zip(chunks) {
                self.wait(gates.ready(n))?;
                self.exchange(library, chunk)?;
                self.write(self.stream, gates.ready(n), 0)?;
                self.write(self.stream, gates.done(n), 1)?;
            }
            end.record(context, self.stream)?;
            end.hold(context, stream)?;
            // All tasks have seen it.
            (0..gates.count).try_for_each(|n| self.write(stream, gates.done(n), 0))
        }
    }

    /// The stream goes on when a task has stored 1.
    unsafe fn wait(&self, word: u64) -> Result<(), Error> {
        let equal = CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_EQ as u32;
        // SAFETY: a live stream, and a word of the gates.
        self.context.check("cuStreamWaitValue32", unsafe { sys::cuStreamWaitValue32_v2(self.stream, word, 1, equal) })
    }

    unsafe fn write(&self, stream: sys::CUstream, word: u64, value: u32) -> Result<(), Error> {
        // SAFETY: the callers have a live stream, and a word of the gates.
        self.context.check("cuStreamWriteValue32", unsafe { sys::cuStreamWriteValue32_v2(stream, word, value, 0) })
    }

    /// Queues an exchange.
    ///
    /// # Safety
    /// The context is entered; the chunk's memory lives until the stream has come past it.
    unsafe fn exchange(&self, library: &Nccl, chunk: &Chunk) -> Result<(), Error> {
        let mut comm = self.comm();
        if comm.0.is_null() {
            return Err(self.failed("its communicator was aborted, and the plan has not recovered"));
        }
        let Chunk { from, to, count, element, operation } = *chunk;
        let (from, to) = (from as *const c_void, to as *mut c_void);
        // SAFETY: a live communicator and stream; the caller promises the memory.
        let status = unsafe { library.all_reduce(from, to, count, element, operation, comm.0, self.stream.cast()) };
        self.until_done(library, &mut comm, status).map_err(|what| self.failed(&what))
    }

    /// A launch was aborted, and nobody will come to the gates that are closed: opens them all, so that the streams of all ranks come to their ends. If NCCL's work does not, since
    /// a rank is lost, it is aborted. Called again and again while somebody waits.
    pub(super) fn release(&self) -> Result<(), Error> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match *opened {
            None => {
                let count: u32 = self.calls.iter().map(|call| call.chunks).sum();
                let gates = Gates::new(self.gates.address(), count);
                // SAFETY: a live stream of the context, and live gates.
                (0..count).try_for_each(|n| unsafe { self.write(self.context.probe(), gates.ready(n), 1) })?;
                *opened = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => self.abort(),
            Some(_) => {}
        }
        Ok(())
    }

    /// Ends the communicator, and what of it still runs on this GPU.
    fn abort(&self) {
        abort(&mut self.comm());
    }

    /// Makes gates and communicator as new, if a launch was aborted on any rank. All ranks call it, and no launch is running.
    pub(crate) fn again(&self) -> Result<(), Error> {
        let own = [u8::from(self.comm().0.is_null())];
        let all = self.group.vote(&format!("recover NCCL beside megakernel {}", self.megakernel), Ok(&own))?;
        self.gates.clear()?;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if all.iter().any(|rank| rank[..] == [1]) {
            self.abort();
            self.connect()?;
        }
        Ok(())
    }
}

/// Ends a communicator and what of it still runs; no other rank is waited for.
fn abort(comm: &mut Comm) {
    let raw = std::mem::replace(&mut comm.0, std::ptr::null_mut());
    if let (false, Ok(library)) = (raw.is_null(), library()) {
        // SAFETY: a live communicator, which nobody else has: it is behind a lock, and gone from there.
        let _ = unsafe { library.comm_abort(raw) };
    }
}

impl NcclCall {
    /// A chunk of it that is nowhere.
    fn kind(&self) -> Chunk {
        let element = match self.element {
            Element::Bf16 => nccl_sys::ncclBfloat16,
            Element::F16 => nccl_sys::ncclFloat16,
            Element::F32 => nccl_sys::ncclFloat32,
            Element::I32 => nccl_sys::ncclInt32,
            Element::U32 => nccl_sys::ncclUint32,
            Element::I8 => nccl_sys::ncclInt8,
        };
        let operation = match self.reduction {
            // The planner gives NCCL no others.
            Reduction::Sum | Reduction::Other => nccl_sys::ncclSum,
            Reduction::Mean => nccl_sys::ncclAvg,
            Reduction::Max => nccl_sys::ncclMax,
            Reduction::Min => nccl_sys::ncclMin,
        };
        Chunk { from: 0, to: 0, count: 0, element, operation }
    }
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beside").field("megakernel", &self.megakernel).field("ctas", &self.ctas).finish_non_exhaustive()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let Ok(_entered) = self.context.enter() else { return };
        // Nothing of it is running: the plan's launches have ended. Ranks end at different times, and `ncclCommDestroy` would wait for the others. Ranks that are threads of one
        // process drop their plans before any of them has NCCL wait for another one: what is freed waits for kernels of all GPUs with peer access.
        self.abort();
        // SAFETY: made by `new`, and destroyed once.
        let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}
